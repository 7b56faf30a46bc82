package loadbalancer

import (
	"context"
	"fmt"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// candidate returns the existing load balancer that the Service asks for: by the annotation adopt, or by its
// name. It returns nil if none has that name.
func (l *Controller) candidate(ctx context.Context, planned *plan.LoadBalancer) (*hcloud.LoadBalancer, error) {
	get, wanted := l.client.LoadBalancer.GetByName, planned.CreateName
	if planned.Adopt != "" {
		get, wanted = l.client.LoadBalancer.Get, planned.Adopt
	}
	lb, _, err := get(ctx, wanted)
	if err != nil {
		return nil, fmt.Errorf("finding the load balancer %q: %w", wanted, err)
	}
	if lb == nil && planned.Adopt != "" {
		return nil, plan.Mistake("adopt", wanted, "does not exist: must be the ID or name of a load balancer in the project")
	}
	return lb, nil
}

// adopt sets the Service's ownership label on the load balancer that the plan names. It returns nil
// if no load balancer has that name, and an error if the Service must not have it.
func (l *Controller) adopt(ctx context.Context, svc *corev1.Service, planned *plan.LoadBalancer) (*hcloud.LoadBalancer, error) {
	name := planned.CreateName
	if planned.Adopt != "" { // may be an ID: the lock is by name
		lb, err := l.candidate(ctx, planned)
		if err != nil {
			return nil, err
		}
		name = lb.Name
	}
	unlock, err := l.adopting.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	lb, err := l.candidate(ctx, planned)
	if lb == nil || err != nil {
		return nil, err
	}
	if l.own.Owns(lb.Labels, planned.UID) {
		return lb, nil // created by an earlier request whose answer was lost
	}
	if l.own.IsHere(lb.Labels) && lb.Labels[plan.LabelServiceUID] != "" && plan.RecordOf(lb).Shared && planned.Shared {
		return l.join(ctx, svc, planned, lb)
	}
	if owner := l.own.OtherOwner(lb.Labels, planned.UID); owner != "" {
		return nil, l.refuse(svc, event.NotAdoptable, "load balancer %d (%s) belongs to %s: choose another name", lb.ID, lb.Name, owner)
	}
	named := planned.Name != "" || planned.Adopt != ""
	if !named && l.own.Inherits(lb.Labels, planned.UID) {
		return l.inherit(ctx, svc, lb)
	}
	if !named || plan.IsSettled(lb, planned.UID) {
		return nil, l.refuse(svc, event.NotOwned, "load balancer %d (%s) has the name of this Service's load balancer, but not the "+
			"label %s: nothing was changed; set the label to give it to the Service, or rename it to get a new one",
			lb.ID, lb.Name, plan.OwnerSelector(planned.UID))
	}
	updated, err := l.changeLabels(ctx, planned.UID, lb.ID, func(now *hcloud.LoadBalancer) (*plan.Record, error) {
		if owner := l.own.OtherOwner(now.Labels, planned.UID); owner != "" {
			return nil, fmt.Errorf("it belongs to %s since a moment ago", owner)
		}
		r := plan.RecordOf(now)
		if !l.own.Owns(now.Labels, planned.UID) {
			r.Adopt(planned, plan.ServerTargets(now), l.clusterServers(planned))
		}
		return r, nil
	})
	if err != nil {
		return nil, fmt.Errorf("adopting load balancer %d (%s): %w", lb.ID, lb.Name, err)
	}
	l.events.Normal(svc, event.Adopted, "Adopted load balancer %d (%s)", lb.ID, lb.Name)
	return updated, nil
}

// named returns the plan of an adoption, if the Service names a load balancer.
func (l *Controller) named(svc *corev1.Service) *plan.LoadBalancer {
	s, _, _ := plan.ParseAnnotations(svc.Annotations, l.defaults)
	if s.Adopt == "" && s.Name == "" {
		return nil
	}
	uid := string(svc.UID)
	return &plan.LoadBalancer{UID: uid, Marks: l.own.Marks(uid), Adopt: s.Adopt, Name: s.Name, CreateName: s.Name, Shared: s.Shared,
		Public: !s.DisablePublicNetwork}
}

// adopts reports whether the annotation adopt with this value names the load balancer.
func adopts(value string, lb *hcloud.LoadBalancer) bool {
	return value == lb.Name || value == strconv.FormatInt(lb.ID, 10)
}

// settle records that the load balancer serves the Service, after an adoption.
func (l *Controller) settle(ctx context.Context, id int64, uid string) error {
	_, err := l.changeLabels(ctx, uid, id, func(lb *hcloud.LoadBalancer) (*plan.Record, error) {
		if owner := lb.Labels[plan.LabelServiceUID]; owner != uid {
			return nil, fmt.Errorf("the label %s was changed during the sync: it is %q, want %q", plan.LabelServiceUID, owner, uid)
		}
		r := plan.RecordOf(lb)
		r.Labels[plan.LabelLastOwner] = uid
		return r, nil
	})
	if err != nil {
		return fmt.Errorf("setting the label %s of load balancer %d: %w", plan.LabelLastOwner, id, err)
	}
	return nil
}

// clusterServers returns the servers that belong to the cluster: those of all Nodes, and the plan's targets.
func (l *Controller) clusterServers(plan *plan.LoadBalancer) map[int64]bool {
	ours := l.evidence.KnownServers()
	for _, t := range plan.Targets {
		ours[t.ServerID] = true
	}
	return ours
}
