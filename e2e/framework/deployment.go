package framework

import (
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ElectsLeader reports whether a CCM with these arguments uses leader election, the default of k8s.io/cloud-provider. The last of several
// flags wins.
func ElectsLeader(args []string) bool {
	elects := true
	for _, arg := range args {
		value, ok := strings.CutPrefix(arg, "--leader-elect")
		if !ok || value != "" && value[0] != '=' { // such as --leader-elect-lease-duration
			continue
		}
		on, err := strconv.ParseBool(strings.TrimPrefix(value, "="))
		elects = err != nil || on
	}
	return elects
}

// PodOf returns a pod as a Deployment would create it.
func PodOf(d appsv1.Deployment, name string) *corev1.Pod {
	template := d.Spec.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Name = name
	return pod
}

// OffHostNetwork returns a pod without the parts that need its node's network: host ports, and probes of an address of the node.
func OffHostNetwork(pod *corev1.Pod, namespace string) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.ObjectMeta = metav1.ObjectMeta{Name: pod.Name, Namespace: namespace, Labels: pod.Labels, Annotations: pod.Annotations}
	pod.Spec.ServiceAccountName, pod.Spec.HostNetwork = "default", false
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		for p := range c.Ports {
			c.Ports[p].HostPort = 0
		}
		for _, probe := range slices.DeleteFunc([]*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe},
			func(p *corev1.Probe) bool {
				return p == nil || p.HTTPGet == nil
			}) {
			probe.HTTPGet.Host = ""
		}
	}
	return pod
}
