package loadbalancer

import (
	"fmt"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// What concerns the whole load balancer or this process ends a sync: each further request would fail too.
func TestWhatEndsASync(t *testing.T) {
	t.Parallel()
	code := func(c hcloud.ErrorCode) error { return hcloud.Error{Code: c} }
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"the process is not the leader":         {apicall.ErrNotLeader, true},
		"the load balancer has another owner":   {fmt.Errorf("labels: %w", plan.ErrNotOwner), true},
		"a lock":                                {code(hcloud.ErrorCodeLocked), true},
		"an action that runs":                   {&apicall.PendingError{}, true},
		"a rate limit":                          {code(hcloud.ErrorCodeRateLimitExceeded), true},
		"a request that is forbidden":           {code(hcloud.ErrorCodeForbidden), true},
		"one part that is wrong, and one lock":  {apicall.Errors{code(hcloud.ErrorCodeInvalidInput), code(hcloud.ErrorCodeLocked)}, true},
		"a request that is wrong":               {code(hcloud.ErrorCodeInvalidInput), false},
		"a limit of the project":                {code(hcloud.ErrorCodeResourceLimitExceeded), false},
		"a target that is gone in the meantime": {code(hcloud.ErrorCodeNotFound), false},
	} {
		if got := endsSync(t.Context(), tc.err); got != tc.want {
			t.Errorf("%s: %t, want %t", name, got, tc.want)
		}
	}
}
