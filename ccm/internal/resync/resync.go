// Package resync repairs load balancers and routes that were changed outside of the CCM.
package resync

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/loadbalancer"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/node"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/route"
)

// routeRetryMin and routeRetryMax are the shortest and longest delay before a failed route operation
// is repeated.
const (
	routeRetryMin = 10 * time.Second
	routeRetryMax = 2 * time.Minute
)

// resyncWorkers is the number of load balancers that are compared at the same time. One that is locked or
// slow must not delay the others.
const resyncWorkers = 10

// routeWorkers is the number of Nodes that get their routes at the same time. The results of so many changes can be
// asked for together (see route.Routes).
const routeWorkers = 2 * route.MaxUnconfirmed

// targetDelay is the delay before Nodes that have got their routes become targets: one comparison serves
// all Nodes that were added together.
const targetDelay = time.Second

// Comparison periodically compares load balancers and routes with their desired state and repairs them.
// The controllers of k8s.io/cloud-provider act only on events of Kubernetes. They miss a load
// balancer or route that was changed or deleted outside of the CCM, and a node that matches a node
// selector after a change of its labels. With watch-based reconciliation they also miss a route that
// could not be created: in v0.37.1 the route controller's reconcile logs the error of CreateRoute and
// returns none, so that its queue does not try again before the informer's resync.
//
// One comparison costs one call for all load balancers and one for the routes; no call if there are
// none.
type Comparison struct {
	clock clock.WithTicker
	// Interval is the delay between two comparisons, MaxInterval the one while nothing happens (see pace).
	Interval, MaxInterval time.Duration
	// unrest counts requests that change something, comparisons that have failed, and changes of Nodes' labels.
	unrest   *atomic.Int64
	kube     kubernetes.Interface
	lbs      *loadbalancer.Controller // nil: disabled
	routes   *route.Routes            // nil: disabled
	nodes    corelisters.NodeLister
	services corelisters.ServiceLister
	events   *event.Recorder
	// routesOn reports whether the route controller runs. If not, resync leaves routes alone.
	routesOn func() bool
	// retryRoutes receives a signal when a route operation has failed.
	retryRoutes chan struct{}
	// toRoute holds the names of Nodes that may need a route now.
	toRoute workqueue.TypedInterface[string]
	// routed receives a signal when a Node has got its route, so that it can be a target.
	routed chan struct{}
}

// New returns a comparison without an interval. For the parameters see Comparison.
func New(clk clock.WithTicker, unrest *atomic.Int64, kube kubernetes.Interface, lbs *loadbalancer.Controller, routes *route.Routes,
	nodes corelisters.NodeLister, services corelisters.ServiceLister, events *event.Recorder, routesOn func() bool,
	retryRoutes chan struct{}) *Comparison {
	return &Comparison{
		clock: clk, unrest: unrest, kube: kube, lbs: lbs, routes: routes, nodes: nodes, services: services, events: events,
		routesOn: routesOn, retryRoutes: retryRoutes, toRoute: workqueue.NewTyped[string](), routed: make(chan struct{}, 1),
	}
}

// Watch makes a Node get its route as soon as it has a pod range, and become a target as soon as it has
// its route. The route controller waits up to ten seconds, and the service controller does not look at
// the condition.
func (r *Comparison) Watch(nodes cache.SharedIndexInformer) {
	_, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if node, ok := obj.(*corev1.Node); ok {
				r.nodeSeen(node)
			}
		},
		UpdateFunc: func(before, after any) {
			was, ok1 := before.(*corev1.Node)
			is, ok2 := after.(*corev1.Node)
			if ok1 && ok2 {
				r.nodeChanged(was, is)
			}
		},
	})
	if err != nil {
		klog.ErrorS(err, "Could not watch nodes; routes follow with the next comparison")
	}
}

func (r *Comparison) nodeSeen(node *corev1.Node) {
	if len(node.Spec.PodCIDRs) > 0 && (nodeinfo.NetworkCondition(node) == nil || nodeinfo.LacksRoute(node)) {
		r.toRoute.Add(node.Name)
	}
}

func (r *Comparison) nodeChanged(was, is *corev1.Node) {
	if nodeinfo.LacksRoute(was) && !nodeinfo.LacksRoute(is) {
		select {
		case r.routed <- struct{}{}:
		default: // a comparison is due already
		}
	}
	if !maps.Equal(was.Labels, is.Labels) {
		r.unrest.Add(1) // a node selector may choose it now
	}
	if !slices.Equal(was.Spec.PodCIDRs, is.Spec.PodCIDRs) || was.Spec.ProviderID != is.Spec.ProviderID {
		r.nodeSeen(is)
	}
}

// routeNodes creates the routes of the Nodes in toRoute until the queue is shut down.
func (r *Comparison) routeNodes(ctx context.Context) {
	for {
		name, down := r.toRoute.Get()
		if down {
			return
		}
		if err := r.routeNode(ctx, name); err != nil {
			klog.ErrorS(err, "Could not create the routes of node; will try again", "node", name)
		}
		r.toRoute.Done(name)
	}
}

func (r *Comparison) routeNode(ctx context.Context, name string) error {
	node, err := r.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || r.routes == nil || !r.routesOn() || nodeinfo.IsForeign(node) {
		return err
	}
	return r.syncNodeRoutes(ctx, node)
}

// Run compares periodically until ctx ends.
func (r *Comparison) Run(ctx context.Context) {
	var tick <-chan time.Time
	var pace pace
	if r.Interval > 0 {
		ticker := r.clock.NewTicker(r.Interval)
		defer ticker.Stop()
		tick = ticker.C()
	}
	backoff := routeRetryMin
	var retry <-chan time.Time
	var running sync.WaitGroup
	defer running.Wait()
	idle := make(chan struct{}, 1)
	for range routeWorkers {
		running.Go(func() { r.routeNodes(ctx) })
	}
	defer r.toRoute.ShutDown()
	var targets, healthy <-chan time.Time
	var waits <-chan struct{}
	if r.lbs != nil {
		waits = r.lbs.Waits
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.routed:
			if targets == nil {
				targets = r.clock.After(targetDelay)
			}
			continue
		case <-waits:
			if healthy == nil {
				healthy = r.clock.After(loadbalancer.LingerPoll)
			}
			continue
		case <-healthy:
			healthy, targets = nil, r.clock.After(targetDelay)
			continue
		case <-targets:
			if targets = nil; !r.startLoadBalancers(apicall.Urgently(ctx, apicall.ControllerComparison, "targets"), idle, &running) {
				targets = r.clock.After(targetDelay)
			}
			continue
		case <-tick:
			if !pace.due(r.unrest.Load(), int(r.MaxInterval/r.Interval)) {
				continue
			}
			r.startLoadBalancers(ctx, idle, &running) // routes do not wait for it
		case <-r.retryRoutes:
			if retry == nil {
				retry = r.clock.After(backoff)
				backoff = min(2*backoff, routeRetryMax)
			}
			continue
		case <-retry:
			retry = nil
		}
		if r.SyncRoutes(ctx) {
			backoff = routeRetryMin
		}
	}
}

// pace says which ticks are for a comparison: each one while something changes or fails, and every second, fourth, eighth
// and so on while nothing does.
type pace struct {
	unrest     int64 // at the last tick
	wait, left int   // ticks from one comparison to the next, and to the next from now
}

// due reports whether a tick is for a comparison. most is the largest number of ticks from one to the next.
func (p *pace) due(unrest int64, most int) bool {
	if unrest != p.unrest {
		*p = pace{unrest: unrest}
	}
	if p.left > 0 {
		p.left--
		return false
	}
	p.wait = max(1, min(2*p.wait, most))
	p.left = p.wait - 1
	return true
}

// startLoadBalancers starts a comparison of the load balancers. It reports false if the last one has not
// ended.
func (r *Comparison) startLoadBalancers(ctx context.Context, idle chan struct{}, running *sync.WaitGroup) bool {
	select {
	case idle <- struct{}{}:
		running.Go(func() { r.SyncLoadBalancers(ctx); <-idle })
		return true
	default:
		return false
	}
}

// SyncLoadBalancers repairs load balancers that differ from their plan. It skips Services that the
// service controller has not handled yet or has released.
func (r *Comparison) SyncLoadBalancers(ctx context.Context) {
	if r.lbs == nil {
		return
	}
	ctx = apicall.Periodically(ctx, apicall.ControllerComparison, "load_balancers")
	var syncs sync.WaitGroup
	free := make(chan struct{}, resyncWorkers)
	all := r.lbs.ManagedServices()
	for _, uid := range slices.Sorted(maps.Keys(all)) {
		svc, err := r.services.Services(all[uid].Namespace).Get(all[uid].Name)
		if err != nil || string(svc.UID) != uid || !plan.WantsLoadBalancer(svc) {
			continue // the service controller handles this change
		}
		free <- struct{}{}
		syncs.Go(func() {
			defer func() { <-free }()
			if err := r.syncLoadBalancer(ctx, svc.DeepCopy()); err != nil {
				r.unrest.Add(1)
				klog.ErrorS(err, "Could not compare load balancer with its desired state; will try again", "service", klog.KObj(svc))
			}
		})
	}
	r.endUnwanted(ctx)
	syncs.Wait()
	if err := r.lbs.ReportOrphans(ctx); err != nil {
		r.unrest.Add(1)
		klog.ErrorS(err, "Could not look for load balancers without a Service; will try again")
	}
}

// endUnwanted ends what is left of Services that want no load balancer of ours. It deletes those of Services that are another controller's
// by their loadBalancerClass: the service controller does so only if its process knew them without the class (v0.37.1: needsCleanup looks
// at the type).
func (r *Comparison) endUnwanted(ctx context.Context) {
	services, _ := r.services.List(labels.Everything()) // it reads from memory and returns no error
	for _, svc := range services {
		if r.lbs.EndCondition(svc); svc.Spec.LoadBalancerClass == nil {
			continue
		}
		if err := r.lbs.EndClassed(ctx, svc); err != nil {
			r.unrest.Add(1)
			klog.ErrorS(err, "Could not delete the load balancer of a Service that has a class now; will try again", "service",
				klog.KObj(svc))
		}
	}
}

func (r *Comparison) syncLoadBalancer(ctx context.Context, svc *corev1.Service) error {
	ctx, cancel := context.WithTimeout(ctx, loadbalancer.SyncTimeout)
	defer cancel()
	unlock, free := r.lbs.Services.TryLock(string(svc.UID))
	if !free {
		return nil // the service controller is at work on it
	}
	defer unlock()
	if _, still := r.lbs.ManagedServices()[string(svc.UID)]; !still {
		return nil // released just now
	}
	nodes := slices.DeleteFunc(nodeinfo.List(r.nodes), func(n *corev1.Node) bool { return !nodeinfo.MayServe(n) })
	result, err := r.lbs.Sync(ctx, svc, nodes, loadbalancer.Options{Create: true, Quiet: true})
	if result.Created || len(result.Ops) > 0 {
		r.events.Normal(svc, event.Repaired, "Repaired the load balancer: it differed from the settings of this Service")
	}
	if result.Waits {
		r.unrest.Add(1)
	}
	if err != nil {
		r.lbs.Publish(svc, result.Status)
		return err
	}
	return loadbalancer.PatchStatus(r.kube, svc, result.Status)
}

// SyncRoutes creates missing routes and deletes the routes of nodes that are gone. It reports whether
// all operations succeeded. The route controller does the same, but only on events.
func (r *Comparison) SyncRoutes(ctx context.Context) bool {
	if r.routes == nil || !r.routesOn() {
		return true
	}
	ctx = apicall.Periodically(ctx, apicall.ControllerComparison, "routes")
	listed, err := r.routes.ListRoutes(ctx, "")
	if err != nil {
		klog.ErrorS(err, "Could not compare routes with their desired state; will try again")
		r.unrest.Add(1)
		r.routes.Failed()
		return false
	}
	// Read the nodes after the routes: the node of a listed route then is in the list of nodes.
	nodes := nodeinfo.List(r.nodes)
	var wanted []string
	for _, node := range nodes {
		wanted = append(wanted, node.Spec.PodCIDRs...)
	}
	stale := slices.DeleteFunc(listed, func(route *cloudprovider.Route) bool {
		return slices.Contains(wanted, route.DestinationCIDR) // it is correct, or is replaced now
	})
	creations, deletions := make([]error, len(nodes)), make([]error, len(stale))
	workqueue.ParallelizeUntil(ctx, routeWorkers, len(nodes), func(i int) { creations[i] = r.syncNodeRoutes(ctx, nodes[i]) })
	workqueue.ParallelizeUntil(ctx, routeWorkers, len(stale), func(i int) { deletions[i] = r.routes.DeleteRoute(ctx, "", stale[i]) })
	if err := errors.Join(append(creations, deletions...)...); err != nil {
		klog.ErrorS(err, "Could not repair routes; will try again")
		r.unrest.Add(1)
		return false
	}
	return true
}

// syncNodeRoutes creates the missing routes of one node. Then it clears the node's
// NetworkUnavailable condition if the route controller set it because it could not create a route.
func (r *Comparison) syncNodeRoutes(ctx context.Context, n *corev1.Node) error {
	name := types.NodeName(n.Name)
	for _, cidr := range n.Spec.PodCIDRs {
		if err := r.routes.CreateRoute(ctx, "", "", &cloudprovider.Route{TargetNode: name, DestinationCIDR: cidr}); err != nil {
			return err
		}
	}
	if r.kube == nil || !nodeinfo.LacksRoute(n) || len(n.Spec.PodCIDRs) == 0 {
		return nil
	}
	return node.SetNetworkCondition(r.kube, r.clock, n, true)
}
