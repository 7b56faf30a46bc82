package loadbalancer

import (
	"context"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// A load balancer can lose its Service without a deletion that the CCM could follow: a person removes the finalizer, or Kubernetes loses
// its data or returns to an older state. It costs money. To delete it could cost more: its address does not come back.

// OrphansMetric returns the number of such load balancers as a metric.
func (l *Controller) OrphansMetric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ccm_load_balancers_orphaned",
		Help: "Load balancers of the cluster whose Service is gone. They cost money, and the provider does not delete them.",
	}, func() float64 {
		l.mu.Lock()
		defer l.mu.Unlock()
		return float64(len(l.orphans))
	})
}

// ReportOrphans reports such load balancers. It costs a request only after a start without Services, if a Service has just vanished, or
// while there are some. The list may be older than the end of a Service, so two must show them.
func (l *Controller) ReportOrphans(ctx context.Context) error {
	alive := l.evidence.Services()
	if alive == nil {
		return nil
	}
	l.mu.Lock()
	maps.DeleteFunc(l.ended, func(uid string, _ bool) bool { return alive[uid] == nil })
	l.mu.Unlock()
	vanished := l.ManagedServices()
	start := l.orphans == nil && len(vanished) == 0
	maps.DeleteFunc(vanished, func(uid string, _ *corev1.Service) bool { return alive[uid] != nil })
	ask := len(vanished)+len(l.orphans) > 0 || start
	if ask && l.evidence.Project(ctx) != nil {
		return nil // the list may be that of another project; the doubt is reported
	}
	all, err := l.store.All(ctx, ask)
	if len(all) == 0 && !ask || err != nil {
		return err
	}
	orphans, left := map[int64]bool{}, map[string]bool{}
	for _, lb := range all {
		uid := lb.Labels[plan.LabelServiceUID]
		if uid == "" || alive[uid] != nil || !l.own.IsOurs(lb.Labels) {
			continue
		}
		left[uid] = true
		if orphans[lb.ID] = true; !l.orphans[lb.ID] {
			continue
		}
		klog.ErrorS(nil, "The Service of a load balancer is gone; delete the load balancer, or remove its label to keep it", "loadBalancer",
			lb.ID, "name", lb.Name, "label", plan.OwnerSelector(uid))
		if svc := vanished[uid]; svc != nil {
			l.events.Seldom(svc, event.Orphaned, "Load balancer %d (%s) stays, since this Service has vanished although it had a "+
				"finalizer: delete the load balancer, or remove its label %s to keep it", lb.ID, lb.Name, plan.OwnerSelector(uid))
		}
	}
	for uid, svc := range vanished {
		if !left[uid] {
			l.unmanage(svc)
		} else if e := l.EnsureLoadBalancerDeleted(ctx, "", svc); e != nil {
			err = e
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.orphans = orphans
	return err
}

// leave has a guest inherit the load balancer of a Service that has vanished. Nothing else of the Service ends.
func (l *Controller) leave(ctx context.Context, svc *corev1.Service) error {
	lbs, err := l.store.Find(ctx, string(svc.UID))
	if err != nil {
		return err
	}
	alive := l.evidence.Services()
	for _, lb := range l.own.OwnedBy(lbs, string(svc.UID)) {
		if !slices.ContainsFunc(plan.GuestsOf(lb), func(uid string) bool { return alive[uid] != nil }) {
			continue
		}
		if err := l.checkUnwanted(ctx, svc); err != nil {
			return err
		}
		if _, err := l.endShare(ctx, svc, lb); err != nil {
			return err
		}
	}
	return nil
}
