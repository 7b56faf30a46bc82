package controller

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// node returns the Node of a Machine, or nil.
func (c *common) node(ctx context.Context, m *v1alpha1.Machine) (*corev1.Node, error) {
	if m.Spec.ProviderID == "" {
		return nil, nil
	}
	var list corev1.NodeList
	if err := c.List(ctx, &list, client.MatchingFields{providerIDField: m.Spec.ProviderID}); err != nil {
		return nil, fmt.Errorf("cannot list Nodes: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	// A machine that has registered again under another name has two: the one that is ready counts.
	slices.SortFunc(list.Items, func(a, b corev1.Node) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	ready := slices.IndexFunc(list.Items, func(n corev1.Node) bool { return nodeinfo.IsReady(&n) })
	return &list.Items[max(ready, 0)], nil
}

// markNode gives a Node the labels and annotations of its Machine. It gives it the taints once, when it joins.
func (r *machines) markNode(ctx context.Context, m *v1alpha1.Machine, node *corev1.Node) error {
	before := node.DeepCopy()
	node.Labels = labels.Merge(node.Labels, m.Spec.Metadata.Labels)
	node.Annotations = labels.Merge(node.Annotations, m.Spec.Metadata.Annotations)
	name := client.ObjectKeyFromObject(m).String()
	if node.Annotations[annotationMachine] != name {
		node.Annotations[annotationMachine] = name
		for _, t := range m.Spec.Taints {
			if !slices.ContainsFunc(node.Spec.Taints, func(has corev1.Taint) bool { return has.MatchTaint(&t) }) {
				node.Spec.Taints = append(node.Spec.Taints, t)
			}
		}
	}
	return r.write(ctx, node, before, "write Node "+node.Name)
}

// showNode writes the Node into the Machine's status.
func (r *machines) showNode(m *v1alpha1.Machine, node *corev1.Node) {
	switch {
	case node == nil && m.Status.NodeRef == nil:
		r.setCondition(m, v1alpha1.ConditionNodeReady, metav1.ConditionFalse, "NoNode", "The server has not joined the cluster")
	case node == nil:
		r.setCondition(m, v1alpha1.ConditionNodeReady, metav1.ConditionFalse, "NodeGone",
			fmt.Sprintf("Node %s is gone", m.Status.NodeRef.Name))
	case nodeinfo.IsReady(node):
		r.setCondition(m, v1alpha1.ConditionNodeReady, metav1.ConditionTrue, "Ready", "")
	default:
		r.setCondition(m, v1alpha1.ConditionNodeReady, metav1.ConditionFalse, "NotReady", fmt.Sprintf("Node %s is not ready", node.Name))
	}
	if node != nil {
		m.Status.NodeRef = &v1alpha1.NodeReference{Name: node.Name, UID: string(node.UID)}
	}
}

// drain makes a Node unschedulable, has load balancers no longer use it, and evicts its pods. It returns true when no pod is left
// that had to go, or when the time is over.
func (r *machines) drain(ctx context.Context, m *v1alpha1.Machine, node *corev1.Node) (bool, error) {
	if node.Labels[corev1.LabelNodeExcludeBalancers] != nodeinfo.Drained || !node.Spec.Unschedulable {
		before := node.DeepCopy()
		node.Spec.Unschedulable = true
		metav1.SetMetaDataLabel(&node.ObjectMeta, corev1.LabelNodeExcludeBalancers, nodeinfo.Drained)
		if err := r.Patch(ctx, node, client.MergeFrom(before)); err != nil {
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		}
	}
	timeout := duration(m.Spec.NodeDrainTimeout, defaultDrainTimeout)
	if r.clock.Since(m.DeletionTimestamp.Time) >= timeout {
		r.setCondition(m, v1alpha1.ConditionDrained, metav1.ConditionFalse, "TimeOver", fmt.Sprintf("Pods may be left on Node %s after %v",
			node.Name, timeout))
		return true, nil
	}
	// Not from a cache: it would hold all pods of the cluster.
	var pods corev1.PodList
	if err := r.api.List(ctx, &pods, client.MatchingFields{"spec.nodeName": node.Name}); err != nil {
		return false, fmt.Errorf("cannot list the pods of Node %s: %w", node.Name, err)
	}
	var left []string
	for _, pod := range pods.Items {
		if staysOnNode(&pod) || pod.DeletionTimestamp != nil && !nodeinfo.IsReady(node) { // nothing there ends its containers
			continue
		}
		left = append(left, pod.Namespace+"/"+pod.Name)
		if pod.DeletionTimestamp != nil {
			continue
		}
		err := r.SubResource("eviction").Create(ctx, &pod, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
			DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
		})
		// A PodDisruptionBudget answers 429: the eviction is asked for again.
		if err != nil && !apierrors.IsTooManyRequests(err) && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return false, fmt.Errorf("cannot evict the pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
	}
	if len(left) == 0 {
		r.setCondition(m, v1alpha1.ConditionDrained, metav1.ConditionTrue, "Drained", "")
		return true, nil
	}
	r.setCondition(m, v1alpha1.ConditionDrained, metav1.ConditionFalse, "Draining", fmt.Sprintf("%d pods are left on Node %s, such as %s",
		len(left), node.Name, left[0]))
	return false, nil
}

// staysOnNode reports whether a pod may end with its Node: it is part of a DaemonSet, only the kubelet knows it, or it is over.
func staysOnNode(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	_, static := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return static || owner != nil && owner.Kind == "DaemonSet" || pod.Status.Phase == corev1.PodSucceeded ||
		pod.Status.Phase == corev1.PodFailed
}
