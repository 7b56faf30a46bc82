package example

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/example/provider"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/cloudtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/example"
)

// pair is an example cloud and the example CCM's provider. The provider is called as the controllers call it.
type pair struct {
	*example.Cloud
	provider *provider.Cloud
	wire     *wire
	nodes    []*corev1.Node
	late     atomic.Bool // load balancers have no address yet
}

// wire is between the provider and the cloud. It can cut the connection for good before or after a request, as if the process had died.
type wire struct {
	cloud http.Handler
	mu    sync.Mutex
	seen  int
	dies  int // the number of the request, from 1; 0: none
	after bool
	dead  bool
}

func (w *wire) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.seen++
	last := w.seen == w.dies && !w.dead
	w.dead = w.dead || last
	dead, after := w.dead, w.after
	w.mu.Unlock()
	if last && after {
		w.cloud.ServeHTTP(httptest.NewRecorder(), r)
	}
	if dead {
		panic(http.ErrAbortHandler)
	}
	w.cloud.ServeHTTP(to, r)
}

// die makes the n-th request from now the last one.
func (w *wire) die(n int, after bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen, w.dies, w.after, w.dead = 0, n, after, false
}

// isDead reports whether the last request was sent.
func (w *wire) isDead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

// newPair makes a cloud with instances, and a provider that knows their nodes.
func newPair(t *testing.T, names ...string) *pair {
	t.Helper()
	return newPairWithin(t, "30s", names...) // long, for a busy computer
}

// newPairFor is newPair for requests that meet an effect, and do not wait long for an answer that never comes.
func newPairFor(t *testing.T, effect string, names ...string) *pair {
	t.Helper()
	if effect == example.Hang {
		return newPairWithin(t, "1s", names...)
	}
	return newPair(t, names...)
}

func newPairWithin(t *testing.T, timeout string, names ...string) *pair {
	t.Helper()
	p := &pair{}
	start := time.Now()
	addresses := cloudtest.Options(t)
	c, err := example.New(example.Options{Instances: addresses.Servers, LoadBalancers: addresses.LoadBalancers, Provisioning: 1,
		Now: func() time.Time {
			if p.late.Load() {
				return start
			}
			return time.Now()
		}})
	if err != nil {
		t.Fatal(err)
	}
	p.Cloud, p.wire = c, &wire{cloud: c.Handler()}
	server := httptest.NewServer(p.wire)
	t.Cleanup(server.Close)
	t.Cleanup(func() { _ = c.Close() }) // first, so that requests that hang end
	env := map[string]string{
		"EXAMPLE_ENDPOINT": server.URL + example.Path, "EXAMPLE_TOKEN": "example-token", "EXAMPLE_REQUEST_TIMEOUT": timeout,
	}
	client, err := provider.NewClient(func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	p.provider = provider.New(client)
	for _, name := range names {
		p.addNode(t, name)
	}
	return p
}

// addNode creates an instance and the node of it.
func (p *pair) addNode(t *testing.T, name string) *corev1.Node {
	t.Helper()
	i, err := p.CreateInstance(name)
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{ProviderID: provider.MakeProviderID(i.Zone, i.ID)},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: i.PrivateIP.String()}}},
	}
	p.nodes = append(p.nodes, node)
	return node
}

// instance returns the instance of a name.
func (p *pair) instance(t *testing.T, name string) example.Instance {
	t.Helper()
	for _, i := range p.Instances() {
		if i.Name == name {
			return i
		}
	}
	t.Fatalf("there is not an instance %s", name)
	return example.Instance{}
}

// know gives the provider the nodes of the cluster.
func (p *pair) know(t *testing.T, nodes ...*corev1.Node) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	p.provider.SetInformers(factory)
	factory.Start(t.Context().Done())
	factory.WaitForCacheSync(t.Context().Done())
	for _, node := range nodes {
		if err := factory.Core().V1().Nodes().Informer().GetStore().Add(node); err != nil {
			t.Fatal(err)
		}
	}
}

// writes returns the requests from now on that change something.
func (p *pair) writes() func() []string {
	var last uint64
	if all := p.Requests(0); len(all) > 0 {
		last = all[len(all)-1].Seq
	}
	return func() []string {
		var texts []string
		for _, r := range p.Requests(last) {
			if r.Write() {
				texts = append(texts, r.Kind)
			}
		}
		return texts
	}
}

// fault adds a fault of the provider's requests until the returned function is called.
func (p *pair) fault(t *testing.T, f example.Fault) (remove func()) {
	t.Helper()
	f.UserAgent = "example-ccm"
	name, err := p.AddFault(f)
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if !p.RemoveFault(name) {
			t.Errorf("there is not a fault %s", name)
		}
	}
}

func (p *pair) instances() cloudprovider.InstancesV2 {
	i, _ := p.provider.InstancesV2()
	return i
}

func (p *pair) balancers() cloudprovider.LoadBalancer {
	b, _ := p.provider.LoadBalancer()
	return b
}

// web is a Service with ports.
func web(ports ...int32) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "6f0a0b7c-1111-2222-3333-444455556666"}}
	for _, n := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: n, NodePort: 22000 + n, Protocol: corev1.ProtocolTCP})
	}
	return s
}

// ensure calls EnsureLoadBalancer as the service controller does while the address is not there.
func (p *pair) ensure(ctx context.Context, s *corev1.Service, nodes ...*corev1.Node) (*corev1.LoadBalancerStatus, error) {
	for {
		status, err := p.balancers().EnsureLoadBalancer(ctx, "kubernetes", s, nodes)
		var retry *api.RetryError
		if !errors.As(err, &retry) || ctx.Err() != nil {
			return status, err
		}
	}
}

// forwards returns what the load balancers forward: for each port the names of the instances.
func (p *pair) forwards(t *testing.T) map[int][]string {
	t.Helper()
	byAddress := map[string]string{}
	for _, i := range p.Instances() {
		byAddress[i.PrivateIP.String()] = i.Name
	}
	ports := map[int][]string{}
	for _, l := range p.Listeners("") {
		names := []string{}
		for _, b := range l.Backends {
			if int(b.Port()) != 22000+int(l.Port) {
				t.Errorf("port %d is forwarded to %s", l.Port, b)
			}
			names = append(names, byAddress[b.Addr().String()])
		}
		slices.Sort(names)
		ports[int(l.Port)] = names
	}
	return ports
}

// everyEffect calls a function with all effects that a read can meet and that do not show the truth.
func everyEffect(t *testing.T, run func(t *testing.T, effect string)) {
	for _, effect := range []string{
		example.Unavailable, example.Internal, example.Unauthorized, example.Forbidden, example.RateLimited, example.Busy,
		example.NothingFound, example.EmptyLists, example.Garbage, example.Hang, example.Drop, example.LoseAnswer,
	} {
		t.Run(effect, func(t *testing.T) {
			t.Parallel()
			run(t, effect)
		})
	}
}

func TestNodesGetWhatTheCloudSays(t *testing.T) {
	t.Parallel()
	g, p := NewWithT(t), newPair(t, "node-1", "node-2")
	i := p.instance(t, "node-2")
	want := &cloudprovider.InstanceMetadata{
		ProviderID: "example://north-b/" + i.ID, InstanceType: "small", Zone: "north-b", Region: "north",
		NodeAddresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: "node-2"},
			{Type: corev1.NodeInternalIP, Address: i.PrivateIP.String()},
			{Type: corev1.NodeExternalIP, Address: i.PublicIP.String()},
		},
	}
	fresh := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}
	g.Expect(p.instances().InstanceMetadata(t.Context(), fresh)).To(Equal(want), "by the name")
	known := p.nodes[1].DeepCopy()
	known.Name = "node-1"
	g.Expect(p.instances().InstanceMetadata(t.Context(), known)).To(Equal(want), "by the provider ID, not by the name")

	_, err := p.instances().InstanceMetadata(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}})
	g.Expect(err).To(MatchError(cloudprovider.InstanceNotFound))
	_, err = p.instances().InstanceExists(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "stranger"}})
	g.Expect(err).To(HaveOccurred(), "a node that never had an instance is not proven to have lost it")
	for _, foreign := range []string{"hcloud://1", "example://" + i.ID, "example://north-b/" + i.ID + "/x"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}, Spec: corev1.NodeSpec{ProviderID: foreign}}
		_, err := p.instances().InstanceExists(t.Context(), node)
		g.Expect(err).To(MatchError(ContainSubstring("leaves the node alone")), foreign)
		_, err = p.instances().InstanceMetadata(t.Context(), node)
		g.Expect(err).To(MatchError(ContainSubstring(foreign)))
	}
}

func TestNodesFollowTheStateOfTheirInstance(t *testing.T) {
	t.Parallel()
	g, p := NewWithT(t), newPair(t, "node-1", "node-2")
	node, id := p.nodes[0], p.instance(t, "node-1").ID
	g.Expect(p.instances().InstanceShutdown(t.Context(), node)).To(BeFalse())
	_, err := p.ChangeInstance(id, "renamed", example.Stopped)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.instances().InstanceShutdown(t.Context(), node)).To(BeTrue())
	g.Expect(p.instances().InstanceExists(t.Context(), node)).To(BeTrue(), "an instance that is off exists")
	g.Expect(p.DeleteInstance(id)).To(Succeed())
	g.Expect(p.instances().InstanceExists(t.Context(), node)).To(BeFalse())
	_, err = p.CreateInstance("node-1")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(p.instances().InstanceExists(t.Context(), node)).To(BeFalse(), "another instance has the name")

	g.Expect(p.instances().InstanceExists(t.Context(), p.nodes[1])).To(BeTrue())
	for _, i := range p.Instances() {
		g.Expect(p.DeleteInstance(i.ID)).To(Succeed())
	}
	g.Expect(p.instances().InstanceExists(t.Context(), p.nodes[1])).To(BeFalse(), "the last instance can go, too")
}

// TestNothingIsGoneWithoutAProof shows that whatever the API answers instead of the truth, no node and no load balancer is taken for gone.
func TestNothingIsGoneWithoutAProof(t *testing.T) {
	t.Parallel()
	everyEffect(t, func(t *testing.T, effect string) {
		g, p := NewWithT(t), newPairFor(t, effect, "node-1")
		s := web(8080)
		_, err := p.ensure(t.Context(), s, p.nodes...)
		g.Expect(err).NotTo(HaveOccurred())
		remove := p.fault(t, example.Fault{Effect: effect})
		exists, err := p.instances().InstanceExists(t.Context(), p.nodes[0])
		g.Expect(exists || err != nil).To(BeTrue(), "the node would be deleted")
		_, exists, err = p.balancers().GetLoadBalancer(t.Context(), "", s)
		g.Expect(exists || err != nil).To(BeTrue(), "the Service would go without its load balancer")
		g.Expect(p.balancers().EnsureLoadBalancerDeleted(t.Context(), "", s)).NotTo(Succeed(), "the Service would go")
		remove()
		g.Expect(p.instances().InstanceExists(t.Context(), p.nodes[0])).To(BeTrue())
		_, err = p.ensure(t.Context(), s, p.nodes...) // what was half deleted, is made again
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(p.forwards(t)).To(Equal(map[int][]string{8080: {"node-1"}}))
		g.Expect(p.LoadBalancers()).To(HaveLen(1))
		g.Expect(p.balancers().EnsureLoadBalancerDeleted(t.Context(), "", s)).To(Succeed())
		g.Expect(p.LoadBalancers()).To(BeEmpty())
	})
}

// TestATokenOfAnotherAccountProvesNothing shows that the account is a part of the question.
func TestATokenOfAnotherAccountProvesNothing(t *testing.T) {
	t.Parallel()
	g, p := NewWithT(t), newPair(t, "node-1")
	other := newPair(t)
	p.wire.cloud = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = strings.Replace(r.URL.Path, example.Path, "/accounts/other", 1)
		other.wire.cloud.ServeHTTP(w, r)
	})
	_, err := p.instances().InstanceExists(t.Context(), p.nodes[0])
	g.Expect(err).To(MatchError(ContainSubstring("forbidden")))
}

// TestAnAnswerOfAProxyProvesNothing shows that an answer must be the API's.
func TestAnAnswerOfAProxyProvesNothing(t *testing.T) {
	t.Parallel()
	const notFound, noInstances = `{"error": {"code": "instance_not_found", "message": "…"}}`, `{"instances": []}`
	for name, answer := range map[string]struct {
		status     int
		kind, body string
		list       string // what the list answers; empty: the same
	}{
		"404 without JSON":               {404, "text/plain", "not found", noInstances},
		"404 with other JSON":            {404, "application/json", `{"message": "no Route matched with those values"}`, noInstances},
		"404 of an unknown path":         {404, "application/json", `{"error": {"code": "unknown_path", "message": "…"}}`, noInstances},
		"500":                            {500, "application/json", `{"error": {"code": "internal", "message": "…"}}`, noInstances},
		"404 to all questions":           {404, "application/json", notFound, ""},
		"404, and a list that is null":   {404, "application/json", notFound, `{"instances": null}`},
		"404, and nothing like a list":   {404, "application/json", notFound, `{}`},
		"404, and a list of other items": {404, "application/json", notFound, `{"instances": ["vm-1"]}`},
		"200 with an empty object":       {200, "application/json", `{}`, noInstances},
		"200 with null":                  {200, "application/json", `null`, noInstances},
		"200 with an empty list":         {200, "application/json", noInstances, noInstances},
		"200 about another one":          {200, "application/json", `{"instance": {"id": "vm-2"}}`, noInstances},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, p := NewWithT(t), newPair(t, "node-1")
			p.wire.cloud = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/instances") && answer.list != "" {
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write([]byte(answer.list))
					return
				}
				w.Header().Set("Content-Type", answer.kind)
				w.WriteHeader(answer.status)
				_, _ = w.Write([]byte(answer.body))
			})
			exists, err := p.instances().InstanceExists(t.Context(), p.nodes[0])
			g.Expect(err).To(HaveOccurred(), "exists: %v", exists)
			_, _, err = p.balancers().GetLoadBalancer(t.Context(), "", web(8080))
			g.Expect(err).To(HaveOccurred())
		})
	}
}

func TestRequestsHaveATimeLimit(t *testing.T) {
	t.Parallel()
	g, p := NewWithT(t), newPairFor(t, example.Hang, "node-1")
	p.fault(t, example.Fault{Effect: example.Hang})
	start := time.Now()
	_, err := p.instances().InstanceExists(t.Context(), p.nodes[0])
	g.Expect(err).To(MatchError(ContainSubstring("GET /instances/")))
	g.Expect(time.Since(start)).To(BeNumerically("<", 20*time.Second))
}
