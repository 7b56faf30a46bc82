package framework

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// Machines makes Options.Spec of a function that changes the node of each server as it likes. The
// servers for which it returns false are machines without a kubelet.
func Machines(change func(node.Server, *node.Spec) bool) func(node.Server) (node.Spec, bool) {
	return func(s node.Server) (node.Spec, bool) {
		spec := node.Spec{Name: s.Name, Addresses: s.Addresses}
		isNode := change(s, &spec)
		return spec, isNode
	}
}

// StartNode starts a node that has no server in the cloud. It ends with the spec.
func (e *Env) StartNode(ctx context.Context, spec node.Spec) *node.Node {
	GinkgoHelper()
	// The node lives longer than the context of the node of the spec tree.
	n, err := node.Start(context.WithoutCancel(ctx), e.Kube, spec)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(n.Stop)
	Expect(n.AwaitRegistered(ctx)).To(Succeed())
	return n
}

// CrashNode makes a node NotReady whose server runs: its kubelet ends, and the Ready condition becomes
// what kube-controller-manager makes of it when the grace period is over, for which specs with many
// entries do not want to wait.
func (e *Env) CrashNode(ctx context.Context, n *node.Node) {
	GinkgoHelper()
	n.PowerOff()
	Expect(nodeutil.SetNodeCondition(e.Kube, types.NodeName(n.Name()), corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown",
		Message: "Kubelet stopped posting node status.", LastTransitionTime: metav1.Now(),
	})).To(Succeed())
	e.AwaitReady(ctx, n.Name(), false)
}

// AwaitNoNode waits until there is no node of that name.
func (e *Env) AwaitNoNode(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func() *corev1.Node { return e.Node(ctx, name) }).
		WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(BeNil(), "node %s is still there", name)
}

// ExpectNodeStays watches a node until the CCM has sent n more requests about servers, whatever the
// answers, and fails if the node is deleted. It returns the node as it is then.
func (e *Env) ExpectNodeStays(ctx context.Context, name string, n int) *corev1.Node {
	GinkgoHelper()
	was := e.Node(ctx, name)
	Expect(was).NotTo(BeNil(), "node %s is not there", name)
	if !e.Simulated() { // nobody sees the requests: a while has to do
		Consistently(func(g Gomega) {
			now := e.Node(ctx, name)
			g.Expect(now).To(HaveField("UID", was.UID))
			was = now
		}).WithContext(ctx).WithTimeout(Quiet).WithPolling(Polling).Should(Succeed(), "node %s was deleted", name)
		return was
	}
	before := e.CCMServerReads()
	Eventually(func() (int, error) {
		now, err := e.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && now.UID != was.UID {
			return 0, StopTrying(fmt.Sprintf("node %s was deleted", name))
		}
		was = now
		return e.CCMServerReads() - before, err
	}).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(BeNumerically(">=", n), "requests of the CCM about servers")
	return was
}

// CCMServerReads returns how many requests about servers the CCM has sent.
func (e *Env) CCMServerReads() int {
	return e.Journal.Count(fakecloud.JournalFilter{Client: e.Subject.UserAgent, Method: "GET", Route: "/servers*"})
}

// OnlyNodes are arguments of a CCM that runs the node controllers alone and refreshes addresses only when
// it starts: whatever it asks about servers later is asked for nodes that are not initialized or not ready,
// and that often.
var OnlyNodes = []string{
	"--controllers=cloud-node-controller,cloud-node-lifecycle-controller",
	"--node-status-update-frequency=1h", "--node-monitor-period=200ms",
}
