package node

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

// syncLabels patches the labels of an initialized Node that differ from meta. An error is logged, and the next refresh tries again.
// Without a client it does nothing.
//
// k8s.io/cloud-provider sets these labels only once, when it initializes a Node; later it updates
// only addresses (UpdateNodeStatus of the node controller, v0.37.1). So after a change of the server's
// type the Node would keep its old instance type. syncLabels runs when the node controller asks for metadata to refresh addresses
// (--node-status-update-frequency), and makes no API call.
func syncLabels(ctx context.Context, kube kubernetes.Interface, node *corev1.Node, meta *cloudprovider.InstanceMetadata) {
	if kube == nil {
		return
	}
	changed := staleLabels(node, meta)
	if len(changed) == 0 {
		return
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": changed}})
	if err == nil {
		_, err = kube.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		klog.ErrorS(err, "Could not update labels of node; will try again", "node", node.Name, "labels", changed)
		return
	}
	klog.InfoS("Updated labels of node because its server has changed", "node", node.Name, "labels", changed)
}

// staleLabels returns the labels of node that differ from meta, with their correct values. It returns
// none for a Node that is not initialized yet: the node controller sets its labels.
//
// A server never moves, so topology labels are added, but never changed: volumes and workloads depend on them. A
// Node that another CCM has initialized keeps that one's labels.
func staleLabels(node *corev1.Node, meta *cloudprovider.InstanceMetadata) map[string]string {
	if nodeinfo.IsUninitialized(node) {
		return nil
	}
	zone := cmp.Or(node.Labels[corev1.LabelTopologyZone], meta.Zone)
	region := cmp.Or(node.Labels[corev1.LabelTopologyRegion], meta.Region)
	stale := map[string]string{
		corev1.LabelInstanceType:          meta.InstanceType,
		corev1.LabelInstanceTypeStable:    meta.InstanceType,
		corev1.LabelFailureDomainBetaZone: zone,
		corev1.LabelTopologyZone:          zone,
		corev1.LabelTopologyRegion:        region,

		corev1.LabelFailureDomainBetaRegion: region,
	}
	maps.Copy(stale, meta.AdditionalLabels)
	maps.DeleteFunc(stale, func(label, value string) bool { return value == "" || node.Labels[label] == value })
	return stale
}
