package route_test

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/route"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// world is a simulated cloud with servers in a network, their Nodes, and the routes of a provider.
type world struct {
	t       *testing.T
	fake    *fakecloud.Cloud
	api     *hcloud.Client // the test's own client: its calls are not recorded
	clock   *ccmtest.AutoClock
	network *hcloud.Network
	nodes   []*corev1.Node
	routes  *route.Routes

	mu     sync.Mutex
	writes []string // of the provider, such as "/networks/1/actions/add_route"
	// answer, if set, may answer the provider instead of the cloud.
	answer func(*http.Request) *http.Response
}

// newWorld creates a cloud with n servers. actions is the duration of its actions: "instant" or "realistic".
func newWorld(t *testing.T, actions string, n int, change ...func(*ccm.Config)) *world {
	t.Helper()
	w := &world{t: t, clock: ccmtest.NewAutoClock()}
	w.fake = fakecloud.New(fakecloud.Options{Clock: w.clock.FakeClock, Actions: actions})
	t.Cleanup(w.fake.Close)
	w.api = w.fake.Client()
	w.createNetwork("10.0.0.0/16")
	for range n {
		w.addServer()
	}
	cfg := ccm.Config{Token: fakecloud.DefaultToken, Endpoint: "http://fake.invalid/v1", Network: "internal", RoutesEnabled: true,
		ServerCacheTTL: 10 * time.Second, RequestTimeout: 10 * time.Second,
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}
	for _, c := range change {
		c(&cfg)
	}
	cloud := ccm.New(cfg, ccm.WithClock(w.clock), ccm.WithRoundTripper(w), ccm.WithJitter(func() float64 { return 1 }))
	routes, _ := cloud.Routes()
	w.routes = routes.(*route.Routes)
	return w
}

// RoundTrip sends a request of the provider.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	if r.Method != http.MethodGet {
		w.writes = append(w.writes, strings.TrimPrefix(r.URL.Path, "/v1"))
	}
	answer := w.answer
	w.mu.Unlock()
	if answer != nil {
		if resp := answer(r); resp != nil {
			return resp, nil
		}
	}
	return w.fake.Transport().RoundTrip(r)
}

// setAnswer sets what may answer instead of the cloud, and forgets the writes so far.
func (w *world) setAnswer(answer func(*http.Request) *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer, w.writes = answer, nil
}

// must fails the test if a call failed. Then it lets all actions finish.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	w.clock.Step(time.Minute)
}

func cidr(s string) *net.IPNet {
	p := netip.MustParsePrefix(s)
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// createNetwork creates the network with one subnet.
func (w *world) createNetwork(subnet string) {
	w.t.Helper()
	network, _, err := w.api.Network.Create(w.t.Context(), hcloud.NetworkCreateOpts{Name: "internal", IPRange: cidr("10.0.0.0/8"),
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: hcloud.NetworkZoneEUCentral,
			IPRange: cidr(subnet)}}})
	w.must(err)
	w.network = network
}

// addServer creates the next server in the network, and its Node with the pod range 10.244.N.0/24.
func (w *world) addServer() {
	w.t.Helper()
	n := len(w.nodes) + 1
	name := fmt.Sprintf("node-%d", n)
	made, _, err := w.api.Server.Create(w.t.Context(), hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "ubuntu-24.04"},
		Location: &hcloud.Location{Name: "fsn1"}, Networks: []*hcloud.Network{w.network},
	})
	w.must(err)
	w.clock.Step(5 * time.Minute) // all its actions finish
	node := ccmtest.Node(name, ccmtest.ProviderID(made.Server.ID))
	node.Spec.PodCIDRs = []string{fmt.Sprintf("10.244.%d.0/24", n)}
	w.nodes = append(w.nodes, node)
}

// knowNodes tells the routes the world's Nodes and others.
func (w *world) knowNodes(others ...*corev1.Node) {
	w.t.Helper()
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, n := range append(others, w.nodes...) {
		w.must(nodes.Add(n))
	}
	w.routes.UseNodes(corelisters.NewNodeLister(nodes))
}

// create creates the route to the pod range of the N-th node.
func (w *world) create(n int) error {
	return w.routes.CreateRoute(w.t.Context(), "", "", routeTo(n))
}

// routeTo returns the route to the pod range of the N-th node.
func routeTo(n int) *cloudprovider.Route {
	return &cloudprovider.Route{TargetNode: types.NodeName(fmt.Sprintf("node-%d", n)), DestinationCIDR: fmt.Sprintf("10.244.%d.0/24", n)}
}

// list returns the routes that the route controller sees.
func (w *world) list() []*cloudprovider.Route {
	w.t.Helper()
	all, err := w.routes.ListRoutes(w.t.Context(), "")
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// server returns the server of the N-th node.
func (w *world) server(n int) *hcloud.Server {
	w.t.Helper()
	server, _, err := w.api.Server.GetByName(w.t.Context(), fmt.Sprintf("node-%d", n))
	if err != nil || server == nil {
		w.t.Fatalf("server %d: %v", n, err)
	}
	return server
}

// privateIP returns the address of the N-th node's server in the network.
func (w *world) privateIP(n int) string {
	w.t.Helper()
	return w.server(n).PrivateNet[0].IP.String()
}

// addRoute adds a route as a person or another process does.
func (w *world) addRoute(destination, gateway string) {
	w.t.Helper()
	_, _, err := w.api.Network.AddRoute(w.t.Context(), w.network, hcloud.NetworkAddRouteOpts{
		Route: hcloud.NetworkRoute{Destination: cidr(destination), Gateway: net.ParseIP(gateway)}})
	w.must(err)
}

// networkRoutes returns the routes of the network.
func (w *world) networkRoutes() (all []string) {
	w.t.Helper()
	network, _, err := w.api.Network.GetByID(w.t.Context(), w.network.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range network.Routes {
		all = append(all, fmt.Sprintf("%s via %s", r.Destination, r.Gateway))
	}
	return all
}

func (w *world) detach() {
	w.t.Helper()
	_, _, err := w.api.Server.DetachFromNetwork(w.t.Context(), w.server(1), hcloud.ServerDetachFromNetworkOpts{Network: w.network})
	w.must(err)
}

func (w *world) attach() {
	w.t.Helper()
	_, _, err := w.api.Server.AttachToNetwork(w.t.Context(), w.server(1), hcloud.ServerAttachToNetworkOpts{Network: w.network})
	w.must(err)
}

func TestListRoutesNamesNodesAndOmitsForeignRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 2)
	robot := ccmtest.Node("robot", "robot://1")
	robot.Spec.PodCIDRs = []string{"10.244.7.0/24"}
	w.nodes[1].Name = "renamed-in-kubernetes"
	w.knowNodes(robot)
	w.addRoute("10.244.1.0/24", w.privateIP(1))
	w.addRoute("10.244.2.0/24", w.privateIP(2))
	w.addRoute("10.244.3.0/24", "10.0.99.99")  // stale
	w.addRoute("10.244.7.0/24", "10.0.99.98")  // of a node of another provider
	w.addRoute("192.168.0.0/16", "10.0.99.97") // outside
	var rows []string
	for _, r := range w.list() {
		rows = append(rows, fmt.Sprint(r.DestinationCIDR, " ", r.TargetNode, " ", r.Blackhole))
	}
	slices.Sort(rows)
	if want := []string{"10.244.1.0/24 node-1 false", "10.244.2.0/24 renamed-in-kubernetes false",
		"10.244.3.0/24  true"}; !slices.Equal(rows, want) {
		t.Errorf("got %q, want %q", rows, want)
	}
	if err := w.routes.CreateRoute(t.Context(), "", "",
		&cloudprovider.Route{TargetNode: "robot", DestinationCIDR: "10.244.7.0/24"}); err != nil || len(w.writes) > 0 {
		t.Errorf("creating the route of another provider's node: %v, writes %v; want no error and no write", err, w.writes)
	}
}

func TestRoutesWiderThanTheClusterAreForeign(t *testing.T) {
	t.Parallel()
	for _, destination := range []string{"172.20.0.0/16", "172.20.8.0/21"} {
		w := newWorld(t, "instant", 1, func(c *ccm.Config) { c.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("172.20.8.0/21")} })
		w.addRoute(destination, "10.0.99.99")
		if got := w.list(); len(got) != 0 {
			t.Errorf("%s is listed: %v", destination, got)
		}
	}
}

func TestAServerOutsideTheNetworkCannotBeAGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	w.detach()
	err := w.create(1)
	if err == nil || !strings.Contains(err.Error(), "not attached") || !strings.Contains(err.Error(), "HCLOUD_NETWORK") {
		t.Errorf("got %v", err)
	}
	w.attach()
	if err := w.create(1); err != nil {
		t.Errorf("after it was attached: %v", err)
	}
}

func TestARouteToAServerYoungerThanTheCacheIsNotStale(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1, func(c *ccm.Config) { c.ServerCacheTTL = 24 * time.Hour })
	w.must(w.create(1))
	w.list() // caches the list of servers
	w.addServer()
	w.addRoute("10.244.2.0/24", w.privateIP(2)) // for example by the previous leader
	got := w.list()
	if len(got) != 2 {
		t.Fatal(got)
	}
	for _, r := range got {
		if r.Blackhole {
			t.Errorf("%s would be deleted", r.Name)
		}
	}
}

// The address was read in the former network. A server of the new one may have it, or none.
func TestARouteNeverUsesAnAddressOfAFormerNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	w.knowNodes()
	unlock, err := w.routes.Lock(t.Context())
	w.must(err)
	created := make(chan error)
	go func() { created <- w.create(1) }()
	gomega.NewWithT(t).Eventually(w.routes.Queued.Load).WithTimeout(time.Minute).Should(gomega.Equal(int32(1))) // it has read the address
	w.detach()
	_, err = w.api.Network.Delete(t.Context(), w.network)
	w.must(err)
	w.createNetwork("10.9.0.0/16")
	w.list() // finds the new network
	unlock()
	if err := <-created; err == nil || len(w.networkRoutes()) != 0 {
		t.Errorf("while the server is not attached: error %v, routes %v; want an error and no route", err, w.networkRoutes())
	}
	w.attach()
	w.must(w.create(1))
	if want := []string{"10.244.1.0/24 via " + w.privateIP(1)}; !slices.Equal(w.networkRoutes(), want) {
		t.Errorf("routes %v, want %v", w.networkRoutes(), want)
	}
}

// Between the look at the routes and the deletion of a stale one, another worker has replaced it.
func TestARouteThatWasReplacedIsNotDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	w.addRoute("10.244.1.0/24", "10.0.99.99")
	seen := w.list()
	w.must(w.create(1))
	if err := w.routes.DeleteRoute(t.Context(), "", seen[0]); err != nil {
		t.Errorf("deleting a route that is gone: %v", err)
	}
	if got, want := w.networkRoutes(), []string{"10.244.1.0/24 via " + w.privateIP(1)}; !slices.Equal(got, want) {
		t.Errorf("routes %v, want %v", got, want)
	}
}

// The answer to a change of a route is lost. The network shows whether the change was made.
func TestARouteWhoseAnswerIsLostIsReadAgain(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"add_route", "delete_route"} {
		for _, arrives := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, it arrives: %t", verb, arrives), func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, "instant", 1)
				change, want := func() error { return w.create(1) }, 1
				if verb == "delete_route" {
					w.must(change())
					seen := w.list()[0]
					change, want = func() error { return w.routes.DeleteRoute(t.Context(), "", seen) }, 0
				}
				lost := 0
				w.setAnswer(func(r *http.Request) *http.Response {
					if !strings.HasSuffix(r.URL.Path, verb) || lost > 0 {
						return nil
					}
					lost++
					if arrives {
						if resp, err := w.fake.Transport().RoundTrip(r); err == nil {
							_ = resp.Body.Close()
						}
					}
					return &http.Response{StatusCode: http.StatusBadGateway, Body: http.NoBody}
				})
				if err := change(); (err == nil) != arrives {
					t.Errorf("got %v", err)
				}
				w.must(change())
				if got := w.networkRoutes(); len(got) != want || lost != 1 {
					t.Errorf("routes %v, want %d; %d answers lost", got, want, lost)
				}
			})
		}
	}
}

// A change of a route waits for the one before it to the same destination, and does not repeat it.
func TestChangesOfOneRouteWaitForEachOther(t *testing.T) {
	t.Parallel()
	create := func(w *world, _ *cloudprovider.Route) error { return w.create(2) }
	remove := func(w *world, seen *cloudprovider.Route) error { return w.routes.DeleteRoute(w.t.Context(), "", seen) }
	for name, tc := range map[string]struct {
		exists        bool // before
		first, second func(*world, *cloudprovider.Route) error
		writes        int
		left          int
	}{
		"it is created twice":            {false, create, create, 1, 1},
		"it is deleted twice":            {true, remove, remove, 1, 0},
		"it is created while it goes":    {true, remove, create, 2, 1},
		"it is deleted and was replaced": {false, create, remove, 1, 1}, // what was seen is another route
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "realistic", 2)
				w.must(w.create(2)) // shows how long such actions take
				seen := *w.list()[0]
				w.must(remove(w, &seen))
				if tc.exists {
					w.must(w.create(2))
				}
				if name == "it is deleted and was replaced" {
					seen.Name = "10.244.2.0/24 via 10.0.99.99"
				}
				held := make(chan struct{})
				w.setAnswer(func(r *http.Request) *http.Response {
					if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/actions") {
						<-held
					}
					return nil
				})
				done := make(chan error, 2)
				go func() { done <- tc.first(w, &seen) }()
				synctest.Wait()
				go func() { done <- tc.second(w, &seen) }()
				synctest.Wait()
				close(held)
				for range 2 {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
				if len(w.writes) != tc.writes || len(w.networkRoutes()) != tc.left {
					t.Errorf("sent %v, want %d requests; routes %v", w.writes, tc.writes, w.networkRoutes())
				}
			})
		})
	}
}

// A server can be missing in a list of several pages: it is on an earlier page by the time the next one is read, because another server
// has been deleted. Its route carries the traffic of a node, and the route controller deletes a black hole at once.
func TestAListThatLacksAServerMakesNoBlackHole(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 2)
	w.knowNodes()
	w.must(w.create(1))
	w.must(w.create(2))
	w.setAnswer(func(r *http.Request) *http.Response {
		if !strings.HasSuffix(r.URL.Path, "/servers") {
			return nil
		}
		r = r.Clone(r.Context())
		r.URL.RawQuery += "&name=node-2"
		resp, err := w.fake.Transport().RoundTrip(r)
		if err != nil {
			t.Error(err)
		}
		return resp
	})
	w.clock.Step(time.Hour) // what is known of servers is old
	nodes := map[string]bool{}
	for _, r := range w.list() {
		nodes[string(r.TargetNode)] = !r.Blackhole
	}
	if !maps.Equal(nodes, map[string]bool{"node-1": true, "node-2": true}) {
		t.Errorf("Nodes with a route that is not deleted: %v, want node-1 and node-2", nodes)
	}
}

// By a mistake, two Nodes have one pod range: its route stays where it is, as long as its Node is there.
func TestARouteThatTwoNodesClaimStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 2)
	w.knowNodes()
	w.must(w.create(1))
	want := w.networkRoutes()
	w.nodes[1].Spec.PodCIDRs = w.nodes[0].Spec.PodCIDRs
	w.setAnswer(nil)
	second := &cloudprovider.Route{TargetNode: "node-2", DestinationCIDR: w.nodes[0].Spec.PodCIDRs[0]}
	for range 3 {
		if err := w.routes.CreateRoute(t.Context(), "", "", second); err == nil || !strings.Contains(err.Error(), `that of node "node-1"`) {
			t.Errorf("got %v", err)
		}
		w.must(w.create(1))
	}
	if got := w.networkRoutes(); !slices.Equal(got, want) || len(w.writes) > 0 {
		t.Errorf("routes %v, want %v; writes %v", got, want, w.writes)
	}
	w.nodes = w.nodes[1:]
	w.knowNodes()
	w.must(w.routes.CreateRoute(t.Context(), "", "", second))
	if got := w.networkRoutes(); len(got) != 1 || got[0] == want[0] {
		t.Errorf("routes %v", got)
	}
}
