package loadbalancer_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/loadbalancer"
)

// What the cloud cannot do is said once, with what to do, and everything else works.
func TestWhatTheCloudCannotDoIsSaidOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*corev1.Service)
		want   []string
	}{
		"source ranges": {func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} },
			[]string{"loadBalancerSourceRanges", "cannot filter by source address", "disable-public-network"}},
		"source ranges by annotation": {func(s *corev1.Service) {
			s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey] =
				"192.0.2.0/24"
		},
			[]string{"loadBalancerSourceRanges"}},
		"an address": {func(s *corev1.Service) { s.Spec.LoadBalancerIP = "192.0.2.1" },
			[]string{"loadBalancerIP", "192.0.2.1", "primary-ipv4", "private-ipv4"}},
		"affinity": {func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP },
			[]string{"sessionAffinity: ClientIP", "http-sticky-sessions"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, cloud, svc := newServingWorld(t, "instant", 1, nil, 80)
			if events := strings.Join(w.eventsSoFar(), "\n"); strings.Contains(events, "IgnoredSetting") {
				t.Errorf("without the field:\n%s", events)
			}
			tc.change(svc)
			w.ensure(cloud, svc)
			w.expectEvent(append(tc.want, "Warning IgnoredSetting")...)
			w.ensure(cloud, svc)
			if again := w.eventsSoFar(); len(again) > 0 {
				t.Errorf("said again: %q", again)
			}
			other := svc.DeepCopy()
			other.Name, other.UID = "other", "uid-other"
			w.ensure(cloud, other)
			w.expectEvent(tc.want...)
			w.clock.Step(2 * time.Hour)
			w.ensure(cloud, svc)
			w.expectEvent(tc.want...)
			if n := len(w.loadBalancers()); n != 2 {
				t.Errorf("%d load balancers", n)
			}
		})
	}
}

// The condition says whether the load balancer is ready, and if not, why.
func TestTheConditionOfAService(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	svc := newService("web", map[string]string{"algorithm-type": "fastest"}, 80)
	kube := fake.NewClientset(svc.DeepCopy())
	cloud := w.provider()
	controllerOf(cloud).Kube = kube
	sync := func() *metav1.Condition {
		t.Helper()
		now, err := kube.CoreV1().Services(svc.Namespace).Get(t.Context(), svc.Name, metav1.GetOptions{})
		w.must(err)
		now.Annotations, now.Spec = svc.Annotations, svc.Spec
		_, _ = w.tryEnsure(cloud, now)
		now, err = kube.CoreV1().Services(svc.Namespace).Get(t.Context(), svc.Name, metav1.GetOptions{})
		w.must(err)
		return meta.FindStatusCondition(now.Status.Conditions, loadbalancer.ConditionReady)
	}
	expect := func(status metav1.ConditionStatus, reason, message string) *metav1.Condition {
		t.Helper()
		c := sync()
		if c == nil || c.Status != status || c.Reason != reason || !strings.Contains(c.Message, message) {
			t.Errorf("got %+v, want %s, %s, %q", c, status, reason, message)
		}
		return c
	}
	expect(metav1.ConditionFalse, "InvalidSettings", "must be round_robin or least_connections")
	annotate(svc, map[string]string{"algorithm-type": "round_robin"})
	ready := expect(metav1.ConditionTrue, "Ready", "has all that the Service asks for")

	kube.ClearActions()
	w.clock.Step(time.Hour)
	if again := expect(metav1.ConditionTrue, "Ready", ""); !again.LastTransitionTime.Equal(&ready.LastTransitionTime) {
		t.Errorf("the time has changed: %v, %v", ready.LastTransitionTime, again.LastTransitionTime)
	}
	for _, a := range kube.Actions() {
		if a.GetVerb() != "get" {
			t.Errorf("a sync without a change sends %s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}

	setPorts(svc, 80, 81)
	for code, want := range map[string]struct {
		status int
		reason string
	}{"locked": {http.StatusLocked, "CloudLoadBalancerPending"}, "rate_limit_exceeded": {http.StatusTooManyRequests, "RateLimited"},
		"resource_limit_exceeded": {http.StatusForbidden, "LimitReached"}, "server_error": {http.StatusInternalServerError, "SyncFailed"}} {
		w.refuseAs(want.status, code, func(r *http.Request) bool { return r.Method != http.MethodGet })
		expect(metav1.ConditionFalse, want.reason, code)
		if code == "locked" {
			w.expectEvent("Normal CloudLoadBalancerPending", "Waiting for the cloud")
		}
	}
	w.wire.setIntercept(nil)
	expect(metav1.ConditionTrue, "Ready", "")

	kube.ClearActions() // what follows a deletion says more than a sync that has begun before
	svc.DeletionTimestamp = w.nowPtr()
	setPorts(svc, 80, 443)
	w.wire.setIntercept(func(*http.Request) *http.Response { return apiError(http.StatusForbidden, "resource_limit_exceeded") })
	_, _ = w.tryEnsure(cloud, svc)
	if len(kube.Actions()) > 0 {
		t.Errorf("a Service that is deleted gets a condition: %v", kube.Actions())
	}
}
