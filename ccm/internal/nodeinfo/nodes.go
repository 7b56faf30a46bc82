package nodeinfo

import (
	"iter"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	nodeutil "k8s.io/component-helpers/node/util"
)

// IsUninitialized reports whether the node controller has not initialized the Node yet.
func IsUninitialized(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider })
}

// IsReady reports whether the Node has the condition Ready.
func IsReady(node *corev1.Node) bool {
	_, c := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// The reasons of the condition NetworkUnavailable: those of the route controller.
const (
	ReasonNoRoute      = "NoRouteCreated"
	ReasonRouteCreated = "RouteCreated"
)

// NetworkCondition returns the Node's condition NetworkUnavailable, or nil.
func NetworkCondition(node *corev1.Node) *corev1.NodeCondition {
	_, condition := nodeutil.GetNodeCondition(&node.Status, corev1.NodeNetworkUnavailable)
	return condition
}

// LacksRoute reports whether the Node waits for its route: pods on other Nodes cannot reach its pods yet.
func LacksRoute(node *corev1.Node) bool {
	c := NetworkCondition(node)
	return c != nil && c.Status == corev1.ConditionTrue && c.Reason == ReasonNoRoute
}

// isExcluded reports whether the Node has the label that excludes it from load balancers. Its value may be false.
func isExcluded(node *corev1.Node) bool {
	value, has := node.Labels[corev1.LabelNodeExcludeBalancers]
	off, err := strconv.ParseBool(value)
	return has && (err != nil || off)
}

// taintToBeDeleted is ToBeDeletedTaint of the service controller. The machine controller does not link that package.
const taintToBeDeleted = "ToBeDeletedByClusterAutoscaler"

// MayServe reports whether the service controller passes the Node to the provider: neither its label nor the cluster autoscaler excludes
// it, and it is not being deleted.
func MayServe(node *corev1.Node) bool {
	return !isExcluded(node) && !isLeaving(node)
}

func isLeaving(node *corev1.Node) bool {
	return !node.DeletionTimestamp.IsZero() ||
		slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == taintToBeDeleted })
}

// Drained is the value with which the machine controller excludes a Node that it drains. One that a person excludes may come back.
const Drained = "drained"

// IsDoomed reports whether the Node is about to end: it is being deleted, or the cluster autoscaler or the machine controller says so.
func IsDoomed(node *corev1.Node) bool {
	return isLeaving(node) || node.Labels[corev1.LabelNodeExcludeBalancers] == Drained
}

// List returns all known nodes, or none before the informers exist.
func List(lister corelisters.NodeLister) []*corev1.Node {
	if lister == nil {
		return nil
	}
	nodes, _ := lister.List(labels.Everything()) // it reads from memory and returns no error
	return nodes
}

// ByServer yields all known nodes, each with the ID of its server. Nodes of another provider are left out.
func ByServer(lister corelisters.NodeLister) iter.Seq2[int64, *corev1.Node] {
	return func(yield func(int64, *corev1.Node) bool) {
		for _, n := range List(lister) {
			if id, err := ParseProviderID(n.Spec.ProviderID); err == nil && !yield(id, n) {
				return
			}
		}
	}
}
