package framework

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/environment"
)

// CCMPods returns the pods that the CCM runs in, those that are about to end included.
func (s *Suite) CCMPods(ctx context.Context) ([]corev1.Pod, error) {
	return environment.WorkloadPods(ctx, s.Cluster.Client, s.Subject.Namespace, s.Subject.Workload)
}

// DeleteCCMPod deletes one of the CCM's pods and returns when it is gone. Another takes its place.
func (e *Env) DeleteCCMPod(ctx context.Context, pod corev1.Pod) {
	GinkgoHelper()
	Expect(e.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})).To(Succeed())
	e.awaitPodGone(ctx, pod)
}

// EvictCCMPod has one of the CCM's pods leave its node as `kubectl drain` does, and returns when it is gone.
func (e *Env) EvictCCMPod(ctx context.Context, pod corev1.Pod) {
	GinkgoHelper()
	Expect(e.Kube.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
	})).To(Succeed())
	e.awaitPodGone(ctx, pod)
}

func (s *Suite) awaitPodGone(ctx context.Context, pod corev1.Pod) {
	GinkgoHelper()
	Eventually(func() (types.UID, error) {
		now, err := s.Cluster.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return now.GetUID(), err
	}).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).ShouldNot(Equal(pod.UID), "the pod %s is still there", pod.Name)
}

// AwaitCCMPods waits until the CCM runs in exactly n pods, which are ready, and returns them.
func (s *Suite) AwaitCCMPods(ctx context.Context, n int) []corev1.Pod {
	GinkgoHelper()
	var pods []corev1.Pod
	Eventually(func(g Gomega) {
		var err error
		pods, err = s.CCMPods(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods).To(HaveLen(n))
		for _, p := range pods {
			g.Expect(podReady(&p)).To(BeTrue(), "%s on %s is not ready", p.Name, p.Spec.NodeName)
		}
	}).WithContext(ctx).WithTimeout(2 * Timeout).WithPolling(Polling).Should(Succeed())
	return pods
}

// CCMLeader returns the identity of the CCM that has the lease, and the one of its pods that it is.
func (e *Env) CCMLeader(ctx context.Context) (identity string, pod corev1.Pod) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		lease, err := e.Kube.CoordinationV1().Leases(e.Subject.Namespace).Get(ctx, "cloud-controller-manager", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(lease.Spec.HolderIdentity).To(HaveValue(Not(BeEmpty())))
		identity = *lease.Spec.HolderIdentity
		// Kubernetes' identities are host_uuid; a pod on its node's network has the node's name.
		host, _, _ := strings.Cut(identity, "_")
		pods, err := e.CCMPods(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		pod = corev1.Pod{}
		for _, p := range pods {
			if p.DeletionTimestamp == nil && (p.Spec.HostNetwork && p.Spec.NodeName == host || p.Name == host) {
				pod = p
			}
		}
		g.Expect(pod.Name).NotTo(BeEmpty(), "no pod of the CCM is %s", identity)
	}).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(Succeed())
	return identity, pod
}

// Cordon keeps new pods off all nodes until the spec ends or the returned function is called; those of DaemonSets
// come nevertheless.
func (e *Env) Cordon(ctx context.Context) (uncordon func(context.Context)) {
	GinkgoHelper()
	set := func(ctx context.Context, unschedulable string) {
		GinkgoHelper()
		nodes, err := e.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, n := range nodes.Items {
			_, err := e.Kube.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType, []byte(`{"spec":{"unschedulable":`+unschedulable+`}}`), metav1.PatchOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
	}
	uncordon = func(ctx context.Context) { GinkgoHelper(); set(ctx, "null") }
	DeferCleanup(uncordon)
	set(ctx, "true")
	return uncordon
}
