//go:build sim

package sim

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	informersv1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	"k8s.io/cloud-provider/controllers/route"
	"k8s.io/cloud-provider/controllers/service"
	"k8s.io/component-base/metrics/prometheus/controllers"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
)

// process is one CCM process, from the time at which it begins to lead.
type process struct {
	id       int
	world    *world
	client   *fake.Clientset
	cancel   context.CancelFunc
	acquired time.Time
	// dead: it has ended. cut: it has lost the Kubernetes API, except for its informers, and so its Lease.
	dead, cut atomic.Bool
	// blind: it cannot read its Lease.
	blind atomic.Bool
	lost  time.Time // time of the last renewal of a process that is cut
}

// renewed returns the time of the last renewal of the Lease.
func (p *process) renewed() time.Time {
	if p.cut.Load() {
		return p.lost
	}
	return p.acquired.Add(time.Since(p.acquired).Truncate(2 * time.Second))
}

// Sizes of the CCM's work queues. As many workers as objects: then no order of a map decides what comes first.
const workers = 10

// startProcess starts a CCM that leads, and that cannot read its Lease if blind.
func (w *world) startProcess(blind bool) *process {
	ctx, cancel := context.WithCancel(context.Background())
	w.processes++
	p := &process{id: w.processes, world: w, cancel: cancel, acquired: time.Now()}
	p.blind.Store(blind)
	p.client = w.kube.client(p)
	w.kube.setLeader(p)
	cloud := ccm.New(ccm.Config{
		TokenFile: w.tokenFile, Endpoint: "http://cloud.invalid/v1", Network: w.configured, RoutesEnabled: true,
		AddressFamily: ccm.AddressFamilyIPv4, LoadBalancersEnabled: true,
		// The default type is only for new load balancers: each second process has another one.
		LoadBalancerDefaults: map[string]string{"location": "fsn1", "type": []string{"lb21", "lb11"}[p.id%2]},
		ClusterID:            w.clusterID,
		ServerCacheTTL:       10 * time.Second, ResyncInterval: 2 * time.Minute, ResyncMaxInterval: 20 * time.Minute,
		RequestTimeout: 10 * time.Second,
		ClusterCIDRs:   []netip.Prefix{w.podRange},
	}, ccm.WithRoundTripper(&wire{p}), ccm.WithJitter(func() float64 { return 1 }), ccm.WithEventRecorder(&record.FakeRecorder{}),
		ccm.WithLeaderLease(p.client.CoordinationV1().Leases("kube-system"), ccm.ProviderName))
	cloud.Initialize(builder{p.client}, ctx.Done())
	factory := sorted{informers.NewSharedInformerFactory(p.client, 12*time.Hour)}
	cloud.SetInformers(factory)
	startControllers(ctx, cloud, p.client, factory, w.podRange)
	return p
}

// apart lets the controllers start one after the other, so that their timers do not fire at the same time.
func apart() {
	synctest.Wait()
	time.Sleep(1377 * time.Microsecond)
}

// startControllers starts the controllers of k8s.io/cloud-provider/app, with its defaults except for the number of
// workers. The informers have what there is when the controllers start.
func startControllers(ctx context.Context, cloud *ccm.Cloud, client kubernetes.Interface, factory informers.SharedInformerFactory,
	podRange netip.Prefix) {
	metrics := controllers.NewControllerManagerMetrics(ccm.ProviderName)
	nodes, services := factory.Core().V1().Nodes(), factory.Core().V1().Services()
	nodeController, err := node.NewCloudNodeController(nodes, client, cloud, 5*time.Minute, workers, workers)
	must(err)
	lifecycle, err := nodelifecycle.NewCloudNodeLifecycleController(nodes, client, cloud, 5*time.Second, workers)
	must(err)
	serviceController, err := service.New(cloud, client, services, nodes, "kubernetes", utilfeature.DefaultFeatureGate)
	must(err)
	routes, _ := cloud.Routes()
	_, podNet, err := net.ParseCIDR(podRange.String())
	must(err)
	routeController, err := route.New(routes, client, nodes, "kubernetes", []*net.IPNet{podNet})
	must(err)
	apart()
	factory.Start(ctx.Done())
	for _, run := range []func(){
		func() { nodeController.RunWithContext(ctx, metrics) },
		func() { lifecycle.Run(ctx, metrics) },
		func() { serviceController.Run(ctx, workers, metrics) },
		func() { routeController.Run(ctx, 10*time.Second, metrics) },
	} {
		apart()
		go run()
	}
}

// die ends the process at once: nothing that it does from now on has an effect.
func (p *process) die() {
	p.dead.Store(true)
	p.cancel()
}

// builder gives all controllers the same client.
type builder struct{ client kubernetes.Interface }

func (b builder) Config(string) (*rest.Config, error)         { return &rest.Config{}, nil }
func (b builder) ConfigOrDie(string) *rest.Config             { return &rest.Config{} }
func (b builder) Client(string) (kubernetes.Interface, error) { return b.client, nil }
func (b builder) ClientOrDie(string) kubernetes.Interface     { return b.client }

// sorted is an informer factory whose Nodes come in the order of their names, not of a map.
type sorted struct {
	informers.SharedInformerFactory
}

func (s sorted) Core() core.Interface { return sortedCore{s.SharedInformerFactory.Core()} }

type sortedCore struct{ core.Interface }

func (s sortedCore) V1() informersv1.Interface { return sortedV1{s.Interface.V1()} }

type sortedV1 struct{ informersv1.Interface }

func (s sortedV1) Nodes() informersv1.TypedNodeInformer { return sortedNodes{s.Interface.Nodes()} }

type sortedNodes struct{ informersv1.TypedNodeInformer }

func (s sortedNodes) Lister() listersv1.NodeLister { return sortedLister{s.TypedNodeInformer.Lister()} }

type sortedLister struct{ listersv1.NodeLister }

func (s sortedLister) List(selector labels.Selector) ([]*corev1.Node, error) {
	all, err := s.NodeLister.List(selector)
	slices.SortFunc(all, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return all, err
}
