package ccm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// partError is the error of one operation.
type partError struct {
	lb  *hcloud.LoadBalancer
	op  plan.Op
	err error
}

func (e *partError) Error() string {
	return fmt.Sprintf("load balancer %d (%s): %v: %s", e.lb.ID, e.lb.Name, e.op, stableError(e.err))
}

func (e *partError) Unwrap() error { return e.err }

func (e *partError) stableText() string { return e.Error() }

// partErrors holds the errors of a load balancer's parts, in the order in which they happened.
type partErrors []error

// Error shows the first errors. Many targets may fail for the same reason.
func (e partErrors) Error() string {
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

func (e partErrors) Unwrap() []error { return e }

// joinErrors returns nil, the only error, or all errors joined.
func joinErrors(errs []error) error {
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return partErrors(errs)
}

// eachError returns the errors that were joined, or err alone.
func eachError(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, eachError(e)...)
	}
	return all
}

// endsSync reports whether the error concerns the whole load balancer or this process: further operations
// would fail too, and each would cost calls.
func endsSync(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, errNotLeader) || errors.Is(err, plan.ErrNotOwner) {
		return true
	}
	return slices.ContainsFunc(eachError(err), func(e error) bool {
		return isBusy(e) || isRateLimit(e) || statusOf(e) == http.StatusUnauthorized || hcloud.IsError(e, hcloud.ErrorCodeForbidden)
	})
}

// isBusy reports whether the cloud is working on the resource: an action runs, or has locked it.
func isBusy(err error) bool {
	var pending *actionPendingError
	return errors.As(err, &pending) || hcloud.IsError(err, hcloud.ErrorCodeLocked, hcloud.ErrorCodeConflict)
}

// isRateLimit reports whether the API refused the request because of the rate limit.
func isRateLimit(err error) bool {
	return hcloud.IsError(err, hcloud.ErrorCodeRateLimitExceeded) || statusOf(err) == http.StatusTooManyRequests
}
