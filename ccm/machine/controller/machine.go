package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

const (
	// finalizer keeps a Machine until its server is gone.
	finalizer = "machine.ccm-from-scratch.dev/server"
	// annotationMachine of a Node names its Machine.
	annotationMachine = "machine.ccm-from-scratch.dev/machine"
	// annotationFormerUID of a Machine is the UID that its server's label has, if the Machine was restored from a backup.
	annotationFormerUID = "machine.ccm-from-scratch.dev/former-uid"

	// goneAfter is the time between the first answer that a server is gone and the one that is believed.
	defaultDrainTimeout = 10 * time.Minute
	goneAfter           = 10 * time.Second
	// retryFailed is the time after which a failed Machine is tried again: what it names may exist by then.
	retryFailed = 10 * time.Minute
)

// reasonGone is the reason of the condition and of the failure of a Machine whose server is gone.
const reasonGone = "InstanceGone"

// machines reconciles Machines.
type machines struct{ *common }

// Reconcile brings one Machine nearer to its spec.
func (r *machines) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var m v1alpha1.Machine
	if err := r.Get(ctx, req.NamespacedName, &m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := m.DeepCopy()
	result, err := r.reconcile(ctx, &m)
	r.showError(&m, err)
	m.Status.ObservedGeneration = m.Generation
	if !equality.Semantic.DeepEqual(before.Status, m.Status) {
		patch := m.DeepCopy() // the answer has the status of the API server
		if err := client.IgnoreNotFound(r.Status().Patch(ctx, patch, client.MergeFrom(before))); err != nil {
			return ctrl.Result{}, fmt.Errorf("cannot write the status: %w", err)
		}
	}
	if _, terminal := errors.AsType[*machine.TerminalError](err); terminal {
		return ctrl.Result{RequeueAfter: retryFailed}, nil
	}
	return result, err
}

// showError writes an error into the status, and records an event if it is news.
func (r *machines) showError(m *v1alpha1.Machine, err error) {
	if err == nil {
		if m.Status.FailureReason != reasonGone {
			m.Status.FailureReason, m.Status.FailureMessage = "", ""
		}
		return
	}
	reason := "Retrying"
	if terminal, is := errors.AsType[*machine.TerminalError](err); is {
		reason = terminal.Reason
		if m.DeletionTimestamp == nil {
			m.Status.Phase = v1alpha1.PhaseFailed
		}
	}
	if m.Status.FailureMessage != err.Error() {
		r.events.Eventf(m, nil, corev1.EventTypeWarning, reason, "Reconcile", "%v", err)
	}
	m.Status.FailureReason, m.Status.FailureMessage = reason, err.Error()
}

func (r *machines) reconcile(ctx context.Context, m *v1alpha1.Machine) (ctrl.Result, error) {
	p, err := r.provider(m)
	if err != nil {
		return ctrl.Result{}, err
	}
	if m.DeletionTimestamp != nil {
		m.Status.Phase = v1alpha1.PhaseDeleting
		return r.delete(ctx, p, m)
	}
	if err := r.prepare(ctx, p, m); err != nil {
		return ctrl.Result{}, err
	}
	found, err := p.Get(ctx, m)
	switch {
	case errors.Is(err, machine.ErrInstanceNotFound) && m.Spec.ProviderID != "":
		return r.missing(ctx, m)
	case errors.Is(err, machine.ErrInstanceNotFound):
		if found, err = r.create(ctx, p, m); err != nil {
			return ctrl.Result{}, err
		}
	case err != nil:
		return ctrl.Result{}, err
	}
	return r.observe(ctx, m, found)
}

// prepare writes the provider's defaults, and what must be there before a server is made.
func (r *machines) prepare(ctx context.Context, p machine.Provider, m *v1alpha1.Machine) error {
	before := m.DeepCopy()
	if former := m.Annotations[annotationFormerUID]; former != "" {
		old := m.DeepCopy()
		old.UID = types.UID(former)
		if err := p.MigrateUID(ctx, old, m.UID); err != nil {
			return err
		}
		delete(m.Annotations, annotationFormerUID)
	}
	spec, err := p.AddDefaults(ctx, *m.Spec.DeepCopy())
	if err != nil {
		return err
	}
	m.Spec = spec
	controllerutil.AddFinalizer(m, finalizer)
	return r.patch(ctx, m, before)
}

// patch writes the metadata and the spec of a Machine if they have changed. It keeps the status that the Machine has here.
func (r *machines) patch(ctx context.Context, m, before *v1alpha1.Machine) error {
	if equality.Semantic.DeepEqual(before.ObjectMeta, m.ObjectMeta) && equality.Semantic.DeepEqual(before.Spec, m.Spec) {
		return nil
	}
	status := m.Status.DeepCopy()
	// With the version: what was decided from a state of the Machine must not be written to another one.
	if err := r.Patch(ctx, m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("cannot write the Machine: %w", err)
	}
	m.Status = *status
	return nil
}

// create makes the server.
func (r *machines) create(ctx context.Context, p machine.Provider, m *v1alpha1.Machine) (machine.Instance, error) {
	m.Status.Phase = v1alpha1.PhasePending
	if err := p.Validate(ctx, m.Spec); err != nil {
		return nil, err
	}
	data, err := machine.UserData(ctx, r.Resolver, p, m)
	if err != nil {
		return nil, err
	}
	made, err := p.Create(ctx, m, &machine.Data{Client: r.Client}, data)
	if err != nil {
		return nil, err
	}
	r.events.Eventf(m, nil, corev1.EventTypeNormal, "Created", "Create", "Created server %s (%s)", made.ID(), made.Name())
	return made, nil
}

// missing is called when the cloud says that a server is gone which the Machine had.
func (r *machines) missing(ctx context.Context, m *v1alpha1.Machine) (ctrl.Result, error) {
	node, err := r.node(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.showNode(m, node)
	if node != nil && isReady(node) {
		r.setCondition(m, v1alpha1.ConditionInstanceReady, metav1.ConditionUnknown, "NodeStillReady", fmt.Sprintf(
			"The API says that server %s is gone, and Node %s is ready: check whether the token is of the right project", m.Spec.ProviderID,
			node.Name))
		return ctrl.Result{RequeueAfter: time.Minute}, nil
	}
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionInstanceReady)
	if c == nil || c.Reason != reasonGone {
		// The time of the condition is that of the first answer, even if the status was false before.
		meta.RemoveStatusCondition(&m.Status.Conditions, v1alpha1.ConditionInstanceReady)
		r.setCondition(m, v1alpha1.ConditionInstanceReady, metav1.ConditionFalse, reasonGone,
			fmt.Sprintf("The API says that server %s is gone", m.Spec.ProviderID))
		return ctrl.Result{RequeueAfter: goneAfter + time.Second}, nil
	}
	if wait := goneAfter - r.clock.Since(c.LastTransitionTime.Time); wait > 0 {
		return ctrl.Result{RequeueAfter: wait + time.Second}, nil
	}
	if m.Status.FailureReason != reasonGone {
		r.events.Eventf(m, nil, corev1.EventTypeWarning, reasonGone, "Reconcile", "Server %s is gone", m.Spec.ProviderID)
	}
	m.Status.Phase, m.Status.FailureReason = v1alpha1.PhaseFailed, reasonGone
	m.Status.FailureMessage = fmt.Sprintf("server %s is gone: a MachineSet replaces its Machine; delete any other one", m.Spec.ProviderID)
	return ctrl.Result{}, nil
}

// observe writes what the server and its Node are.
func (r *machines) observe(ctx context.Context, m *v1alpha1.Machine, found machine.Instance) (ctrl.Result, error) {
	before := m.DeepCopy()
	if m.Spec.ProviderID == "" {
		m.Spec.ProviderID = found.ProviderID()
		if err := r.patch(ctx, m, before); err != nil {
			return ctrl.Result{}, err
		}
	}
	m.Status.Addresses, m.Status.FailureReason = found.Addresses(), ""
	node, err := r.node(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	if node != nil {
		if err := r.markNode(ctx, m, node); err != nil {
			return ctrl.Result{}, err
		}
	}
	r.showNode(m, node)
	running := found.Status() == machine.StatusRunning
	if running {
		r.setCondition(m, v1alpha1.ConditionInstanceReady, metav1.ConditionTrue, "Running", "")
	} else {
		r.setCondition(m, v1alpha1.ConditionInstanceReady, metav1.ConditionFalse, "NotRunning",
			fmt.Sprintf("Server %s is %s", found.ID(), found.Status()))
	}
	switch {
	case node != nil:
		m.Status.Phase = v1alpha1.PhaseRunning
	case running:
		m.Status.Phase = v1alpha1.PhaseProvisioned
	default:
		m.Status.Phase = v1alpha1.PhaseProvisioning
	}
	switch {
	case !running && found.Status() != machine.StatusStopped:
		return ctrl.Result{RequeueAfter: r.Poll}, nil
	case node == nil || !isReady(node):
		return ctrl.Result{RequeueAfter: 6 * r.Poll}, nil
	}
	return ctrl.Result{RequeueAfter: r.Interval}, nil
}

// delete drains the Node, removes the server, and lets the Machine go.
func (r *machines) delete(ctx context.Context, p machine.Provider, m *v1alpha1.Machine) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(m, finalizer) {
		return ctrl.Result{}, nil
	}
	node, err := r.node(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	if node != nil {
		drained, err := r.drain(ctx, m, node)
		if err != nil {
			return ctrl.Result{}, err
		}
		if !drained {
			return ctrl.Result{RequeueAfter: r.Poll}, nil
		}
	}
	gone, err := p.Cleanup(ctx, m, &machine.Data{Client: r.Client})
	if err != nil {
		return ctrl.Result{}, err
	}
	if !gone {
		return ctrl.Result{RequeueAfter: r.Poll}, nil
	}
	if node != nil {
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, node, client.Preconditions{UID: &node.UID})); err != nil {
			return ctrl.Result{}, fmt.Errorf("cannot delete Node %s: %w", node.Name, err)
		}
	}
	r.events.Eventf(m, nil, corev1.EventTypeNormal, "Deleted", "Delete", "Deleted server %s", m.Spec.ProviderID)
	before := m.DeepCopy()
	controllerutil.RemoveFinalizer(m, finalizer)
	return ctrl.Result{}, client.IgnoreNotFound(r.patch(ctx, m, before))
}

func (r *machines) setCondition(m *v1alpha1.Machine, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: m.Generation, LastTransitionTime: metav1.NewTime(r.clock.Now())})
}
