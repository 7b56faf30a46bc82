package loadbalancer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/inventory"
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

func TestWhichSettingsDecideAboutCertificates(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"protocol": true, "http-certificates": true, "certificate-type": true,
		"health-check-http-validate-certificate": false, "algorithm-type": false} {
		s := &serviceSync{in: plan.Input{Service: &corev1.Service{}, Wrong: map[string]bool{name: true}}}
		if got := s.wrongCertificates(443); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}

// A sync that has waited takes the newest settings, unless the Service is another one by now, or wants no load balancer.
func TestASyncTakesTheNewestService(t *testing.T) {
	t.Parallel()
	service := func(uid string, kind corev1.ServiceType) *corev1.Service {
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: types.UID(uid), ResourceVersion: uid + string(kind)},
			Spec:       corev1.ServiceSpec{Type: kind},
		}
	}
	old := service("a", corev1.ServiceTypeLoadBalancer)
	old.ResourceVersion = "old"
	for name, tc := range map[string]struct {
		now   *corev1.Service
		takes bool
	}{
		"it has changed":              {service("a", corev1.ServiceTypeLoadBalancer), true},
		"it wants none any more":      {service("a", corev1.ServiceTypeClusterIP), false},
		"another one has its name":    {service("b", corev1.ServiceTypeLoadBalancer), false},
		"it is gone, as far as known": {nil, false},
	} {
		services := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		if tc.now != nil {
			if err := services.Add(tc.now); err != nil {
				t.Fatal(err)
			}
		}
		e := inventory.NewEvidence(clock.RealClock{}, prometheus.NewRegistry(), false, func() (string, error) { return "", nil })
		e.SetListers(nil, corelisters.NewServiceLister(services))
		if got := (&Controller{evidence: e}).newest(old); (got.ResourceVersion != "old") != tc.takes {
			t.Errorf("%s: got %s", name, got.ResourceVersion)
		}
	}
}
