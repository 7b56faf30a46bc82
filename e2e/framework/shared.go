package framework

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/clean"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// EnvRun names the run: a label value that all has that the suite creates in a cluster and cloud that exist,
// so that what a crash left is found again (make e2e-clean).
const EnvRun = "E2E_RUN"

// LabelRun is the label with the run's name, of namespaces and of the cloud's resources.
const LabelRun = clean.LabelRun

// run returns the name of the run.
func (s *Suite) run() string { return cmp.Or(os.Getenv(EnvRun), "local") }

// Simulated tells whether the cloud is one that keeps a journal and can be made to misbehave. Elsewhere nobody sees
// requests, and specs look at what the cloud has.
func (s *Suite) Simulated() bool { return s.site == nil || s.site.faults != nil }

// newSharedEnv makes an Env on the cluster that all specs share.
func newSharedEnv(ctx context.Context, s *Suite, options Options) *Env {
	GinkgoHelper()
	Expect(options.Actions == "" && options.RateLimit == 0 && options.LoadBalancerBits == 0 && options.Spec == nil).To(BeTrue(),
		"these Options need a cloud and nodes of the spec's own: give it the label %s", OwnCloud)
	e := &Env{Suite: s, Kube: s.Cluster.Client, options: options, Faults: s.site.faults}
	e.Journal = recentJournal{s.site.journal, s.site.journal.Last()}
	e.HCloud = s.site.client("spec")
	if s.site.network != "" {
		var err error
		e.Network, _, err = e.HCloud.Network.GetByName(ctx, s.site.network)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.Network).NotTo(BeNil(), "the cloud has no network %s", s.site.network)
	}
	e.createNamespace(ctx)
	DeferCleanup(e.removeFromShared)
	e.CCM = &CCM{env: e, pods: s.site.ccm}
	if options.NoCCM {
		Expect(e.CCM.Stop(ctx)).To(Succeed())
	} else if len(options.CCM) > 0 {
		e.CCM = e.StartCCM(ctx, CCMOptions{})
	}
	DeferCleanup(e.report)
	return e
}

// owned is what a spec has in a cloud that it shares with others.
type owned struct {
	mu sync.Mutex
	// services are the UIDs of all Services that it has created.
	services map[string]bool
	// loadBalancers and certificates are the ids of those that it has created, or that belong to its Services.
	loadBalancers, certificates map[int64]bool
	servers                     []*hcloud.Server
}

func (o *owned) addService(uid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.services == nil {
		o.services = map[string]bool{}
	}
	o.services[uid] = true
}

func (o *owned) addServer(s *hcloud.Server) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.servers = append(o.servers, s)
}

// takeServers returns the servers that the spec has created, and forgets them.
func (o *owned) takeServers() []*hcloud.Server {
	o.mu.Lock()
	defer o.mu.Unlock()
	servers := o.servers
	o.servers = nil
	return servers
}

func (o *owned) addLoadBalancer(id int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	remember(&o.loadBalancers, id)
}

func (o *owned) addCertificate(id int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	remember(&o.certificates, id)
}

func remember(ids *map[int64]bool, id int64) {
	if *ids == nil {
		*ids = map[int64]bool{}
	}
	(*ids)[id] = true
}

// isLoadBalancer tells whether a load balancer is the spec's, by its id or the Service that it is made for.
// Once it was, it stays so, though its label be gone.
func (o *owned) isLoadBalancer(id int64, owner string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.services[owner] {
		remember(&o.loadBalancers, id)
	}
	return o.loadBalancers[id]
}

func (o *owned) isCertificate(id int64, owner string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.services[owner] {
		remember(&o.certificates, id)
	}
	return o.certificates[id]
}

// wrote tells whether a request was about something of the spec's, as far as its id says.
func (o *owned) wrote(r fakecloud.JournalEntry) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case strings.HasPrefix(r.Route, "/load_balancers"):
		return o.loadBalancers[r.ResourceID]
	case strings.HasPrefix(r.Route, "/certificates"):
		return o.certificates[r.ResourceID]
	}
	return false
}

// Unique makes a name that no other spec uses for something in the cloud, where several share it.
func (e *Env) Unique(name string) string {
	if e.Cloud != nil {
		return name
	}
	return name + strings.TrimPrefix(e.Namespace, "spec")
}

// Roots returns the authorities that have signed the certificates that the cloud manages: nil, which is
// the machine's own, on a real cloud.
func (e *Env) Roots(ctx context.Context) *x509.CertPool {
	GinkgoHelper()
	switch {
	case e.Cloud != nil:
		return e.Cloud.CertPool()
	case e.site.roots == nil:
		return nil
	}
	roots, err := e.site.roots(ctx)
	Expect(err).NotTo(HaveOccurred())
	return roots
}

// removeFromShared removes what the spec left in the cluster and the cloud, and puts the CCM back: the next
// spec finds all as this one did.
func (e *Env) removeFromShared(ctx context.Context) {
	if ccm := e.site.ccm; ccm != nil {
		Expect(ccm.restore(ctx)).To(Succeed(), "putting the CCM back")
	}
	if ReallyKeep() && CurrentSpecReport().Failed() {
		AddReportEntry("kept: namespace " + e.Namespace)
		return
	}
	e.removeServices(ctx)
	for _, s := range e.owned.takeServers() {
		e.removeServer(ctx, s)
	}
	background := metav1.DeletePropagationBackground
	Expect(ignoreNotFound(e.Kube.CoreV1().Namespaces().Delete(ctx, e.Namespace, metav1.DeleteOptions{PropagationPolicy: &background}))).To(Succeed())
}

// removeServices deletes the Services, waits until the CCM has removed what they had in the cloud, and then
// removes what the spec itself has created there, or what a CCM that fails has left.
func (e *Env) removeServices(ctx context.Context) {
	services := e.Kube.CoreV1().Services(e.Namespace)
	list, err := services.List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	protected := false
	for _, lb := range e.LoadBalancers(ctx) {
		if lb.Protection.Delete {
			e.Started(ctx)(e.HCloud.LoadBalancer.ChangeProtection(ctx, lb, hcloud.LoadBalancerChangeProtectionOpts{Delete: &protected}))
		}
	}
	for _, s := range list.Items {
		Expect(ignoreNotFound(services.Delete(ctx, s.Name, metav1.DeleteOptions{}))).To(Succeed())
	}
	Eventually(func() []string { return e.serviceNames(ctx) }).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).
		Should(BeEmpty(), "the Services of the spec are still there: does the CCM work?")
	for _, lb := range e.LoadBalancers(ctx) {
		_, _, err := e.HCloud.LoadBalancer.DeleteWithResult(ctx, lb)
		Expect(ignoreGone(err)).To(Succeed())
	}
	for _, c := range e.Certificates(ctx) {
		_, err := e.HCloud.Certificate.Delete(ctx, c)
		Expect(ignoreGone(err)).To(Succeed())
	}
}

// removeServer deletes a server that the spec has created, and its Node: the CCM would, too, but not before the
// Node is NotReady.
func (e *Env) removeServer(ctx context.Context, s *hcloud.Server) {
	result, _, err := e.HCloud.Server.DeleteWithResult(ctx, s)
	if err == nil {
		e.Wait(ctx, result.Action)
	}
	Expect(ignoreGone(err)).To(Succeed())
	Expect(ignoreNotFound(e.Kube.CoreV1().Nodes().Delete(ctx, s.Name, metav1.DeleteOptions{}))).To(Succeed())
	e.AwaitNoNode(ctx, s.Name)
}

func ignoreGone(err error) error {
	if hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
		return nil
	}
	return err
}

// EnvKeep asks to keep what failed specs have made, to look inside.
const EnvKeep = "E2E_KEEP"

// ReallyKeep tells whether what failed is to be kept.
func ReallyKeep() bool { return os.Getenv(EnvKeep) != "" && os.Getenv(EnvKeep) != "0" }

// Worker is a node that can be a target of load balancers, and its server.
type Worker struct {
	Name   string
	Server *hcloud.Server
}

// Workers returns the nodes that are targets of load balancers, initialized and Ready: at least n, by name.
// Where the spec has nodes of its own, it makes n.
func (e *Env) Workers(ctx context.Context, n int) Workers {
	GinkgoHelper()
	if e.Cloud != nil {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("node-%d", i+1))
		}
		var workers Workers
		for i, s := range e.CreateNodes(ctx, names...) {
			workers = append(workers, Worker{names[i], s})
		}
		return workers
	}
	servers, err := e.HCloud.Server.All(ctx)
	Expect(err).NotTo(HaveOccurred())
	nodes, err := e.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	var workers Workers
	for _, node := range nodes.Items {
		if _, excluded := node.Labels[corev1.LabelNodeExcludeBalancers]; excluded {
			continue
		}
		workers = append(workers, Worker{node.Name, e.serverOf(&node, servers)})
	}
	if len(workers) < n {
		Skip("the cluster has too few nodes that can be targets")
	}
	return workers
}

// serverOf finds the server of a node, which must have one.
func (s *Suite) serverOf(n *corev1.Node, servers []*hcloud.Server) *hcloud.Server {
	GinkgoHelper()
	i := slices.IndexFunc(servers, func(server *hcloud.Server) bool { return s.ProviderID(server) == n.Spec.ProviderID })
	Expect(i).To(BeNumerically(">=", 0), "node %s with the provider ID %q has no server", n.Name, n.Spec.ProviderID)
	return servers[i]
}

// Workers are several of them.
type Workers []Worker

// Names returns the workers' names.
func (w Workers) Names() []string {
	var names []string
	for _, worker := range w {
		names = append(names, worker.Name)
	}
	return names
}

// dialOutside connects to an address of the cloud from outside of the cluster.
func (e *Env) dialOutside(ctx context.Context, address string) (net.Conn, error) {
	if e.Cloud != nil {
		return e.Cloud.DataPlane().DialContext(ctx, "tcp", address)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return e.site.dial(ctx, "tcp", address)
}
