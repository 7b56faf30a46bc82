package framework

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
)

// ownSetup is a cloud, simulated nodes and CCM processes for one spec, on the embedded cluster.
type ownSetup struct {
	env   *Env
	fleet *node.Fleet

	mu       sync.Mutex
	replicas []*Replica
}

func newOwnSetup(ctx context.Context, e *Env) {
	GinkgoHelper()
	s := &ownSetup{env: e}
	e.setup = s
	driver, err := e.suite.CCM.driver()
	Expect(err).NotTo(HaveOccurred())
	e.Cloud, err = driver.Start(ctx, e.suite.options(e.options.Cloud))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(e.Cloud.Close)
	e.createNamespace(ctx)
	DeferCleanup(s.removeFromCluster)
	s.startFleet(ctx)
	if !e.options.NoCCM {
		e.CCM.Start(ctx, CCMOptions{})
	}
}

func (s *ownSetup) startFleet(ctx context.Context) {
	GinkgoHelper()
	events, ok := cloud.As[node.ServerEvents](s.env.Cloud)
	if !ok {
		events = polling{s.env.Cloud}
	}
	var err error
	// The nodes live longer than the context of BeforeEach.
	s.fleet, err = node.StartFleet(context.WithoutCancel(ctx), s.env.Kube, events, node.FleetOptions{Spec: s.env.options.Spec})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(s.fleet.Stop)
}

// removeFromCluster removes the spec's objects from the cluster that all specs share. The CCM may be gone, so it removes the finalizers
// itself. The namespace stays: deleting one takes some 70 requests, a quarter of all requests of a run, and the control plane ends with the
// specs.
func (s *ownSetup) removeFromCluster(ctx context.Context) {
	kube := s.env.Kube
	services := kube.CoreV1().Services(s.env.Services.Namespace)
	list, err := services.List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, service := range list.Items {
		if len(service.Finalizers) > 0 {
			_, err := services.Patch(ctx, service.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
				metav1.PatchOptions{})
			Expect(client.IgnoreNotFound(err)).To(Succeed())
		}
		Expect(client.IgnoreNotFound(services.Delete(ctx, service.Name, metav1.DeleteOptions{}))).To(Succeed())
	}
	Expect(kube.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
	Expect(kube.CoordinationV1().Leases("kube-system").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})).To(Succeed())
	Eventually(func(g Gomega) {
		nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(nodes.Items).To(BeEmpty())
	}).Should(Succeed(), "the nodes of the spec are still there")
}

// startCCM implements setup: a process with the command line that a cluster would use, and shorter periods. It
// ends with the spec.
func (s *ownSetup) startCCM(_ context.Context, o CCMOptions) *Replica {
	GinkgoHelper()
	suite := s.env.suite
	args := append([]string{
		"--kubeconfig=" + suite.Kubeconfig,
		"--cloud-provider=" + suite.CCM.CloudProvider,
		"--cluster-name=e2e",
		"--cluster-cidr=" + suite.Cluster.PodCIDR.String(),
		"--allocate-node-cidrs=true",
		"--configure-cloud-routes=true",
		"--secure-port=0",
		"--webhook-secure-port=0",
	}, CCMArgs(o.LeaderElect)...)
	args = slices.Concat(args, s.env.Cloud.CCM().Args, suite.CCM.Args, o.Args)
	r := s.run("ccm", delayed(cluster.Command{Path: suite.CCMBinary, Args: args, Env: s.ccmEnv(o.Env)}))
	r.elects = ElectsLeader(args)
	return r
}

// delayed returns a command that waits as long as EnvDelay says and then becomes the given one.
func delayed(c cluster.Command) cluster.Command {
	delay := os.Getenv(EnvDelay)
	if delay == "" {
		return c
	}
	c.Args = slices.Concat([]string{"-c", `sleep "$0" && exec "$@"`, delay, c.Path}, c.Args)
	c.Path = "/bin/sh"
	return c
}

// Run starts a program next to the control plane, on the embedded cluster. It ends with the spec.
func (e *Env) Run(kind string, command cluster.Command) *Replica {
	GinkgoHelper()
	return e.setup.(*ownSetup).run(kind, command)
}

// run starts a program next to the control plane. It ends with the spec.
func (s *ownSetup) run(kind string, command cluster.Command) *Replica {
	GinkgoHelper()
	suite := s.env.suite
	s.mu.Lock()
	number := len(s.replicas) + 1
	s.mu.Unlock()
	r := &Replica{name: fmt.Sprintf("spec-%03d-%s-%d", suite.specs, kind, number)}
	if info, err := os.Stat(filepath.Join(suite.Cluster.LogDir, r.name+".log")); err == nil {
		r.logFrom = info.Size()
	}
	command.Name = r.name
	process, err := suite.Cluster.Run(command)
	Expect(err).NotTo(HaveOccurred())
	r.Process = process
	s.mu.Lock()
	s.replicas = append(s.replicas, r)
	s.mu.Unlock()
	DeferCleanup(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		Expect(process.Stop(ctx)).To(Succeed())
		Expect(r.Denied()).To(BeEmpty(), "the manifest of %s lacks RBAC rules", kind)
	})
	return r
}

// ccmEnv returns the whole environment of a CCM.
func (s *ownSetup) ccmEnv(extra map[string]string) []string {
	env := map[string]string{
		"PATH":       os.Getenv("PATH"),
		"HOME":       os.Getenv("HOME"),
		"GOCOVERDIR": filepath.Join(s.env.suite.Out, "coverage"),
	}
	of := s.env.Cloud.CCM()
	maps.Copy(env, of.Env)
	maps.Copy(env, s.env.suite.CCM.Environment(of.Values))
	maps.Copy(env, s.env.suite.CCM.known(s.env.options.CCM))
	maps.Copy(env, s.env.suite.CCM.known(extra))
	var list []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		if env[k] != "" {
			list = append(list, k+"="+env[k])
		}
	}
	return list
}

// workers implements setup: the nodes are new.
func (s *ownSetup) workers(ctx context.Context, n int) Workers[cloud.Server] {
	GinkgoHelper()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("node-%d", i+1))
	}
	var workers Workers[cloud.Server]
	for i, server := range s.env.Nodes.Create(ctx, names...) {
		workers = append(workers, Worker[cloud.Server]{names[i], server})
	}
	return workers
}

// confine implements setup: no other spec sees the spec's nodes.
func (s *ownSetup) confine(*corev1.Service) {}

// brings implements setup.
func (s *ownSetup) brings(string) {}

// addPods implements setup. Simulated nodes answer for the pods of all Services.
func (s *ownSetup) addPods(context.Context, string) {}

// setEndpoints implements setup.
func (s *ownSetup) setEndpoints(_ context.Context, service string, nodes []string) {
	pods := map[string]int{}
	for _, n := range nodes {
		pods[n] = 1
	}
	s.fleet.SetLocalEndpoints(s.env.Services.fullName(service), pods)
}

// setProxyProtocol implements setup.
func (s *ownSetup) setProxyProtocol(service string, expected bool) {
	s.fleet.SetProxyProtocol(s.env.Services.fullName(service), expected)
}

// dial implements setup.
func (s *ownSetup) dial(ctx context.Context, address string, from netip.Addr) (net.Conn, error) {
	if !from.IsValid() {
		return dialCloud(ctx, s.env.Cloud, address)
	}
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	return d.DialContext(ctx, "tcp", address)
}

// outsideAddress implements setup: any loopback address can be a client's.
func (s *ownSetup) outsideAddress() string { return "127.200.3.4" }

// hypervisorLog implements setup. The embedded cluster has no hypervisor.
func (s *ownSetup) hypervisorLog(string) string { return "" }

// report implements setup: the logs of all CCM processes and the cloud's state.
func (s *ownSetup) report(ctx context.Context) {
	for _, r := range s.replicas {
		AddReportEntry("log of "+r.name, ReportEntryVisibilityFailureOrVerbose, tail(r.LogPath(), 200))
	}
	if dumper, ok := cloud.As[cloud.Dumper](s.env.Cloud); ok {
		AddReportEntry("the cloud's state", ReportEntryVisibilityFailureOrVerbose, dumper.Dump(ctx))
	}
}

// dialCloud connects to an address of a load balancer from outside of the cluster.
func dialCloud(ctx context.Context, c cloud.Cloud, address string) (net.Conn, error) {
	if dialer, ok := cloud.As[cloud.Dialer](c); ok {
		return dialer.Dial(ctx, address)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}
