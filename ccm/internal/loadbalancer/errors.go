package loadbalancer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// partError is the error of one operation.
type partError struct {
	lb  *hcloud.LoadBalancer
	op  plan.Op
	err error
}

func (e *partError) Error() string {
	return fmt.Sprintf("load balancer %d (%s): %v: %s", e.lb.ID, e.lb.Name, e.op, apicall.StableText(e.err))
}

func (e *partError) Unwrap() error { return e.err }

// StableText implements what apicall.StableText asks for.
func (e *partError) StableText() string { return e.Error() }

// endsSync reports whether the error concerns the whole load balancer or this process: further operations
// would fail too, and each would cost calls.
func endsSync(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, apicall.ErrNotLeader) || errors.Is(err, plan.ErrNotOwner) {
		return true
	}
	return slices.ContainsFunc(apicall.EachError(err), func(e error) bool {
		return apicall.IsBusy(e) || apicall.IsRateLimit(e) || apicall.StatusOf(e) == http.StatusUnauthorized || hcloud.IsError(e, hcloud.ErrorCodeForbidden)
	})
}
