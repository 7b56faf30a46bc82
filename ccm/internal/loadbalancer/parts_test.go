package loadbalancer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

// request is a request of the CCM: "POST add_service", and the fields of its body.
type request struct {
	what string
	body map[string]any
}

func readRequest(t *testing.T, r *http.Request) request {
	t.Helper()
	req := request{what: r.Method + " " + path.Base(r.URL.Path)}
	if r.Body == nil || r.Body == http.NoBody {
		return req
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	r.Body = io.NopCloser(bytes.NewReader(data))
	if len(data) > 0 {
		if err := json.Unmarshal(data, &req.body); err != nil {
			t.Error(err)
		}
	}
	return req
}

// refuse makes the API refuse the requests that match, until setIntercept(nil).
func (w *world) refuse(match func(request) bool) {
	w.refuseAs(http.StatusUnprocessableEntity, "invalid_input", func(r *http.Request) bool { return match(readRequest(w.t, r)) })
}

// refuseAs makes the API answer the requests that match with an error, until setIntercept(nil).
func (w *world) refuseAs(status int, code string, match func(*http.Request) bool) {
	w.wire.setIntercept(func(r *http.Request) *http.Response {
		if match(r) {
			return apiError(status, code)
		}
		return nil
	})
}

// expectTargets fails the test if the load balancer has other targets.
func (w *world) expectTargets(want []int64) {
	w.t.Helper()
	if got := targetIDs(w.theLoadBalancer()); !slices.Equal(got, want) {
		w.t.Errorf("targets %v, want %v", got, want)
	}
}

// Each part of a load balancer converges on its own: one part fails, all others get what they should.
func TestAnErrorInOnePartDoesNotHoldUpTheOthers(t *testing.T) {
	t.Parallel()
	is := func(what string) func(request) bool { return func(r request) bool { return r.what == what } }
	number := func(r request, field string) int {
		n, _ := r.body[field].(float64)
		return int(n)
	}
	// state describes all that the change changes, by part.
	state := func(w *world) map[string]string {
		lb := w.theLoadBalancer()
		parts := map[string]string{"name": lb.Name, "type": lb.LoadBalancerType.Name, "algorithm": string(lb.Algorithm.Type),
			"reverse": lb.PublicNet.IPv4.DNSPtr, "network": fmt.Sprint(len(lb.PrivateNet))}
		for _, s := range lb.Services {
			parts[fmt.Sprintf("port %d", s.ListenPort)] = fmt.Sprint(s.DestinationPort)
		}
		for i, id := range serverIDs(w.nodes) {
			parts[fmt.Sprintf("node %d", i)] = fmt.Sprint(slices.Contains(targetIDs(lb), id))
		}
		return parts
	}
	for name, tc := range map[string]struct {
		refused func(*world) func(request) bool
		parts   []string // the parts that may differ
	}{
		"name": {func(*world) func(request) bool {
			return func(r request) bool { return strings.HasPrefix(r.what, "PUT") && r.body["name"] != nil }
		}, []string{"name"}},
		"type":        {func(*world) func(request) bool { return is("POST change_type") }, []string{"type"}},
		"algorithm":   {func(*world) func(request) bool { return is("POST change_algorithm") }, []string{"algorithm"}},
		"reverse DNS": {func(*world) func(request) bool { return is("POST change_dns_ptr") }, []string{"reverse"}},
		"network":     {func(*world) func(request) bool { return is("POST attach_to_network") }, []string{"network"}},
		"one port more": {func(*world) func(request) bool {
			return func(r request) bool { return r.what == "POST add_service" && number(r, "listen_port") == 82 }
		}, []string{"port 82"}},
		"one port less": {func(*world) func(request) bool { return is("POST delete_service") }, []string{"port 81"}},
		"one port":      {func(*world) func(request) bool { return is("POST update_service") }, []string{"port 80"}},
		"the record": {func(*world) func(request) bool {
			return func(r request) bool { return strings.HasPrefix(r.what, "PUT") && r.body["labels"] != nil }
		}, []string{"port 82", "port 83"}},
		"one new target": {func(w *world) func(request) bool {
			id := fmt.Sprintf("map[id:%v]", float64(serverIDs(w.nodes)[2]))
			return func(r request) bool { return r.what == "POST add_target" && fmt.Sprint(r.body["server"]) == id }
		}, []string{"node 2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 2)
			svc := newService("web", map[string]string{"name": "web"}, 80, 81)
			w.ensure(w.provider(func(c *ccm.Config) { c.Network, c.RoutesEnabled = "", false }), svc)

			w.addServer("node-3")
			w.addServer("node-4")
			setPorts(svc, 80, 82, 83)
			svc.Spec.Ports[0].NodePort = 31111
			annotate(svc, map[string]string{"name": "edge", "type": "lb21", "algorithm-type": "least_connections",
				"ipv4-rdns": "a.example.org"})
			want := map[string]string{"name": "edge", "type": "lb21", "algorithm": "least_connections", "reverse": "a.example.org",
				"network": "1", "port 80": "31111", "port 82": "30082", "port 83": "30083"}
			for i := range w.nodes {
				want[fmt.Sprintf("node %d", i)] = "true"
			}
			w.refuse(tc.refused(w))
			cloud := w.provider()
			w.expectError(cloud, svc, "invalid_input")
			got := state(w)
			for part, value := range want {
				if got[part] != value && !slices.Contains(tc.parts, part) {
					t.Errorf("%s: got %q, want %q", part, got[part], value)
				}
			}
			w.wire.setIntercept(nil)
			w.ensure(cloud, svc)
			for part, value := range want {
				if got := state(w); got[part] != value {
					t.Errorf("afterwards %s: got %q, want %q", part, got[part], value)
				}
			}
		})
	}
}

func TestNoTargetIsLostIfItsReplacementIsRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*world, *corev1.Service){
		"new nodes": func(w *world, _ *corev1.Service) {
			w.nodes = nil
			w.addServer("new-1")
			w.addServer("new-2")
		},
		"private addresses": func(_ *world, svc *corev1.Service) { annotate(svc, map[string]string{"use-private-ip": "true"}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _, svc := newServingWorld(t, "instant", 2, nil, 80)
			w.clock.Step(time.Minute) // health checks
			before := targetIDs(w.theLoadBalancer())
			change(w, svc)
			w.refuse(func(r request) bool {
				return r.what == "POST add_target" && (name == "new nodes" || r.body["use_private_ip"] == true)
			})
			cloud := w.provider()
			w.expectError(cloud, svc)
			w.expectTargets(before)
			w.wire.setIntercept(nil)
			for range 2 { // the old targets leave when a new one is healthy
				w.ensure(cloud, svc)
				w.clock.Step(30 * time.Second)
			}
			w.expectTargets(serverIDs(w.nodes))
		})
	}
}

// The target serves as before, and the error says what was refused.
func TestATargetThatMayNotLeaveIsNotAddedTwice(t *testing.T) {
	t.Parallel()
	w, _, svc := newServingWorld(t, "instant", 1, nil, 80)
	w.clock.Step(time.Minute) // health checks
	annotate(svc, map[string]string{"use-private-ip": "true"})
	w.refuse(func(r request) bool { return r.what == "POST remove_target" })
	_, err := w.tryEnsure(w.provider(), svc)
	if err == nil || strings.Contains(err.Error(), "add_target") || !slices.Equal(targetIDs(w.theLoadBalancer()), serverIDs(w.nodes)) {
		t.Errorf("%v, targets %v", err, targetIDs(w.theLoadBalancer()))
	}
}

// The answer to a removal is lost, and the target does not come back. Until it is known what is there, no other target
// is removed.
func TestNoOtherTargetIsRemovedWhileOneMayBeMissing(t *testing.T) {
	t.Parallel()
	w, _, svc := newServingWorld(t, "instant", 3, nil, 80)
	for _, id := range serverIDs(w.nodes) {
		w.power(id, false) // all change their address at once
	}
	w.clock.Step(time.Minute) // health checks
	annotate(svc, map[string]string{"use-private-ip": "true"})
	w.wire.setIntercept(func(r *http.Request) *http.Response {
		switch path.Base(r.URL.Path) {
		case "remove_target":
			if resp, err := w.fake.Transport().RoundTrip(r); err == nil {
				_ = resp.Body.Close()
			}
		case "add_target":
		default:
			return nil
		}
		return apiError(http.StatusBadGateway, "bad_gateway")
	})
	cloud := w.provider()
	w.expectError(cloud, svc)
	if got := targetIDs(w.theLoadBalancer()); len(got) != 2 {
		t.Errorf("targets %v are left, want 2 of 3", got)
	}
	w.wire.setIntercept(nil)
	w.ensure(cloud, svc)
	w.expectTargets(serverIDs(w.nodes))
}

// Errors that concern the whole load balancer end the sync: further calls would fail too, and each costs.
func TestAnErrorOfTheWholeLoadBalancerEndsTheSync(t *testing.T) {
	t.Parallel()
	for code, status := range map[string]int{"locked": 423, "conflict": 409, "rate_limit_exceeded": 429, "unauthorized": 401,
		"forbidden": 403} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			w, cloud, svc := newServingWorld(t, "instant", 1, nil, 80)
			setPorts(svc, 81, 82, 83)
			w.addServer("node-2")
			kinds := map[string]bool{}
			w.wire.setIntercept(func(r *http.Request) *http.Response {
				if r.Method != http.MethodPost {
					return nil
				}
				kinds[fmt.Sprint(readRequest(t, r))] = true
				return apiError(status, code)
			})
			w.expectError(cloud, svc)
			if len(kinds) != 1 {
				t.Errorf("sent %v, want one operation", kinds)
			}
		})
	}
}

// refuseServers makes the API refuse these servers as targets, also within the creation of a load balancer.
func (w *world) refuseServers(ids ...int64) {
	w.refuseAs(http.StatusUnprocessableEntity, "unsupported_error", func(r *http.Request) bool {
		text, err := json.Marshal(readRequest(w.t, r).body)
		w.must(err)
		return !strings.HasSuffix(r.URL.Path, "/remove_target") && slices.ContainsFunc(ids, func(id int64) bool {
			return strings.Contains(string(text), fmt.Sprintf(`"server":{"id":%d}`, id))
		})
	})
}

// One server is in another network zone, or was deleted in the meantime.
func TestARefusedTargetHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		refused, before, after []int // indexes of nodes
		off                    bool  // those before
		late                   bool  // the API takes the request, and its action fails
	}{
		"a new load balancer":                      {refused: []int{0}, after: []int{0, 1, 2}},
		"a new load balancer, all are refused":     {refused: []int{0, 1}, after: []int{0, 1}},
		"a node is excluded, others stay":          {refused: []int{3}, before: []int{0, 1, 2}, after: []int{1, 2, 3}},
		"a node is excluded, the action fails":     {refused: []int{3}, before: []int{0, 1, 2}, after: []int{1, 2, 3}, late: true},
		"all nodes are replaced":                   {refused: []int{2}, before: []int{0, 1}, after: []int{2, 3, 4}},
		"all nodes are replaced, the action fails": {refused: []int{2}, before: []int{0, 1}, after: []int{2, 3, 4}, late: true},
		"all nodes are replaced by a refused one":  {refused: []int{2}, before: []int{0, 1}, after: []int{2}},
		"all were off, and are replaced by one":    {refused: []int{2}, before: []int{0, 1}, after: []int{2}, off: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 5)
			cloud, svc, all := w.provider(), newService("web", nil, 80), w.nodes
			chosen := func(indexes []int) (nodes []*corev1.Node) {
				for _, i := range indexes {
					nodes = append(nodes, all[i])
				}
				return nodes
			}
			if test.before != nil {
				w.nodes = chosen(test.before)
				w.ensure(cloud, svc)
			}
			for _, id := range serverIDs(chosen(test.before)) {
				if test.off {
					_, _, err := w.api.Server.Poweroff(t.Context(), &hcloud.Server{ID: id})
					w.must(err)
				}
			}
			w.nodes = chosen(test.after)
			w.refuseServers(serverIDs(chosen(test.refused))...)
			isRefused := func(i int) bool { return slices.Contains(test.refused, i) }
			want := serverIDs(chosen(slices.DeleteFunc(slices.Clone(test.after), isRefused)))
			if len(want) == 0 && test.before != nil && !test.off {
				want = serverIDs(chosen(test.before[:1])) // the last one that serves stays
			}
			code := "unsupported_error"
			if test.late {
				code = "action_failed"
				w.wire.setIntercept(func(r *http.Request) *http.Response {
					if r.Method == http.MethodPost && strings.Contains(fmt.Sprint(readRequest(t, r).body), fmt.Sprintf("server:map[id:%v]",
						float64(serverIDs(chosen(test.refused))[0]))) {
						return w.injectFault(fault.FailAction("action_failed", "injected"))
					}
					return nil
				})
			}
			w.expectError(cloud, svc, fmt.Sprintf("add_target server %d", serverIDs(chosen(test.refused))[0]), code)
			w.expectError(cloud, svc)
			w.expectTargets(want)
			w.wire.setIntercept(nil)
			w.ensure(cloud, svc)
			w.expectTargets(serverIDs(w.nodes))
		})
	}
}

func TestARefusedPortOfANewLoadBalancerHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 2)
	cloud, svc := w.provider(), newService("web", nil, 80, 81)
	w.refuseAs(http.StatusUnprocessableEntity, "unsupported_error", func(r *http.Request) bool {
		text, err := json.Marshal(readRequest(t, r).body)
		w.must(err)
		return strings.Contains(string(text), `"listen_port":81`)
	})
	w.expectError(cloud, svc, "add_service tcp 81", "unsupported_error")
	w.expectTargets(serverIDs(w.nodes))
	if ports := listenPorts(w.theLoadBalancer()); !slices.Equal(ports, []int{80}) {
		t.Errorf("ports %v", ports)
	}
}

// The load balancer is found by its name, and one of two servers, or the network, is refused: the Service gets its settings nevertheless.
func TestARefusedPartHoldsUpNoSetting(t *testing.T) {
	t.Parallel()
	for refused, targets := range map[string]int{"unsupported_error": 1, "no_subnet_available": 2} {
		w := newWorld(t, "instant", 2)
		w.create(hcloud.LoadBalancerCreateOpts{Name: "edge", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"},
			Location: &hcloud.Location{Name: "fsn1"}})
		cloud, svc := w.provider(), newService("web", map[string]string{"name": "edge", "algorithm-type": "least_connections"}, 80)
		if targets == 1 {
			w.refuseServers(serverIDs(w.nodes[:1])...)
		} else {
			w.refuseAs(422, refused, func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/attach_to_network") })
		}
		for range 2 {
			w.expectError(cloud, svc, refused)
		}
		w.expectTargets(serverIDs(w.nodes[2-targets:]))
		if got := w.theLoadBalancer().Algorithm.Type; got != hcloud.LoadBalancerAlgorithmTypeLeastConnections {
			t.Errorf("%s: algorithm %s", refused, got)
		}
	}
}

// What the Service asks to hide must not stay in its status while a part of its load balancer fails.
func TestAFailedSyncHidesWhatTheServiceAsksToHide(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	svc := newService("web", map[string]string{"disable-public-network": "true"}, 80)
	kube, cloud := fake.NewClientset(svc), w.provider()
	controllerOf(cloud).Kube = kube
	svc.Status.LoadBalancer = *w.ensure(cloud, svc)
	w.must(kube.Tracker().Update(corev1.SchemeGroupVersion.WithResource("services"), svc, svc.Namespace))
	annotate(svc, map[string]string{"disable-private-ingress": "true"})
	w.addServer("n2")
	w.refuseServers(serverIDs(w.nodes[1:])...)
	w.expectError(cloud, svc, "unsupported_error")
	got, err := kube.CoreV1().Services(svc.Namespace).Get(t.Context(), svc.Name, metav1.GetOptions{})
	if err != nil || len(got.Status.LoadBalancer.Ingress) != 0 {
		t.Errorf("%v: the Service shows %+v", err, got.Status.LoadBalancer.Ingress)
	}
}

// The creation is refused for a target first, and then because the type has room for five ports.
func TestARefusedTargetAndTooManyPortsLeaveWhatThereIsRoomFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 2)
	w.refuseServers(serverIDs(w.nodes[:1])...)
	_, _ = w.tryEnsure(w.provider(), newService("web", nil, 80, 81, 82, 83, 84, 85))
	w.expectTargets(serverIDs(w.nodes[1:]))
	if n := len(w.theLoadBalancer().Services); n != 5 {
		t.Errorf("%d ports", n)
	}
}

// The public interface can stay for many reasons, and the Service asks not to be reachable.
func TestAPrivateServiceHasNoOpenPort(t *testing.T) {
	t.Parallel()
	private := map[string]string{"disable-public-network": "true"}
	t.Run("a person's target holds the interface", func(t *testing.T) {
		t.Parallel()
		w, cloud, svc := newServingWorld(t, "instant", 2, nil, 80, 443)
		ip := net.IPv4(203, 0, 113, 7)
		_, _, err := w.api.LoadBalancer.AddIPTarget(t.Context(), w.theLoadBalancer(), hcloud.LoadBalancerAddIPTargetOpts{IP: ip})
		w.must(err)
		annotate(svc, private)
		for _, ports := range [][]int{{80, 443}, nil, nil} { // after a minute
			w.expectError(cloud, svc, "disable_public_interface")
			w.expectPorts(svc, ports...)
			w.clock.Step(time.Minute)
		}
		_, _, err = w.api.LoadBalancer.RemoveIPTarget(t.Context(), w.theLoadBalancer(), ip)
		w.must(err)
		w.ensure(cloud, svc)
		w.expectPorts(svc, 80, 443)
	})
	t.Run("it is lent, and only a default asks", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, "instant", 2)
		w.lend("front")
		cloud := w.provider(func(c *ccm.Config) { c.LoadBalancerDefaults = map[string]string{"disable-public-network": "true"} })
		svc := newService("web", map[string]string{"adopt": "front"}, 80)
		for range 3 {
			w.ensure(cloud, svc)
			w.expectPorts(svc, 80, 9000)
			w.clock.Step(time.Minute)
		}
	})
	t.Run("the CCM has no network", func(t *testing.T) {
		t.Parallel()
		w, _, svc := newServingWorld(t, "instant", 2, nil, 80)
		annotate(svc, private)
		cloud := w.provider(func(c *ccm.Config) { c.Network, c.RoutesEnabled = "", false })
		w.expectError(cloud, svc, "needs a private network")
		w.clock.Step(time.Minute)
		w.expectError(cloud, svc, "needs a private network")
		w.expectPorts(svc)
		w.ensure(w.provider(), svc)
		w.expectPorts(svc, 80)
	})
	t.Run("the owner is public", func(t *testing.T) {
		t.Parallel()
		w := newSharingWorld(t, "instant", 1)
		first, second := newService("first", share, 80), newService("second", share, 443)
		w.ensure(w.provider(), first)
		w.ensure(w.provider(), second)
		annotate(second, private)
		cloud := w.provider()
		w.expectError(cloud, second, "differs from load balancer")
		w.clock.Step(time.Minute)
		w.expectError(cloud, second, "differs from load balancer")
		w.expectPorts(first, 80)
		annotate(first, private)
		w.ensure(w.provider(), first)
		w.ensure(w.provider(), second)
		w.expectPorts(first, 80, 443)
	})
}
