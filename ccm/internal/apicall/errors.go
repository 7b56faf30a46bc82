package apicall

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	cloudapi "k8s.io/cloud-provider/api"
)

// StableText returns the text of err without hcloud-go's correlation ID. The text becomes part of an
// event, and Kubernetes merges only events with equal texts.
func StableText(err error) string {
	if all := EachError(err); len(all) > 1 {
		return Errors(all).Error()
	}
	if part, ok := errors.AsType[stableTexter](err); ok {
		return part.StableText()
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
	StableText() string
}

// retryAfter returns the fixed delay before a failed sync is repeated, or false for exponential
// backoff. A fixed delay suits errors that disappear by themselves soon: another action is running, or a
// certificate is being issued. Of several errors, the one that ends first decides.
func retryAfter(err error) (shortest time.Duration, fixed bool) {
	for _, e := range EachError(err) {
		d := busyRetry
		if pending, is := errors.AsType[*PendingError](e); is {
			d = pending.retryAfter()
		} else if _, is := errors.AsType[*DoubtError](e); is {
			d = doubtRetry
		} else if retry, is := errors.AsType[*cloudapi.RetryError](e); is {
			d = retry.RetryAfter()
		} else if !IsBusy(e) {
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

// StatusOf returns the HTTP status of an API error, or 0 without an answer.
func StatusOf(err error) (status int) {
	var apiErr hcloud.Error
	if errors.As(err, &apiErr) && apiErr.Response() != nil {
		return apiErr.Response().StatusCode
	}
	if errors.Is(err, hcloud.ErrStatusCode) {
		// hcloud-go reports an answer without an error code only as text: "… status code 503".
		_, after, _ := strings.Cut(err.Error(), hcloud.ErrStatusCode.Error())
		_, _ = fmt.Sscanf(after, "%d", &status) // it stays 0 without a number
	}
	return status
}

// ToRetryError wraps err if the service controller should retry after a fixed delay (see retryAfter). Under
// a rate limit the delay grows instead: all clients of the project share the limit.
func ToRetryError(err error) error {
	if err == nil {
		return nil
	}
	if d, ok := retryAfter(err); ok {
		return cloudapi.NewRetryError(StableText(err), d)
	}
	if slices.ContainsFunc(EachError(err), IsRateLimit) {
		return &stableTextError{err}
	}
	return err
}

// stableTextError shows the StableText of an error.
type stableTextError struct{ err error }

func (e *stableTextError) Error() string { return StableText(e.err) }

func (e *stableTextError) Unwrap() error { return e.err }

// DoubtError reports an answer of the API that the provider does not believe.
type DoubtError struct{ Reason, Text string }

func (e *DoubtError) Error() string { return e.Text }

// Errors holds the errors of a load balancer's parts, the first one first.
type Errors []error

// Error shows the first errors. Many targets may fail for the same reason.
func (e Errors) Error() string {
	const most = 3
	var texts []string
	for _, err := range e[:min(len(e), most)] {
		texts = append(texts, err.Error())
	}
	if len(e) > most {
		texts = append(texts, fmt.Sprintf("and %d more errors", len(e)-most))
	}
	return strings.Join(texts, "; ")
}

func (e Errors) Unwrap() []error { return e }

// JoinErrors returns nil, the only error, or all errors joined.
func JoinErrors(errs []error) error {
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return Errors(errs)
}

// EachError returns the errors that were joined, or err alone.
func EachError(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, EachError(e)...)
	}
	return all
}

// IsBusy reports whether the cloud is working on the resource: an action runs, or has locked it.
func IsBusy(err error) bool {
	var pending *PendingError
	return errors.As(err, &pending) || hcloud.IsError(err, hcloud.ErrorCodeLocked, hcloud.ErrorCodeConflict)
}

// IsRateLimit reports whether the API refused the request because of the rate limit.
func IsRateLimit(err error) bool {
	return hcloud.IsError(err, hcloud.ErrorCodeRateLimitExceeded) || StatusOf(err) == http.StatusTooManyRequests
}
