package loadbalancer_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// eachDeath calls run without a death, and then with the death of the process before and after each of the calls
// that run returned.
func eachDeath(t *testing.T, run func(cutAt int, after bool) []string) {
	t.Helper()
	runs := ccmtest.Share(t, 5)
	for i, call := range run(0, false) {
		if !runs() {
			continue
		}
		run(i+1, false)
		if !strings.HasPrefix(call, "GET ") { // a read has no effect: to die after it is the same
			run(i+1, true)
		}
	}
}

// addForeignPort adds a port of another owner to a load balancer.
func (w *world) addForeignPort(lb *hcloud.LoadBalancer, port int) {
	w.t.Helper()
	to := 9001
	_, _, err := w.api.LoadBalancer.AddService(w.t.Context(), lb, hcloud.LoadBalancerAddServiceOpts{Protocol: "tcp", ListenPort: &port,
		DestinationPort: &to})
	w.must(err)
}

func TestLabelsFollowTheAnnotation(t *testing.T) {
	t.Parallel()
	w, _, svc := newServingWorld(t, "instant", 1, map[string]string{"labels": "team=web,env=prod"}, 80)
	if calls := writes(w.wire.take()); len(calls) != 1 {
		t.Errorf("writes: %v", calls)
	}
	expect := func(want map[string]string) {
		t.Helper()
		got := maps.Clone(w.theLoadBalancer().Labels)
		maps.DeleteFunc(got, func(k, _ string) bool {
			return strings.HasPrefix(k, "ccm-from-scratch/") || k == "hcloud-ccm/service-uid"
		})
		if !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	expect(map[string]string{"team": "web", "env": "prod"})
	lb := w.theLoadBalancer()
	lb.Labels["owner"] = "me"
	w.setLabels(lb, lb.Labels)

	annotate(svc, map[string]string{"labels": "team=db"})
	w.ensure(w.provider(), svc)
	expect(map[string]string{"team": "db", "owner": "me"})

	annotate(svc, map[string]string{"labels": "team"})
	setPorts(svc, 80, 81)
	w.expectError(w.provider(), svc)
	expect(map[string]string{"team": "db", "owner": "me"})
	if got := listenPorts(w.theLoadBalancer()); !slices.Equal(got, []int{80, 81}) {
		t.Errorf("ports %v", got)
	}

	delete(svc.Annotations, plan.AnnotationPrefix+"labels")
	w.ensure(w.provider(), svc)
	expect(map[string]string{"owner": "me"})
	w.remove(w.provider(), svc)
	w.expectNone()
}

func TestDeleteProtection(t *testing.T) {
	t.Parallel()
	w, cloud, svc := newServingWorld(t, "realistic", 1, map[string]string{"delete-protection": "true"}, 80)
	protected := func() bool { return w.theLoadBalancer().Protection.Delete }
	if !protected() {
		t.Error("it is not protected")
	}
	delete(svc.Annotations, plan.AnnotationPrefix+"delete-protection")
	w.ensure(cloud, svc)
	if !protected() {
		t.Error("without the annotation the protection has changed")
	}
	deleted := svc.DeepCopy()
	deleted.DeletionTimestamp = w.nowPtr()
	w.eventsSoFar()
	w.expectStays(cloud, deleted)
	w.expectEvent("Warning CloudLoadBalancerProtected", "load-balancer.hetzner.cloud/delete-protection")
	if lb := w.theLoadBalancer(); !slices.Equal(listenPorts(lb), []int{80}) {
		t.Errorf("ports %v", listenPorts(lb))
	}
	annotate(svc, map[string]string{"delete-protection": "false"})
	w.remove(cloud, svc)
	w.expectNone()
}

// The load balancer outlives its Service without the Service's ports, and the next Service gets its address.
func TestALoadBalancerIsKeptOnDelete(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"another Service", "the same Service"} {
		t.Run(next, func(t *testing.T) {
			t.Parallel()
			eachDeath(t, func(cutAt int, after bool) []string {
				w := newWorld(t, "instant", 2)
				svc := newService("web", map[string]string{"keep-on-delete": "true", "name": "edge", "labels": "team=web"}, 80, 81)
				annotate(svc, managed("example.org"))
				w.ensure(w.provider(), svc)
				before := w.theLoadBalancer()
				w.addForeignPort(before, 9000)

				gone := svc.DeepCopy()
				gone.DeletionTimestamp = w.nowPtr()
				w.wire.reset(cutAt, after)
				_ = tryRemove(t.Context(), w.provider(), gone)
				calls := w.wire.take()
				w.wire.reset(0, false)
				w.remove(w.provider(), gone)

				lb := w.theLoadBalancer()
				if lb.ID != before.ID || !slices.Equal(listenPorts(lb), []int{9000}) ||
					!maps.Equal(lb.Labels, map[string]string{"team": "web"}) {
					t.Fatalf("died at call %d (answered: %t): load balancer %d, ports %v, labels %v", cutAt, after, lb.ID, listenPorts(lb),
						lb.Labels)
				}
				if certs, err := w.api.Certificate.All(t.Context()); err != nil || len(certs) != 0 {
					t.Fatalf("certificates left: %v, %v", certs, err)
				}
				heir := newService("web", map[string]string{"name": "edge"}, 443)
				if next == "another Service" {
					heir.UID = "uid-heir"
				}
				status := w.ensure(w.provider(), heir)
				if got := status.Ingress[0].IP; got != before.PublicNet.IPv4.IP.String() ||
					!slices.Equal(listenPorts(w.theLoadBalancer()), []int{443, 9000}) {
					t.Fatalf("the next Service has %s with ports %v, want %s", got, listenPorts(w.theLoadBalancer()),
						before.PublicNet.IPv4.IP)
				}
				w.fake.Close()
				return calls
			})
		})
	}
}

// It is not certain what the Service wants: nothing happens to the load balancer.
func TestAMistypedKeepOnDeleteDeletesNothing(t *testing.T) {
	t.Parallel()
	w, cloud, svc := newServingWorld(t, "instant", 1, nil, 80)
	before := w.theLoadBalancer()
	annotate(svc, map[string]string{"keep-on-delete": "ture", "algorithm-type": "fastest"})
	svc.DeletionTimestamp = w.nowPtr()
	w.wire.take()
	w.eventsSoFar()
	w.expectStays(cloud, svc)
	if calls := writes(w.wire.take()); len(calls) != 0 || w.theLoadBalancer().ID != before.ID {
		t.Errorf("writes: %v", calls)
	}
	w.expectEvent("Warning InvalidSettings", `keep-on-delete: "ture"`)
	annotate(svc, map[string]string{"keep-on-delete": "false"}) // the other mistake does not matter any more
	w.remove(cloud, svc)
	w.expectNone()
}

// A person has removed the ownership label while the load balancer loses its ports.
func TestWhatAPersonTakesBackIsNotChangedOnDelete(t *testing.T) {
	t.Parallel()
	w, cloud, svc := newServingWorld(t, "instant", 1, map[string]string{"keep-on-delete": "true"}, 80)
	lb := w.theLoadBalancer()
	w.wire.setObserve(func() {
		now := w.theLoadBalancer()
		if len(now.Services) == 0 && now.Labels[plan.LabelServiceUID] != "" {
			w.setLabels(lb, map[string]string{"ccm-from-scratch/mine": "true"})
		}
	})
	w.remove(cloud, svc)
	if got := w.theLoadBalancer().Labels; !maps.Equal(got, map[string]string{"ccm-from-scratch/mine": "true"}) {
		t.Errorf("labels %v", got)
	}
}
