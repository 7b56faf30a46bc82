package loadbalancer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

func TestTheReasonOfAServicesCondition(t *testing.T) {
	t.Parallel()
	code := func(c hcloud.ErrorCode) error { return hcloud.Error{Code: c, Message: "no"} }
	mistake := plan.InvalidSettings(plan.AnnotationError{Source: plan.AnnotationPrefix + "type", Value: "x", Reason: "must be y"})
	for name, tc := range map[string]struct {
		err    error
		reason string
	}{
		"no error":  {nil, "Ready"},
		"a mistake": {mistake, "InvalidSettings"},
		"a mistake, and more": {apicall.JoinErrors([]error{code(hcloud.ErrorCodeLocked), mistake, &apicall.DoubtError{Text: "?"}}),
			"InvalidSettings"},
		"a doubt":             {&apicall.DoubtError{Text: "?"}, "CloudAnswerDoubted"},
		"a lock":              {code(hcloud.ErrorCodeLocked), "CloudLoadBalancerPending"},
		"a rate limit":        {code(hcloud.ErrorCodeRateLimitExceeded), "RateLimited"},
		"the project's limit": {fmt.Errorf("creating: %w", code(hcloud.ErrorCodeResourceLimitExceeded)), "LimitReached"},
		"something else":      {errors.New("no answer"), "SyncFailed"},
		"a long error":        {errors.New(strings.Repeat("x", 40_000)), "SyncFailed"}, // the API server refuses more than 32 KiB
	} {
		c := readyCondition(tc.err)
		if c.Reason != tc.reason || (c.Status == "True") != (tc.err == nil) || len(c.Message) == 0 || len(c.Message) > 1024 {
			t.Errorf("%s: %s, %s, %d characters; want %s", name, c.Status, c.Reason, len(c.Message), tc.reason)
		}
	}
}

// A mistake names the annotation, or the variable with its default.
func TestAMistakeKnowsItsSetting(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{plan.AnnotationPrefix + "type": "type", plan.AnnotationPrefix +
		"protocol.443": "protocol.443", "HCLOUD_LOAD_BALANCERS_TYPE": "type", "HCLOUD_LOAD_BALANCERS_NAME": "", "": ""} {
		if got := (plan.AnnotationError{Source: source}).Setting(); got != want {
			t.Errorf("%q: %q, want %q", source, got, want)
		}
	}
}
