package loadbalancer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
)

// A load balancer has the targets 1 and 2, which are healthy. Then its nodes are others, or it has other settings.
func TestTargetsLeaveWhenOthersAreHealthy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		settings map[string]string
		routes   bool // the new nodes have theirs
		nodes    []int
		at       map[time.Duration][]int // what the targets are at a time after the change
		new      bool                    // targets 1 and 2 have not been checked yet
	}{
		"other nodes": {nil, true, []int{3, 4}, map[time.Duration][]int{0: {1, 2, 3, 4}, 30 * time.Second: {3, 4}}, false},
		"one stays":   {nil, true, []int{2, 3}, map[time.Duration][]int{0: {1, 2, 3}, 30 * time.Second: {2, 3}}, false},
		// A mistyped node-selector.
		"none follows":          {nil, true, nil, map[time.Duration][]int{0: {1}, 61 * time.Second: {1}}, false},
		"none follows new ones": {nil, true, nil, map[time.Duration][]int{0: {1, 2}, 61 * time.Second: {1}}, true},
		"the new ones lack a route": {nil, false, []int{3, 4}, map[time.Duration][]int{0: {1, 2}, 50 * time.Second: {1, 2},
			61 * time.Second: {2}}, false},
		"public ones, which must not stay": {map[string]string{"use-private-ip": "true", "disable-public-network": "true"}, true, []int{3},
			map[time.Duration][]int{0: {3}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 4)
			all := w.nodes
			w.nodes = all[:2]
			cloud, svc := w.provider(), newService("web", nil, 80)
			w.ensure(cloud, svc)
			if !tc.new {
				w.clock.Step(time.Minute) // health checks
			}

			annotate(svc, tc.settings)
			w.nodes = nil
			for _, n := range tc.nodes {
				w.nodes = append(w.nodes, all[n-1])
				if !tc.routes {
					lackRoute(all[n-1])
				}
			}
			ids := serverIDs(all)
			for now := range time.Duration(62) {
				now *= time.Second
				_, err := w.tryEnsure(cloud, svc)
				stays := !tc.routes && now > 61*time.Second || tc.nodes == nil && !tc.new && now >= time.Minute
				if (err != nil) != stays {
					t.Errorf("after %v: %v", now, err)
				}
				want, checked := tc.at[now]
				if got := targetIDs(w.theLoadBalancer()); checked &&
					!slices.EqualFunc(got, want, func(id int64, n int) bool { return id == ids[n-1] }) {
					t.Errorf("after %v: got %v, want %v of %v", now, got, want, ids)
				}
				w.clock.Step(time.Second)
			}
			events := strings.Join(w.eventsSoFar(), "\n")
			if waited := len(tc.at) > 1; waited != strings.Contains(events, "Targets leave when others are healthy") {
				t.Errorf("events: %s", events)
			}
		})
	}
}

func lackRoute(n *corev1.Node) {
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue,
		Reason: "NoRouteCreated", LastTransitionTime: metav1.Now()}}
}

// Nothing else has the service controller call again.
func TestTheComparisonLooksAgainAtTargetsThatWait(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	w := newWorld(t, "instant", 2)
	before, after := w.nodes[:1], w.nodes[1:]
	svc := newService("web", nil, 80)
	cloud := w.provider() // without a periodic comparison
	kube := fake.NewClientset(svc.DeepCopy(), before[0].DeepCopy(), after[0].DeepCopy())
	w.lead(cloud, kube)
	w.nodes = before
	w.ensure(cloud, svc)
	w.clock.Step(time.Minute) // health checks
	changeNode(t, kube, before[0], exclude)
	lbs, _ := cloud.LoadBalancer()
	if err := lbs.UpdateLoadBalancer(t.Context(), "", svc, after); err != nil || len(w.theLoadBalancer().Targets) != 2 {
		t.Errorf("%v, %d targets", err, len(w.theLoadBalancer().Targets))
	}
	g.Eventually(func() []int64 {
		w.clock.Step(time.Second)
		return targetIDs(w.theLoadBalancer())
	}).WithTimeout(time.Minute).Should(gomega.Equal(serverIDs(after)))
}

// A sync may have waited for another one while the nodes that it lacks were chosen again.
func TestAListOfNodesThatIsOldRemovesNoTarget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 2)
	svc := newService("web", nil, 80)
	cloud := w.provider()
	kube := fake.NewClientset(svc.DeepCopy(), w.nodes[0].DeepCopy(), w.nodes[1].DeepCopy())
	w.lead(cloud, kube)
	w.ensure(cloud, svc)
	lbs, _ := cloud.LoadBalancer()
	update := func() error { return lbs.UpdateLoadBalancer(t.Context(), "", svc, w.nodes[:1]) }
	if err := update(); !strings.Contains(fmt.Sprint(err), "begins again") || len(w.theLoadBalancer().Targets) != 2 {
		t.Errorf("%d targets, want 2: %v", len(w.theLoadBalancer().Targets), err)
	}
	changeNode(t, kube, w.nodes[1], exclude)
	gomega.NewWithT(t).Eventually(update).WithTimeout(time.Minute).Should(gomega.Succeed())
	w.expectTargets(serverIDs(w.nodes[:1]))
}

// The service controller is not told that the cluster autoscaler no longer wants to delete a node.
func TestTheComparisonKnowsTheNodesThatMayServeNow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 2)
	svc := newService("web", nil, 80)
	cloud := w.provider()
	r, _ := w.resyncOf(cloud, svc)
	all := w.nodes
	w.nodes = all[:1]
	w.ensure(cloud, svc)
	w.clock.Step(time.Minute)
	r.SyncLoadBalancers(t.Context())
	w.expectTargets(serverIDs(all))
}

func changeNode(t *testing.T, kube kubernetes.Interface, node *corev1.Node, change func(*corev1.Node)) {
	t.Helper()
	changed := node.DeepCopy()
	change(changed)
	if _, err := kube.CoreV1().Nodes().Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func exclude(n *corev1.Node) {
	metav1.SetMetaDataLabel(&n.ObjectMeta, corev1.LabelNodeExcludeBalancers, "")
}

// The nodes of a Service are replaced by others, of which some are up at once and one more each half minute.
func TestAHealthyTargetLeavesForAnotherHealthyOne(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ nodes, up int }{
		"one of the others is up":                      {12, 1},
		"all others are up, and the type has no room":  {25, 25},
		"none of the others is up, and no room either": {25, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 2*tc.nodes)
			before, after := w.nodes[:tc.nodes], w.nodes[tc.nodes:]
			cloud, svc := w.provider(), newService("web", nil, 80)
			w.nodes = before
			w.ensure(cloud, svc)
			left := serverIDs(after[tc.up:])
			for _, id := range left {
				w.power(id, false)
			}
			w.clock.Step(time.Minute) // health checks

			w.nodes = after
			for now := range 30 * (tc.nodes + 6) {
				if now%20 == 0 && len(left) > 0 {
					w.power(left[0], true)
					left = left[1:]
				}
				if _, err := w.tryEnsure(cloud, svc); err != nil {
					t.Fatalf("after %d s: %v", now, err)
				}
				if n := len(healthyTargets(w.theLoadBalancer())); n < tc.nodes-1 {
					t.Fatalf("after %d s: %d healthy targets, want at least %d", now, n, tc.nodes-1)
				}
				w.clock.Step(time.Second)
			}
			w.expectTargets(serverIDs(after))
		})
	}
}

// Whatever has become of the nodes, the last target that serves stays until its server goes.
func TestTheLastHealthyTargetStays(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *world){
		"the others are not up": func(w *world) { w.nodes = w.nodes[2:] },
		"the nodes are registered again": func(w *world) {
			w.nodes = w.nodes[:2]
			for _, n := range w.nodes {
				n.Spec.ProviderID = ""
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 4)
			ids := serverIDs(w.nodes)
			w.power(ids[2], false)
			w.power(ids[3], false)
			all := w.nodes
			cloud, svc := w.provider(), newService("web", nil, 80)
			w.nodes = w.nodes[:2]
			w.ensure(cloud, svc)
			w.clock.Step(time.Minute) // health checks

			w.nodes = all
			change(w)
			var err error
			for range 300 {
				_, err = w.tryEnsure(cloud, svc)
				if len(healthyTargets(w.theLoadBalancer())) == 0 {
					t.Fatal("no target is healthy")
				}
				w.clock.Step(time.Second)
			}
			if err == nil || !strings.Contains(err.Error(), "stays a target") {
				t.Errorf("want an error about the target that stays, got %v", err)
			}
			w.power(ids[0], false)
			w.power(ids[1], false)
			w.clock.Step(2 * time.Minute)
			w.ensure(cloud, svc)
			if got := targetIDs(w.theLoadBalancer()); slices.Contains(got, ids[0]) || slices.Contains(got, ids[1]) {
				t.Errorf("after the servers have gone: %v", got)
			}
		})
	}
}

// A person excludes a node and reboots it. Another one is sick already, or has no route, and a third one serves.
func TestNothingWaitsForANodeThatDoesNotServe(t *testing.T) {
	t.Parallel()
	for name, sick := range map[string]func(w *world){
		"its server is off": func(w *world) { w.power(serverIDs(w.nodes)[2], false) },
		"it has no route":   func(w *world) { lackRoute(w.nodes[2]) },
		"it has no server":  func(w *world) { w.nodes[2].Spec.ProviderID = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 3)
			sick(w)
			cloud, svc := w.provider(), newService("web", nil, 80)
			w.ensure(cloud, svc)
			w.clock.Step(time.Minute) // health checks

			excluded := serverIDs(w.nodes)[0]
			w.nodes = w.nodes[1:]
			w.ensure(cloud, svc)
			if got := targetIDs(w.theLoadBalancer()); slices.Contains(got, excluded) {
				t.Errorf("server %d of an excluded node is still among the targets %v", excluded, got)
			}
		})
	}
}

// power switches a server on or off.
func (w *world) power(id int64, on bool) {
	w.t.Helper()
	change := w.api.Server.Poweroff
	if on {
		change = w.api.Server.Poweron
	}
	if _, _, err := change(w.t.Context(), &hcloud.Server{ID: id}); err != nil {
		w.t.Fatal(err)
	}
}
