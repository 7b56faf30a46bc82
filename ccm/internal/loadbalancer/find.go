package loadbalancer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// find returns the Service's load balancer, or nil. If several have its label it returns the one that is
// certainly in use, or else an error.
//
// Only an answer about this label proves that none or more than one has it: the shared list may be some seconds old, and an
// entry that moves to an earlier page while the list is read is missing in it. For a Service that shows no address, the shared
// list would hardly help, and a load balancer of the production CCM is found by its name (adopt).
func (l *Controller) find(ctx context.Context, svc *corev1.Service) (*hcloud.LoadBalancer, error) {
	sameToken := l.evidence.SameToken()
	uid, known := string(svc.UID), len(svc.Status.LoadBalancer.Ingress) > 0
	var all []*hcloud.LoadBalancer
	var err error
	if known {
		if err = l.doubt(svc, l.evidence.Doubt(ctx)); err == nil {
			all, err = l.store.Find(ctx, uid)
		}
	}
	if err == nil && len(l.own.OwnedBy(all, uid)) != 1 {
		if err = l.doubt(svc, l.evidence.MayAsk(ctx, known)); err == nil {
			all, err = l.store.LookUp(ctx, svc)
		}
	}
	lbs := l.own.OwnedBy(all, uid)
	switch {
	case err != nil:
		return nil, err
	case len(lbs) == 0:
		if known {
			if lb, err := l.findElsewhere(ctx, svc, all); lb != nil || err != nil {
				return lb, err
			}
		} else if plan.HidesAddresses(svc, l.defaults) { // its status does not tell
			if err := l.ofAnotherCluster(svc, all); err != nil {
				return nil, err
			}
		}
		return nil, cmp.Or(l.doubt(svc, l.evidence.MayCreate(ctx, svc)), sameToken())
	case len(lbs) == 1:
		ended, err := l.slow.Check(ctx, lbs[0].ID)
		if ended {
			return l.get(ctx, lbs[0].ID) // it was read before the action ended
		}
		return lbs[0], err
	}
	err = l.several(svc, lbs)
	if lb := plan.InUse(lbs, svc); lb != nil {
		return lb, nil
	}
	return nil, err
}

// doubt reports err if it is a doubt, and returns it.
func (l *Controller) doubt(svc *corev1.Service, err error) error {
	if d, ok := errors.AsType[*apicall.DoubtError](err); ok {
		l.events.Warning(svc, event.Doubted, "%s", d)
	}
	return err
}

// several reports that more than one load balancer has the Service's label, and returns an error that
// says so. One of them serves the Service, and a person may need the others.
func (l *Controller) several(svc *corev1.Service, lbs []*hcloud.LoadBalancer) error {
	var names []string
	for _, lb := range lbs {
		names = append(names, fmt.Sprintf("%d (%s)", lb.ID, lb.Name))
	}
	slices.Sort(names)
	return l.refuse(svc, event.Several, "the load balancers %s all have the label %s: none of them is deleted, and only one whose address "+
		"the Service shows is changed; remove the label from those that do not belong to the Service",
		strings.Join(names, ", "), plan.OwnerSelector(string(svc.UID)))
}

// refuse returns an error that only a person can end, and reports it as a warning.
func (l *Controller) refuse(svc *corev1.Service, reason, format string, args ...any) error {
	l.events.Warning(svc, reason, format, args...)
	return fmt.Errorf(format, args...)
}

func (l *Controller) get(ctx context.Context, id int64) (*hcloud.LoadBalancer, error) {
	lb, _, err := l.client.LoadBalancer.GetByID(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("getting load balancer %d: %w", id, err)
	}
	if lb == nil {
		return nil, fmt.Errorf("getting load balancer %d: it does not exist any more", id)
	}
	return lb, nil
}
