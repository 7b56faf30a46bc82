// Package controller makes MachineDeployments, MachineSets and Machines true.
//
// A MachineDeployment has a MachineSet for each template, and moves Machines from old ones to the new one. A MachineSet
// makes and deletes Machines. A Machine has a server, made by a provider of package machine, and the Node that the
// server becomes.
//
// The process may end after any request: every step can be made again. Before it makes objects, a controller reads those
// that exist from the API server, not from a cache, so that it never makes one twice. Before a server is made, the Machine
// has a finalizer, so that no server outlives its Machine.
//
// That a server is gone must be proven: gone.go asks, package evidence judges, and nothing is deleted, ordered or replaced on a doubt.
package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// Options are the settings of the controllers.
type Options struct {
	// Resolver reads configuration values.
	Resolver *machine.Resolver
	// Workers is the number of Machines that are worked on at the same time. If 0, 10.
	Workers int
	// Interval is the time between two looks at a quiet server. If 0, 15 minutes: each look is one request.
	Interval time.Duration
	// Poll is the time between two looks at something that is on its way. If 0, 5 seconds.
	Poll time.Duration
}

// common is what the controllers share.
type common struct {
	Options
	client.Client               // reads from a cache, except for what is unstructured
	api           client.Reader // reads from the API server
	events        events.EventRecorder
	clock         clock.PassiveClock

	absent absences

	mu        sync.Mutex
	providers map[string]machine.Provider
}

func newCommon(c client.Client, api client.Reader, recorder events.EventRecorder, clk clock.PassiveClock, o Options) *common {
	o.Workers, o.Interval, o.Poll = cmp.Or(o.Workers, 10), cmp.Or(o.Interval, 15*time.Minute), cmp.Or(o.Poll, 5*time.Second)
	return &common{Options: o, Client: c, api: api, events: recorder, clock: clk, providers: map[string]machine.Provider{}}
}

// write writes what differs from before, if anything does. With the version: what was decided from a state of the object must not be
// written to another one, and none of what others write, such as taints, is lost. what completes the sentence "cannot …".
func (c *common) write(ctx context.Context, o, before client.Object, what string) error {
	if equality.Semantic.DeepEqual(before, o) {
		return nil
	}
	if err := c.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("cannot %s: %w", what, err)
	}
	return nil
}

// provider returns the provider of a Machine.
func (c *common) provider(m *v1alpha1.Machine) (machine.Provider, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := m.Spec.ProviderSpec.CloudProvider
	if p := c.providers[name]; p != nil {
		return p, nil
	}
	p, err := machine.ForProvider(name, c.Resolver)
	if err != nil {
		return nil, &machine.TerminalError{Reason: machine.ReasonInvalidConfiguration, Message: err.Error(), Err: err}
	}
	c.providers[name] = p
	return p, nil
}

// retries returns the backoff of a failed reconcile: it doubles, up to five minutes. That of
// controller-runtime begins with 5 ms, so that each outage of the API begins with a burst of requests, and grows to 17 minutes.
func retries() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](200*time.Millisecond, 5*time.Minute)
}

// Add adds the controllers to a manager.
func Add(mgr ctrl.Manager, o Options) error {
	c := newCommon(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder("machine-controller"), clock.RealClock{}, o)
	index := mgr.GetFieldIndexer()
	reconciles := func(o client.Object, options ...builder.ForOption) *builder.Builder {
		return ctrl.NewControllerManagedBy(mgr).For(o, options...).
			WithOptions(controller.Options{MaxConcurrentReconciles: c.Workers, RateLimiter: retries()})
	}
	return errors.Join(
		index.IndexField(context.Background(), &corev1.Node{}, providerIDField, nodeProviderID),
		index.IndexField(context.Background(), &v1alpha1.Machine{}, providerIDField, machineProviderID),
		reconciles(&v1alpha1.Machine{}, builder.WithPredicates(machineChanges())).
			Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.machinesOfNode), builder.WithPredicates(nodeChanges())).
			Complete(&machines{c}),
		reconciles(&v1alpha1.MachineSet{}).Owns(&v1alpha1.Machine{}).Complete(&machineSets{c}),
		reconciles(&v1alpha1.MachineDeployment{}).Owns(&v1alpha1.MachineSet{}).Complete(&machineDeployments{c}),
		mgr.Add(&metricsUpdater{common: c}))
}

const providerIDField = "spec.providerID"

func nodeProviderID(o client.Object) []string { return nonEmpty(o.(*corev1.Node).Spec.ProviderID) }

func machineProviderID(o client.Object) []string {
	return nonEmpty(o.(*v1alpha1.Machine).Spec.ProviderID)
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// machinesOfNode returns the Machine of a Node.
func (c *common) machinesOfNode(ctx context.Context, o client.Object) (all []reconcile.Request) {
	id := o.(*corev1.Node).Spec.ProviderID
	if id == "" {
		return nil
	}
	var list v1alpha1.MachineList
	if err := c.List(ctx, &list, client.MatchingFields{providerIDField: id}); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Cannot list Machines of a Node", "node", o.GetName())
	}
	for _, m := range list.Items {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&m)})
	}
	return all
}

// machineChanges ignores changes of a Machine's status. Only its own controller writes that: otherwise a failed try would
// cause the next one at once.
func machineChanges() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})
}

// nodeChanges lets pass what concerns a Machine, not the Node's heartbeats.
func nodeChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return before.Spec.ProviderID != after.Spec.ProviderID || nodeinfo.IsReady(before) != nodeinfo.IsReady(after) ||
			!equality.Semantic.DeepEqual(before.Labels, after.Labels) ||
			!equality.Semantic.DeepEqual(before.Annotations, after.Annotations) || len(before.Spec.Taints) != len(after.Spec.Taints)
	}}
}
