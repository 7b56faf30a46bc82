package ccm

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	cloudapi "k8s.io/cloud-provider/api"
)

// stableError returns the text of err without hcloud-go's correlation ID. The text becomes part of an
// event, and Kubernetes merges only events with equal texts.
func stableError(err error) string {
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

// retryAfter returns the fixed delay before a failed sync is repeated, or false for exponential
// backoff. A fixed delay suits errors that disappear by themselves soon: another action is running,
// or the rate limit is exhausted and refills one call per second.
func retryAfter(err error) (time.Duration, bool) {
	var stillRunning *actionPendingError
	switch {
	case errors.As(err, &stillRunning):
		return 5 * time.Second, true
	case hcloud.IsError(err, hcloud.ErrorCodeLocked, hcloud.ErrorCodeConflict):
		return 5 * time.Second, true
	case hcloud.IsError(err, hcloud.ErrorCodeRateLimitExceeded) || statusOf(err) == http.StatusTooManyRequests:
		return 30 * time.Second, true
	}
	return 0, false
}

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

// toRetryError wraps err if the service controller should retry after a fixed delay (see retryAfter).
func toRetryError(err error) error {
	if err == nil {
		return nil
	}
	if d, ok := retryAfter(err); ok {
		return cloudapi.NewRetryError(stableError(err), d)
	}
	return err
}
