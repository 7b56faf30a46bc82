package loadbalancer_test

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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/resync"
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

// resyncOf returns the periodic comparison of a provider that knows the world's nodes, with pod ranges
// 10.244.N.0/24, and these other objects.
func (w *world) resyncOf(cloud *ccm.Cloud, others ...runtime.Object) (*resync.Comparison, *fake.Clientset) {
	objects := others
	for i, n := range w.nodes {
		n.Spec.PodCIDRs = []string{"10.244." + itoa(int64(i+1)) + ".0/24"}
		objects = append(objects, n)
	}
	kube := fake.NewClientset(objects...)
	nodes, services := listers(objects...)
	return w.newComparison(cloud, kube, nodes, services), kube
}

// newComparison returns the periodic comparison of a provider, for tests that call it directly.
func (w *world) newComparison(cloud *ccm.Cloud, kube kubernetes.Interface, nodes corelisters.NodeLister,
	services corelisters.ServiceLister) *resync.Comparison {
	lbs, routes := controllerOf(cloud), routesOf(cloud)
	routes.UseNodes(nodes)
	lbs.Evidence().SetListers(nodes, services)
	retry := make(chan struct{}, 1)
	routes.Failed = func() {
		select {
		case retry <- struct{}{}:
		default: // a retry is scheduled already
		}
	}
	return resync.New(w.auto, &w.unrest, kube, lbs, routes, nodes, services, lbs.Events(), func() bool { return true }, retry)
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
	r.SyncLoadBalancers(t.Context())
	if calls := w.wire.take(); len(writes(calls)) != 0 || len(calls) > 1 || len(kube.Actions()) != 0 {
		t.Errorf("without a difference: %v, %v", calls, kube.Actions())
	}

	_, _, err := w.api.LoadBalancer.DeleteService(t.Context(), w.theLoadBalancer(), 80)
	w.must(err)
	w.nodes[1].Labels = map[string]string{"pool": "web"} // the service controller ignores changes of labels
	r.SyncLoadBalancers(t.Context())
	if lb := w.theLoadBalancer(); !slices.Equal(listenPorts(lb), []int{80}) || len(targetIDs(lb)) != 2 {
		t.Errorf("ports %v, targets %v", listenPorts(lb), targetIDs(lb))
	}

	w.deleteLoadBalancer(w.theLoadBalancer())
	r.SyncLoadBalancers(t.Context())
	updated, err := kube.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || len(updated.Status.LoadBalancer.Ingress) == 0 ||
		updated.Status.LoadBalancer.Ingress[0].IP != w.theLoadBalancer().PublicNet.IPv4.IP.String() {
		t.Errorf("the Service shows %+v, %v", updated.Status.LoadBalancer, err)
	}
	w.expectEvent("Normal CloudLoadBalancerRepaired")
}

func TestAServiceThatBecameInternalSaysNothingOfItsLoadBalancer(t *testing.T) {
	t.Parallel()
	w, cloud, svc := newServingWorld(t, "instant", 1, nil, 80)
	_, kube := w.resyncOf(cloud, svc)
	controllerOf(cloud).Kube = kube
	svc.Spec.Type = corev1.ServiceTypeClusterIP
	_, err := kube.CoreV1().Services("default").Update(t.Context(), svc, metav1.UpdateOptions{})
	w.must(err)
	w.must(tryRemove(t.Context(), cloud, svc))
	for _, finalizers := range [][]string{svc.Finalizers, nil} { // the second time, the service controller is done
		now, err := kube.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
		if w.must(err); len(now.Status.Conditions) != 1 {
			t.Fatalf("conditions %+v", now.Status.Conditions)
		}
		now.Finalizers = finalizers
		_, err = kube.CoreV1().Services("default").Update(t.Context(), now, metav1.UpdateOptions{})
		w.must(err)
		nodes, services := listers(now)
		w.newComparison(cloud, kube, nodes, services).SyncLoadBalancers(t.Context())
	}
	if now, err := kube.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{}); err != nil ||
		len(now.Status.Conditions) != 0 {
		t.Errorf("conditions %+v, %v", now.Status.Conditions, err)
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
	w.refuseAs(http.StatusLocked, "locked", func(req *http.Request) bool {
		return req.Method == http.MethodPost && strings.Contains(req.URL.Path, "/load_balancers/")
	})
	start := w.clock.Now()
	r.SyncLoadBalancers(t.Context())
	if took := w.clock.Since(start); took > 30*time.Second {
		t.Errorf("five locked load balancers: %v of waiting", took)
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
	r.Interval = time.Minute
	go func() { defer close(done); r.Run(ctx) }()
	oneRoute := func() bool {
		w.clock.Step(time.Minute)
		return len(w.networkRoutes()) == 1
	}
	g.Eventually(oneRoute).WithTimeout(time.Minute).Should(gomega.BeTrue())
	w.addRoute("10.244.9.0/24", "10.0.99.99")
	routesOf(cloud).Failed()
	g.Eventually(oneRoute).WithTimeout(time.Minute).Should(gomega.BeTrue())
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
	if err := controllerOf(cloud).UpdateLoadBalancer(t.Context(), "", svc, []*corev1.Node{old, unavailable}); err != nil ||
		len(w.theLoadBalancer().Targets) != 1 {
		t.Errorf("%v, %d targets", err, len(w.theLoadBalancer().Targets))
	}
	w.expectEvent("NodesSkipped 1 nodes are not targets yet because they have no route")

	refuse.Store(false)
	routesOf(cloud).Failed()
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

// TestTheProviderComparesByItselfOnceItIsStarted starts the provider like the controller manager. The
// periodic comparison must restore a load balancer, a route and a label.
func TestTheProviderComparesByItselfOnceItIsStarted(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	w := newWorld(t, "instant", 1)
	w.nodes[0].Spec.PodCIDRs = []string{"10.244.1.0/24"}
	w.nodes[0].Labels = map[string]string{corev1.LabelInstanceTypeStable: "cx13"}
	svc := newService("web", nil, 80)
	kube := fake.NewClientset(w.nodes[0].DeepCopy(), svc.DeepCopy())
	cloud := w.provider(func(c *ccm.Config) { c.ResyncInterval = time.Minute })
	w.lead(cloud, kube)

	w.ensure(cloud, svc)
	for range 2 { // the second comparison is one of its own
		w.deleteLoadBalancer(w.theLoadBalancer())
		g.Eventually(func() bool { // the comparison starts once the informers have synced
			w.clock.Step(time.Minute)
			return len(w.loadBalancers()) == 1 && len(w.networkRoutes()) == 1
		}).WithTimeout(30 * time.Second).Should(gomega.BeTrue())
	}

	instances, _ := cloud.InstancesV2()
	if _, err := instances.InstanceMetadata(t.Context(), w.nodes[0]); err != nil {
		t.Fatal(err)
	}
	node, err := kube.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
	if err != nil || node.Labels[corev1.LabelInstanceTypeStable] != "cx23" {
		t.Errorf("%v, labels %v", err, node.Labels)
	}
}
