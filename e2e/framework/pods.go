package framework

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// needsPods tells whether a Service's pods matter: where nodes are simulated, they answer in the pods' place;
// elsewhere only specs about traffic have them.
func (e *Env) needsPods() bool {
	return e.Cloud == nil && slices.Contains(CurrentSpecReport().Labels(), Dataplane)
}

// startPods starts a pod of the Service on each worker. It does not wait for them.
func (e *Env) startPods(ctx context.Context, service string) {
	GinkgoHelper()
	_, err := e.Kube.AppsV1().DaemonSets(e.Namespace).Create(ctx, e.daemonSet(service), metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// daemonSet returns the pods of a Service: programs that say which node they are on and what has reached them
// (kind/cmd/probe), on many ports.
func (e *Env) daemonSet(service string) *appsv1.DaemonSet {
	labels := map[string]string{"app": service}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: service, Namespace: e.Namespace},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       e.podSpec(service),
			},
		},
	}
}

// podSpec returns the pod of a Service.
func (e *Env) podSpec(service string) corev1.PodSpec {
	grace := int64(1)
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
	}
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: &grace,
		Containers: []corev1.Container{{
			Name: "probe", Image: e.site.podImage, ImagePullPolicy: corev1.PullIfNotPresent,
			Env: []corev1.EnvVar{
				{Name: "NODE_NAME", ValueFrom: field("spec.nodeName")}, {Name: "POD_NAME", ValueFrom: field("metadata.name")},
				{Name: "SERVICE", Value: e.Namespace + "/" + service}, {Name: "GRACE", Value: "0s"},
			},
			ReadinessProbe: &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(Port)}},
				PeriodSeconds: 1, TimeoutSeconds: 5,
			},
		}},
	}
}

// SetEndpoints says which nodes have pods of a Service from now on; at first all workers do.
func (e *Env) SetEndpoints(ctx context.Context, service string, nodes ...string) {
	GinkgoHelper()
	if e.Fleet != nil {
		pods := map[string]int{}
		for _, n := range nodes {
			pods[n] = 1
		}
		e.Fleet.SetLocalEndpoints(e.serviceName(service), pods)
		return
	}
	e.UpdatePods(ctx, service, func(set *appsv1.DaemonSet) {
		var terms []corev1.NodeSelectorTerm // of which one must hold
		for _, n := range nodes {
			terms = append(terms, corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{n}}}})
		}
		set.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	})
}

// SetProxyProtocol says whether the pods of a Service expect the PROXY protocol. Real pods find out.
func (e *Env) SetProxyProtocol(service string, expected bool) {
	if e.Fleet != nil {
		e.Fleet.SetProxyProtocol(e.serviceName(service), expected)
	}
}
