package node

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

// guardRoute marks a new Node as NetworkUnavailable before it is initialized, so that Kubernetes taints
// it (node.kubernetes.io/network-unavailable) and it gets no pods and no traffic before its route exists.
// kubelet does not set the condition. The route controller of k8s.io/cloud-provider v0.37.1 sets it only
// after its first try to create the route, up to ten seconds after the Node is initialized.
//
// A Node without a pod range is left alone: nothing would ever clear its condition. Its route follows its
// pod range at once (resync.routeNode).
func (i *Instances) guardRoute(node *corev1.Node) error {
	if i.kube == nil || !i.routesOn() || !nodeinfo.IsUninitialized(node) || len(node.Spec.PodCIDRs) == 0 ||
		nodeinfo.NetworkCondition(node) != nil {
		return nil
	}
	return SetNetworkCondition(i.kube, i.servers.Clock, node, false)
}

// SetNetworkCondition sets the condition as the route controller does.
func SetNetworkCondition(kube kubernetes.Interface, clk clock.PassiveClock, node *corev1.Node, routed bool) error {
	condition := corev1.NodeCondition{
		Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionTrue, Reason: nodeinfo.ReasonNoRoute,
		Message: "The node's route does not exist yet", LastTransitionTime: metav1.NewTime(clk.Now()),
	}
	if routed {
		condition.Status, condition.Reason, condition.Message = corev1.ConditionFalse, nodeinfo.ReasonRouteCreated,
			"RouteController created a route"
	}
	if err := nodeutil.SetNodeCondition(kube, types.NodeName(node.Name), condition); err != nil {
		return fmt.Errorf("setting the condition %s of node %q: %w", condition.Type, node.Name, err)
	}
	return nil
}
