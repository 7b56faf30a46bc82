package loadbalancer

import (
	"context"
	"fmt"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// Moving over from the production CCM and back:
//
//   - It marks a load balancer with the label hcloud-ccm/service-uid. One with the UID of a Service of ours is inherited:
//     it gets our labels in addition and is compared with the Service like any other. Like an adopted
//     one, it is given what it lacks before anything is taken away (plan.GiveFirst).
//   - Its ports that the Service does not have stay: they may be a person's.
//   - The label of the production CCM stays, and load balancers of ours have it too. So it finds them again when
//     an operator goes back.
//   - To ask for that label costs a call, and only a Service that shows a load balancer can have one of the
//     production CCM. A Service that shows none may have one that was made just now: it has the default
//     name, or the one of the annotation, and is found by that (adopt).

// findElsewhere looks for the load balancer that the Service shows but that lacks its label. It may return nil. others have the Service's
// label, but belong to other clusters.
func (l *Controller) findElsewhere(ctx context.Context, svc *corev1.Service, others []*hcloud.LoadBalancer) (*hcloud.LoadBalancer, error) {
	if err := l.ofAnotherCluster(svc, others); err != nil {
		return nil, err
	}
	planned := l.named(svc)
	switch lb, err := l.inherited(ctx, svc); {
	case err != nil:
		return nil, err
	case lb != nil:
		return l.inherit(ctx, svc, lb)
	case planned == nil:
		return nil, nil //nolint:nilnil // documented
	}
	// Its address proves that it is the Service's, and not one of that name in another project.
	if lb, err := l.candidate(ctx, planned); err != nil || lb == nil || !plan.ShowsPublicAddressOf(svc, lb) {
		return nil, nil //nolint:nilerr,nilnil // the caller goes on, and reports it or the doubt about it
	}
	return l.adopt(ctx, svc, planned)
}

// ofAnotherCluster returns an error if the Service may show one of others: they have its label and belong to other clusters. If that is a
// mistake in the setting, the Service would change its address, or leave its load balancer behind.
func (l *Controller) ofAnotherCluster(svc *corev1.Service, others []*hcloud.LoadBalancer) error {
	for _, lb := range others {
		if !plan.ShowsAddressOf(svc, lb) && plan.ShowsAnyAddress(svc) {
			continue
		}
		return l.refuse(svc, event.NotAdoptable, "load balancer %d (%s), which this Service shows, belongs to %s, and "+
			"HCLOUD_CLUSTER_ID is %q: nothing was changed; correct HCLOUD_CLUSTER_ID, or, if this cluster is a copy of that one, delete "+
			"and create the Service to get a load balancer of its own, and remove the finalizer %s of the old one", lb.ID, lb.Name,
			l.own.OtherOwner(lb.Labels, string(svc.UID)), l.own.ClusterID, servicehelpers.LoadBalancerCleanupFinalizer)
	}
	return nil
}

// inherited returns the load balancer that the production CCM made for the Service, or nil. If several may be that
// one, it returns an error.
func (l *Controller) inherited(ctx context.Context, svc *corev1.Service) (*hcloud.LoadBalancer, error) {
	uid := string(svc.UID)
	selector := plan.LabelServiceUIDHcloud + "=" + uid
	lbs, err := l.store.FindBy(ctx, selector)
	lbs = slices.DeleteFunc(lbs, func(lb *hcloud.LoadBalancer) bool { return !l.own.Inherits(lb.Labels, uid) })
	switch {
	case err != nil:
		return nil, err
	case len(lbs) == 0:
		return nil, nil
	case len(lbs) == 1 && (!plan.ShowsAnyAddress(svc) || plan.ShowsAddressOf(svc, lbs[0])):
		return lbs[0], nil
	case len(lbs) == 1:
		return nil, l.refuse(svc, event.NotOwned, "load balancer %d (%s) has the label %s, but not the address that this Service "+
			"shows: nothing was changed; to give it to the Service set the label %s, else remove the label",
			lbs[0].ID, lbs[0].Name, selector, plan.OwnerSelector(uid))
	}
	if lb := plan.InUse(lbs, svc); lb != nil {
		return lb, nil
	}
	return nil, l.several(svc, lbs)
}

// inherit sets our ownership labels on a load balancer of the production CCM. It adopts one that the Service names: that may be a person's
// or Terraform's, and have lost our labels.
func (l *Controller) inherit(ctx context.Context, svc *corev1.Service, lb *hcloud.LoadBalancer) (*hcloud.LoadBalancer, error) {
	uid, planned := string(svc.UID), l.named(svc)
	named := planned != nil && (planned.Adopt != "" || planned.Name == lb.Name)
	updated, err := l.changeLabels(ctx, uid, lb.ID, func(now *hcloud.LoadBalancer) (*plan.Record, error) {
		r := plan.RecordOf(now)
		if named {
			r.Adopt(planned, plan.ServerTargets(now), l.clusterServers(planned))
		} else {
			r.Own(uid, nil, l.own.Marks(uid))
		}
		return r, nil
	})
	if err != nil {
		return nil, fmt.Errorf("taking over load balancer %d (%s): %w", lb.ID, lb.Name, err)
	}
	l.events.Normal(svc, event.Adopted, "Took over load balancer %d (%s), which has the label %s", lb.ID, lb.Name,
		plan.LabelServiceUIDHcloud)
	return updated, nil
}

// endInherited deletes a load balancer and the managed certificates that the production CCM made for a Service that
// is deleted before it has inherited them. With keep-on-delete, the load balancer is retained.
func (l *Controller) endInherited(ctx context.Context, svc *corev1.Service, lb *hcloud.LoadBalancer) error {
	settings, err := l.deletionSettings(svc, svc)
	if err != nil {
		return err
	}
	if plan.Retains(&settings, lb) || l.named(svc) != nil {
		if lb, err = l.inherit(ctx, svc, lb); err != nil {
			return err
		}
	}
	if plan.Retains(&settings, lb) {
		err = l.retain(ctx, svc, lb)
	} else {
		err = l.delete(ctx, svc, &settings, lb)
	}
	if err != nil {
		return err
	}
	uid := string(svc.UID)
	certs, err := l.certificatesWith(ctx, plan.LabelServiceUIDHcloud+"="+uid,
		func(labels map[string]string) bool { return l.own.Inherits(labels, uid) })
	if err != nil {
		return err
	}
	return l.deleteCertificates(ctx, certs)
}
