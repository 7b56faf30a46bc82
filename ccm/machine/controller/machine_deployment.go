package controller

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

const (
	// labelTemplate tells the Machines of one template from those of another.
	labelTemplate = "machine.ccm-from-scratch.dev/template-hash"
	// annotationRevision of a MachineSet counts the changes of the template.
	annotationRevision = "machine.ccm-from-scratch.dev/revision"
)

// machineDeployments reconciles MachineDeployments.
type machineDeployments struct{ *common }

// Reconcile brings one MachineDeployment nearer to its spec.
func (r *machineDeployments) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var d v1alpha1.MachineDeployment
	if err := r.api.Get(ctx, req.NamespacedName, &d); err != nil || d.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	sets, err := r.setsOf(ctx, &d)
	if err != nil {
		return ctrl.Result{}, err
	}
	current := currentSet(&d, sets)
	if !d.Spec.Paused {
		if current, err = r.roll(ctx, &d, current, sets); err != nil {
			return ctrl.Result{}, err
		}
	}
	before := d.DeepCopy()
	if err := r.show(&d, current, sets); err != nil {
		return ctrl.Result{}, err
	}
	if equality.Semantic.DeepEqual(before.Status, d.Status) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, client.IgnoreNotFound(r.Status().Patch(ctx, &d, client.MergeFrom(before)))
}

// setsOf returns the MachineSets of a MachineDeployment, the oldest first. It reads them from the API server: a cache may lack one
// that was just made, or show an earlier number of replicas.
func (r *machineDeployments) setsOf(ctx context.Context, d *v1alpha1.MachineDeployment) (own []*v1alpha1.MachineSet, err error) {
	var list v1alpha1.MachineSetList
	if err := r.api.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)); err != nil {
		return nil, fmt.Errorf("cannot list MachineSets: %w", err)
	}
	for i := range list.Items {
		if s := &list.Items[i]; metav1.IsControlledBy(s, d) && s.DeletionTimestamp == nil {
			own = append(own, s)
		}
	}
	slices.SortFunc(own, func(a, b *v1alpha1.MachineSet) int {
		return cmp.Or(cmp.Compare(revision(a), revision(b)), cmp.Compare(a.Name, b.Name))
	})
	return own, nil
}

func revision(s *v1alpha1.MachineSet) int {
	n, _ := strconv.Atoi(s.Annotations[annotationRevision])
	return n
}

// currentSet returns the MachineSet that is made from the template, or nil.
func currentSet(d *v1alpha1.MachineDeployment, sets []*v1alpha1.MachineSet) *v1alpha1.MachineSet {
	for _, s := range slices.Backward(sets) {
		if reflect.DeepEqual(plain(d.Spec.Template), plain(s.Spec.Template)) {
			return s
		}
	}
	return nil
}

// plain returns a template as JSON has it, without the label of the template: the order and the form of what the provider reads do
// not count.
func plain(t v1alpha1.MachineTemplate) (value any) {
	t.Metadata.Labels = maps.Clone(t.Metadata.Labels)
	delete(t.Metadata.Labels, labelTemplate)
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &value); err != nil {
		return err
	}
	return value
}

func templateHash(t v1alpha1.MachineTemplate) string {
	text, _ := json.Marshal(plain(t)) // it was JSON before
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:5])
}

// roll makes the MachineSet of the template, and moves replicas to it. It returns that MachineSet.
func (r *machineDeployments) roll(ctx context.Context, d *v1alpha1.MachineDeployment, current *v1alpha1.MachineSet,
	sets []*v1alpha1.MachineSet) (*v1alpha1.MachineSet, error) {
	newest := 0
	if len(sets) > 0 {
		newest = revision(sets[len(sets)-1])
	}
	if current == nil {
		current = newSet(d, newest+1)
		if err := controllerutil.SetControllerReference(d, current, r.Scheme()); err != nil {
			return nil, err
		}
		if err := r.Create(ctx, current); err != nil {
			return nil, fmt.Errorf("cannot create the MachineSet %s: %w", current.Name, err)
		}
		r.events.Eventf(d, current, corev1.EventTypeNormal, "CreatedMachineSet", "Roll", "Created MachineSet %s", current.Name)
	}
	state, err := rolloutOf(d)
	if err != nil {
		return nil, err
	}
	var old []*v1alpha1.MachineSet
	state.current = generationOf(current)
	for _, s := range sets {
		if s.Name != current.Name {
			old, state.old = append(old, s), append(state.old, generationOf(s))
		}
	}
	wanted, others := state.next()
	for i, s := range old {
		if err := r.adjust(ctx, d, s, others[i], revision(s)); err != nil {
			return nil, err
		}
	}
	// A template that comes back is the newest again.
	if revision(current) < newest {
		newest++
	}
	if err := r.adjust(ctx, d, current, wanted, max(newest, revision(current))); err != nil {
		return nil, err
	}
	return current, r.forget(ctx, d, old)
}

// newSet returns the MachineSet of the template, without replicas.
func newSet(d *v1alpha1.MachineDeployment, revision int) *v1alpha1.MachineSet {
	hash := templateHash(d.Spec.Template)
	template := *d.Spec.Template.DeepCopy()
	template.Metadata.Labels = labels.Merge(template.Metadata.Labels, labels.Set{labelTemplate: hash})
	return &v1alpha1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name + "-" + hash, Labels: template.Metadata.Labels,
			Annotations: map[string]string{annotationRevision: strconv.Itoa(revision)}},
		Spec: v1alpha1.MachineSetSpec{Replicas: new(int32),
			Selector: v1alpha1.LabelSelector{MatchLabels: labels.Merge(d.Spec.Selector.MatchLabels, labels.Set{labelTemplate: hash})},
			Template: template},
	}
}

func rolloutOf(d *v1alpha1.MachineDeployment) (state rollout, err error) {
	state.replicas = replicas(d.Spec.Replicas)
	one, none := intstr.FromInt32(1), intstr.FromInt32(0)
	if state.maxSurge, err = intstr.GetScaledValueFromIntOrPercent(cmp.Or(d.Spec.Strategy.MaxSurge, &one), state.replicas,
		true); err != nil {
		return state, fmt.Errorf("spec.strategy.maxSurge must be a number or a percentage: %w", err)
	}
	if state.maxUnavailable, err = intstr.GetScaledValueFromIntOrPercent(cmp.Or(d.Spec.Strategy.MaxUnavailable, &none), state.replicas,
		false); err != nil {
		return state, fmt.Errorf("spec.strategy.maxUnavailable must be a number or a percentage: %w", err)
	}
	if state.maxSurge == 0 && state.maxUnavailable == 0 {
		state.maxUnavailable = 1 // a percentage of few replicas: without this, nothing would ever change
	}
	return state, nil
}

func generationOf(s *v1alpha1.MachineSet) generation {
	return generation{replicas: replicas(s.Spec.Replicas), available: int(s.Status.AvailableReplicas)}
}

// adjust writes to a MachineSet what the MachineDeployment decides: everything but the template.
func (r *machineDeployments) adjust(ctx context.Context, d *v1alpha1.MachineDeployment, s *v1alpha1.MachineSet, n, revision int) error {
	before := s.DeepCopy()
	s.Spec.Replicas = new(int32(n))
	s.Spec.MinReadySeconds, s.Spec.DeletePolicy, s.Spec.HealthCheck = d.Spec.MinReadySeconds, d.Spec.DeletePolicy, d.Spec.HealthCheck
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, annotationRevision, strconv.Itoa(revision))
	if replicas(before.Spec.Replicas) != n {
		r.events.Eventf(d, s, corev1.EventTypeNormal, "ScaledMachineSet", "Roll", "MachineSet %s: %d Machines (before: %d)", s.Name, n,
			replicas(before.Spec.Replicas))
	}
	return r.write(ctx, s, before, "write the MachineSet "+s.Name)
}

// forget deletes the oldest MachineSets without Machines, except for those that are kept so that a template can come back.
func (r *machineDeployments) forget(ctx context.Context, d *v1alpha1.MachineDeployment, old []*v1alpha1.MachineSet) error {
	keep := int(ptr.Deref(d.Spec.RevisionHistoryLimit, 1))
	empty := slices.DeleteFunc(slices.Clone(old), func(s *v1alpha1.MachineSet) bool {
		return replicas(s.Spec.Replicas) > 0 || s.Status.Replicas > 0
	})
	for _, s := range empty[:max(0, len(empty)-keep)] {
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID})); err != nil {
			return fmt.Errorf("cannot delete the MachineSet %s: %w", s.Name, err)
		}
	}
	return nil
}

// show writes the status.
func (r *machineDeployments) show(d *v1alpha1.MachineDeployment, current *v1alpha1.MachineSet, sets []*v1alpha1.MachineSet) error {
	state, err := rolloutOf(d)
	if err != nil {
		return err
	}
	s := v1alpha1.MachineDeploymentStatus{ObservedGeneration: d.Generation, Selector: labels.Set(d.Spec.Selector.MatchLabels).String(),
		Conditions: d.Status.Conditions}
	for _, set := range sets {
		s.Replicas += set.Status.Replicas
		s.ReadyReplicas += set.Status.ReadyReplicas
		s.AvailableReplicas += set.Status.AvailableReplicas
	}
	if current != nil {
		s.UpdatedReplicas = current.Status.Replicas
	}
	condition := func(kind string, is bool, message string) {
		c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "AsWanted", ObservedGeneration: d.Generation,
			LastTransitionTime: metav1.NewTime(r.clock.Now())}
		if !is {
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, "InProgress", message
		}
		meta.SetStatusCondition(&s.Conditions, c)
	}
	condition(v1alpha1.ConditionAvailable, int(s.AvailableReplicas) >= state.replicas-state.maxUnavailable,
		fmt.Sprintf("%d of %d Machines are available", s.AvailableReplicas, state.replicas))
	condition(v1alpha1.ConditionUpdated, int(s.UpdatedReplicas) == state.replicas && int(s.Replicas) == state.replicas,
		fmt.Sprintf("%d of %d Machines are made from the template, and %d others exist", s.UpdatedReplicas, state.replicas,
			s.Replicas-s.UpdatedReplicas))
	d.Status = s
	return nil
}
