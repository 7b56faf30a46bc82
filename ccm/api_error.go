package ccm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	cloudapi "k8s.io/cloud-provider/api"
)

// stableError returns the text of err without hcloud-go's correlation ID. The text becomes part of an
// event, and Kubernetes merges only events with equal texts.
func stableError(err error) string {
	if all := eachError(err); len(all) > 1 {
		return partErrors(all).Error()
	}
	if part, ok := errors.AsType[stableTexter](err); ok {
		return part.stableText()
	}
	var apiErr hcloud.Error
	if !errors.As(err, &apiErr) {
		return err.Error()
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s (%s)", apiErr.Message, apiErr.Code)
	if details, ok := apiErr.Details.(hcloud.ErrorDetailsInvalidInput); ok {
		for _, f := range details.Fields {
			fmt.Fprintf(&text, "; %s: %v", f.Name, f.Messages)
		}
	}
	return text.String()
}

// stableTexter is an error that knows its stable text, because it says more than the API's error in it.
type stableTexter interface {
	error
	stableText() string
}

// retryAfter returns the fixed delay before a failed sync is repeated, or false for exponential
// backoff. A fixed delay suits errors that disappear by themselves soon: another action is running, or a
// certificate is being issued. Of several errors, the one that ends first decides.
func retryAfter(err error) (shortest time.Duration, fixed bool) {
	for _, e := range eachError(err) {
		d := busyRetry
		var retry *cloudapi.RetryError
		var doubt *doubtError
		var pending *actionPendingError
		switch {
		case errors.As(e, &pending):
			d = pending.retryAfter()
		case errors.As(e, &doubt):
			d = doubtRetry
		case errors.As(e, &retry):
			d = retry.RetryAfter()
		case !isBusy(e):
			continue
		}
		if !fixed || d < shortest {
			shortest, fixed = d, true
		}
	}
	return shortest, fixed
}

// doubtRetry is the delay before a sync is repeated that an implausible answer has stopped.
const doubtRetry = 30 * time.Second

// busyRetry is the delay before a sync is repeated that met a running action.
const busyRetry = 5 * time.Second

// statusOf returns the HTTP status of an API error, or 0 if there was no answer.
func statusOf(err error) int {
	var apiErr hcloud.Error
	if errors.As(err, &apiErr) && apiErr.Response() != nil && apiErr.Response().Response != nil {
		return apiErr.Response().StatusCode
	}
	if errors.Is(err, hcloud.ErrStatusCode) {
		// hcloud-go reports an answer without an error code only as text: "… status code 503".
		_, after, _ := strings.Cut(err.Error(), hcloud.ErrStatusCode.Error())
		var status int
		if _, scanErr := fmt.Sscanf(after, "%d", &status); scanErr == nil {
			return status
		}
	}
	return 0
}

// toRetryError wraps err if the service controller should retry after a fixed delay (see retryAfter). Under
// a rate limit the delay grows instead: all clients of the project share the limit.
func toRetryError(err error) error {
	if err == nil {
		return nil
	}
	if d, ok := retryAfter(err); ok {
		return cloudapi.NewRetryError(stableError(err), d)
	}
	if slices.ContainsFunc(eachError(err), isRateLimit) {
		return &stableTextError{err}
	}
	return err
}

// stableTextError shows the stableError of an error.
type stableTextError struct{ err error }

func (e *stableTextError) Error() string { return stableError(e.err) }
func (e *stableTextError) Unwrap() error { return e.err }
