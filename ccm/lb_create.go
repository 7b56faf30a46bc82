package ccm

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// obtain returns a load balancer for a Service that has none. It adopts a load balancer with the
// planned name and no owner, or creates one.
func (l *loadBalancers) obtain(ctx context.Context, svc *corev1.Service, plan *lbPlan) (lb *hcloud.LoadBalancer, created bool, err error) {
	// A name from an annotation may name an existing load balancer. If the default name is taken, the
	// create request fails with a uniqueness error.
	if plan.Name != "" || plan.Adopt != "" {
		if lb, err = l.adopt(ctx, svc, plan); lb != nil || err != nil {
			return lb, false, err
		}
	}
	if plan.Location == "" && plan.NetworkZone == "" {
		return nil, false, invalidSettings(annotationError{Source: annotationPrefix + "location", Reason: "is missing: set it to the name of a location, or set " +
			annotationPrefix + "network-zone; HCLOUD_LOAD_BALANCERS_LOCATION or HCLOUD_LOAD_BALANCERS_NETWORK_ZONE is the default for all Services"})
	}
	l.events.normal(svc, EventCreating, "Creating load balancer %q", plan.CreateName)
	defer l.store.writing(string(svc.UID))()
	result, _, err := l.client.LoadBalancer.Create(ctx, createOpts(plan))
	if hcloud.IsError(err, hcloud.ErrorCodeUniquenessError) {
		if lb, adoptErr := l.adopt(ctx, svc, plan); lb != nil || adoptErr != nil {
			return lb, false, adoptErr
		}
	}
	if hcloud.IsError(err, hcloud.ErrorCodeInvalidInput, hcloud.ErrorCodeNotFound) {
		names := catalogueNames{Type: plan.Type, Location: plan.Location, NetworkZone: plan.NetworkZone}
		if wrong := l.checkNames(ctx, svc, names); wrong != nil {
			return nil, false, wrong
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("creating load balancer %q: %w", plan.CreateName, err)
	}
	klog.InfoS("Created load balancer", "service", klog.KObj(svc), "loadBalancer", result.LoadBalancer.ID, "name", plan.CreateName)
	if lb, err = l.awaitCreated(ctx, plan, result.LoadBalancer.ID, result.Action); err != nil {
		return nil, false, fmt.Errorf("creating load balancer %d (%s): %w", result.LoadBalancer.ID, plan.CreateName, err)
	}
	l.events.normal(svc, EventCreated, "Created load balancer %d (%s)", lb.ID, lb.Name)
	return lb, true, nil
}

// awaitCreated returns the new load balancer when it has been created. The answer to the creation lacks its addresses, so
// one that is waited for alone is looked at instead of its action: the look that sees the end is the last request.
func (l *loadBalancers) awaitCreated(ctx context.Context, plan *lbPlan, id int64, action *hcloud.Action) (*hcloud.LoadBalancer, error) {
	var made atomic.Pointer[hcloud.LoadBalancer]
	err := l.slow.waitLooking(ctx, id, action, func(ctx context.Context) (progress, error) {
		lb, err := l.get(ctx, id)
		if err != nil {
			return progressUnknown, err
		}
		p := progressOf(plan, lb)
		if p == progressEnded {
			made.Store(lb)
		}
		return p, nil
	})
	if lb := made.Load(); err != nil || lb != nil {
		return lb, err
	}
	return l.get(ctx, id)
}

// progressOf returns what a new load balancer shows of its creation. It has its addresses when the creation has
// succeeded (https://github.com/hetznercloud/hcloud-go/issues/153). What must be changed after that needs the action's end.
func progressOf(plan *lbPlan, lb *hcloud.LoadBalancer) progress {
	joins := createOpts(plan).Network != nil
	switch {
	case !plan.Public && !joins:
		return progressUnknown
	case plan.Public && lb.PublicNet.IPv4.IP == nil, joins && len(lb.PrivateNet) == 0:
		return progressRunning
	case len(diffLoadBalancer(plan, lb)) > 0:
		return progressUnknown
	}
	return progressEnded
}
