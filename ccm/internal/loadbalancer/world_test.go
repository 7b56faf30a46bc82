package loadbalancer_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/loadbalancer"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/route"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// world is a simulated cloud with servers in a network, and the Nodes that run on them. Tests of what spans rooms need it as well: the
// evidence, the comparison, and a Node from its initialization to its route.
type world struct {
	t       *testing.T
	fake    *fakecloud.Cloud
	api     *hcloud.Client // the test's own client: its calls are not recorded
	clock   *testingclock.FakeClock
	auto    clock.WithTicker // the same time, but waits end at once
	network *hcloud.Network
	nodes   []*corev1.Node
	events  *record.FakeRecorder
	wire    *wire
	// services are those of the cluster, if the test gives them to the providers.
	services cache.Indexer
	// unrest counts what makes the next comparison come soon (see resyncOf).
	unrest atomic.Int64
}

// newWorld creates a cloud with n servers. actions is the duration of its actions: "instant" or
// "realistic".
func newWorld(t *testing.T, actions string, n int) *world {
	t.Helper()
	auto := ccmtest.NewAutoClock()
	w := &world{t: t, clock: auto.FakeClock, auto: auto, events: record.NewFakeRecorder(10000)}
	w.fake = fakecloud.New(fakecloud.Options{Clock: auto.FakeClock, Actions: actions})
	t.Cleanup(w.fake.Close)
	w.api = w.fake.Client()
	w.wire = &wire{cloud: w.fake.Transport()}
	w.network = w.createNetwork("internal", "10.0.0.0/8", "10.0.0.0/16")
	for i := range n {
		w.addServer(fmt.Sprintf("node-%d", i+1))
	}
	return w
}

// newServingWorld is newWorld, with a Service that has a load balancer and the process that made it.
func newServingWorld(t *testing.T, actions string, n int, annotations map[string]string, ports ...int32) (*world, *ccm.Cloud,
	*corev1.Service) {
	t.Helper()
	w := newWorld(t, actions, n)
	cloud, svc := w.provider(), newService("web", annotations, ports...)
	w.ensure(cloud, svc)
	return w, cloud, svc
}

// createNetwork creates a network with one subnet.
func (w *world) createNetwork(name, ipRange, subnet string) *hcloud.Network {
	w.t.Helper()
	network, _, err := w.api.Network.Create(w.t.Context(), hcloud.NetworkCreateOpts{Name: name, IPRange: cidr(ipRange),
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: hcloud.NetworkZoneEUCentral,
			IPRange: cidr(subnet)}}})
	w.must(err)
	return network
}

// addServer creates a server in the network and a Node for it.
func (w *world) addServer(name string) (*hcloud.Server, *corev1.Node) {
	w.t.Helper()
	result, _, err := w.api.Server.Create(w.t.Context(), hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "ubuntu-24.04"},
		Location: &hcloud.Location{Name: "fsn1"}, Networks: []*hcloud.Network{w.network},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.clock.Step(5 * time.Minute) // all its actions finish
	server, _, err := w.api.Server.GetByID(w.t.Context(), result.Server.ID)
	if err != nil || len(server.PrivateNet) != 1 {
		w.t.Fatalf("server %s: %v, %+v", name, err, server)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("node-" + name)},
		Spec: corev1.NodeSpec{ProviderID: fmt.Sprintf("ccm-from-scratch://%d", server.ID)}}
	w.nodes = append(w.nodes, node)
	return server, node
}

// provider returns a new provider with empty caches, like a new CCM process.
func (w *world) provider(change ...func(*ccm.Config)) *ccm.Cloud {
	cfg := ccm.Config{
		Token: fakecloud.DefaultToken, Endpoint: "http://fake.invalid/v1", Network: "internal", RoutesEnabled: true,
		AddressFamily: ccm.AddressFamilyDualStack, LoadBalancersEnabled: true, LoadBalancerDefaults: map[string]string{"location": "fsn1"},
		ServerCacheTTL: 10 * time.Second, RequestTimeout: 10 * time.Second, ClusterCIDRs: prefixes("10.244.0.0/16"),
	}
	for _, c := range change {
		c(&cfg)
	}
	cloud := ccm.New(cfg, ccm.WithClock(w.auto), ccm.WithRoundTripper(w.wire), ccm.WithJitter(func() float64 { return 1 }),
		ccm.WithEventRecorder(w.events))
	if w.services != nil {
		controllerOf(cloud).Evidence().SetListers(nil, corelisters.NewServiceLister(w.services))
	}
	return cloud
}

// controllerOf returns the load balancers of a provider.
func controllerOf(cloud *ccm.Cloud) *loadbalancer.Controller {
	lbs, _ := cloud.LoadBalancer()
	return lbs.(*loadbalancer.Controller)
}

// routesOf returns the routes of a provider.
func routesOf(cloud *ccm.Cloud) *route.Routes {
	routes, _ := cloud.Routes()
	return routes.(*route.Routes)
}

// apply puts the Service as it is now into the cluster.
func (w *world) apply(svc *corev1.Service) {
	if w.services != nil {
		w.must(w.services.Add(svc.DeepCopy()))
	}
}

// eventsSoFar returns the events since the last call.
func (w *world) eventsSoFar() []string {
	var all []string
	for {
		select {
		case e := <-w.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// clients gives every controller the same fake client.
type clients struct{ kube kubernetes.Interface }

func (c clients) Config(string) (*rest.Config, error) { return &rest.Config{}, nil }

func (c clients) ConfigOrDie(string) *rest.Config { return &rest.Config{} }

func (c clients) Client(string) (kubernetes.Interface, error) { return c.kube, nil }

func (c clients) ClientOrDie(string) kubernetes.Interface { return c.kube }

// lead makes the provider work in the cluster, as a controller manager does that has become the leader. It returns when
// the informers have synced.
func (w *world) lead(cloud *ccm.Cloud, kube kubernetes.Interface) {
	factory := informers.NewSharedInformerFactory(kube, 0)
	stop := make(chan struct{})
	w.t.Cleanup(func() { close(stop) })
	cloud.Initialize(clients{kube}, stop)
	cloud.SetInformers(factory)
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	_ = routesOf(cloud) // the route controller runs
}

// ensure calls EnsureLoadBalancer until it succeeds, as the service controller does.
func (w *world) ensure(cloud *ccm.Cloud, svc *corev1.Service) *corev1.LoadBalancerStatus {
	w.t.Helper()
	lbs := controllerOf(cloud)
	var err error
	w.apply(svc)
	defer func() { w.apply(svc) }()
	for range 20 {
		var status *corev1.LoadBalancerStatus
		if status, err = lbs.EnsureLoadBalancer(w.t.Context(), "kubernetes", svc, w.nodes); err == nil {
			svc.Status.LoadBalancer = *status
			return status
		}
		w.clock.Step(15 * time.Second)
	}
	w.t.Fatalf("the load balancer does not exist after 20 syncs: %v", err)
	return nil
}

// remove deletes the Service's load balancer as the service controller does.
func (w *world) remove(cloud *ccm.Cloud, svc *corev1.Service) {
	w.t.Helper()
	svc.DeletionTimestamp = w.nowPtr()
	w.apply(svc)
	var err error
	for range 20 {
		if err = tryRemove(w.t.Context(), cloud, svc); err == nil {
			if w.services != nil {
				w.must(w.services.Delete(svc))
			}
			return
		}
		w.clock.Step(15 * time.Second)
	}
	w.t.Fatalf("the load balancer still exists after 20 syncs: %v", err)
}

// expectError makes a sync, and fails the test if that has no error, or one without one of the texts.
func (w *world) expectError(cloud *ccm.Cloud, svc *corev1.Service, texts ...string) {
	w.t.Helper()
	_, err := w.tryEnsure(cloud, svc)
	if err == nil {
		w.t.Error("the sync has no error")
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			w.t.Errorf("%q is missing in: %v", text, err)
		}
	}
}

// expectStays fails the test if the Service may go.
func (w *world) expectStays(cloud *ccm.Cloud, svc *corev1.Service) {
	w.t.Helper()
	if err := tryRemove(w.t.Context(), cloud, svc); err == nil {
		w.t.Error("the Service may go")
	}
}

func tryRemove(ctx context.Context, cloud *ccm.Cloud, svc *corev1.Service) error {
	lbs, _ := cloud.LoadBalancer()
	svc = doomed(svc)
	_, exists, err := lbs.GetLoadBalancer(ctx, "kubernetes", svc)
	if err != nil || !exists {
		return err
	}
	return lbs.EnsureLoadBalancerDeleted(ctx, "kubernetes", svc)
}

// doomed returns a Service as the service controller has it that deletes its load balancer.
func doomed(svc *corev1.Service) *corev1.Service {
	if svc = svc.DeepCopy(); plan.WantsLoadBalancer(svc) {
		svc.DeletionTimestamp = new(metav1.Now())
	}
	return svc
}

// loadBalancers returns all load balancers of the project.
func (w *world) loadBalancers() []*hcloud.LoadBalancer {
	w.t.Helper()
	all, err := w.api.LoadBalancer.All(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// theLoadBalancer returns the only load balancer of the project.
func (w *world) theLoadBalancer() *hcloud.LoadBalancer {
	w.t.Helper()
	all := w.loadBalancers()
	if len(all) != 1 {
		w.t.Fatalf("got %d load balancers, want 1", len(all))
	}
	return all[0]
}

// expectNone fails the test if the project has a load balancer.
func (w *world) expectNone() {
	w.t.Helper()
	if left := w.loadBalancers(); len(left) > 0 {
		w.t.Errorf("left: %v", left)
	}
}

// expectNoWrites fails the test if the CCM has changed something since the last look at its calls.
func (w *world) expectNoWrites() {
	w.t.Helper()
	if sent := writes(w.wire.take()); len(sent) > 0 {
		w.t.Errorf("writes: %v", sent)
	}
}

// expectQuiet fails the test if a sync without a change writes something.
func (w *world) expectQuiet(cloud *ccm.Cloud, svc *corev1.Service) {
	w.t.Helper()
	w.wire.take()
	w.ensure(cloud, svc)
	w.expectNoWrites()
}

// setLabels replaces the labels of a load balancer, as a person does.
func (w *world) setLabels(lb *hcloud.LoadBalancer, labels map[string]string) {
	w.t.Helper()
	if _, _, err := w.api.LoadBalancer.Update(w.t.Context(), lb, hcloud.LoadBalancerUpdateOpts{Labels: labels}); err != nil {
		w.t.Fatal(err)
	}
}

// deleteServer deletes a server, as a person does.
func (w *world) deleteServer(id int64) {
	w.t.Helper()
	_, _, err := w.api.Server.DeleteWithResult(w.t.Context(), &hcloud.Server{ID: id})
	w.must(err)
}

// deleteLoadBalancer deletes a load balancer, as a person does.
func (w *world) deleteLoadBalancer(lb *hcloud.LoadBalancer) {
	w.t.Helper()
	_, _, err := w.api.LoadBalancer.DeleteWithResult(w.t.Context(), lb)
	w.must(err)
}

// create makes a load balancer as a person does, by default of type lb11 and in fsn1.
func (w *world) create(opts hcloud.LoadBalancerCreateOpts) *hcloud.LoadBalancer {
	w.t.Helper()
	opts.LoadBalancerType = cmp.Or(opts.LoadBalancerType, &hcloud.LoadBalancerType{Name: "lb11"})
	opts.Location = cmp.Or(opts.Location, &hcloud.Location{Name: "fsn1"})
	made, _, err := w.api.LoadBalancer.Create(w.t.Context(), opts)
	w.must(err)
	return made.LoadBalancer
}

// must fails the test if a call of the test itself failed. Then it lets all actions finish.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	w.clock.Step(time.Minute)
}

// newService returns a Service of type LoadBalancer, with the service controller's finalizer.
func newService(name string, annotations map[string]string, ports ...int32) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{},
			Finalizers: []string{servicehelpers.LoadBalancerCleanupFinalizer}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
	}
	annotate(svc, annotations)
	setPorts(svc, ports...)
	return svc
}

func annotate(svc *corev1.Service, annotations map[string]string) {
	for k, v := range annotations {
		svc.Annotations[plan.AnnotationPrefix+k] = v
	}
}

func setPorts(svc *corev1.Service, ports ...int32) {
	svc.Spec.Ports = nil
	for _, p := range ports {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Protocol: corev1.ProtocolTCP, Port: p, NodePort: p + 30000})
	}
}

func targetIDs(lb *hcloud.LoadBalancer) (ids []int64) {
	for _, t := range lb.Targets {
		if t.Server != nil {
			ids = append(ids, t.Server.Server.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func serverIDs(nodes []*corev1.Node) (ids []int64) {
	for _, n := range nodes {
		_, number, _ := strings.Cut(n.Spec.ProviderID, "://")
		id, _ := strconv.ParseInt(number, 10, 64)
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func listenPorts(lb *hcloud.LoadBalancer) (ports []int) {
	for _, s := range lb.Services {
		ports = append(ports, s.ListenPort)
	}
	slices.Sort(ports)
	return ports
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, s := range texts {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func cidr(s string) *net.IPNet {
	_, n, err := net.ParseCIDR(s)
	if err != nil {
		panic(err)
	}
	return n
}

// wire sends a provider's requests to the cloud and counts them. It can simulate the death of the
// process.
type wire struct {
	cloud http.RoundTripper

	mu    sync.Mutex
	calls []string // "GET /servers", "POST /load_balancers/7/actions/add_target"
	// cutAt is the number of the call (from 1) at which the process dies; 0 means never. If cutAfter is
	// set, the cloud still gets that call and the answer is lost.
	cutAt    int
	cutAfter bool
	// intercept, if set, may answer instead of the cloud.
	intercept func(*http.Request) *http.Response
	// observe, if set, is called after each call that reached the cloud.
	observe func()
}

var errDead = errors.New("the process is dead")

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	return w.send(r, w.cloud.RoundTrip)
}

// send counts the request, and calls do with it if the process lives.
func (w *wire) send(r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	w.mu.Lock()
	w.calls = append(w.calls, r.Method+" "+strings.TrimPrefix(r.URL.Path, "/v1"))
	n, intercept, observe := len(w.calls), w.intercept, w.observe
	dead := w.cutAt > 0 && (n > w.cutAt || n == w.cutAt && !w.cutAfter)
	lost := w.cutAt > 0 && n == w.cutAt && w.cutAfter
	w.mu.Unlock()
	if dead {
		return nil, errDead
	}
	if intercept != nil {
		if resp := intercept(r); resp != nil {
			return resp, nil
		}
	}
	resp, err := do(r)
	if observe != nil {
		observe()
	}
	if lost {
		if resp != nil {
			_ = resp.Body.Close()
		}
		return nil, errDead
	}
	return resp, err
}

// reset forgets the calls and sets cutAt and cutAfter.
func (w *wire) reset(cutAt int, after bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls, w.cutAt, w.cutAfter = nil, cutAt, after
}

// isDead reports whether the process has died.
func (w *wire) isDead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cutAt > 0 && len(w.calls) >= w.cutAt
}

// take returns the calls since the last reset or take.
func (w *wire) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = nil
	return calls
}

// setIntercept sets the interceptor; nil removes it.
func (w *wire) setIntercept(f func(*http.Request) *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.intercept = f
}

// setObserve sets the function that is called after each call; nil removes it.
func (w *wire) setObserve(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observe = f
}

func writes(calls []string) (w []string) {
	for _, c := range calls {
		if !strings.HasPrefix(c, "GET ") {
			w = append(w, c)
		}
	}
	return w
}

// answerWith sends a request to the cloud, and returns the answer with a changed body.
func (w *world) answerWith(r *http.Request, change func([]byte) []byte) *http.Response {
	w.t.Helper()
	resp, err := w.wire.cloud.RoundTrip(r)
	if err != nil {
		w.t.Error(err)
		return nil
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Error(err)
	}
	_ = resp.Body.Close()
	body = change(body)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp
}

// apiError returns an answer with an error.
func apiError(status int, code string) *http.Response {
	body := fmt.Sprintf(`{"error":{"code":%q,"message":"injected","details":null}}`, code)
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader([]byte(body))), ContentLength: int64(len(body))}
}

func (w *world) nowPtr() *metav1.Time { return new(metav1.NewTime(w.clock.Now())) }

// privateIP returns the address of the i-th node's server in the network.
func (w *world) privateIP(i int) string {
	w.t.Helper()
	server, _, err := w.api.Server.GetByID(w.t.Context(), serverIDs(w.nodes[i : i+1])[0])
	if err != nil || server == nil || len(server.PrivateNet) == 0 {
		w.t.Fatalf("no private address: %v, %+v", err, server)
	}
	return server.PrivateNet[0].IP.String()
}

// networkRoutes returns the routes of the network, in order.
func (w *world) networkRoutes() []string {
	w.t.Helper()
	network, _, err := w.api.Network.GetByID(w.t.Context(), w.network.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for _, r := range network.Routes {
		all = append(all, fmt.Sprintf("%s via %s", r.Destination, r.Gateway))
	}
	slices.Sort(all)
	return all
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// selfSigned returns a certificate and its key, as PEM.
func selfSigned(t *testing.T, name string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now,
		NotAfter: now.AddDate(1, 0, 0), DNSNames: []string{"example.org"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}
