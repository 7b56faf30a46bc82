package ccm_test

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// crashScenario is a change to a load balancer that the CCM or its successor must complete.
type crashScenario struct {
	name string
	// prepare creates the initial state with a CCM that does not crash.
	prepare func(w *world) *corev1.Service
	// change makes the user's change.
	change func(w *world, svc *corev1.Service)
	// check checks the final load balancer.
	check func(w *world, lb *hcloud.LoadBalancer) error
	// gone is set if the user deletes the Service.
	gone bool
	// floor is the number of targets that must be there after each call; 0 is not checked.
	floor int
	// hidden lists ports that must not be reachable from the internet after any call.
	hidden []int
	// moves is set if an address of the load balancer may change.
	moves bool
}

func crashScenarios() []crashScenario {
	fresh := func(annotations map[string]string, ports ...int32) func(*world) *corev1.Service {
		return func(*world) *corev1.Service { return newService("web", annotations, ports...) }
	}
	there := func(annotations map[string]string, ports ...int32) func(*world) *corev1.Service {
		return func(w *world) *corev1.Service {
			svc := newService("web", annotations, ports...)
			w.ensure(w.provider(), svc)
			return svc
		}
	}
	nothing := func(*world, *corev1.Service) {}
	ports := func(want ...int) func(*world, *hcloud.LoadBalancer) error {
		return func(w *world, lb *hcloud.LoadBalancer) error {
			if !slices.Equal(listenPorts(lb), want) || !slices.Equal(targetIDs(lb), serverIDs(w.nodes)) {
				return fmt.Errorf("ports %v, targets %v; want %v, %v", listenPorts(lb), targetIDs(lb), want, serverIDs(w.nodes))
			}
			return nil
		}
	}
	return []crashScenario{
		{name: "create", prepare: fresh(nil, 80, 443), change: nothing, check: ports(80, 443)},
		{name: "create with a chosen private address and no public interface", change: nothing, hidden: []int{80},
			prepare: fresh(map[string]string{"private-ipv4": "10.0.200.1", "disable-public-network": "true", "name": "edge"}, 80),
			check: func(w *world, lb *hcloud.LoadBalancer) error {
				if lb.PublicNet.Enabled || len(lb.PrivateNet) != 1 || !lb.PrivateNet[0].IP.Equal(net.ParseIP("10.0.200.1")) {
					return fmt.Errorf("networking %+v, %+v", lb.PublicNet, lb.PrivateNet)
				}
				return ports(80)(w, lb)
			}},
		{name: "create without a public interface", change: nothing, prepare: fresh(map[string]string{"disable-public-network": "true"}, 80), check: ports(80), hidden: []int{80}},
		{name: "another private address without a public interface", moves: true, hidden: []int{80, 443},
			prepare: there(map[string]string{"private-ipv4": "10.0.200.1", "disable-public-network": "true"}, 80),
			change: func(_ *world, svc *corev1.Service) {
				setPorts(svc, 80, 443)
				annotate(svc, map[string]string{"private-ipv4": "10.0.200.2"})
			},
			check: func(w *world, lb *hcloud.LoadBalancer) error {
				if lb.PublicNet.Enabled || len(lb.PrivateNet) != 1 || !lb.PrivateNet[0].IP.Equal(net.ParseIP("10.0.200.2")) {
					return fmt.Errorf("networking %+v, %+v", lb.PublicNet, lb.PrivateNet)
				}
				return ports(80, 443)(w, lb)
			}},
		{name: "disable the public interface", moves: true, floor: 1, hidden: []int{443}, prepare: there(nil, 80), check: ports(80, 443),
			change: func(_ *world, svc *corev1.Service) {
				setPorts(svc, 80, 443)
				annotate(svc, map[string]string{"disable-public-network": "true"})
			}},
		{name: "enable the public interface", floor: 1, prepare: there(map[string]string{"disable-public-network": "true"}, 80), check: ports(80),
			change: func(_ *world, svc *corev1.Service) {
				annotate(svc, map[string]string{"disable-public-network": "false"})
			}},
		{name: "enable the public interface, with another private address", moves: true, floor: 1, check: ports(80),
			prepare: there(map[string]string{"disable-public-network": "true", "private-ipv4": "10.0.200.1"}, 80),
			change: func(_ *world, svc *corev1.Service) {
				annotate(svc, map[string]string{"disable-public-network": "false", "private-ipv4": "10.0.200.2"})
			}},
		{name: "replace all nodes where there is no room", floor: 2, check: ports(80),
			prepare: func(w *world) *corev1.Service {
				w.addServer("node-3")
				svc := there(nil, 80)(w)
				lb := w.theLoadBalancer()
				for i := range lb.LoadBalancerType.MaxTargets - 3 {
					_, _, err := w.api.LoadBalancer.AddIPTarget(w.t.Context(), lb, hcloud.LoadBalancerAddIPTargetOpts{IP: net.IPv4(203, 0, 113, byte(i+1))})
					w.must(err)
				}
				return svc
			},
			change: func(w *world, _ *corev1.Service) {
				w.nodes = nil
				for i := range 3 {
					w.addServer(fmt.Sprintf("new-%d", i+1))
				}
			}},
		{name: "rename, and change reverse DNS and a node port", floor: 2, prepare: there(nil, 80, 443), check: ports(80, 443),
			change: func(_ *world, svc *corev1.Service) {
				svc.Spec.Ports[0].NodePort = 31111
				annotate(svc, map[string]string{"name": "edge", "ipv4-rdns": "a.example.org", "ipv6-rdns": "b.example.org"})
			}},
		{name: "adopt", change: nothing, check: ports(80, 9000),
			prepare: func(w *world) *corev1.Service {
				port, dest := 9000, 9001
				_, _, err := w.api.LoadBalancer.Create(w.t.Context(), hcloud.LoadBalancerCreateOpts{Name: "edge", Location: &hcloud.Location{Name: "fsn1"},
					LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Services: []hcloud.LoadBalancerCreateOptsService{{Protocol: "tcp", ListenPort: &port, DestinationPort: &dest}}})
				w.must(err)
				return newService("web", map[string]string{"name": "edge"}, 80)
			}},
		{name: "adopt without a public interface", change: nothing, hidden: []int{80}, moves: true,
			check: func(w *world, lb *hcloud.LoadBalancer) error {
				if lb.PublicNet.Enabled {
					return fmt.Errorf("the public interface is enabled")
				}
				return ports(80, 9000)(w, lb)
			},
			prepare: func(w *world) *corev1.Service {
				port, dest := 9000, 9001
				_, _, err := w.api.LoadBalancer.Create(w.t.Context(), hcloud.LoadBalancerCreateOpts{Name: "edge", Location: &hcloud.Location{Name: "fsn1"},
					LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Services: []hcloud.LoadBalancerCreateOptsService{{Protocol: "tcp", ListenPort: &port, DestinationPort: &dest}},
					Targets: []hcloud.LoadBalancerCreateOptsTarget{{Type: "server", Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: &hcloud.Server{ID: serverIDs(w.nodes)[0]}}}}})
				w.must(err)
				return newService("web", map[string]string{"name": "edge", "disable-public-network": "true"}, 80)
			}},
		{name: "everything at once", floor: 1, moves: true, hidden: []int{8443, 9443},
			prepare: there(map[string]string{"ipv4-rdns": "a.example.org"}, 80, 443), check: ports(443, 8443, 9443),
			change: func(w *world, svc *corev1.Service) {
				setPorts(svc, 443, 8443, 9443)
				svc.Spec.Ports[0].NodePort = 31111
				annotate(svc, map[string]string{"type": "lb31", "disable-public-network": "true", "algorithm-type": "least_connections", "name": "edge",
					"ipv4-rdns": "b.example.org", "uses-proxyprotocol": "true"})
				w.addServer("node-3")
				w.addServer("node-4")
				w.nodes = w.nodes[2:]
			}},
		{name: "change ports, nodes, type and addresses", floor: 1, prepare: there(nil, 80, 443), check: ports(80, 8443),
			change: func(w *world, svc *corev1.Service) {
				setPorts(svc, 80, 8443)
				annotate(svc, map[string]string{"type": "lb21", "use-private-ip": "true", "algorithm-type": "least_connections"})
				w.addServer("node-3")
				w.nodes = w.nodes[1:]
			}},
		{name: "delete", prepare: there(nil, 80), change: nothing, gone: true},
		{name: "order a certificate", change: nothing, prepare: fresh(managed("example.org"), 443), check: ports(443)},
		{name: "replace a certificate", prepare: there(managed("example.org"), 443), check: ports(443),
			change: func(_ *world, svc *corev1.Service) { annotate(svc, managed("example.org,www.example.org")) }},
		{name: "delete with a certificate", prepare: there(managed("example.org"), 443), change: nothing, gone: true},
	}
}

func managed(domains string) map[string]string {
	return map[string]string{"protocol": "https", "certificate-type": "managed", "http-managed-certificate-domains": domains, "http-managed-certificate-name": "web"}
}

// TestAnyCallMayBeTheLast ends the process before and after each API call, then starts another one with
// empty caches. The second process must converge and leave nothing behind.
func TestAnyCallMayBeTheLast(t *testing.T) {
	t.Parallel()
	for _, s := range crashScenarios() {
		for _, actions := range []string{"instant", "realistic"} {
			t.Run(s.name+", "+actions, func(t *testing.T) {
				t.Parallel()
				for i, call := range s.run(t, actions, 0, false) {
					s.run(t, actions, i+1, false)
					if !strings.HasPrefix(call, "GET ") { // a read has no effect: to die after it is the same
						s.run(t, actions, i+1, true)
					}
				}
			})
		}
	}
}

// run runs the scenario and returns the calls of the first CCM. The CCM dies before call
// cutAt, or after it if after is set; with cutAt 0 it does not die.
func (s *crashScenario) run(t *testing.T, actions string, cutAt int, after bool) (calls []string) {
	t.Helper()
	w := newWorld(t, actions, 2)
	svc := s.prepare(w)
	s.change(w, svc)

	seen := w.watch()
	w.wire.reset(cutAt, after)
	mortal := w.provider()
	lbs, _ := mortal.LoadBalancer()
	if s.gone {
		deleted := svc.DeepCopy()
		now := w.nowPtr()
		deleted.DeletionTimestamp = now
		_ = tryRemove(t.Context(), mortal, deleted)
	} else {
		_, _ = lbs.EnsureLoadBalancer(t.Context(), "", svc, w.nodes)
	}
	calls = w.wire.take()
	w.wire.reset(0, false)

	when := fmt.Sprintf("died at call %d (answered: %t)", cutAt, after)
	successor := w.provider()
	if !s.gone {
		w.ensure(successor, svc)
		lb := w.theLoadBalancer()
		if err := s.check(w, lb); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if err := s.noticed(seen, lb); err != nil {
			t.Fatalf("%s: %v: %v", when, err, seen)
		}
		if lb.Labels[ccm.LabelServiceUID] != string(svc.UID) {
			t.Fatalf("%s: labels %v", when, lb.Labels)
		}
		w.wire.take()
		w.ensure(w.provider(), svc)
		if extra := writes(w.wire.take()); len(extra) > 0 {
			t.Fatalf("%s: a further sync still writes %v", when, extra)
		}
		want := 0
		if svc.Annotations[ccm.AnnotationPrefix+"certificate-type"] == "managed" {
			want = 1
		}
		if certs, err := w.api.Certificate.All(t.Context()); err != nil || len(certs) != want {
			t.Fatalf("%s: %d certificates, want %d; %v", when, len(certs), want, err)
		}
	}
	w.remove(successor, svc)
	if left := w.loadBalancers(); len(left) > 0 {
		t.Fatalf("%s: load balancers left: %v", when, left)
	}
	if left, err := w.api.Certificate.All(t.Context()); err != nil || len(left) > 0 {
		t.Fatalf("%s: certificates left: %v, %v", when, left, err)
	}
	w.fake.Close()
	return calls
}

// TestAnyCallMayFail makes each API call fail once: refused, failed before its effect, and failed after it; or
// with an action that fails, or does not end before the process stops to wait for it. The same process must converge, and clients of the Service must notice no more of it than without the error.
func TestAnyCallMayFail(t *testing.T) {
	t.Parallel()
	for _, s := range crashScenarios() {
		if s.gone {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for i, call := range s.fail(t, 0, "") {
				kinds := []string{"refused", "failed", "lost", "action failed", "action hung"}
				switch {
				case strings.HasPrefix(call, "GET /actions/"):
					kinds = kinds[1:2]
				case strings.HasPrefix(call, "GET "):
					kinds = kinds[:2]
				}
				for _, kind := range kinds {
					s.fail(t, i+1, kind)
				}
			}
		})
	}
}

// fail runs the scenario with an error of call number n, and returns the calls of the first sync.
func (s *crashScenario) fail(t *testing.T, n int, kind string) (calls []string) {
	t.Helper()
	w := newWorld(t, "realistic", 2)
	svc := s.prepare(w)
	s.change(w, svc)
	seen := w.watch()
	w.wire.reset(0, false)
	at, failed := 0, ""
	w.wire.setIntercept(func(r *http.Request) *http.Response {
		if at++; at != n {
			return nil
		}
		failed = r.Method + " " + r.URL.Path
		switch kind {
		case "refused":
			return apiError(http.StatusUnprocessableEntity, "invalid_input")
		case "action failed":
			return w.injectFault(fault.FailAction("action_failed", "injected"))
		case "action hung":
			return w.injectFault(fault.HangAction())
		case "lost":
			if resp, err := w.fake.Transport().RoundTrip(r); err == nil {
				_ = resp.Body.Close()
			}
		}
		return apiError(http.StatusInternalServerError, "server_error")
	})
	cloud := w.provider()
	_, _ = w.tryEnsure(cloud, svc)
	calls = w.wire.take()
	w.must(w.fake.Faults().Clear(t.Context()))
	_, err := w.fake.ResumeActions(t.Context())
	w.must(err)
	w.ensure(cloud, svc)
	when := fmt.Sprintf("call %d (%s) %s", n, failed, kind)
	lb := w.theLoadBalancer()
	if err := s.check(w, lb); err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	if err := s.noticed(seen, lb); err != nil {
		t.Fatalf("%s: %v: %v", when, err, seen)
	}
	w.fake.Close()
	return calls
}

// injectFault gives the next write of the CCM the effect. It returns nil, so that the request goes to the cloud.
func (w *world) injectFault(effect fault.Effect) *http.Response {
	if _, err := w.fake.Faults().Add(w.t.Context(), fault.Rule{Writes: true, First: 1, Effect: effect}); err != nil {
		w.t.Error(err)
	}
	return nil
}

// noticed returns an error if clients of the Service noticed more of the change than they must.
func (s *crashScenario) noticed(seen *traffic, final *hcloud.LoadBalancer) error {
	for _, p := range seen.closed {
		if slices.Contains(listenPorts(final), p) {
			return fmt.Errorf("port %d was closed for some time", p)
		}
	}
	if seen.fewest < s.floor {
		return fmt.Errorf("%d targets were left, want at least %d", seen.fewest, s.floor)
	}
	for _, p := range s.hidden {
		if slices.Contains(seen.ports, p) {
			return fmt.Errorf("port %d was reachable from the internet", p)
		}
	}
	if !s.moves && len(seen.lost) > 0 {
		return fmt.Errorf("addresses were lost")
	}
	return nil
}

// TestARouteMayBeInterruptedAtAnyCall is the same for routes: one is stale, one missing, one foreign,
// and one belongs to a node that is gone.
func TestARouteMayBeInterruptedAtAnyCall(t *testing.T) {
	t.Parallel()
	for _, actions := range []string{"instant", "realistic"} {
		t.Run(actions, func(t *testing.T) {
			t.Parallel()
			calls := runRoutes(t, actions, 0, false)
			for n := 1; n <= calls; n++ {
				runRoutes(t, actions, n, false)
				runRoutes(t, actions, n, true)
			}
		})
	}
}

func runRoutes(t *testing.T, actions string, cutAt int, after bool) int {
	t.Helper()
	w := newWorld(t, actions, 2)
	for destination, gateway := range map[string]string{"10.244.1.0/24": "10.0.99.99", "10.244.9.0/24": "10.0.99.98", "192.168.0.0/16": "10.0.99.97"} {
		_, _, err := w.api.Network.AddRoute(t.Context(), w.network, hcloud.NetworkAddRouteOpts{
			Route: hcloud.NetworkRoute{Destination: cidr(destination), Gateway: net.ParseIP(gateway)}})
		w.must(err)
	}
	w.wire.reset(cutAt, after)
	reconcileRoutes(t, w, w.provider(), false)
	calls := len(w.wire.take())
	w.wire.reset(0, false)
	successor := w.provider()
	reconcileRoutes(t, w, successor, true)
	want := []string{"10.244.1.0/24 via " + w.privateIP(0), "10.244.2.0/24 via " + w.privateIP(1), "192.168.0.0/16 via 10.0.99.97"}
	if got := w.networkRoutes(); !slices.Equal(got, want) {
		t.Fatalf("died at call %d (answered: %t): routes %v, want %v", cutAt, after, got, want)
	}
	w.wire.take()
	reconcileRoutes(t, w, w.provider(), true)
	if extra := writes(w.wire.take()); len(extra) > 0 {
		t.Fatalf("died at call %d (answered: %t): a further round still writes %v", cutAt, after, extra)
	}
	w.fake.Close()
	return calls
}

// reconcileRoutes does the same as the route controller, with pod range 10.244.N.0/24 for the N-th
// node. With insist it fails the test if it does not succeed within a few rounds.
func reconcileRoutes(t *testing.T, w *world, cloud *ccm.Cloud, insist bool) {
	t.Helper()
	routes, ok := cloud.Routes()
	if !ok {
		t.Fatal("no routes")
	}
	round := func() error {
		existing, err := routes.ListRoutes(t.Context(), "")
		if err != nil {
			return err
		}
		wanted := map[string]types.NodeName{}
		for i, n := range w.nodes {
			wanted[fmt.Sprintf("10.244.%d.0/24", i+1)] = types.NodeName(n.Name)
		}
		for _, r := range existing {
			if node, ok := wanted[r.DestinationCIDR]; ok && node == r.TargetNode {
				delete(wanted, r.DestinationCIDR)
				continue
			}
			if err := routes.DeleteRoute(t.Context(), "", r); err != nil {
				return err
			}
		}
		for destination, node := range wanted {
			if err := routes.CreateRoute(t.Context(), "", "", &cloudprovider.Route{TargetNode: node, DestinationCIDR: destination}); err != nil {
				return err
			}
		}
		return nil
	}
	err := round()
	for i := 0; insist && err != nil && i < 10; i++ {
		err = round()
	}
	if insist && err != nil {
		t.Fatal(err)
	}
}
