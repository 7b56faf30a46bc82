package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// kubelets makes servers Nodes, reports whether they are ready, and deletes Nodes without servers, as the CCM does.
func (w *world) kubelets(ctx context.Context) {
	w.Helper()
	servers, nodes := w.servers(), w.nodes()
	joined := map[int64]bool{}
	for _, n := range nodes {
		i := slices.IndexFunc(servers, func(s *hcloud.Server) bool { return isOf(s, n.Spec.ProviderID) })
		if i < 0 {
			w.must(client.IgnoreNotFound(w.objects.Delete(ctx, &n)))
			continue
		}
		s, ready := servers[i], corev1.ConditionTrue
		joined[s.ID] = true
		if w.broken[n.Name] || s.Status != hcloud.ServerStatusRunning {
			ready = corev1.ConditionUnknown
		}
		if nodeinfo.IsReady(&n) != (ready == corev1.ConditionTrue) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
			w.must(w.objects.Status().Update(ctx, &n))
		}
	}
	for _, s := range servers {
		if s.Status == hcloud.ServerStatusRunning && !joined[s.ID] {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.Name}, Spec: corev1.NodeSpec{ProviderID: w.providerID(s)},
				Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
			w.must(w.create(ctx, n))
		}
	}
}

func isOf(s *hcloud.Server, providerID string) bool {
	return strings.HasSuffix(providerID, fmt.Sprintf("://%d", s.ID))
}

// providerID returns the provider ID that the server's Machine has, else one with the prefix of today.
func (w *world) providerID(s *hcloud.Server) string {
	for _, m := range w.machines() {
		if isOf(s, m.Spec.ProviderID) {
			return m.Spec.ProviderID
		}
	}
	return fmt.Sprintf("%s://%d", cmp.Or(w.prefix, "ccm-from-scratch"), s.ID)
}

// collectGarbage deletes objects whose owner is gone, as kube-controller-manager does.
func (w *world) collectGarbage(ctx context.Context) {
	w.Helper()
	owners := map[types.UID]bool{}
	for _, d := range w.deployments() {
		owners[d.UID] = true
	}
	collect := func(o client.Object) {
		if owner := metav1.GetControllerOf(o); owner != nil && !owners[owner.UID] && o.GetDeletionTimestamp() == nil {
			w.must(client.IgnoreNotFound(w.objects.Delete(ctx, o)))
		}
	}
	for _, s := range w.sets() {
		collect(&s)
	}
	for _, s := range w.sets() {
		owners[s.UID] = true
	}
	for _, m := range w.machines() {
		collect(&m)
	}
}

// state describes everything that a process reads, without names, identifiers and times: states that differ in nothing else
// are the same for a process that starts. What is only for people is left out, such as the status of a MachineDeployment.
func (w *world) state() string {
	w.Helper()
	var all []string
	for _, d := range w.deployments() {
		all = append(all, fmt.Sprint("deployment ", replicas(d.Spec.Replicas)))
	}
	for _, s := range w.sets() {
		all = append(all, fmt.Sprint("set ", replicas(s.Spec.Replicas), " ", s.Status.Replicas, s.Status.AvailableReplicas, revision(&s),
			s.Spec.Template.Spec.ProviderSpec.CloudProviderSpec))
	}
	servers := w.servers()
	uids := map[string]bool{}
	for _, m := range w.machines() {
		uids[string(m.UID)] = true
		all = append(all, fmt.Sprint("machine ", string(m.Spec.ProviderSpec.CloudProviderSpec.Raw), len(m.Finalizers),
			m.Annotations[annotationAccount] != "", m.DeletionTimestamp != nil, m.Spec.ProviderID != "",
			m.Status.Phase == v1alpha1.PhaseFailed, m.Status.NodeRef != nil, m.Status.FailureReason == reasonGone,
			conditions(m.Status.Conditions),
			slices.ContainsFunc(servers, func(s *hcloud.Server) bool { return s.Labels[hetzner.LabelUID] == string(m.UID) })))
	}
	for _, s := range servers {
		all = append(all, fmt.Sprint("server ", s.ServerType.Name, s.Status, uids[s.Labels[hetzner.LabelUID]]))
	}
	for _, n := range w.nodes() {
		all = append(all, fmt.Sprint("node ", nodeinfo.IsReady(&n), n.Spec.Unschedulable, n.Labels, n.Annotations[annotationMachine] != "",
			len(n.Spec.Taints)))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func conditions(all []metav1.Condition) (text []string) {
	for _, c := range all {
		if c.Type == v1alpha1.ConditionNodeReady || c.Reason == reasonGone {
			text = append(text, c.Type+"="+string(c.Status))
		}
	}
	return text
}
