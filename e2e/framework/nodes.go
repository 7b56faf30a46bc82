package framework

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
)

// Nodes are the cluster's nodes.
type Nodes struct {
	env *Env
}

// RebootTimeout is how long specs wait after a reset of the whole cluster: etcd, the API server and the kubelets start
// one after the other, with waits in between.
const RebootTimeout = 4 * time.Minute

// Name returns a name for a server and its node that no other spec uses. Load balancers of Services that the spec
// creates afterwards have the node as a target, those of other specs do not.
func (ns Nodes) Name(name string) string {
	GinkgoHelper()
	name = ns.env.Unique(name)
	ns.env.setup.brings(name)
	return name
}

// Create creates servers and waits until their nodes are initialized.
func (ns Nodes) Create(ctx context.Context, names ...string) []cloud.Server {
	GinkgoHelper()
	var servers []cloud.Server
	for _, name := range names {
		servers = append(servers, ns.env.Servers.Create(ctx, name))
	}
	for _, name := range names {
		ns.AwaitInitialized(ctx, name)
	}
	return servers
}

// Workers returns at least n nodes that are targets of load balancers, initialized and Ready, by name. On the
// embedded cluster, it creates n.
func (ns Nodes) Workers(ctx context.Context, n int) Workers[cloud.Server] {
	GinkgoHelper()
	return ns.env.setup.workers(ctx, n)
}

// Worker is a node that can be a target of load balancers, and its server in the terms of a package.
type Worker[Server any] struct {
	Name   string
	Server Server
}

// Workers are the nodes that can be targets.
type Workers[Server any] []Worker[Server]

// Names returns the workers' names.
func (w Workers[Server]) Names() []string {
	var names []string
	for _, worker := range w {
		names = append(names, worker.Name)
	}
	return names
}

// Get returns a node of the cluster, or nil.
func (ns Nodes) Get(ctx context.Context, name string) *corev1.Node {
	GinkgoHelper()
	n, err := ns.env.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return n
}

// Await waits until a node passes the checks.
func (ns Nodes) Await(ctx context.Context, name string, check func(Gomega, *corev1.Node)) *corev1.Node {
	GinkgoHelper()
	var found *corev1.Node
	Eventually(func(g Gomega) {
		n, err := ns.env.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		check(g, n)
		found = n
	}).WithContext(ctx).Should(Succeed())
	return found
}

// AwaitJoined waits until a new server is a node: its container runs and its kubelet registers itself. That takes minutes on a busy host.
// The work of a CCM only begins afterwards.
func (ns Nodes) AwaitJoined(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func() *corev1.Node { return ns.Get(ctx, name) }).
		WithContext(ctx).WithTimeout(RebootTimeout).ShouldNot(BeNil(), func() string {
		return fmt.Sprintf("node %s has not joined; the hypervisor's log about it ends with\n%s", name, ns.env.setup.hypervisorLog(name))
	})
}

// AwaitInitialized waits until the CCM initializes a node. The node's server must have an address of the configured family.
func (ns Nodes) AwaitInitialized(ctx context.Context, name string) *corev1.Node {
	GinkgoHelper()
	return ns.Await(ctx, name, func(g Gomega, n *corev1.Node) {
		g.Expect(n.Spec.ProviderID).NotTo(BeEmpty())
		g.Expect(n).NotTo(HaveTaint(node.TaintUninitialized))
		// The kubelet wrote the host name. The CCM writes the other addresses in a second request.
		g.Expect(n.Status.Addresses).To(ContainElement(HaveField("Type", Not(Equal(corev1.NodeHostName)))))
	})
}

// AwaitReady waits until a node is Ready, or until it is not.
func (ns Nodes) AwaitReady(ctx context.Context, name string, ready bool) *corev1.Node {
	GinkgoHelper()
	return ns.Await(ctx, name, func(g Gomega, n *corev1.Node) { g.Expect(IsReady(n)).To(Equal(ready)) })
}

// AwaitGone waits until no node has that name.
func (ns Nodes) AwaitGone(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func() *corev1.Node { return ns.Get(ctx, name) }).WithContext(ctx).Should(BeNil(), "node %s is still there", name)
}

// ExpectStays waits for n more of the CCM's requests about servers, whatever their answers, and fails if the node is deleted meanwhile. It
// returns the node's state afterwards.
func (ns Nodes) ExpectStays(ctx context.Context, name string, n int) *corev1.Node {
	GinkgoHelper()
	was := ns.Get(ctx, name)
	Expect(was).NotTo(BeNil(), "node %s is not there", name)
	if !ns.env.Recorded() { // the requests are unknown: watch for the quiet time
		Consistently(func(g Gomega) {
			now := ns.Get(ctx, name)
			g.Expect(now).To(HaveField("UID", was.UID))
			was = now
		}).WithContext(ctx).WithTimeout(ns.env.suite.QuietTime()).Should(Succeed(), "node %s was deleted", name)
		return was
	}
	before := ns.env.CCM.ServerReads()
	Eventually(func() (int, error) {
		now, err := ns.env.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && now.UID != was.UID {
			return 0, StopTrying(fmt.Sprintf("node %s was deleted", name))
		}
		was = now
		return ns.env.CCM.ServerReads() - before, err
	}).WithContext(ctx).Should(BeNumerically(">=", n), "requests of the CCM about servers")
	return was
}

// Servers returns the servers of all nodes, including control planes, by the names of the nodes.
func (ns Nodes) Servers(ctx context.Context) map[string]cloud.Server {
	GinkgoHelper()
	servers, err := ns.env.Cloud.Servers(ctx)
	Expect(err).NotTo(HaveOccurred())
	nodes, err := ns.env.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	found := map[string]cloud.Server{}
	for _, n := range nodes.Items {
		found[n.Name] = ns.serverOf(&n, servers)
	}
	return found
}

// serverOf finds the server of a node. A missing one fails the spec.
func (ns Nodes) serverOf(n *corev1.Node, servers []cloud.Server) cloud.Server {
	GinkgoHelper()
	i := slices.IndexFunc(servers, func(s cloud.Server) bool { return s.ProviderID == n.Spec.ProviderID })
	Expect(i).To(BeNumerically(">=", 0), "node %s with the provider ID %q has no server", n.Name, n.Spec.ProviderID)
	return servers[i]
}

// AwaitRestarted waits until all nodes are Ready without taints, except those of control planes, and until all pods in
// kube-system are ready and were started since a time. Each node has such pods: the status from before a reset does not
// count.
func (ns Nodes) AwaitRestarted(ctx context.Context, since time.Time) []corev1.Node {
	GinkgoHelper()
	since = since.Truncate(time.Second) // the precision of times in the API
	var nodes []corev1.Node
	Eventually(func(g Gomega) {
		list, err := ns.env.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		nodes = list.Items
		for _, n := range nodes {
			g.Expect(IsReady(&n)).To(BeTrue(), "%s is not Ready", n.Name)
			for _, t := range n.Spec.Taints {
				g.Expect(t.Key).To(Equal("node-role.kubernetes.io/control-plane"), "a taint of %s", n.Name)
			}
		}
		ns.env.Pods.expectRestarted(ctx, g, metav1.NamespaceSystem, "", since)
	}).WithContext(ctx).WithTimeout(RebootTimeout).WithPolling(time.Second).Should(Succeed())
	return nodes
}

// Cordon makes all nodes unschedulable until the spec ends or the returned function is called. Pods of DaemonSets are
// not affected.
func (ns Nodes) Cordon(ctx context.Context) (uncordon func(context.Context)) {
	GinkgoHelper()
	set := func(ctx context.Context, unschedulable string) {
		GinkgoHelper()
		nodes, err := ns.env.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, n := range nodes.Items {
			_, err := ns.env.Kube.CoreV1().Nodes().Patch(ctx, n.Name, k8stypes.MergePatchType, []byte(`{"spec":{"unschedulable":`+
				unschedulable+`}}`), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
	}
	uncordon = func(ctx context.Context) { GinkgoHelper(); set(ctx, "null") }
	DeferCleanup(uncordon)
	set(ctx, "true")
	return uncordon
}

// AddAddress configures an address on the interface of nodes, as administrators do for a Floating IP, until the spec ends.
func (ns Nodes) AddAddress(ctx context.Context, address string, names ...string) {
	GinkgoHelper()
	exec := ns.env.suite.shared.Exec
	if exec == nil {
		Skip("needs to configure an address on nodes: runs with E2E_CLUSTER=kind")
	}
	for _, name := range names {
		Expect(exec(ctx, name, "ip", "address", "add", address+"/32", "dev", "eth0")).To(Succeed())
		DeferCleanup(func(ctx context.Context) error {
			return exec(ctx, name, "ip", "address", "del", address+"/32", "dev", "eth0")
		})
	}
}

// SetLabel sets a label of a node until the spec ends, or removes it if the value is nil.
func (ns Nodes) SetLabel(ctx context.Context, name, key string, value *string) {
	GinkgoHelper()
	if value != nil {
		DeferCleanup(func(ctx context.Context) {
			if ns.Get(ctx, name) != nil {
				ns.SetLabel(ctx, name, key, nil)
			}
		})
	}
	text := "null"
	if value != nil {
		text = fmt.Sprintf("%q", *value)
	}
	_, err := ns.env.Kube.CoreV1().Nodes().Patch(ctx, name, k8stypes.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, key, text), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// Delete deletes a node as kubectl does it: its server lives on.
func (ns Nodes) Delete(ctx context.Context, name string) {
	GinkgoHelper()
	Expect(ns.env.Kube.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})).To(Succeed())
}

// OtherPrefix is how the provider IDs of a cloud-controller-manager for another cloud begin.
const OtherPrefix = "another-cloud://"

// ExpectHostName checks a node's address of type Hostname against the CCM's description. server is the name of the node's server.
func ExpectHostName(n *corev1.Node, server string) {
	GinkgoHelper()
	if names, ok := current.CCM.HostNames(n.Name, server); ok {
		Expect(AddressesOf(n, corev1.NodeHostName)).To(ConsistOf(names))
	}
}

// IsReady reports whether a node's Ready condition is True.
func IsReady(n *corev1.Node) bool {
	_, c := nodeutil.GetNodeCondition(&n.Status, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// AddressesOf returns a node's addresses of one type.
func AddressesOf(n *corev1.Node, kind corev1.NodeAddressType) []string {
	var all []string
	for _, a := range n.Status.Addresses {
		if a.Type == kind {
			all = append(all, a.Address)
		}
	}
	return all
}
