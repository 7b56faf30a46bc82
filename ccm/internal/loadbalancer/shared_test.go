package loadbalancer_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

var share = map[string]string{"name": "edge", "shared": "true"}

// newSharingWorld is newWorld with providers that know the Services of the cluster.
func newSharingWorld(t *testing.T, actions string, n int) *world {
	w := newWorld(t, actions, n)
	w.services = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	return w
}

// shared returns two Services that share a load balancer: the first owns it.
func (w *world) shared() (first, second *corev1.Service) {
	w.t.Helper()
	return w.sharedWith(nil)
}

// sharedWith is shared with more settings of both.
func (w *world) sharedWith(more map[string]string) (first, second *corev1.Service) {
	w.t.Helper()
	settings := maps.Clone(share)
	maps.Copy(settings, more)
	first, second = newService("first", settings, 80), newService("second", settings, 443)
	w.ensure(w.provider(), first)
	w.ensure(w.provider(), second)
	return first, second
}

// isGuest reports whether the load balancer names the Service as a guest.
func isGuest(lb *hcloud.LoadBalancer, svc *corev1.Service) bool {
	_, is := lb.Labels["ccm-from-scratch/guest-"+string(svc.UID)]
	return is
}

// expectPorts fails the test if the only load balancer does not have these ports, or not this owner.
func (w *world) expectPorts(owner *corev1.Service, ports ...int) {
	w.t.Helper()
	lb := w.theLoadBalancer()
	if !slices.Equal(listenPorts(lb), ports) || lb.Labels[plan.LabelServiceUID] != string(owner.UID) {
		w.t.Errorf("ports %v, labels %v; want %v, owner %s", listenPorts(lb), lb.Labels, ports, owner.UID)
	}
}

func TestServicesShareALoadBalancer(t *testing.T) {
	t.Parallel()
	for _, actions := range []string{"instant", "realistic"} {
		t.Run(actions, func(t *testing.T) {
			t.Parallel()
			w := newSharingWorld(t, actions, 2)
			first, second := w.shared()
			before := w.theLoadBalancer()
			w.expectPorts(first, 80, 443)
			if a, b := first.Status.LoadBalancer.Ingress, second.Status.LoadBalancer.Ingress; len(a) == 0 ||
				fmt.Sprint(a[0].IP) != fmt.Sprint(b[0].IP) {
				t.Errorf("the Services show %v and %v", a, b)
			}
			for _, svc := range []*corev1.Service{first, second} {
				cloud := w.provider()
				w.ensure(cloud, svc)
				w.wire.take()
				w.ensure(cloud, svc)
				if calls := w.wire.take(); len(calls) > 1 || len(writes(calls)) > 0 {
					t.Errorf("%s: a sync without a change takes %v", svc.Name, calls)
				}
			}
			w.addServer("node-3")
			w.expectQuiet(w.provider(), second)
			w.ensure(w.provider(), first)
			w.expectTargets(serverIDs(w.nodes))

			// The guest changes its ports, and the settings of these.
			setPorts(second, 8443)
			annotate(second, map[string]string{"protocol": "http"})
			w.ensure(w.provider(), second)
			w.expectPorts(first, 80, 8443)
			if s := w.theLoadBalancer().Services; s[slices.IndexFunc(s,
				func(s hcloud.LoadBalancerService) bool { return s.ListenPort == 8443 })].Protocol != "http" {
				t.Errorf("services %+v", s)
			}

			// The owner goes, and the guest inherits.
			third := newService("third", share, 9000)
			w.ensure(w.provider(), third)
			w.remove(w.provider(), first)
			w.expectPorts(second, 8443, 9000)
			w.wire.take()
			w.ensure(w.provider(), second) // removes its mark as a guest
			w.ensure(w.provider(), third)
			if calls := writes(w.wire.take()); len(calls) > 1 || isGuest(w.theLoadBalancer(), second) {
				t.Errorf("the new owner and its guest write %v, labels %v", calls, w.theLoadBalancer().Labels)
			}
			w.addServer("node-4")
			w.ensure(w.provider(), second)
			w.expectTargets(serverIDs(w.nodes))
			w.remove(w.provider(), third)
			w.expectPorts(second, 8443)
			if lb := w.theLoadBalancer(); lb.ID != before.ID {
				t.Errorf("load balancer %d, want %d", lb.ID, before.ID)
			}
			w.remove(w.provider(), second)
			w.expectNone()
		})
	}
}

// expectUnmet makes a sync, which must warn and fail with these texts.
func (w *world) expectUnmet(svc *corev1.Service, texts ...string) {
	w.t.Helper()
	w.eventsSoFar()
	w.expectError(w.provider(), svc, texts...)
	w.expectEvent(append(texts, "Warning ")...)
}

func TestAPortBelongsToTheServiceThatHadItFirst(t *testing.T) {
	t.Parallel()
	w := newSharingWorld(t, "instant", 1)
	first, second := w.shared()
	w.addForeignPort(w.theLoadBalancer(), 9000)
	nodePort := func(port int) int {
		s := w.theLoadBalancer().Services
		return s[slices.IndexFunc(s, func(s hcloud.LoadBalancerService) bool { return s.ListenPort == port })].DestinationPort
	}
	setPorts(second, 80, 443, 444, 9000)
	second.Spec.Ports[0].NodePort, second.Spec.Ports[3].NodePort = 31111, 31112
	w.eventsSoFar()
	w.expectUnmet(second, "Port 80", "uid-first", "choose another port")
	w.expectUnmet(second, "Port 9000", "no Service")

	setPorts(first, 80, 443)
	first.Spec.Ports[1].NodePort = 31113
	w.expectUnmet(first, "Port 443", "uid-second")
	w.expectPorts(first, 80, 443, 444, 9000)
	if got := []int{nodePort(80), nodePort(443), nodePort(9000)}; !slices.Equal(got, []int{30080, 30443, 9001}) {
		t.Errorf("node ports %v", got)
	}

	// A Service that gets no port at all is pending, until its port is free.
	third := newService("third", share, 80)
	if status, err := w.tryEnsure(w.provider(), third); err == nil || status != nil || !strings.Contains(err.Error(), "uid-first") {
		t.Errorf("got %v, %v", status, err)
	}
	setPorts(first, 81)
	w.ensure(w.provider(), first)
	w.ensure(w.provider(), third)
	w.expectPorts(first, 80, 81, 443, 444, 9000)
	for _, svc := range []*corev1.Service{third, first, second} {
		w.remove(w.provider(), svc)
	}
	w.expectNone()
}

// Each change of a shared load balancer may end at any call; the others on it notice nothing.
func TestSharingMayBeInterruptedAtAnyCall(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(first, second, third *corev1.Service) (changed *corev1.Service)
		gone   bool
		owner  string
		ports  []int
	}{
		"a Service joins": {func(_, _, third *corev1.Service) *corev1.Service { return third }, false, "uid-first",
			[]int{80, 443, 9000}},
		"a guest changes": {func(_, second, _ *corev1.Service) *corev1.Service { setPorts(second, 8443, 8444); return second },
			false, "uid-first", []int{80, 8443, 8444}},
		"a guest goes": {func(_, second, _ *corev1.Service) *corev1.Service { return second }, true, "uid-first", []int{80}},
		"the owner changes ports": {func(first, _, _ *corev1.Service) *corev1.Service { setPorts(first, 81); return first }, false,
			"uid-first", []int{81, 443}},
		"the owner goes": {func(first, _, _ *corev1.Service) *corev1.Service { return first }, true, "uid-second", []int{443}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachDeath(t, func(cutAt int, after bool) []string {
				w := newSharingWorld(t, "instant", 2)
				first, second := w.shared()
				svc := tc.change(first, second, newService("third", share, 9000))
				stays := 80
				if svc == first {
					stays = 443
				}
				w.wire.setObserve(func() {
					if !slices.Contains(listenPorts(w.theLoadBalancer()), stays) {
						t.Errorf("died at call %d (answered: %t): port %d is closed", cutAt, after, stays)
					}
				})
				w.wire.reset(cutAt, after)
				if tc.gone {
					svc.DeletionTimestamp = w.nowPtr()
					_ = tryRemove(t.Context(), w.provider(), svc)
				} else {
					_, _ = w.tryEnsure(w.provider(), svc)
				}
				calls := w.wire.take()
				w.wire.reset(0, false)
				left := []*corev1.Service{first, second}
				if tc.gone {
					w.remove(w.provider(), svc)
					left = slices.DeleteFunc(left, func(s *corev1.Service) bool { return s == svc })
				} else {
					w.ensure(w.provider(), svc)
				}
				for _, s := range left {
					w.ensure(w.provider(), s)
				}
				w.wire.setObserve(nil)
				lb := w.theLoadBalancer()
				if !slices.Equal(listenPorts(lb), tc.ports) || lb.Labels[plan.LabelServiceUID] != tc.owner ||
					!slices.Equal(targetIDs(lb), serverIDs(w.nodes)) {
					t.Fatalf("died at call %d (answered: %t): ports %v, labels %v, targets %v", cutAt, after, listenPorts(lb), lb.Labels,
						targetIDs(lb))
				}
				if !tc.gone && !slices.Contains(left, svc) {
					left = append(left, svc)
				}
				for _, s := range left {
					w.remove(w.provider(), s)
				}
				if all := w.loadBalancers(); len(all) != 0 {
					t.Fatalf("died at call %d (answered: %t): left %v", cutAt, after, all)
				}
				w.fake.Close()
				return calls
			})
		})
	}
}

// Services of one process change their load balancer at the same time.
func TestServicesShareAtTheSameTime(t *testing.T) {
	t.Parallel()
	w := newSharingWorld(t, "instant", 2)
	cloud := w.provider()
	lbs, _ := cloud.LoadBalancer()
	var services []*corev1.Service
	var ports []int
	for i := range 5 {
		services = append(services, newService(fmt.Sprintf("s%c", 'a'+i), share, int32(80+i)))
		ports = append(ports, 80+i)
	}
	each := func(do func(*corev1.Service) error) {
		var all sync.WaitGroup
		defer all.Wait()
		for _, svc := range services {
			all.Go(func() {
				var err error
				for range 50 {
					if err = do(svc); err == nil {
						return
					}
				}
				t.Errorf("%s: %v", svc.Name, err)
			})
		}
	}
	for _, svc := range services {
		w.apply(svc)
	}
	each(func(svc *corev1.Service) error {
		status, err := lbs.EnsureLoadBalancer(t.Context(), "", svc, w.nodes)
		if err == nil {
			svc.Status.LoadBalancer = *status
		}
		return err
	})
	if got := listenPorts(w.theLoadBalancer()); !slices.Equal(got, ports) {
		t.Errorf("ports %v", got)
	}
	for _, svc := range services {
		svc.DeletionTimestamp = w.nowPtr()
	}
	each(func(svc *corev1.Service) error { return tryRemove(t.Context(), cloud, svc) })
	w.expectNone()
}

// A guest becomes the owner between the two requests that look for its load balancer: as an owner, then as a guest.
func TestAServiceFindsItsLoadBalancerWhileItInherits(t *testing.T) {
	t.Parallel()
	w := newSharingWorld(t, "instant", 1)
	first, second := w.shared()
	cloud := w.provider()
	var once sync.Once
	w.wire.setIntercept(func(r *http.Request) *http.Response {
		if strings.HasPrefix(r.URL.Query().Get("label_selector"), "ccm-from-scratch/guest-") {
			once.Do(func() { w.remove(cloud, first) })
		}
		return nil
	})
	w.remove(cloud, second)
	w.expectNone()
}

// An heir has both labels until its next sync. It takes both with it when it leaves before.
func TestAnHeirThatLeavesAtOnceIsNoGuest(t *testing.T) {
	t.Parallel()
	w := newSharingWorld(t, "instant", 1)
	first, second := w.shared()
	third := newService("third", share, 9000)
	w.ensure(w.provider(), third)
	w.remove(w.provider(), first)
	w.remove(w.provider(), second)
	w.expectPorts(third, 9000)
	if lb := w.theLoadBalancer(); isGuest(lb, second) {
		t.Errorf("labels %v", lb.Labels)
	}
	w.remove(w.provider(), third)
	w.expectNone()
}

func TestSharingNeedsTheConsentOfBoth(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		first, second map[string]string
		event         []string
	}{
		"the owner": {map[string]string{"shared": "false"}, nil, []string{"Warning CloudLoadBalancerOwnedByAnother", "uid-first"}},
		"the guest": {nil, map[string]string{"shared": "false"}, []string{"Warning CloudLoadBalancerOwnedByAnother", "uid-first"}},
		"no name":   {nil, map[string]string{"name": ""}, []string{"Warning InvalidSettings", "shared", "needs the annotation name"}},
		"public": {map[string]string{"disable-public-network": "true"}, nil,
			[]string{"Warning InvalidSettings", "disable-public-network", "must be true"}},
		"not public": {nil, map[string]string{"disable-public-network": "true"},
			[]string{"Warning InvalidSettings", "disable-public-network", `must be "false"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newSharingWorld(t, "instant", 1)
			cloud := w.provider()
			first, second := newService("first", share, 80), newService("second", share, 443)
			annotate(first, tc.first)
			annotate(second, tc.second)
			if tc.second["name"] == "" && tc.second != nil && name == "no name" {
				delete(second.Annotations, plan.AnnotationPrefix+"name")
			}
			w.ensure(cloud, first)
			w.eventsSoFar()
			w.expectError(cloud, second)
			w.expectEvent(tc.event...)
			w.expectPorts(first, 80)
		})
	}
}

func TestAGuestThatEndsItsConsentStaysAndLearnsHowToLeave(t *testing.T) {
	t.Parallel()
	w := newSharingWorld(t, "instant", 1)
	first, second := w.shared()
	for i, value := range []string{"false", "flase", "false"} {
		annotate(second, map[string]string{"shared": value})
		if i == 2 { // it has joined, and its status does not show it yet
			second.Status.LoadBalancer.Ingress = nil
		}
		w.wire.take()
		w.eventsSoFar()
		_, _ = w.tryEnsure(w.provider(), second) // the mistyped value is an error, too
		w.expectNoWrites()
		if value == "false" {
			w.expectEvent("Warning IgnoredSetting", "shared is not true any more", "delete and create the Service")
		}
	}
	w.expectPorts(first, 80, 443)
}

// The next owner would make the load balancer public, but a guest relies on its being private.
func TestASharedLoadBalancerIsNotExposed(t *testing.T) {
	t.Parallel()
	w := newSharingWorld(t, "instant", 1)
	private := map[string]string{"name": "edge", "shared": "true", "disable-public-network": "true"}
	first, second, third := newService("first", private, 80), newService("second", private, 443), newService("third", private, 9000)
	for _, svc := range []*corev1.Service{first, second, third} {
		w.ensure(w.provider(), svc)
	}
	seen := w.watch()
	annotate(second, map[string]string{"disable-public-network": "false"})
	w.expectUnmet(second, "disable-public-network", "differs from load balancer", `must be "true", or absent`)
	w.remove(w.provider(), first)
	w.ensure(w.provider(), second) // it decides from now on
	w.expectEvent("Warning IgnoredSetting", "stays without a public interface")
	if len(seen.ports) > 0 {
		t.Errorf("%v", seen)
	}
	w.expectPorts(second, 443, 9000)
	w.remove(w.provider(), third)
	w.ensure(w.provider(), second) // it is alone now
	if !w.theLoadBalancer().PublicNet.Enabled {
		t.Error("it is not public")
	}
}

// The new load balancer has the private address of the old one, which the guest still shows: it may be all that the guest
// shows.
func TestAGuestJoinsTheLoadBalancerThatReplacesADeletedOne(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]map[string]string{
		"public": {}, "private": {"disable-public-network": "true"}, "with a hostname": {"hostname": "edge.example.com"},
	} {
		w := newSharingWorld(t, "instant", 1)
		first, second := w.sharedWith(more)
		old := w.theLoadBalancer()
		w.deleteLoadBalancer(old)
		trusting := func(c *ccm.Config) { c.ProjectCheckDisabled = true } // a cluster without Nodes has no other proof
		w.ensure(w.provider(trusting), first)
		if lb := w.theLoadBalancer(); !lb.PrivateNet[0].IP.Equal(old.PrivateNet[0].IP) {
			t.Fatalf("%s: private address %s, want %s again", name, lb.PrivateNet[0].IP, old.PrivateNet[0].IP)
		}
		if _, err := w.tryEnsure(w.provider(trusting), second); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		w.expectPorts(first, 80, 443)
	}
}

// A person removes the labels of a guest, who does not come back by itself. On a private load balancer, the label last-guest
// shows what the guest was.
func TestAGuestThatAPersonRemovedDoesNotJoinAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		more    map[string]string
		removed func(key string) bool
	}{
		"public": {nil, func(key string) bool { return strings.Contains(key, "uid-second") }},
		"private": {map[string]string{"disable-public-network": "true"},
			func(key string) bool { return strings.HasPrefix(key, "ccm-from-scratch/guest") }},
		"with a hostname": {map[string]string{"hostname": "edge.example.com"},
			func(key string) bool { return strings.HasPrefix(key, "ccm-from-scratch/guest") }},
	} {
		w := newSharingWorld(t, "instant", 1)
		_, second := w.sharedWith(tc.more)
		lb := w.theLoadBalancer()
		maps.DeleteFunc(lb.Labels, func(key, _ string) bool { return tc.removed(key) })
		w.setLabels(lb, lb.Labels)
		w.eventsSoFar()
		w.expectError(w.provider(), second)
		w.expectEvent("Warning CloudLoadBalancerNotOwned", "guest-uid-second")
		w.remove(w.provider(), second)
		if got := listenPorts(w.theLoadBalancer()); !slices.Equal(got, []int{80, 443}) {
			t.Errorf("%s: ports %v", name, got)
		}
	}
}

// Terraform replaces all labels of the load balancer that Services share.
func TestAGuestWhoseLabelsAreReplacedJoinsAgain(t *testing.T) {
	t.Parallel()
	w := newSharingWorld(t, "instant", 1)
	first, second := w.shared()
	w.setLabels(w.theLoadBalancer(), map[string]string{"made-by": "terraform"})
	w.ensure(w.provider(), first)
	second.Spec.Ports[0].NodePort++
	w.expectUnmet(second, "Port 443")
	second.Spec.Ports[0].NodePort--
	w.ensure(w.provider(), second)
	w.remove(w.provider(), second)
	w.expectPorts(first, 80)
}

// A guest that leaves by itself may come back.
func TestAGuestThatHasLeftLeavesNoLabel(t *testing.T) {
	t.Parallel()
	w := newSharingWorld(t, "instant", 1)
	_, second := w.shared()
	w.remove(w.provider(), second)
	for key := range w.theLoadBalancer().Labels {
		if strings.Contains(key, "uid-second") {
			t.Errorf("label %s is left", key)
		}
	}
}

// The owner is deleted, and its last guest leaves before the owner has named it as its heir.
func TestALoadBalancerWhoseLastGuestLeavesIsDeletedWithItsOwner(t *testing.T) {
	t.Parallel()
	w := newSharingWorld(t, "instant", 1)
	first, second := w.shared()
	left := false
	w.wire.setIntercept(func(r *http.Request) *http.Response {
		if strings.HasSuffix(r.URL.Path, "/delete_service") && !left {
			left = true
			w.remove(w.provider(), second)
		}
		return nil
	})
	lbs, _ := w.provider().LoadBalancer()
	if err := lbs.EnsureLoadBalancerDeleted(t.Context(), "", doomed(first)); err == nil ||
		!strings.Contains(err.Error(), "the last guest has left") || !left {
		t.Errorf("got %v, the guest has left: %t", err, left)
	}
	w.wire.setIntercept(nil)
	w.remove(w.provider(), first)
	w.expectNone()
}

// A Service that joined a load balancer whose deletion is on its way would lose it, and its address, at once.
func TestAServiceDoesNotJoinALoadBalancerThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newSharingWorld(t, "instant", 1)
		cloud := w.provider()
		first, second := newService("first", share, 80), newService("second", share, 443)
		w.ensure(cloud, first)
		release := w.holdFirst(http.MethodDelete)
		var both sync.WaitGroup
		both.Go(func() { w.remove(cloud, first) })
		synctest.Wait()
		w.wire.take()
		both.Go(func() { w.ensure(cloud, second) })
		synctest.Wait()
		w.expectNoWrites()
		release()
		both.Wait()
		w.expectPorts(second, 443)
	})
}
