package framework

import (
	"context"
	"reflect"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8stypes "k8s.io/apimachinery/pkg/types"
)

// PodCCM is the CCM that runs in the pods of a shared cluster. A spec that changes it runs alone.
type PodCCM struct {
	// Configure runs the given number of replicas with the given settings. It returns when they are available and all other pods are gone.
	Configure func(context.Context, PodSettings) error
	// Kill ends the CCM's processes without warning. The kubelet starts them again.
	Kill func(context.Context) error
	// Log returns the output of the CCM's pods.
	Log func(context.Context) (string, error)
	// Pods returns the CCM's pods, including those that are about to end.
	Pods func(context.Context) ([]corev1.Pod, error)
	// Usual are the settings that specs start with.
	Usual PodSettings

	mu      sync.Mutex
	changed bool
}

// PodSettings are how a CCM in pods is run.
type PodSettings struct {
	Env      map[string]string
	Args     []string
	Replicas int32
}

// alone returns the CCM's pods for a spec that changes them.
func (c *PodCCM) alone() *PodCCM {
	GinkgoHelper()
	Expect(CurrentSpecReport().IsSerial).To(BeTrue(), "a spec that changes the CCM of all specs must be Alone")
	if c == nil {
		Skip("needs a CCM that the suite may change")
	}
	return c
}

func (c *PodCCM) change(ctx context.Context, s PodSettings) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = true
	err := c.Configure(ctx, s)
	if err == nil && reflect.DeepEqual(s, c.Usual) {
		c.changed = false
	}
	return err
}

// restore applies the usual settings if they were changed.
func (c *PodCCM) restore(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.changed {
		return nil
	}
	err := c.Configure(ctx, c.Usual)
	c.changed = err != nil
	return err
}

// Pods returns the pods that the CCM runs in, including those that are about to end.
func (c *CCM) Pods(ctx context.Context) ([]corev1.Pod, error) {
	return c.env.suite.shared.CCM.Pods(ctx)
}

// DeletePod deletes one of the CCM's pods and returns when it is gone. Another one replaces it.
func (c *CCM) DeletePod(ctx context.Context, pod corev1.Pod) {
	GinkgoHelper()
	Expect(c.env.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})).To(Succeed())
	c.awaitPodGone(ctx, pod)
}

// EvictPod evicts one of the CCM's pods as `kubectl drain` does, and returns when it is gone.
func (c *CCM) EvictPod(ctx context.Context, pod corev1.Pod) {
	GinkgoHelper()
	Expect(c.env.Kube.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
	})).To(Succeed())
	c.awaitPodGone(ctx, pod)
}

func (c *CCM) awaitPodGone(ctx context.Context, pod corev1.Pod) {
	GinkgoHelper()
	Eventually(func() (k8stypes.UID, error) {
		now, err := c.env.suite.Cluster.Client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return now.GetUID(), err
	}).WithContext(ctx).ShouldNot(Equal(pod.UID), "the pod %s is still there", pod.Name)
	c.noteStart(c.elects, c.renewed(ctx))
}

// AwaitPods waits until the CCM runs in exactly n pods and all of them are ready. It returns the pods.
func (c *CCM) AwaitPods(ctx context.Context, n int) []corev1.Pod {
	GinkgoHelper()
	var pods []corev1.Pod
	Eventually(func(g Gomega) {
		var err error
		pods, err = c.Pods(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods).To(HaveLen(n))
		for _, p := range pods {
			g.Expect(podReady(&p)).To(BeTrue(), "%s on %s is not ready", p.Name, p.Spec.NodeName)
		}
	}).WithContext(ctx).WithTimeout(2 * Timeout).Should(Succeed())
	return pods
}

// Leader returns the identity that holds the lease, and its pod.
func (c *CCM) Leader(ctx context.Context) (identity string, pod corev1.Pod) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		lease, err := c.env.Kube.CoordinationV1().Leases(c.env.suite.CCM.Namespace).Get(ctx, "cloud-controller-manager",
			metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(lease.Spec.HolderIdentity).To(HaveValue(Not(BeEmpty())))
		identity = *lease.Spec.HolderIdentity
		// Kubernetes' identities are host_uuid; a pod on its node's network has the node's name.
		host, _, _ := strings.Cut(identity, "_")
		pods, err := c.Pods(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		pod = corev1.Pod{}
		for _, p := range pods {
			if p.DeletionTimestamp == nil && (p.Spec.HostNetwork && p.Spec.NodeName == host || p.Name == host) {
				pod = p
			}
		}
		g.Expect(pod.Name).NotTo(BeEmpty(), "no pod of the CCM is %s", identity)
	}).WithContext(ctx).Should(Succeed())
	return identity, pod
}
