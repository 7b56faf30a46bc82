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

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/gone"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
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
	// annotationStarted of a Machine is when the controller has started its server.
	annotationStarted = "machine.ccm-from-scratch.dev/started"

	defaultDrainTimeout = 10 * time.Minute
	// retryFailed is the longest time until a failed Machine is tried again: what it names may exist by then.
	retryFailed = 10 * time.Minute
	// startDelay is how long a server that has not joined the cluster is off before it is started: the cloud itself may be about to.
	startDelay = time.Minute
)

// reasonGone is the reason of the condition and of the failure of a Machine without its server.
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
		// The pauses double. A Machine that was made during an outage, as with a wrong token, gets its server soon after it.
		return ctrl.Result{RequeueAfter: min(max(r.clock.Since(m.CreationTimestamp.Time), r.Poll), retryFailed)}, nil
	}
	if doubt, is := errors.AsType[*doubtError](err); is {
		return ctrl.Result{RequeueAfter: doubt.Wait + time.Second}, nil
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
	if _, is := errors.AsType[*doubtError](err); is {
		reason = reasonDoubtful
	}
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
	if m.DeletionTimestamp != nil && !mayHaveServer(m) {
		return ctrl.Result{}, nil
	}
	p, err := r.provider(m)
	if err != nil {
		return ctrl.Result{}, err
	}
	if m.DeletionTimestamp == nil {
		if err := r.prepare(ctx, p, m); err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := r.adopt(ctx, p, m); err != nil {
		return ctrl.Result{}, err
	}
	if m.DeletionTimestamp != nil {
		m.Status.Phase = v1alpha1.PhaseDeleting
		return r.delete(ctx, p, m)
	}
	found, v, err := r.find(ctx, p, m)
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case v.Verdict != gone.Exists && m.Spec.ProviderID != "":
		return r.missing(ctx, m, v)
	case v.Verdict == gone.Doubtful:
		return ctrl.Result{}, &doubtError{"order a server", v}
	case v.Verdict == gone.Gone:
		if found, err = r.create(ctx, p, m); err != nil {
			return ctrl.Result{}, err
		}
	case found == nil: // a list shows it, and the answer to its ID does not
		return ctrl.Result{RequeueAfter: r.Poll}, nil
	}
	return r.observe(ctx, p, m, found)
}

// mayHaveServer reports whether a server may have been ordered for the Machine, or for the one that it is a copy of.
func mayHaveServer(m *v1alpha1.Machine) bool {
	return controllerutil.ContainsFinalizer(m, finalizer) || m.Annotations[annotationFormerUID] != ""
}

// prepare writes the provider's defaults, and the finalizer of a Machine that comes with a server.
func (r *machines) prepare(ctx context.Context, p machine.Provider, m *v1alpha1.Machine) error {
	before := m.DeepCopy()
	spec, err := p.AddDefaults(ctx, *m.Spec.DeepCopy())
	if err != nil {
		return err
	}
	m.Spec = spec
	if m.Spec.ProviderID != "" || m.Annotations[annotationFormerUID] != "" {
		controllerutil.AddFinalizer(m, finalizer)
	}
	return r.patch(ctx, m, before)
}

// adopt makes the server of a Machine that was restored from a backup be found by the new UID.
func (r *machines) adopt(ctx context.Context, p machine.Provider, m *v1alpha1.Machine) error {
	former := m.Annotations[annotationFormerUID]
	if former == "" {
		return nil
	}
	old := m.DeepCopy()
	old.UID = types.UID(former)
	err := p.MigrateUID(ctx, old, m.UID)
	if errors.Is(err, machine.ErrInstanceNotFound) {
		_, v, failed := r.find(ctx, p, old)
		if err = failed; failed == nil && v.Verdict != gone.Gone {
			err = &doubtError{"find the server of the UID " + former, v}
		}
	}
	switch {
	case m.DeletionTimestamp != nil && errors.Is(err, machine.ErrInstanceNotOwned):
		return nil // the deletion leaves it alone
	case err != nil || m.DeletionTimestamp != nil: // then the annotation goes with the finalizer
		return err
	}
	before := m.DeepCopy()
	delete(m.Annotations, annotationFormerUID)
	return r.patch(ctx, m, before)
}

// patch writes the metadata and the spec of a Machine if they differ from before. It keeps the status in memory.
func (r *machines) patch(ctx context.Context, m, before *v1alpha1.Machine) error {
	status := *m.Status.DeepCopy()
	before.Status = status
	err := r.write(ctx, m, before, "write the Machine")
	m.Status = status
	return err
}

// create makes the server.
func (r *machines) create(ctx context.Context, p machine.Provider, m *v1alpha1.Machine) (machine.Instance, error) {
	m.Status.Phase = v1alpha1.PhasePending
	warnings, err := p.Validate(ctx, m.Spec)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		r.events.Eventf(m, nil, corev1.EventTypeWarning, "Deprecated", "Create", "%s", w)
	}
	data, err := machine.UserData(ctx, r.Resolver, p, m)
	if err != nil {
		return nil, err
	}
	if err := r.keep(ctx, p, m, ""); err != nil {
		return nil, err
	}
	made, err := p.Create(ctx, m, &machine.Data{Client: r.Client}, data)
	if err != nil {
		return nil, err
	}
	r.events.Eventf(m, nil, corev1.EventTypeNormal, "Created", "Create", "Created server %s (%s)", made.ID(), made.Name())
	return made, nil
}

// keep gives a Machine that has a server, or is about to have one without a provider ID yet, what it must have until the server is gone.
func (r *machines) keep(ctx context.Context, p machine.Provider, m *v1alpha1.Machine, providerID string) error {
	before := m.DeepCopy()
	m.Spec.ProviderID = providerID
	account, err := p.Account(ctx, m.Spec)
	if err != nil {
		return err
	}
	controllerutil.AddFinalizer(m, finalizer)
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, annotationAccount, account)
	return r.patch(ctx, m, before)
}

// missing is called when the cloud does not show a server which the Machine had.
func (r *machines) missing(ctx context.Context, m *v1alpha1.Machine, v gone.Finding) (ctrl.Result, error) {
	node, err := r.node(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.showNode(m, node)
	if v.Verdict == gone.Doubtful {
		r.setCondition(m, v1alpha1.ConditionInstanceReady, metav1.ConditionUnknown, reasonDoubtful, v.Evidence)
		return ctrl.Result{}, &doubtError{"prove that server " + m.Spec.ProviderID + " is gone", v}
	}
	r.setCondition(m, v1alpha1.ConditionInstanceReady, metav1.ConditionFalse, reasonGone, v.Evidence)
	if m.Status.FailureReason != reasonGone {
		r.events.Eventf(m, nil, corev1.EventTypeWarning, reasonGone, "Reconcile", "Server %s is gone: %s", m.Spec.ProviderID, v.Evidence)
	}
	m.Status.Phase, m.Status.FailureReason = v1alpha1.PhaseFailed, reasonGone
	m.Status.FailureMessage = fmt.Sprintf("server %s is gone: a MachineSet replaces its Machine; delete any other one", m.Spec.ProviderID)
	return ctrl.Result{}, nil
}

// observe writes what the server and its Node are.
func (r *machines) observe(ctx context.Context, p machine.Provider, m *v1alpha1.Machine, found machine.Instance) (ctrl.Result, error) {
	if err := r.keep(ctx, p, m, found.ProviderID()); err != nil {
		return ctrl.Result{}, err
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
	if m.Status.NodeRef == nil && found.Status() == machine.StatusStopped {
		if err := r.startOnce(ctx, p, m); err != nil {
			return ctrl.Result{}, err
		}
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
	case node == nil || !nodeinfo.IsReady(node):
		return ctrl.Result{RequeueAfter: 6 * r.Poll}, nil
	}
	return ctrl.Result{RequeueAfter: r.Interval}, nil
}

// startOnce starts a server that is off and has never had a Node. It may have failed to start (mysticaltech/terraform-hcloud-kube-hetzner
// issue 49). If it goes off again (syself/cluster-api-provider-hetzner issue 143), a MachineSet replaces its Machine.
func (r *machines) startOnce(ctx context.Context, p machine.Provider, m *v1alpha1.Machine) error {
	starter, can := p.(machine.Starter)
	off := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionInstanceReady)
	if !can || m.Annotations[annotationStarted] != "" || r.clock.Since(off.LastTransitionTime.Time) < startDelay {
		return nil
	}
	before := m.DeepCopy()
	metav1.SetMetaDataAnnotation(&m.ObjectMeta, annotationStarted, r.clock.Now().UTC().Format(time.RFC3339))
	if err := r.patch(ctx, m, before); err != nil {
		return err
	}
	r.events.Eventf(m, nil, corev1.EventTypeWarning, "Starting", "Reconcile",
		"Server %s is off and has not joined the cluster: starting it", m.Spec.ProviderID)
	return starter.Start(ctx, m)
}

// delete drains the Node, removes the server, and lets the Machine go.
func (r *machines) delete(ctx context.Context, p machine.Provider, m *v1alpha1.Machine) (ctrl.Result, error) {
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
	end := "removed it"
	removed, err := p.Cleanup(ctx, m, &machine.Data{Client: r.Client})
	switch {
	case errors.Is(err, machine.ErrInstanceNotOwned):
		end = "left it alone: " + err.Error()
	case errors.Is(err, machine.ErrInstanceNotFound):
		_, v, err := r.find(ctx, p, m)
		switch {
		case err != nil:
			return ctrl.Result{}, err
		case v.Verdict == gone.Doubtful:
			return ctrl.Result{}, &doubtError{"let the Machine go, whose server is not proven to be gone", v}
		case v.Verdict == gone.Exists:
			return ctrl.Result{RequeueAfter: r.Poll}, nil
		}
		end = v.Evidence
	case err != nil:
		if errors.Is(err, machine.ErrRemovalUnknown) {
			r.absent.asked.Store(m.UID, true)
		}
		return ctrl.Result{}, err
	case !removed:
		return ctrl.Result{RequeueAfter: r.Poll}, nil
	}
	r.absent.asked.Store(m.UID, true) // should the Machine not be written now, its server is not looked for
	if node != nil {
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, node, client.Preconditions{UID: &node.UID})); err != nil {
			return ctrl.Result{}, fmt.Errorf("cannot delete Node %s: %w", node.Name, err)
		}
	}
	r.events.Eventf(m, nil, corev1.EventTypeNormal, "Deleted", "Delete", "Deleted server %s: %s", m.Spec.ProviderID, end)
	before := m.DeepCopy()
	delete(m.Annotations, annotationFormerUID)
	controllerutil.RemoveFinalizer(m, finalizer)
	if err := client.IgnoreNotFound(r.patch(ctx, m, before)); err != nil {
		return ctrl.Result{}, err
	}
	r.absent.since.Delete(m.UID)
	r.absent.asked.Delete(m.UID)
	return ctrl.Result{}, nil
}

func (r *machines) setCondition(m *v1alpha1.Machine, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: m.Generation, LastTransitionTime: metav1.NewTime(r.clock.Now())})
}
