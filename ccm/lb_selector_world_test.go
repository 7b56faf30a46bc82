package ccm_test

import (
	"slices"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
)

// label sets the labels of a server.
func (w *world) label(id int64, labels map[string]string) {
	w.t.Helper()
	_, _, err := w.api.Server.Update(w.t.Context(), &hcloud.Server{ID: id}, hcloud.ServerUpdateOpts{Labels: labels})
	w.must(err)
}

// servedBy returns the servers that get traffic from a load balancer, and its number of targets.
func servedBy(lb *hcloud.LoadBalancer) (ids []int64, targets int) {
	for _, t := range lb.Targets {
		for _, s := range append([]hcloud.LoadBalancerTarget{t}, t.Targets...) {
			if s.Server != nil {
				ids = append(ids, s.Server.Server.ID)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), len(lb.Targets)
}

// A cluster grows beyond what the type has room for: with a selector all nodes are targets, and a new one costs no write.
func TestASelectorServesMoreNodesThanTheTypeHasRoomFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 24)
	for _, id := range serverIDs(w.nodes) {
		w.label(id, map[string]string{"pool": "web"})
	}
	svc := newService("web", nil, 80)
	w.ensure(w.provider(), svc)
	_, spare := w.addServer("spare") // has no label
	before, fewest := serverIDs(w.nodes), 25

	w.ensure(w.provider(), svc)
	annotate(svc, map[string]string{"server-selector": "pool=web"})
	w.wire.setObserve(func() {
		ids, _ := servedBy(w.theLoadBalancer())
		fewest = min(fewest, len(ids))
	})
	for range 3 {
		w.ensure(w.provider(), svc)
		w.clock.Step(5 * 60e9) // health checks
	}
	ids, targets := servedBy(w.theLoadBalancer())
	if !slices.Equal(ids, before) || targets != 2 || fewest < 24 {
		t.Errorf("%d servers are served by %d targets, at least %d at any time", len(ids), targets, fewest)
	}

	cloud := w.provider()
	w.ensure(cloud, svc)
	for range 10 {
		server, _ := w.addServer("more-" + itoa(int64(len(w.nodes))))
		w.label(server.ID, map[string]string{"pool": "web"})
	}
	w.wire.take()
	w.ensure(cloud, svc)
	if calls := writes(w.wire.take()); len(calls) != 0 {
		t.Errorf("new nodes cost %v", calls)
	}
	if ids, targets := servedBy(w.theLoadBalancer()); len(ids) != 35 || targets != 2 {
		t.Errorf("%d servers are served by %d targets", len(ids), targets)
	}
	w.nodes = slices.DeleteFunc(w.nodes, func(n *corev1.Node) bool { return n == spare })
	w.ensure(cloud, svc)
	if ids, targets := servedBy(w.theLoadBalancer()); len(ids) != 34 || targets != 1 {
		t.Errorf("%d servers are served by %d targets", len(ids), targets)
	}
}

// A node with the label that excludes it from load balancers must not be a target.
func TestASelectorServesNoExcludedNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 3)
	for _, id := range serverIDs(w.nodes) {
		w.label(id, map[string]string{"pool": "web"})
	}
	w.nodes[0].Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""}
	kube := fake.NewClientset(w.nodes[0], w.nodes[1], w.nodes[2])
	excluded := serverIDs(w.nodes[:1])[0]
	w.nodes = w.nodes[1:] // as the service controller does
	cloud := w.provider()
	w.lead(cloud, kube)
	svc := newService("web", map[string]string{"server-selector": "pool=web"}, 80)
	if _, err := w.tryEnsure(cloud, svc); err != nil {
		t.Fatal(err)
	}
	w.expectEvent("Warning IgnoredSetting", "server-selector", "node-1")
	if ids, _ := servedBy(w.theLoadBalancer()); !slices.Equal(ids, serverIDs(w.nodes)) {
		t.Errorf("%v are served, want %v", ids, serverIDs(w.nodes))
	}
	w.label(excluded, map[string]string{})
	cloud = w.provider()
	w.lead(cloud, kube)
	for range 2 {
		w.ensure(cloud, svc)
		w.clock.Step(5 * 60e9)
	}
	if ids, targets := servedBy(w.theLoadBalancer()); !slices.Equal(ids, serverIDs(w.nodes)) || targets != 1 {
		t.Errorf("%v are served by %d targets, want %v", ids, targets, serverIDs(w.nodes))
	}
}

func TestASelectorMayBeInterruptedAtAnyCall(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]map[string]string{
		"added":   {"server-selector": "pool=web", "labels": "a=b"},
		"changed": {"server-selector": "pool in (web,db)", "use-private-ip": "true"},
		"private": {"server-selector": "pool=web", "use-private-ip": "true"},
		"removed": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachDeath(func(cutAt int, after bool) []string {
				w := newWorld(t, "instant", 3)
				for _, id := range serverIDs(w.nodes) {
					w.label(id, map[string]string{"pool": "web"})
				}
				svc := newService("web", map[string]string{"server-selector": "pool=web"}, 80)
				if name == "added" {
					delete(svc.Annotations, ccm.AnnotationPrefix+"server-selector")
				}
				w.ensure(w.provider(), svc)
				fewest := 3
				w.wire.setObserve(func() {
					ids, _ := servedBy(w.theLoadBalancer())
					fewest = min(fewest, len(ids))
				})
				delete(svc.Annotations, ccm.AnnotationPrefix+"server-selector")
				annotate(svc, to)
				w.wire.reset(cutAt, after)
				_, _ = w.tryEnsure(w.provider(), svc)
				calls := w.wire.take()
				w.wire.reset(0, false)
				for range 3 {
					w.ensure(w.provider(), svc)
					w.clock.Step(5 * 60e9) // health checks
				}
				w.wire.take()
				w.ensure(w.provider(), svc)
				want := 1
				if name == "removed" {
					want = 3
				}
				ids, targets := servedBy(w.theLoadBalancer())
				if extra := writes(w.wire.take()); !slices.Equal(ids, serverIDs(w.nodes)) || targets != want || fewest < 2 ||
					len(extra) > 0 {
					t.Fatalf("died at call %d (answered: %t): %v are served by %d targets, at least %d at any time; a further sync "+
						"writes %v", cutAt, after, ids, targets, fewest, extra)
				}
				w.wire.setObserve(nil)
				w.remove(w.provider(), svc)
				w.fake.Close()
				return calls
			})
		})
	}
}
