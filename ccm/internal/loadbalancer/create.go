package loadbalancer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// obtain creates or adopts the load balancer, and returns its plan.
func (s *serviceSync) obtain(ctx context.Context, planned *plan.LoadBalancer, notes []plan.Note) (*hcloud.LoadBalancer, *plan.LoadBalancer,
	[]plan.Note, error) {
	var lb *hcloud.LoadBalancer
	var created, confirmed bool
	var err error
	bare := 0 // 1: without targets, 2: without ports, too
	for again := true; again; {
		attempt := *planned
		if again = false; bare > 0 {
			attempt.Targets = nil
		}
		if bare > 1 {
			attempt.Services = nil
		}
		lb, created, err = s.createOrAdopt(ctx, s.svc, &attempt)
		switch {
		case hcloud.IsError(err, hcloud.ErrorCodeResourceLimitExceeded) && s.in.Limits == nil:
			// Find out whether the type has too little room. Otherwise the project's limit is reached.
			s.in.Limits = s.limitsOf(ctx, cmp.Or(planned.Type, plan.DefaultLoadBalancerType))
			planned, notes = plan.Compute(s.in)
			again = len(planned.Excess) > 0
		case bare < 2 && isRefusal(ctx, err) &&
			!hcloud.IsError(err, hcloud.ErrorCodeUniquenessError, hcloud.ErrorCodeResourceLimitExceeded):
			// What was known of the servers may be old. Else each target, and then each port, is added by itself.
			before := planned
			if !confirmed && len(planned.Targets) > 0 {
				if err := s.confirmTargets(ctx); err != nil {
					return nil, nil, nil, err
				}
				planned, notes = plan.Compute(s.in)
			}
			if slices.Equal(planned.Targets, before.Targets) && maps.Equal(planned.IPv6, before.IPv6) {
				if bare++; len(planned.Targets) == 0 {
					bare = 2
				}
			}
			confirmed, again = true, true
		}
	}
	s.result.Created = created
	if err == nil && (!created || bare > 0) { // an adopted one has settings of its own, and what was known of servers may be old
		s.readSettings(lb)
		planned, notes, err = s.prepare(ctx, lb)
	}
	return lb, planned, notes, err
}

// createOrAdopt returns a load balancer for a Service that has none. It adopts one with the planned name and no owner, or creates one.
func (l *Controller) createOrAdopt(ctx context.Context, svc *corev1.Service, planned *plan.LoadBalancer) (lb *hcloud.LoadBalancer,
	created bool, err error) {
	// A name from an annotation may name an existing load balancer. If the default name is taken, the
	// create request fails with a uniqueness error.
	if planned.Name != "" || planned.Adopt != "" {
		if lb, err = l.adopt(ctx, svc, planned); lb != nil || err != nil {
			return lb, false, err
		}
	}
	if planned.Location == "" && planned.NetworkZone == "" {
		return nil, false, plan.Mistake("location", "", "is missing: set it to the name of a location, or set %snetwork-zone; "+
			"HCLOUD_LOAD_BALANCERS_LOCATION or HCLOUD_LOAD_BALANCERS_NETWORK_ZONE is the default for all Services", plan.AnnotationPrefix)
	}
	l.events.Normal(svc, event.Creating, "Creating load balancer %q", planned.CreateName)
	defer l.store.Written(string(svc.UID))
	result, _, err := l.client.LoadBalancer.Create(ctx, plan.CreateRequest(planned))
	if hcloud.IsError(err, hcloud.ErrorCodeUniquenessError) {
		if lb, adoptErr := l.adopt(ctx, svc, planned); lb != nil || adoptErr != nil {
			return lb, false, adoptErr
		}
	}
	if hcloud.IsError(err, hcloud.ErrorCodeInvalidInput, hcloud.ErrorCodeNotFound) {
		if wrong := l.checkNames(ctx, svc, planned.Type, planned.Location, planned.NetworkZone); wrong != nil {
			return nil, false, wrong
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("creating load balancer %q: %w", planned.CreateName, err)
	}
	l.evidence.SawLoadBalancer(string(svc.UID))
	klog.InfoS("Created load balancer", "service", klog.KObj(svc), "loadBalancer", result.LoadBalancer.ID, "name", planned.CreateName)
	id := result.LoadBalancer.ID
	if err := l.slow.Wait(ctx, id, result.Action); err != nil {
		return nil, false, fmt.Errorf("creating load balancer %d (%s): %w", id, planned.CreateName, err)
	}
	if lb, err = l.get(ctx, id); err != nil { // the answer to the creation lacks its addresses
		return nil, false, err
	}
	l.events.Normal(svc, event.Created, "Created load balancer %d (%s)", lb.ID, lb.Name)
	return lb, true, nil
}
