package framework

import (
	"context"
	"encoding/json"
	"fmt"
	"net"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/whoami"
)

// MetadataURL is where a server, and the pods on it, learn about the server. A key of the metadata follows.
const MetadataURL = "http://169.254.169.254/hetzner/v1/metadata/"

// AwaitPod waits until a Service has a pod on a node that is ready and is not about to end, and returns it.
func (e *Env) AwaitPod(ctx context.Context, service, nodeName string) *corev1.Pod {
	GinkgoHelper()
	var found *corev1.Pod
	Eventually(func(g Gomega) {
		pods, err := e.Kube.CoreV1().Pods(e.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + service})
		g.Expect(err).NotTo(HaveOccurred())
		found = nil
		for _, p := range pods.Items {
			if p.Spec.NodeName == nodeName && p.DeletionTimestamp == nil && podReady(&p) {
				found = &p
			}
		}
		g.Expect(found).NotTo(BeNil(), "no pod of %s on %s is ready", service, nodeName)
	}).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(Succeed())
	return found
}

// podReady tells whether a pod's Ready condition is True.
func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Fetch has a pod of a Service ask a URL, and returns the answer. The API server asks the pod to, on the way that
// pods' traffic takes. It is an error if the pod gets no answer within 3 s.
func (e *Env) Fetch(ctx context.Context, pod *corev1.Pod, url string) (string, error) {
	body, err := e.Kube.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, fmt.Sprint(Port), "fetch", map[string]string{"url": url}).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("pod %s on %s asking %s: %w: %s", pod.Name, pod.Spec.NodeName, url, err, body)
	}
	return string(body), nil
}

// FetchAnswer has a pod of a Service ask another pod, or a Service's, at an IP address, and returns who answered.
func (e *Env) FetchAnswer(ctx context.Context, pod *corev1.Pod, address string) (whoami.Answer, error) {
	var answer whoami.Answer
	body, err := e.Fetch(ctx, pod, URL("http", address, Port))
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal([]byte(body), &answer)
}

// UpdatePods changes how the pods of a Service are declared, of which there is one per worker. The old ones are
// replaced as that says.
func (e *Env) UpdatePods(ctx context.Context, service string, change func(*appsv1.DaemonSet)) {
	GinkgoHelper()
	sets := e.Kube.AppsV1().DaemonSets(e.Namespace)
	Expect(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		set, err := sets.Get(ctx, service, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(set)
		_, err = sets.Update(ctx, set, metav1.UpdateOptions{})
		return err
	})).To(Succeed())
}

// AwaitPods waits until all pods of a Service are as they were declared last, available, and alone.
func (e *Env) AwaitPods(ctx context.Context, service string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		set, err := e.Kube.AppsV1().DaemonSets(e.Namespace).Get(ctx, service, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		s := set.Status
		g.Expect(s.ObservedGeneration).To(Equal(set.Generation))
		g.Expect(s.DesiredNumberScheduled).To(BeNumerically(">", 0))
		g.Expect(s.UpdatedNumberScheduled).To(Equal(s.DesiredNumberScheduled))
		g.Expect(s.NumberAvailable).To(Equal(s.DesiredNumberScheduled))
		pods, err := e.Kube.CoreV1().Pods(e.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + service})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods.Items).To(HaveLen(int(s.DesiredNumberScheduled)), "old pods have not ended")
	}).WithContext(ctx).WithTimeout(2 * Timeout).WithPolling(Polling).Should(Succeed())
}

// Host returns the address of "address:port", as answers have them.
func Host(addressAndPort string) string {
	GinkgoHelper()
	host, _, err := net.SplitHostPort(addressAndPort)
	Expect(err).NotTo(HaveOccurred())
	return host
}
