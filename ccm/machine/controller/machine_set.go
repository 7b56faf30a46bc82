package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// AnnotationDelete on a Machine makes it the first one to be deleted when its MachineSet has too many.
const AnnotationDelete = "machine.ccm-from-scratch.dev/delete-machine"

// Defaults of a HealthCheck.
const (
	defaultStartupTimeout   = 20 * time.Minute
	defaultUnhealthyTimeout = 5 * time.Minute
	defaultMaxUnhealthy     = "40%"
)

// machineSets reconciles MachineSets.
type machineSets struct{ *common }

// Reconcile brings one MachineSet nearer to its spec.
func (r *machineSets) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var set v1alpha1.MachineSet
	if err := r.api.Get(ctx, req.NamespacedName, &set); err != nil || set.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	own, err := r.machinesOf(ctx, &set)
	if err != nil {
		return ctrl.Result{}, err
	}
	now, before := r.clock.Now(), set.DeepCopy()
	healthy, next, err := r.replaceUnhealthy(ctx, &set, own, now)
	if err == nil {
		err = r.scale(ctx, &set, healthy)
	}
	until := r.show(&set, own, now)
	if !equality.Semantic.DeepEqual(before.Status, set.Status) {
		if err := client.IgnoreNotFound(r.Status().Patch(ctx, &set, client.MergeFrom(before))); err != nil {
			return ctrl.Result{}, fmt.Errorf("cannot write the status: %w", err)
		}
	}
	return ctrl.Result{RequeueAfter: earliest(next, until)}, err
}

// earliest returns the smaller duration of those that are not 0.
func earliest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// machinesOf returns the Machines of a MachineSet that are not being deleted. It reads them from the API server: a cache may
// lack one that was just made. It takes those that match and belong to nothing.
func (r *machineSets) machinesOf(ctx context.Context, set *v1alpha1.MachineSet) (own []*v1alpha1.Machine, err error) {
	var list v1alpha1.MachineList
	if err := r.api.List(ctx, &list, client.InNamespace(set.Namespace), client.MatchingLabels(set.Spec.Selector.MatchLabels)); err != nil {
		return nil, fmt.Errorf("cannot list Machines: %w", err)
	}
	for i := range list.Items {
		m := &list.Items[i]
		owner := metav1.GetControllerOf(m)
		if m.DeletionTimestamp != nil || owner != nil && owner.UID != set.UID {
			continue
		}
		if owner == nil {
			before := m.DeepCopy()
			if err := controllerutil.SetControllerReference(set, m, r.Scheme()); err != nil {
				return nil, err
			}
			if err := r.write(ctx, m, before, "take the Machine "+m.Name); err != nil {
				return nil, err
			}
		}
		own = append(own, m)
	}
	return own, nil
}

// replaceUnhealthy deletes Machines that do not work. It returns the others, and when to look again; 0 is never.
func (r *machineSets) replaceUnhealthy(ctx context.Context, set *v1alpha1.MachineSet, own []*v1alpha1.Machine,
	now time.Time) (healthy []*v1alpha1.Machine, next time.Duration, err error) {
	var gone, unhealthy []*v1alpha1.Machine
	for _, m := range own {
		bad, wait := isUnhealthy(set, m, now)
		next = earliest(next, wait)
		if bad { // the Machine's status may be older than the Node's
			node, err := r.node(ctx, m)
			if err != nil {
				return own, next, err
			}
			bad = node == nil || !nodeinfo.IsReady(node)
		}
		switch {
		case m.Status.FailureReason == reasonGone: // proven, however many there are
			gone = append(gone, m)
		case bad:
			unhealthy = append(unhealthy, m)
		default:
			healthy = append(healthy, m)
		}
	}
	limit, err := maxUnhealthy(set)
	if err != nil {
		return own, next, err
	}
	if len(unhealthy) > limit {
		r.events.Eventf(set, nil, corev1.EventTypeWarning, "TooManyUnhealthy", "Replace",
			"%d Machines are unhealthy, and maxUnhealthy allows %d: none is replaced until a person looks", len(unhealthy), limit)
		healthy, unhealthy = append(healthy, unhealthy...), nil
	}
	for _, m := range slices.Concat(gone, unhealthy) {
		why := m.Status.FailureMessage
		if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionNodeReady); c != nil { // else it never had a server
			why = cmp.Or(why, c.Message)
		}
		r.events.Eventf(set, m, corev1.EventTypeWarning, "ReplacingMachine", "Replace", "Machine %s is replaced: %s", m.Name, why)
		if err := r.deleteMachine(ctx, m); err != nil {
			return nil, next, err
		}
		if m.Status.NodeRef == nil {
			set.Status.FailedStarts++
		}
	}
	return healthy, next, nil
}

// isUnhealthy reports whether a Machine has no ready Node for too long, else after which time that may be; 0 is never.
// A Machine that replaces one without a Node has twice the time of that one, up to eight times the timeout.
func isUnhealthy(set *v1alpha1.MachineSet, m *v1alpha1.Machine, now time.Time) (bool, time.Duration) {
	h := set.Spec.HealthCheck
	since, timeout := m.CreationTimestamp.Time, duration(h.NodeStartupTimeout, defaultStartupTimeout)<<min(set.Status.FailedStarts, 3)
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionNodeReady)
	if c != nil && c.Status == metav1.ConditionTrue {
		return false, 0
	}
	if c != nil && m.Status.NodeRef != nil {
		since, timeout = c.LastTransitionTime.Time, duration(h.UnhealthyTimeout, defaultUnhealthyTimeout)
	}
	if timeout == 0 {
		return false, 0
	}
	wait := timeout - now.Sub(since)
	return wait <= 0, max(wait, 0)
}

func duration(d *metav1.Duration, otherwise time.Duration) time.Duration {
	return ptr.Deref(d, metav1.Duration{Duration: otherwise}).Duration
}

// maxUnhealthy returns how many Machines may be replaced at the same time: at least one.
func maxUnhealthy(set *v1alpha1.MachineSet) (int, error) {
	limit := cmp.Or(set.Spec.HealthCheck.MaxUnhealthy, new(intstr.FromString(defaultMaxUnhealthy)))
	n, err := intstr.GetScaledValueFromIntOrPercent(limit, replicas(set.Spec.Replicas), false)
	if err != nil {
		return 0, fmt.Errorf("spec.healthCheck.maxUnhealthy must be a number or a percentage: %w", err)
	}
	return max(n, 1), nil
}

func replicas(n *int32) int { return int(ptr.Deref(n, 1)) }

// scale makes or deletes Machines until there are as many as the MachineSet wants.
func (r *machineSets) scale(ctx context.Context, set *v1alpha1.MachineSet, own []*v1alpha1.Machine) error {
	want := replicas(set.Spec.Replicas)
	for range want - len(own) {
		m := &v1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: set.Namespace, Name: set.Name + "-" + rand.String(5),
				Labels: maps.Clone(set.Spec.Template.Metadata.Labels), Annotations: maps.Clone(set.Spec.Template.Metadata.Annotations),
			},
			Spec: *set.Spec.Template.Spec.DeepCopy(),
		}
		if err := controllerutil.SetControllerReference(set, m, r.Scheme()); err != nil {
			return err
		}
		if err := r.Create(ctx, m); err != nil {
			return fmt.Errorf("cannot create a Machine: %w", err)
		}
	}
	if surplus := len(own) - want; surplus > 0 {
		for _, m := range deletionOrder(set.Spec.DeletePolicy, own)[:surplus] {
			if err := r.deleteMachine(ctx, m); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *machineSets) deleteMachine(ctx context.Context, m *v1alpha1.Machine) error {
	if err := client.IgnoreNotFound(r.Client.Delete(ctx, m, client.Preconditions{UID: &m.UID})); err != nil {
		return fmt.Errorf("cannot delete the Machine %s: %w", m.Name, err)
	}
	return nil
}

// deletionOrder sorts Machines: those that a person has marked come first, then those that do not work, then by the policy.
func deletionOrder(policy v1alpha1.DeletePolicy, own []*v1alpha1.Machine) []*v1alpha1.Machine {
	rank := func(m *v1alpha1.Machine) int {
		_, marked := m.Annotations[AnnotationDelete]
		switch {
		case marked:
			return 0
		case m.Status.Phase == v1alpha1.PhaseFailed:
			return 1
		case m.Status.NodeRef == nil:
			return 2
		case !isMachineReady(m):
			return 3
		}
		return 4
	}
	return slices.SortedStableFunc(slices.Values(own), func(a, b *v1alpha1.Machine) int {
		byPolicy := -a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		switch policy {
		case v1alpha1.DeleteOldest:
			byPolicy = -byPolicy
		case v1alpha1.DeleteRandom:
			byPolicy = cmp.Compare(a.UID, b.UID) // the same in each look
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), byPolicy, cmp.Compare(a.Name, b.Name))
	})
}

func isMachineReady(m *v1alpha1.Machine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionNodeReady)
}

// show writes the status. It returns the time after which another Machine becomes available; 0 is never.
func (r *machineSets) show(set *v1alpha1.MachineSet, own []*v1alpha1.Machine, now time.Time) (next time.Duration) {
	s := v1alpha1.MachineSetStatus{Replicas: int32(len(own)), ObservedGeneration: set.Generation, FailedStarts: set.Status.FailedStarts,
		Selector: labels.Set(set.Spec.Selector.MatchLabels).String()}
	for _, m := range own {
		if !isMachineReady(m) {
			continue
		}
		s.ReadyReplicas++
		c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionNodeReady)
		wait := time.Duration(set.Spec.MinReadySeconds)*time.Second - now.Sub(c.LastTransitionTime.Time)
		if wait <= 0 {
			s.AvailableReplicas++
		} else {
			next = earliest(next, wait)
		}
	}
	if int(s.ReadyReplicas) >= replicas(set.Spec.Replicas) {
		s.FailedStarts = 0
	}
	set.Status = s
	return next
}
