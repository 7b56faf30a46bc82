package framework

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/whoami"
)

// Pods are the pods behind Services. On the embedded cluster, simulated nodes answer for them.
type Pods struct {
	env *Env
}

// SetEndpoints says which nodes have pods of a Service from now on. At first, all workers have one.
func (ps Pods) SetEndpoints(ctx context.Context, service string, nodes ...string) {
	GinkgoHelper()
	ps.env.setup.setEndpoints(ctx, service, nodes)
}

// SetProxyProtocol says whether the pods of a Service expect the PROXY protocol. Real pods recognize it.
func (ps Pods) SetProxyProtocol(service string, expected bool) {
	ps.env.setup.setProxyProtocol(service, expected)
}

// Await waits until a Service has a ready pod on a node that is not about to end, and returns it.
func (ps Pods) Await(ctx context.Context, service, nodeName string) *corev1.Pod {
	GinkgoHelper()
	var found *corev1.Pod
	Eventually(func(g Gomega) {
		pods, err := ps.env.Kube.CoreV1().Pods(ps.env.Services.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + service})
		g.Expect(err).NotTo(HaveOccurred())
		found = nil
		for _, p := range pods.Items {
			if p.Spec.NodeName == nodeName && p.DeletionTimestamp == nil && podReady(&p) {
				found = &p
			}
		}
		g.Expect(found).NotTo(BeNil(), "no pod of %s on %s is ready", service, nodeName)
	}).WithContext(ctx).Should(Succeed())
	return found
}

// Fetch makes a pod of a Service send a GET to a URL, and returns the answer. The request to the pod goes through the
// API server's proxy. No answer within 3 s is an error.
func (ps Pods) Fetch(ctx context.Context, pod *corev1.Pod, url string) (string, error) {
	body, err := ps.env.Kube.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, fmt.Sprint(Port), "fetch",
		map[string]string{"url": url}).DoRaw(ctx)
	if err != nil {
		return "", fmt.Errorf("pod %s on %s asking %s: %w: %s", pod.Name, pod.Spec.NodeName, url, err, body)
	}
	return string(body), nil
}

// FetchAnswer makes a pod of a Service send a GET to the IP address of another pod or of a Service, and returns the
// answering pod's answer.
func (ps Pods) FetchAnswer(ctx context.Context, pod *corev1.Pod, address string) (whoami.Answer, error) {
	var answer whoami.Answer
	body, err := ps.Fetch(ctx, pod, URL("http", address, Port))
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal([]byte(body), &answer)
}

// Update changes the DaemonSet of the pods behind a Service. The DaemonSet replaces its pods accordingly.
func (ps Pods) Update(ctx context.Context, service string, change func(*appsv1.DaemonSet)) {
	GinkgoHelper()
	sets := ps.env.Kube.AppsV1().DaemonSets(ps.env.Services.Namespace)
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

// AwaitRollout waits until all pods behind a Service have the latest declaration and are available, and all other pods are gone.
func (ps Pods) AwaitRollout(ctx context.Context, service string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		set, err := ps.env.Kube.AppsV1().DaemonSets(ps.env.Services.Namespace).Get(ctx, service, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		s := set.Status
		g.Expect(s.ObservedGeneration).To(Equal(set.Generation))
		g.Expect(s.DesiredNumberScheduled).To(BeNumerically(">", 0))
		g.Expect(s.UpdatedNumberScheduled).To(Equal(s.DesiredNumberScheduled))
		g.Expect(s.NumberAvailable).To(Equal(s.DesiredNumberScheduled))
		pods, err := ps.env.Kube.CoreV1().Pods(ps.env.Services.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + service})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods.Items).To(HaveLen(int(s.DesiredNumberScheduled)), "old pods have not ended")
	}).WithContext(ctx).WithTimeout(2 * Timeout).Should(Succeed())
}

// AwaitRestarted waits until all pods behind a Service are ready and were started since a time.
func (ps Pods) AwaitRestarted(ctx context.Context, service string, since time.Time) {
	GinkgoHelper()
	since = since.Truncate(time.Second)
	Eventually(func(g Gomega) {
		ps.expectRestarted(ctx, g, ps.env.Services.Namespace, "app="+service, since)
	}).WithContext(ctx).WithTimeout(RebootTimeout).WithPolling(time.Second).Should(Succeed())
}

// expectRestarted expects that a namespace has pods with these labels, all of them ready and started since a time. Pods
// of nodes that an earlier spec has deleted do not count: Kubernetes removes them after 40 s.
func (ps Pods) expectRestarted(ctx context.Context, g Gomega, namespace, labels string, since time.Time) {
	nodes, err := ps.env.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	pods, err := ps.env.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pods.Items).NotTo(BeEmpty())
	for _, p := range pods.Items {
		if !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == p.Spec.NodeName }) {
			continue
		}
		g.Expect(restartedSince(&p, since)).To(BeTrue(), "%s on %s is not ready again", p.Name, p.Spec.NodeName)
	}
}

// daemonSet returns the pods behind a Service: programs that answer with the name of their node and a description of the request
// (kind/cmd/probe).
func (ps Pods) daemonSet(service string) *appsv1.DaemonSet {
	labels := map[string]string{"app": service}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: service, Namespace: ps.env.Services.Namespace},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       ps.podSpec(service),
			},
		},
	}
}

// podSpec returns the pod of a Service.
func (ps Pods) podSpec(service string) corev1.PodSpec {
	grace := int64(1)
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{
			Name: "probe", Image: ps.env.suite.shared.PodImage, ImagePullPolicy: corev1.PullIfNotPresent,
			Env: []corev1.EnvVar{
				{Name: "NODE_NAME", ValueFrom: field("spec.nodeName")}, {Name: "POD_NAME", ValueFrom: field("metadata.name")},
				{Name: "SERVICE", Value: ps.env.Services.Namespace + "/" + service}, {Name: "GRACE", Value: "0s"},
			},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(Port)}},
				PeriodSeconds: 1, TimeoutSeconds: 5,
			},
		}},
	}
}

// podReady reports whether a pod's Ready condition is True.
func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// restartedSince reports whether a pod is ready and all of its containers were started since a time.
func restartedSince(p *corev1.Pod, since time.Time) bool {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Running == nil || c.State.Running.StartedAt.Time.Before(since) {
			return false
		}
	}
	return podReady(p)
}

// Host returns the address of "address:port".
func Host(addressAndPort string) string {
	GinkgoHelper()
	host, _, err := net.SplitHostPort(addressAndPort)
	Expect(err).NotTo(HaveOccurred())
	return host
}
