package loadbalancer_test

import (
	"fmt"
	"net"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
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
	// comparison is set if the change is a person's in the cloud, which the periodic comparison repairs.
	comparison bool
	// floor is the number of targets that must be there after each call; 0 is not checked.
	floor int
	// hidden lists ports that must not be reachable from the internet after any call.
	hidden []int
	// health is how often new targets have to become healthy before the change is complete.
	health int
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
	private := func(ip string, want ...int) func(*world, *hcloud.LoadBalancer) error {
		return func(w *world, lb *hcloud.LoadBalancer) error {
			if lb.PublicNet.Enabled || len(lb.PrivateNet) != 1 || !lb.PrivateNet[0].IP.Equal(net.ParseIP(ip)) {
				return fmt.Errorf("networking %+v, %+v", lb.PublicNet, lb.PrivateNet)
			}
			return ports(want...)(w, lb)
		}
	}
	return []crashScenario{
		{name: "create", prepare: fresh(nil, 80, 443), change: nothing, check: ports(80, 443)},
		{name: "create with a chosen private address and no public interface", change: nothing, hidden: []int{80},
			prepare: fresh(map[string]string{"private-ipv4": "10.0.200.1", "disable-public-network": "true", "name": "edge"}, 80),
			check:   private("10.0.200.1", 80)},
		{name: "create without a public interface", change: nothing, prepare: fresh(map[string]string{"disable-public-network": "true"},
			80), check: ports(80), hidden: []int{80}},
		{name: "another private address without a public interface", moves: true, hidden: []int{80, 443},
			prepare: there(map[string]string{"private-ipv4": "10.0.200.1", "disable-public-network": "true"}, 80),
			change: func(_ *world, svc *corev1.Service) {
				setPorts(svc, 80, 443)
				annotate(svc, map[string]string{"private-ipv4": "10.0.200.2"})
			},
			check: private("10.0.200.2", 80, 443)},
		{name: "disable the public interface", moves: true, floor: 1, hidden: []int{443}, prepare: there(nil, 80), check: ports(80, 443),
			change: func(_ *world, svc *corev1.Service) {
				setPorts(svc, 80, 443)
				annotate(svc, map[string]string{"disable-public-network": "true"})
			}},
		{name: "enable the public interface", health: 4, floor: 1, prepare: there(map[string]string{"disable-public-network": "true"}, 80),
			check: ports(80),
			change: func(_ *world, svc *corev1.Service) {
				annotate(svc, map[string]string{"disable-public-network": "false"})
			}},
		{name: "enable the public interface, with another private address", health: 4, moves: true, floor: 1, check: ports(80),
			prepare: there(map[string]string{"disable-public-network": "true", "private-ipv4": "10.0.200.1"}, 80),
			change: func(_ *world, svc *corev1.Service) {
				annotate(svc, map[string]string{"disable-public-network": "false", "private-ipv4": "10.0.200.2"})
			}},
		{name: "replace all nodes where there is no room", floor: 2, health: 4, check: ports(80),
			prepare: func(w *world) *corev1.Service {
				w.addServer("node-3")
				svc := there(nil, 80)(w)
				lb := w.theLoadBalancer()
				for i := range lb.LoadBalancerType.MaxTargets - 3 {
					_, _, err := w.api.LoadBalancer.AddIPTarget(w.t.Context(), lb,
						hcloud.LoadBalancerAddIPTargetOpts{IP: net.IPv4(203, 0, 113, byte(i+1))})
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
				w.create(hcloud.LoadBalancerCreateOpts{Name: "edge", Services: []hcloud.LoadBalancerCreateOptsService{tcp(9000, 9001)}})
				return newService("web", map[string]string{"name": "edge", "keep-on-delete": "false"}, 80)
			}},
		{name: "adopt without a public interface", change: nothing, hidden: []int{80}, moves: true,
			check: func(w *world, lb *hcloud.LoadBalancer) error {
				if lb.PublicNet.Enabled {
					return fmt.Errorf("the public interface is enabled")
				}
				return ports(80, 9000)(w, lb)
			},
			prepare: func(w *world) *corev1.Service {
				w.create(hcloud.LoadBalancerCreateOpts{Name: "edge", Services: []hcloud.LoadBalancerCreateOptsService{tcp(9000, 9001)},
					Targets: []hcloud.LoadBalancerCreateOptsTarget{serverTarget(&hcloud.Server{ID: serverIDs(w.nodes)[0]})}})
				return newService("web", map[string]string{"name": "edge", "disable-public-network": "true", "keep-on-delete": "false"}, 80)
			}},
		{name: "everything at once", floor: 1, moves: true, hidden: []int{8443, 9443},
			prepare: there(map[string]string{"ipv4-rdns": "a.example.org"}, 80, 443), check: ports(443, 8443, 9443),
			change: func(w *world, svc *corev1.Service) {
				setPorts(svc, 443, 8443, 9443)
				svc.Spec.Ports[0].NodePort = 31111
				annotate(svc, map[string]string{"type": "lb31", "disable-public-network": "true", "algorithm-type": "least_connections",
					"name":      "edge",
					"ipv4-rdns": "b.example.org", "uses-proxyprotocol": "true"})
				w.addServer("node-3")
				w.addServer("node-4")
				w.nodes = w.nodes[2:]
			}},
		{name: "change ports, nodes, type and addresses", floor: 1, health: 3, prepare: there(nil, 80, 443), check: ports(80, 8443),
			change: func(w *world, svc *corev1.Service) {
				setPorts(svc, 80, 8443)
				annotate(svc, map[string]string{"type": "lb21", "use-private-ip": "true", "algorithm-type": "least_connections"})
				w.addServer("node-3")
				w.nodes = w.nodes[1:]
			}},
		{name: "repair what a person has changed", comparison: true, prepare: there(nil, 80, 443), check: ports(80, 443), floor: 1,
			change: func(w *world, _ *corev1.Service) {
				lb := w.theLoadBalancer()
				_, _, err := w.api.LoadBalancer.DeleteService(w.t.Context(), lb, 443)
				w.must(err)
				dest := 9
				_, _, err = w.api.LoadBalancer.UpdateService(w.t.Context(), lb, 80,
					hcloud.LoadBalancerUpdateServiceOpts{DestinationPort: &dest})
				w.must(err)
				_, _, err = w.api.LoadBalancer.RemoveServerTarget(w.t.Context(), lb, &hcloud.Server{ID: serverIDs(w.nodes)[0]})
				w.must(err)
			}},
		{name: "hide again what a person has made public", comparison: true,
			prepare: there(map[string]string{"disable-public-network": "true"}, 80), check: ports(80), floor: 2, moves: true,
			change: func(w *world, _ *corev1.Service) {
				_, _, err := w.api.LoadBalancer.EnablePublicInterface(w.t.Context(), w.theLoadBalancer())
				w.must(err)
			}},
		{name: "delete", prepare: there(nil, 80), change: nothing, gone: true},
		{name: "order a certificate", change: nothing, prepare: fresh(managed("example.org"), 443), check: ports(443)},
		{name: "replace a certificate", prepare: there(managed("example.org"), 443), check: ports(443),
			change: func(_ *world, svc *corev1.Service) { annotate(svc, managed("example.org,www.example.org")) }},
		{name: "delete with a certificate", prepare: there(managed("example.org"), 443), change: nothing, gone: true},
	}
}

func managed(domains string) map[string]string {
	return map[string]string{"protocol": "https", "certificate-type": "managed", "http-managed-certificate-domains": domains,
		"http-managed-certificate-name": "web"}
}
