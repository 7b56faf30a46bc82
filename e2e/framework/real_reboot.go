package framework

import (
	"context"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RebootTimeout is how long specs wait for a cluster that comes back as a whole: the API server after its
// store, the kubelets after it, and what they have given up for a while.
const RebootTimeout = 4 * time.Minute

// ResetServers resets servers, as pressing the reset buttons of all at once.
func (e *Env) ResetServers(ctx context.Context, servers ...*hcloud.Server) {
	GinkgoHelper()
	var actions []*hcloud.Action
	for _, s := range servers {
		action, _, err := e.HCloud.Server.Reset(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		actions = append(actions, action)
	}
	e.Wait(ctx, actions...)
}

// NodeServers returns the servers of all nodes, control planes included, by the names of the nodes.
func (e *Env) NodeServers(ctx context.Context) map[string]*hcloud.Server {
	GinkgoHelper()
	servers, err := e.HCloud.Server.All(ctx)
	Expect(err).NotTo(HaveOccurred())
	nodes, err := e.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	found := map[string]*hcloud.Server{}
	for _, n := range nodes.Items {
		found[n.Name] = e.serverOf(&n, servers)
	}
	return found
}

// AwaitBack waits until all nodes are Ready and have no taint but those of control planes, and until all pods in
// kube-system, of which each node has some, are ready and were started since a time: what a node said before it lost
// its power does not count.
func (e *Env) AwaitBack(ctx context.Context, since time.Time) []corev1.Node {
	GinkgoHelper()
	since = since.Truncate(time.Second) // as times of the API are
	var nodes []corev1.Node
	Eventually(func(g Gomega) {
		list, err := e.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		nodes = list.Items
		for _, n := range nodes {
			g.Expect(IsReady(&n)).To(BeTrue(), "%s is not Ready", n.Name)
			for _, t := range n.Spec.Taints {
				g.Expect(t.Key).To(Equal("node-role.kubernetes.io/control-plane"), "a taint of %s", n.Name)
			}
		}
		e.expectPodsBack(ctx, g, metav1.NamespaceSystem, "", since)
	}).WithContext(ctx).WithTimeout(RebootTimeout).WithPolling(time.Second).Should(Succeed())
	return nodes
}

// expectPodsBack expects that a namespace has pods with these labels, all of them ready and started since a time.
func (e *Env) expectPodsBack(ctx context.Context, g Gomega, namespace, labels string, since time.Time) {
	pods, err := e.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods.Items).NotTo(BeEmpty())
	for _, p := range pods.Items {
		g.Expect(restartedSince(&p, since)).To(BeTrue(), "%s on %s is not ready again", p.Name, p.Spec.NodeName)
	}
}

// restartedSince tells whether a pod is ready and all of its containers were started since a time.
func restartedSince(p *corev1.Pod, since time.Time) bool {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running == nil || c.State.Running.StartedAt.Time.Before(since) {
			return false
		}
	}
	return podReady(p)
}

// AwaitPodsBack waits until all pods of a Service are ready whose containers were started since a time.
func (e *Env) AwaitPodsBack(ctx context.Context, service string, since time.Time) {
	GinkgoHelper()
	since = since.Truncate(time.Second)
	Eventually(func(g Gomega) {
		e.expectPodsBack(ctx, g, e.Namespace, "app="+service, since)
	}).WithContext(ctx).WithTimeout(RebootTimeout).WithPolling(time.Second).Should(Succeed())
}
