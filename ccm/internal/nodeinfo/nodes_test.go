package nodeinfo_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	servicecontroller "k8s.io/cloud-provider/controllers/service"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

func TestNodesThatLoadBalancersMayHave(t *testing.T) {
	t.Parallel()
	label := func(value string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: value, Labels: map[string]string{corev1.LabelNodeExcludeBalancers: value}}}
	}
	leaving := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: servicecontroller.ToBeDeletedTaint}}}}
	deleted := &corev1.Node{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}}
	excluded := []*corev1.Node{label(""), label("true"), label("yes")}
	others := []*corev1.Node{{}, label("false"), label("0")}
	for _, n := range others {
		if !nodeinfo.MayServe(n) {
			t.Errorf("%v may not serve", n)
		}
	}
	for _, n := range excluded {
		if n.Spec.Unschedulable = true; nodeinfo.MayServe(n) || nodeinfo.IsDoomed(n) { // a person may want it back
			t.Errorf("%v may serve, or ends", n)
		}
	}
	for _, n := range []*corev1.Node{leaving, deleted, label(nodeinfo.Drained)} {
		if nodeinfo.MayServe(n) || !nodeinfo.IsDoomed(n) {
			t.Errorf("%v may serve, or does not end", n)
		}
	}
}
