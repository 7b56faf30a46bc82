package ccm_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// A load balancer has the targets 1 and 2, which are healthy. Then its nodes are others, or it has other settings.
func TestTargetsLeaveWhenAnotherOneIsHealthy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		settings map[string]string
		routes   bool // the new nodes have theirs
		nodes    []int
		at       map[time.Duration][]int // what the targets are at a time after the change
	}{
		"other nodes":               {nil, true, []int{3, 4}, map[time.Duration][]int{0: {1, 2, 3, 4}, 30 * time.Second: {3, 4}}},
		"one stays":                 {nil, true, []int{2, 3}, map[time.Duration][]int{0: {2, 3}}},
		"none follows":              {nil, true, nil, map[time.Duration][]int{0: {}}},
		"the new ones lack a route": {nil, false, []int{3, 4}, map[time.Duration][]int{0: {1, 2}, 50 * time.Second: {1, 2}, 61 * time.Second: {}}},
		"public ones, which must not stay": {map[string]string{"use-private-ip": "true", "disable-public-network": "true"}, true, []int{3},
			map[time.Duration][]int{0: {3}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 4)
			all := w.nodes
			w.nodes = all[:2]
			cloud, svc := w.provider(), newService("web", nil, 80)
			w.ensure(cloud, svc)
			w.clock.Step(time.Minute) // health checks

			annotate(svc, tc.settings)
			w.nodes = nil
			for _, n := range tc.nodes {
				w.nodes = append(w.nodes, all[n-1])
				if !tc.routes {
					all[n-1].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: "NoRouteCreated", LastTransitionTime: metav1.Now()}}
				}
			}
			ids := serverIDs(all)
			for now := range time.Duration(62) {
				now *= time.Second
				w.ensure(cloud, svc)
				want, checked := tc.at[now]
				if got := targetIDs(w.theLoadBalancer()); checked && !slices.EqualFunc(got, want, func(id int64, n int) bool { return id == ids[n-1] }) {
					t.Errorf("after %v: got %v, want %v of %v", now, got, want, ids)
				}
				w.clock.Step(time.Second)
			}
			events := strings.Join(w.eventsSoFar(), "\n")
			if waited := len(tc.at) > 1; waited != strings.Contains(events, "Targets leave when another one is healthy") {
				t.Errorf("events: %s", events)
			}
		})
	}
}

// Nothing else has the service controller call again.
func TestTheComparisonLooksAgainAtTargetsThatWait(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	w := newWorld(t, "instant", 2)
	before, after := w.nodes[:1], w.nodes[1:]
	svc := newService("web", nil, 80)
	cloud := w.provider() // without a periodic comparison
	w.lead(cloud, fake.NewClientset(svc.DeepCopy(), before[0].DeepCopy(), after[0].DeepCopy()))
	w.nodes = before
	w.ensure(cloud, svc)
	w.clock.Step(time.Minute) // health checks
	lbs, _ := cloud.LoadBalancer()
	if err := lbs.UpdateLoadBalancer(t.Context(), "", svc, after); err != nil || len(w.theLoadBalancer().Targets) != 2 {
		t.Errorf("%v, %d targets", err, len(w.theLoadBalancer().Targets))
	}
	g.Eventually(func() []int64 {
		w.clock.Step(time.Second)
		return targetIDs(w.theLoadBalancer())
	}).WithTimeout(time.Minute).Should(gomega.Equal(serverIDs(after)))
}
