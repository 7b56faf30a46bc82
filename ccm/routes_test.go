package ccm_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
)

// listers returns listers that contain these objects.
func listers(objects ...runtime.Object) (corelisters.NodeLister, corelisters.ServiceLister) {
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	services := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, o := range objects {
		switch o.(type) {
		case *corev1.Node:
			_ = nodes.Add(o)
		case *corev1.Service:
			_ = services.Add(o)
		}
	}
	return corelisters.NewNodeLister(nodes), corelisters.NewServiceLister(services)
}

func (w *world) addRoute(destination, gateway string) {
	w.t.Helper()
	_, _, err := w.api.Network.AddRoute(w.t.Context(), w.network, hcloud.NetworkAddRouteOpts{
		Route: hcloud.NetworkRoute{Destination: cidr(destination), Gateway: net.ParseIP(gateway)}})
	w.must(err)
}

// deleteNetwork deletes the world's network after its last member, the server, has left it.
func (w *world) deleteNetwork(server int64) {
	w.t.Helper()
	w.detach(server)
	_, err := w.api.Network.Delete(w.t.Context(), w.network)
	w.must(err)
}

// resyncOf returns the periodic comparison of a provider that knows the world's nodes, with pod ranges
// 10.244.N.0/24, and these other objects.
func (w *world) resyncOf(cloud *ccm.Cloud, others ...runtime.Object) (*ccm.Resync, *fake.Clientset) {
	objects := others
	for i, n := range w.nodes {
		n.Spec.PodCIDRs = []string{"10.244." + itoa(int64(i+1)) + ".0/24"}
		objects = append(objects, n)
	}
	kube := fake.NewClientset(objects...)
	nodes, services := listers(objects...)
	return ccm.NewResync(cloud, kube, nodes, services), kube
}

func TestListRoutesNamesNodesAndOmitsForeignRoutes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 2)
	robot := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "robot"}, Spec: corev1.NodeSpec{ProviderID: "robot://1",
		PodCIDRs: []string{"10.244.7.0/24"}}}
	w.nodes[1].Name = "renamed-in-kubernetes"
	cloud := w.provider()
	_, _ = w.resyncOf(cloud, robot)
	w.addRoute("10.244.1.0/24", w.privateIP(0))
	w.addRoute("10.244.2.0/24", w.privateIP(1))
	w.addRoute("10.244.3.0/24", "10.0.99.99")  // stale
	w.addRoute("10.244.7.0/24", "10.0.99.98")  // of a node of another provider
	w.addRoute("192.168.0.0/16", "10.0.99.97") // outside
	routes, _ := cloud.Routes()
	got, err := routes.ListRoutes(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		node, destination string
		blackhole         bool
	}
	var rows []row
	for _, r := range got {
		rows = append(rows, row{string(r.TargetNode), r.DestinationCIDR, r.Blackhole})
	}
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.destination, b.destination) })
	want := []row{{"node-1", "10.244.1.0/24", false}, {"renamed-in-kubernetes", "10.244.2.0/24", false}, {"", "10.244.3.0/24", true}}
	if !slices.Equal(rows, want) {
		t.Errorf("got %v, want %v", rows, want)
	}
	if err := routes.CreateRoute(t.Context(), "", "",
		&cloudprovider.Route{TargetNode: "robot", DestinationCIDR: "10.244.7.0/24"}); err != nil {
		t.Errorf("creating the route of another provider's node: %v, want no error and no write", err)
	}
	w.expectNoWrites()
}

func TestRoutesWiderThanTheClusterAreForeign(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	cloud := w.provider(func(c *ccm.Config) { c.ClusterCIDRs = prefixes("172.20.8.0/21") })
	for _, destination := range []string{"172.20.0.0/16", "172.20.8.0/21"} {
		w.addRoute(destination, "10.0.99.99")
		routes, _ := cloud.Routes()
		if got, err := routes.ListRoutes(t.Context(), ""); err != nil || len(got) != 0 {
			t.Errorf("%s is listed: %v, %v", destination, got, err)
		}
		_, _, err := w.api.Network.DeleteRoute(t.Context(), w.network, hcloud.NetworkDeleteRouteOpts{
			Route: hcloud.NetworkRoute{Destination: cidr(destination), Gateway: net.ParseIP("10.0.99.99")}})
		w.must(err)
	}
}

func TestAServerOutsideTheNetworkCannotBeAGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	w.detach(serverIDs(w.nodes)[0])
	routes, _ := w.provider().Routes()
	create := func() error {
		return routes.CreateRoute(t.Context(), "", "", &cloudprovider.Route{TargetNode: "node-1", DestinationCIDR: "10.244.1.0/24"})
	}
	if err := create(); err == nil || !strings.Contains(err.Error(), "not attached") || !strings.Contains(err.Error(), "HCLOUD_NETWORK") {
		t.Errorf("got %v", err)
	}
	w.attach(w.network, serverIDs(w.nodes)[0])
	if err := create(); err != nil {
		t.Errorf("after it was attached: %v", err)
	}
}

func TestTheResyncRepairsLoadBalancers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 2)
	cloud := w.provider()
	svc := newService("web", map[string]string{"node-selector": "pool=web"}, 80)
	w.nodes[0].Labels = map[string]string{"pool": "web"}
	w.ensure(cloud, svc)
	r, kube := w.resyncOf(cloud, svc)

	w.wire.take()
	r.LoadBalancers(t.Context())
	if calls := w.wire.take(); len(writes(calls)) != 0 || len(calls) > 1 || len(kube.Actions()) != 0 {
		t.Errorf("without a difference: %v, %v", calls, kube.Actions())
	}

	_, _, err := w.api.LoadBalancer.DeleteService(t.Context(), w.theLoadBalancer(), 80)
	w.must(err)
	w.nodes[1].Labels = map[string]string{"pool": "web"} // the service controller ignores changes of labels
	r.LoadBalancers(t.Context())
	if lb := w.theLoadBalancer(); !slices.Equal(listenPorts(lb), []int{80}) || len(targetIDs(lb)) != 2 {
		t.Errorf("ports %v, targets %v", listenPorts(lb), targetIDs(lb))
	}

	w.deleteLoadBalancer(w.theLoadBalancer())
	r.LoadBalancers(t.Context())
	updated, err := kube.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || len(updated.Status.LoadBalancer.Ingress) == 0 ||
		updated.Status.LoadBalancer.Ingress[0].IP != w.theLoadBalancer().PublicNet.IPv4.IP.String() {
		t.Errorf("the Service shows %+v, %v", updated.Status.LoadBalancer, err)
	}
	w.expectEvent("Normal CloudLoadBalancerRepaired")
}

func TestARouteToAServerYoungerThanTheCacheIsNotStale(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 1)
	cloud := w.provider(func(c *ccm.Config) { c.ServerCacheTTL = 24 * time.Hour })
	routes, _ := cloud.Routes()
	reconcileRoutes(t, w, cloud, true) // caches the list of servers
	w.addServer("node-2")
	w.addRoute("10.244.2.0/24", w.privateIP(1)) // for example by the previous leader
	got, err := routes.ListRoutes(t.Context(), "")
	if err != nil || len(got) != 2 {
		t.Fatal(got, err)
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
	cloud := w.provider()
	_, _ = w.resyncOf(cloud)
	routes, _ := cloud.Routes()
	route := &cloudprovider.Route{TargetNode: "node-1", DestinationCIDR: "10.244.1.0/24"}
	queued, unlock := ccm.LockRoutes(cloud)
	created := make(chan error)
	go func() { created <- routes.CreateRoute(t.Context(), "", "", route) }()
	gomega.NewWithT(t).Eventually(queued).Should(gomega.Equal(int32(1))) // it has read the address
	w.deleteNetwork(serverIDs(w.nodes)[0])
	w.createNetwork("10.9.0.0/16")
	_, err := routes.ListRoutes(t.Context(), "") // finds the new network
	w.must(err)
	unlock()
	if err := <-created; err == nil || len(w.networkRoutes()) != 0 {
		t.Errorf("while the server is not attached: error %v, routes %v; want an error and no route", err, w.networkRoutes())
	}
	w.attach(w.network, serverIDs(w.nodes)[0])
	w.must(routes.CreateRoute(t.Context(), "", "", route))
	if want := []string{"10.244.1.0/24 via " + w.privateIP(0)}; !slices.Equal(w.networkRoutes(), want) {
		t.Errorf("routes %v, want %v", w.networkRoutes(), want)
	}
}

func TestLockedLoadBalancersDelayNoRoute(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	w := newWorld(t, "instant", 1)
	cloud := w.provider()
	var objects []runtime.Object
	for i := range 5 {
		svc := newService(fmt.Sprintf("s%d", i), nil, int32(8000+i))
		w.ensure(cloud, svc)
		svc = svc.DeepCopy()
		setPorts(svc, int32(8000+i), int32(9000+i))
		objects = append(objects, svc)
	}
	r, _ := w.resyncOf(cloud, objects...)
	locked := func(req *http.Request) *http.Response {
		if req.Method == http.MethodPost && strings.Contains(req.URL.Path, "/load_balancers/") {
			return apiError(http.StatusLocked, "locked")
		}
		return nil
	}
	w.wire.setIntercept(locked)
	start := w.clock.Now()
	r.LoadBalancers(t.Context())
	if took := w.clock.Since(start); took > 30*time.Second {
		t.Errorf("five locked load balancers: %v of waiting", took)
	} else {
		t.Logf("five locked load balancers: %v of waiting", took)
	}

	// The comparison of load balancers gets no answer for a while.
	release := make(chan struct{})
	w.wire.setIntercept(func(req *http.Request) *http.Response {
		if strings.HasPrefix(req.URL.Path, "/v1/load_balancers") {
			<-release
		}
		return nil
	})
	w.clock.Step(time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx, time.Minute) }()
	g.Eventually(func() bool {
		w.clock.Step(time.Minute)
		return len(w.networkRoutes()) == 1
	}).WithTimeout(time.Minute).Should(gomega.BeTrue())
	w.addRoute("10.244.9.0/24", "10.0.99.99")
	cloud.RouteFailed()
	g.Eventually(func() bool {
		w.clock.Step(time.Minute)
		return len(w.networkRoutes()) == 1
	}).WithTimeout(time.Minute).Should(gomega.BeTrue())
	close(release)
	cancel()
	<-done
}

// A node gets pods and traffic once its route exists.
func TestANewNodeIsUnavailableUntilItsRouteExists(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	w := newWorld(t, "instant", 2)
	old, fresh := w.nodes[0], w.nodes[1]
	old.Spec.PodCIDRs, fresh.Spec.PodCIDRs = []string{"10.244.1.0/24"}, []string{"10.244.2.0/24"}
	old.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse,
		Reason: "RouteCreated"}}
	fresh.Spec.Taints = []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider}}
	w.nodes = w.nodes[:1]
	svc := newService("web", nil, 80)
	kube := fake.NewClientset(old.DeepCopy(), svc.DeepCopy())
	cloud := w.provider()
	w.lead(cloud, kube)
	w.ensure(cloud, svc)

	var refuse atomic.Bool
	refuse.Store(true)
	w.refuseAs(503, "unavailable", func(r *http.Request) bool { return refuse.Load() && strings.HasSuffix(r.URL.Path, "add_route") })
	_, err := kube.CoreV1().Nodes().Create(t.Context(), fresh.DeepCopy(), metav1.CreateOptions{})
	w.must(err)
	condition := func() string {
		n, err := kube.CoreV1().Nodes().Get(t.Context(), fresh.Name, metav1.GetOptions{})
		if err != nil || len(n.Status.Conditions) == 0 {
			return fmt.Sprint("none ", err)
		}
		return fmt.Sprint(n.Status.Conditions[0].Type, n.Status.Conditions[0].Status, n.Status.Conditions[0].Reason)
	}
	instances, _ := cloud.InstancesV2()
	if _, err := instances.InstanceMetadata(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	if got := condition(); got != "NetworkUnavailableTrueNoRouteCreated" {
		t.Errorf("when the node is initialized, its condition is %s", got)
	}
	unavailable, err := kube.CoreV1().Nodes().Get(t.Context(), fresh.Name, metav1.GetOptions{})
	w.must(err)
	lbs, _ := cloud.LoadBalancer()
	if err := lbs.UpdateLoadBalancer(t.Context(), "", svc, []*corev1.Node{old, unavailable}); err != nil ||
		len(w.theLoadBalancer().Targets) != 1 {
		t.Errorf("%v, %d targets", err, len(w.theLoadBalancer().Targets))
	}
	w.expectEvent("NodesSkipped 1 nodes are not targets yet because they have no route")

	refuse.Store(false)
	cloud.RouteFailed()
	g.Eventually(func() bool { // neither the route controller nor the periodic comparison runs here
		w.clock.Step(10 * time.Second)
		return len(w.networkRoutes()) == 2 && condition() == "NetworkUnavailableFalseRouteCreated" && len(w.theLoadBalancer().Targets) == 2
	}).WithTimeout(time.Minute).Should(gomega.BeTrue())
}

func TestANodeGetsItsRouteAtOnce(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	w := newWorld(t, "instant", 3)
	kube := fake.NewClientset()
	cloud := w.provider()
	w.lead(cloud, kube)
	for i, n := range w.nodes {
		n.Spec.PodCIDRs = []string{fmt.Sprintf("10.244.%d.0/24", i+1)}
		_, err := kube.CoreV1().Nodes().Create(t.Context(), n.DeepCopy(), metav1.CreateOptions{})
		w.must(err)
	}
	g.Eventually(w.networkRoutes).WithTimeout(time.Minute).Should(gomega.HaveLen(3)) // the clock stands still
}
