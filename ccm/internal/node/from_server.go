package node

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

// These annotations record the labels and taints that a Node has from its server, so that only those are removed again.
const (
	annotationServerLabels = nodeinfo.ProviderName + "/labels-from-server"
	annotationServerTaints = nodeinfo.ProviderName + "/taints-from-server"
)

// LabelPattern selects labels of servers by their key: "pool", or "example.org/*" for all keys that start so.
type LabelPattern string

// matches reports whether the pattern selects the key.
func (p LabelPattern) matches(key string) bool {
	if start, isStart := strings.CutSuffix(string(p), "*"); isStart {
		return strings.HasPrefix(key, start)
	}
	return string(p) == key
}

// TaintPattern makes labels of servers taints of their Nodes.
type TaintPattern struct {
	LabelPattern
	// Effect of the taint. Its key and value are those of the label.
	Effect corev1.TaintEffect
}

// IsReservedLabel reports whether a label belongs to Kubernetes or to a cloud-controller-manager. Others are
// for people, although they are in a namespace of Kubernetes.
func IsReservedLabel(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	switch {
	case domain == "node-role.kubernetes.io", key == corev1.LabelNodeExcludeBalancers:
		return false
	case key == labelProvidedBy:
		return true
	}
	return slices.ContainsFunc([]string{".kubernetes.io", ".k8s.io"}, func(d string) bool { return strings.HasSuffix("."+domain, d) })
}

// fromServer gives Nodes labels and taints that their servers have as labels. The patterns are the operator's
// consent: without them nothing is done. A label that a server loses is removed from its Node too.
//
// A new Node gets them before it is initialized, so that no pod is scheduled to it too early.
type fromServer struct {
	kube   kubernetes.Interface // nil until the cloud is initialized
	labels []LabelPattern
	taints []TaintPattern
}

// sync changes the Node if it differs from the server. An error counts only before the Node is initialized;
// later it is logged, and the next refresh tries again.
func (f *fromServer) sync(ctx context.Context, node *corev1.Node, server *hcloud.Server) error {
	if f.kube == nil || !f.apply(node.DeepCopy(), server.Labels) {
		return nil
	}
	nodes := f.kube.CoreV1().Nodes()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := nodes.Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil || !f.apply(now, server.Labels) {
			return err
		}
		_, err = nodes.Update(ctx, now, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		err = fmt.Errorf("giving node %q the labels and taints of server %d (%s): %w", node.Name, server.ID, server.Name, err)
		if nodeinfo.IsUninitialized(node) {
			return err
		}
		klog.ErrorS(err, "Could not change node; will try again")
		return nil
	}
	klog.InfoS("Changed labels and taints of node to those of its server", "node", node.Name, "server", server.ID)
	return nil
}

// apply changes the Node in memory, and reports whether it differed.
func (f *fromServer) apply(node *corev1.Node, server map[string]string) bool {
	before := node.DeepCopy()
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	labels := f.labelsOf(server)
	for _, key := range recordedNames(node, annotationServerLabels) {
		if _, still := labels[key]; !still && !IsReservedLabel(key) {
			delete(node.Labels, key)
		}
	}
	maps.Copy(node.Labels, labels)
	recordNames(node, annotationServerLabels, slices.Sorted(maps.Keys(labels)))

	var names []string
	taints := f.taintsOf(server)
	for _, name := range recordedNames(node, annotationServerTaints) {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return taintName(t) == name })
	}
	for _, want := range taints {
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&want) })
		node.Spec.Taints = append(node.Spec.Taints, want)
		names = append(names, taintName(want))
	}
	recordNames(node, annotationServerTaints, names)
	return !maps.Equal(before.Labels, node.Labels) || !maps.Equal(before.Annotations, node.Annotations) ||
		!sameTaints(before.Spec.Taints, node.Spec.Taints)
}

// labelsOf returns the labels that the Node of a server with these labels must have.
func (f *fromServer) labelsOf(server map[string]string) map[string]string {
	labels := maps.Clone(server)
	maps.DeleteFunc(labels, func(key, value string) bool {
		return !slices.ContainsFunc(f.labels, func(p LabelPattern) bool { return p.matches(key) }) || !isNodeLabel(key, value)
	})
	return labels
}

// taintsOf returns the taints that the Node of a server with these labels must have, in a stable order.
func (f *fromServer) taintsOf(server map[string]string) (taints []corev1.Taint) {
	for _, key := range slices.Sorted(maps.Keys(server)) {
		for _, p := range f.taints {
			taint := corev1.Taint{Key: key, Value: server[key], Effect: p.Effect}
			if p.matches(key) && isNodeLabel(key, server[key]) &&
				!slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
				taints = append(taints, taint)
			}
		}
	}
	return taints
}

// isNodeLabel reports whether Kubernetes accepts a label of a server, and whether it is not reserved.
func isNodeLabel(key, value string) bool {
	return !IsReservedLabel(key) && len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0
}

// sameTaints compares taints and ignores their order and times.
func sameTaints(a, b []corev1.Taint) bool {
	texts := func(taints []corev1.Taint) (all []string) {
		for _, t := range taints {
			all = append(all, t.ToString())
		}
		slices.Sort(all)
		return all
	}
	return slices.Equal(texts(a), texts(b))
}

// taintName names a taint without its value.
func taintName(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

// recordedNames returns the names in an annotation of the Node.
func recordedNames(node *corev1.Node, annotation string) []string {
	if node.Annotations[annotation] == "" {
		return nil
	}
	return strings.Split(node.Annotations[annotation], ",")
}

// recordNames sets the annotation to the names, or removes it without names.
func recordNames(node *corev1.Node, annotation string, names []string) {
	if len(names) == 0 {
		delete(node.Annotations, annotation)
		return
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, annotation, strings.Join(names, ","))
}
