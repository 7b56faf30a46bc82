package budget

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	"k8s.io/cloud-provider/controllers/route"
	"k8s.io/cloud-provider/controllers/service"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
	"k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/controller-manager/pkg/features"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil // they remember the time of the last error, of whatever bubble
	// As k8s.io/cloud-provider/app and the program do.
	if err := features.SetupCurrentKubernetesSpecificFeatureGates(utilfeature.DefaultMutableFeatureGate); err != nil {
		panic(err)
	}
	if err := utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.CloudControllerManagerWatchBasedRoutesReconciliation,
		true); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

var podRange = netip.MustParsePrefix("10.244.0.0/16")

// cluster is a cloud with servers, their Nodes, and the CCM.
type cluster struct {
	t     *testing.T
	fake  *fakecloud.Cloud
	api   *hcloud.Client // the test's own client
	kube  *fake.Clientset
	nodes []*corev1.Node // as they were made
	// routes: the servers are in a network, and the Nodes have pod ranges.
	routes  bool
	network *hcloud.Network
	cloud   *ccm.Cloud
	stop    context.CancelFunc

	services int    // that were made
	token    string // of another project; "": its own
}

// latency is the time that the cloud takes to answer.
const latency = 30 * time.Millisecond

// inBubble runs test with a cluster of n Nodes that no CCM has seen. The bubble ends with it.
func inBubble(t *testing.T, n int, routes bool, test func(c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, routes: routes, kube: newKube()}
		c.fake = fakecloud.New(fakecloud.Options{Clock: clock.RealClock{}, Actions: "instant", JournalSize: 1_000_000})
		c.api = c.fake.Client()
		if routes {
			var err error
			_, ipRange, _ := net.ParseCIDR("10.0.0.0/8")
			_, subnet, _ := net.ParseCIDR("10.0.0.0/16")
			c.network, _, err = c.api.Network.Create(t.Context(), hcloud.NetworkCreateOpts{Name: "internal", IPRange: ipRange,
				Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: hcloud.NetworkZoneEUCentral,
					IPRange: subnet}}})
			c.must(err)
		}
		for range n {
			c.addServer()
			c.addNode()
		}
		c.must(c.fake.SetProfile(t.Context(), "realistic"))
		time.Sleep(time.Minute)
		defer func() {
			if c.stop != nil {
				c.stop()
			}
			c.fake.Close()
			time.Sleep(time.Hour) // everything ends
		}()
		test(c)
	})
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// addServer creates the server of the next Node.
func (c *cluster) addServer() {
	c.t.Helper()
	i := len(c.nodes) + 1
	opts := hcloud.ServerCreateOpts{Name: fmt.Sprintf("node-%d", i), ServerType: &hcloud.ServerType{Name: "cx23"},
		Image: &hcloud.Image{Name: "ubuntu-24.04"}, Location: &hcloud.Location{Name: "fsn1"},
		Labels: map[string]string{"cluster": "ours", "number": fmt.Sprint(i)}}
	if c.routes {
		opts.Networks = []*hcloud.Network{c.network}
	}
	_, _, err := c.api.Server.Create(c.t.Context(), opts)
	c.must(err)
}

// addNode registers the next Node, as its kubelet does.
func (c *cluster) addNode() *corev1.Node {
	c.t.Helper()
	i := len(c.nodes) + 1
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)),
			CreationTimestamp: metav1.Now()},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true",
			Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.Now()}}},
	}
	if c.routes {
		n.Spec.PodCIDRs = []string{fmt.Sprintf("10.244.%d.0/24", i)}
		n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	}
	_, err := c.kube.CoreV1().Nodes().Create(c.t.Context(), n, metav1.CreateOptions{})
	c.must(err)
	c.nodes = append(c.nodes, n)
	return n
}

// notReady makes the first n Nodes NotReady. Their servers run.
func (c *cluster) notReady(n int) { c.setReady(n, corev1.ConditionUnknown) }

// ready makes the first n Nodes Ready again.
func (c *cluster) ready(n int) { c.setReady(n, corev1.ConditionTrue) }

func (c *cluster) setReady(n int, status corev1.ConditionStatus) {
	c.t.Helper()
	for _, made := range c.nodes[:n] {
		now, err := c.kube.CoreV1().Nodes().Get(c.t.Context(), made.Name, metav1.GetOptions{})
		c.must(err)
		now.Status.Conditions[0].Status, now.Status.Conditions[0].LastTransitionTime = status, metav1.Now()
		_, err = c.kube.CoreV1().Nodes().UpdateStatus(c.t.Context(), now, metav1.UpdateOptions{})
		c.must(err)
	}
}

// initialized returns the number of Nodes that the node controller has initialized.
func (c *cluster) initialized() (n int) {
	list, err := c.kube.CoreV1().Nodes().List(c.t.Context(), metav1.ListOptions{})
	c.must(err)
	for _, node := range list.Items {
		if node.Spec.ProviderID != "" && !strings.Contains(fmt.Sprint(node.Spec.Taints), cloudproviderapi.TaintExternalCloudProvider) {
			n++
		}
	}
	return n
}

// start starts the CCM as the leader, with the defaults of its settings and flags. The service controller runs only
// with services: v0.37.1 has a race in it, which the race detector reports.
func (c *cluster) start(services bool) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	cfg, err := ccm.ConfigFromEnv(func(name string) (string, bool) {
		value := map[string]string{"HCLOUD_TOKEN": cmp.Or(c.token, c.fake.Token()), "HCLOUD_ENDPOINT": "http://cloud.invalid/v1",
			"HCLOUD_LOAD_BALANCERS_LOCATION": "fsn1"}[name]
		if name == "HCLOUD_NETWORK" && c.routes {
			value = "internal"
		}
		return value, value != ""
	})
	c.must(err)
	cfg.ClusterCIDRs = []netip.Prefix{podRange}
	c.cloud = ccm.New(cfg, ccm.WithRoundTripper(slow{c.fake.Transport()}), ccm.WithEventRecorder(&record.FakeRecorder{}))
	c.cloud.Initialize(builder{c.kube}, ctx.Done())
	factory := informers.NewSharedInformerFactory(c.kube, 12*time.Hour)
	c.cloud.SetInformers(factory)
	metrics := controllers.NewControllerManagerMetrics(ccm.ProviderName)
	nodes, all := factory.Core().V1().Nodes(), factory.Core().V1().Services()
	nodeController, err := node.NewCloudNodeController(nodes, c.kube, c.cloud, ccm.NodeRefresh, 10, 10)
	c.must(err)
	lifecycle, err := nodelifecycle.NewCloudNodeLifecycleController(nodes, c.kube, c.cloud, 5*time.Second, 1)
	c.must(err)
	run := []func(){func() { nodeController.RunWithContext(ctx, metrics) }, func() { lifecycle.Run(ctx, metrics) }}
	if services {
		controller, err := service.New(c.cloud, c.kube, all, nodes, "kubernetes", utilfeature.DefaultFeatureGate)
		c.must(err)
		run = append(run, func() { controller.Run(ctx, 10, metrics) })
	}
	if c.routes {
		routes, _ := c.cloud.Routes()
		_, podNet, err := net.ParseCIDR(podRange.String())
		c.must(err)
		controller, err := route.New(routes, c.kube, nodes, "kubernetes", []*net.IPNet{podNet})
		c.must(err)
		run = append(run, func() { controller.Run(ctx, 10*time.Second, metrics) })
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for _, r := range run {
		go r()
	}
}

// addServices creates n Services of type LoadBalancer with two ports.
func (c *cluster) addServices(n int, annotations map[string]string) []*corev1.Service {
	c.t.Helper()
	var all []*corev1.Service
	for range n {
		i := c.services
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("web-%d", i),
				UID: types.UID(fmt.Sprintf("service-%d", i)), Annotations: annotations,
				Finalizers: []string{servicehelpers.LoadBalancerCleanupFinalizer}},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
		}
		c.services++
		for p := range int32(2) {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(p), Protocol: corev1.ProtocolTCP, Port: 80 + p,
				NodePort: 30000 + 2*int32(i) + p})
		}
		created, err := c.kube.CoreV1().Services("default").Create(c.t.Context(), svc, metav1.CreateOptions{})
		c.must(err)
		all = append(all, created)
	}
	return all
}

// serving starts the CCM, and makes n Services have their load balancers after some time.
func (c *cluster) serving(after time.Duration, n int) []*corev1.Service {
	c.t.Helper()
	c.start(false)
	time.Sleep(after)
	services := c.addServices(n, nil)
	c.ensure(services)
	return services
}

// ensure makes the calls of the service controller for new or changed Services, with ten workers.
func (c *cluster) ensure(services []*corev1.Service) {
	c.t.Helper()
	lbs, _ := c.cloud.LoadBalancer()
	c.each(services, func(svc *corev1.Service) error {
		status, err := lbs.EnsureLoadBalancer(c.t.Context(), "kubernetes", svc, c.currentNodes())
		if err == nil {
			svc.Status.LoadBalancer = *status
			_, err = c.kube.CoreV1().Services("default").UpdateStatus(c.t.Context(), svc, metav1.UpdateOptions{})
		}
		return err
	})
}

// nodesChanged makes the calls of the service controller after a change of the Nodes.
func (c *cluster) nodesChanged(services []*corev1.Service) {
	c.t.Helper()
	lbs, _ := c.cloud.LoadBalancer()
	c.each(services, func(svc *corev1.Service) error {
		return lbs.UpdateLoadBalancer(c.t.Context(), "kubernetes", svc, c.currentNodes())
	})
}

func (c *cluster) each(services []*corev1.Service, do func(*corev1.Service) error) {
	c.t.Helper()
	var all sync.WaitGroup
	free := make(chan struct{}, 10)
	for _, svc := range services {
		free <- struct{}{}
		all.Go(func() {
			defer func() { <-free }()
			if err := do(svc); err != nil {
				c.t.Errorf("Service %s: %v", svc.Name, err)
			}
		})
	}
	all.Wait()
}

func (c *cluster) currentNodes() (all []*corev1.Node) {
	list, err := c.kube.CoreV1().Nodes().List(c.t.Context(), metav1.ListOptions{})
	c.must(err)
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return all
}

// requests returns the CCM's requests since a number of the journal.
func (c *cluster) requests(since uint64) []journal.Entry {
	c.t.Helper()
	entries, err := c.fake.Journal().Entries(c.t.Context(), journal.Filter{Client: ccm.ProviderName, Since: since})
	c.must(err)
	return entries
}

// now returns the number of the journal's last request.
func (c *cluster) now() uint64 {
	c.t.Helper()
	last, err := c.fake.Journal().Last(c.t.Context())
	c.must(err)
	return last
}

// during returns the requests that the CCM makes while do runs.
func (c *cluster) during(do func()) []journal.Entry {
	since := c.now()
	do()
	synctest.Wait()
	return c.requests(since)
}

// metric returns the values of a metric of the CCM, by the values of its labels.
func (c *cluster) metric(name string) map[string]float64 {
	c.t.Helper()
	families, err := c.cloud.Metrics().Gather()
	c.must(err)
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != name {
				continue
			}
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			values[strings.Join(labels, " ")] = m.GetCounter().GetValue()
		}
	}
	return values
}

// summary counts requests by operation.
func summary(entries []journal.Entry) map[string]int {
	count := map[string]int{}
	for _, e := range entries {
		count[e.Operation]++
	}
	return count
}

// slow answers after latency.
type slow struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(latency)
	return s.next.RoundTrip(r)
}

// builder gives all controllers the same client.
type builder struct{ client kubernetes.Interface }

func (b builder) Config(string) (*rest.Config, error)         { return &rest.Config{}, nil }
func (b builder) ConfigOrDie(string) *rest.Config             { return &rest.Config{} }
func (b builder) Client(string) (kubernetes.Interface, error) { return b.client, nil }
func (b builder) ClientOrDie(string) kubernetes.Interface     { return b.client }
