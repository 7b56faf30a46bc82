package framework

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
)

// NodeSpec returns a value for Options.Spec from a function that may change the node of a server. If the function
// returns false, the server runs no kubelet.
func NodeSpec(change func(node.Server, *node.Spec) bool) func(node.Server) (node.Spec, bool) {
	return func(s node.Server) (node.Spec, bool) {
		spec := node.Spec{Name: s.Name, Addresses: s.Addresses}
		isNode := change(s, &spec)
		return spec, isNode
	}
}

// OnlyNodes are arguments of a CCM that runs only the node controllers, and refreshes addresses only when it starts:
// later it asks about servers only for nodes that are uninitialized or NotReady, every 200 ms.
var OnlyNodes = []string{
	"--controllers=cloud-node-controller,cloud-node-lifecycle-controller",
	"--node-status-update-frequency=1h", "--node-monitor-period=200ms",
}

// Simulated returns the simulated node of that name, for specs with the label OwnCloud: elsewhere nodes are real.
func (ns Nodes) Simulated(name string) *node.Node {
	GinkgoHelper()
	own, ok := ns.env.setup.(*ownSetup)
	Expect(ok).To(BeTrue(), "nodes are real here: give the spec the label %s", OwnCloud)
	return own.fleet.Node(name)
}

// Start starts a node that has no server in the cloud. It ends with the spec.
func (ns Nodes) Start(ctx context.Context, spec node.Spec) *node.Node {
	GinkgoHelper()
	// The node outlives the context of the Ginkgo node that starts it.
	n, err := node.Start(context.WithoutCancel(ctx), ns.env.Kube, spec)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(n.Stop)
	Expect(n.AwaitRegistered(ctx)).To(Succeed())
	return n
}

// Crash makes a node NotReady while its server runs: it ends the kubelet, and sets the Ready condition at once that
// kube-controller-manager would set after the grace period.
func (ns Nodes) Crash(ctx context.Context, n *node.Node) {
	GinkgoHelper()
	n.StopKubelet()
	Expect(nodeutil.SetNodeCondition(ns.env.Kube, k8stypes.NodeName(n.Name()), corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown",
		Message: "Kubelet stopped posting node status.", LastTransitionTime: metav1.Now(),
	})).To(Succeed())
	ns.AwaitReady(ctx, n.Name(), false)
}
