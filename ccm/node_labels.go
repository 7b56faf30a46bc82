package ccm

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"
)

// nodeLabelSync keeps the labels that come from the cloud true after initialization.
// k8s.io/cloud-provider sets them once, when it initializes a Node, and later refreshes addresses
// only; so a server whose type was changed would carry its old instance type for ever.
//
// It runs when the node controller asks for metadata to refresh addresses
// (--node-status-update-frequency) and costs no API call of its own.
type nodeLabelSync struct {
	kube kubernetes.Interface // nil until the cloud is initialized
}

// sync patches the labels of an initialized Node that say something else than meta. An error is
// logged: the next refresh tries again.
func (l *nodeLabelSync) sync(ctx context.Context, node *corev1.Node, meta *cloudprovider.InstanceMetadata) {
	if l == nil || l.kube == nil {
		return
	}
	changed := staleLabels(node, meta)
	if len(changed) == 0 {
		return
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": changed}})
	if err == nil {
		_, err = l.kube.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		klog.ErrorS(err, "Could not update the labels of a node; will try again", "node", node.Name, "labels", changed)
		return
	}
	klog.InfoS("Updated labels of a node whose server has changed", "node", node.Name, "labels", changed)
}

// staleLabels returns the labels of node that differ from meta, with their right values. A Node
// that is not initialized yet has none: the node controller is about to set them.
func staleLabels(node *corev1.Node, meta *cloudprovider.InstanceMetadata) map[string]string {
	for _, t := range node.Spec.Taints {
		if t.Key == cloudproviderapi.TaintExternalCloudProvider {
			return nil
		}
	}
	stale := map[string]string{}
	for label, value := range map[string]string{
		corev1.LabelInstanceType:          meta.InstanceType,
		corev1.LabelInstanceTypeStable:    meta.InstanceType,
		corev1.LabelFailureDomainBetaZone: meta.Zone,
		corev1.LabelTopologyZone:          meta.Zone,
		corev1.LabelTopologyRegion:        meta.Region,

		corev1.LabelFailureDomainBetaRegion: meta.Region,
	} {
		if value != "" && node.Labels[label] != value {
			stale[label] = value
		}
	}
	return stale
}
