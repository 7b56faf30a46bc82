package framework

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestServicesOfASharedClusterSelectTheNodesOfTheirSpec(t *testing.T) {
	t.Parallel()
	own, chosen := "kubernetes.io/hostname in (a,b,mine)", "pool in (edge)"
	for name, c := range map[string]struct {
		nodes  []string
		kind   corev1.ServiceType
		before string
		want   string
	}{
		"a new Service": {[]string{"a", "b"}, corev1.ServiceTypeLoadBalancer, "", own},
		"before the spec brings a node": {[]string{"a", "b"}, corev1.ServiceTypeLoadBalancer, "kubernetes.io/hostname in (a,b)",
			own},
		"a selector that the spec has set is kept": {[]string{"a", "b"}, corev1.ServiceTypeLoadBalancer, chosen, chosen},
		"no load balancer":                         {[]string{"a", "b"}, corev1.ServiceTypeClusterIP, "", ""},
		"a CCM without the node selector":          {nil, corev1.ServiceTypeLoadBalancer, "", ""},
	} {
		s := &sharedSetup{shared: &sharedCluster{nodes: c.nodes}}
		s.brings("mine")
		service := &corev1.Service{Spec: corev1.ServiceSpec{Type: c.kind}}
		if c.before != "" {
			service.ObjectMeta = metav1.ObjectMeta{Annotations: map[string]string{Annotation + "node-selector": c.before}}
		}
		s.confine(service)
		if got := service.Annotations[Annotation+"node-selector"]; got != c.want {
			t.Errorf("%s: the selector is %q, want %q", name, got, c.want)
		}
	}
}
