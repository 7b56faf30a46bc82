package loadbalancer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
	"k8s.io/klog/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/gone"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// remaining returns the load balancer of a Service that wants none any more: its own, or else one that the production CCM made
// for it. If it returns neither and no error, the Service certainly has none and may go.
func (l *Controller) remaining(ctx context.Context, svc *corev1.Service) (own []*hcloud.LoadBalancer, inherited *hcloud.LoadBalancer,
	err error) {
	sameToken := l.evidence.SameToken()
	all, err := l.store.LookUp(ctx, svc)
	if err != nil {
		return nil, nil, err
	}
	if own = l.own.OwnedBy(all, string(svc.UID)); len(own) > 0 {
		return own, nil, nil
	}
	if inherited, err = l.inherited(ctx, svc); inherited != nil || err != nil {
		return nil, inherited, err
	}
	if err := l.ofAnotherCluster(svc, all); err != nil {
		return nil, nil, err
	}
	answer, err := l.evidence.LoadBalancerGone(ctx, svc, func(ctx context.Context) (bool, error) { return l.wasDeleted(ctx, svc) })
	klog.V(2).InfoS("Looked for what the Service has left", "service", klog.KObj(svc), "verdict", answer.Verdict, "evidence",
		answer.Evidence)
	if err == nil && answer.Verdict == gone.Exists {
		// The list has shown what the question for its label did not, or it has only the production CCM's label, because a person has
		// released it: then the Service may go.
		all, err = l.store.Find(ctx, string(svc.UID))
		own = l.own.OwnedBy(all, string(svc.UID))
	}
	return own, nil, cmp.Or(l.doubt(svc, err), sameToken())
}

// wasDeleted reports whether the Service's load balancer was certainly deleted: by this process, or by one that began it, if the API shows
// a server of the cluster and does not know the load balancer any more.
func (l *Controller) wasDeleted(ctx context.Context, svc *corev1.Service) (bool, error) {
	l.mu.Lock()
	ended := l.ended[string(svc.UID)]
	l.mu.Unlock()
	id, begun := deletionBegun(svc)
	if ended || !begun {
		return ended, nil
	}
	lb, _, err := l.client.LoadBalancer.GetByID(ctx, id)
	if err != nil {
		return false, fmt.Errorf("getting load balancer %d, whose deletion has begun: %w", id, err)
	}
	if lb != nil {
		return false, nil
	}
	return l.evidence.ShowsServer(ctx)
}

// checkUnwanted returns an error if the Service, as the API server has it now, wants its load balancer. The service controller may have
// read it before its type changed back.
func (l *Controller) checkUnwanted(ctx context.Context, svc *corev1.Service) error {
	return l.readAgain(ctx, svc, func(now *corev1.Service) error {
		if now == nil || !plan.WantsLoadBalancer(now) {
			return nil
		}
		return errors.New("deleting the load balancer: the Service wants it again: nothing was changed; will follow the Service")
	})
}

// checkHeld returns an error unless the Service, as the API server has it now, wants a load balancer and has the finalizer. A sync that
// follows the end of a deletion at once is given a Service whose finalizer is gone already. It could vanish, and leave the new load
// balancer behind.
func (l *Controller) checkHeld(ctx context.Context, svc *corev1.Service) error {
	return l.readAgain(ctx, svc, func(now *corev1.Service) error {
		if now != nil && plan.WantsLoadBalancer(now) && servicehelpers.HasLBFinalizer(now) {
			return nil
		}
		return fmt.Errorf("creating the load balancer: the Service does not want it any more, or lacks the finalizer %s: nothing was "+
			"changed; will follow the Service", servicehelpers.LoadBalancerCleanupFinalizer)
	})
}

// readAgain checks the Service as the API server has it now; nil: it is gone. A list needs no permission that an earlier version lacked.
func (l *Controller) readAgain(ctx context.Context, svc *corev1.Service, check func(*corev1.Service) error) error {
	if l.Kube == nil {
		return nil
	}
	services, err := l.Kube.CoreV1().Services(svc.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + svc.Name})
	if err != nil {
		return fmt.Errorf("reading the Service again: %w", err)
	}
	i := slices.IndexFunc(services.Items, func(now corev1.Service) bool { return now.UID == svc.UID })
	if i < 0 {
		return check(nil)
	}
	return check(&services.Items[i])
}

// mark gives a load balancer the ownership labels that it lacks, such as that of a new HCLOUD_CLUSTER_ID: its deletion may wait for
// a person.
func (l *Controller) mark(ctx context.Context, uid string, lb *hcloud.LoadBalancer) error {
	marks, labels := l.own.Marks(uid), maps.Clone(lb.Labels)
	if maps.Copy(labels, marks); !l.own.Owns(lb.Labels, uid) || maps.Equal(labels, lb.Labels) {
		return nil
	}
	_, err := l.changeLabels(ctx, uid, lb.ID, func(now *hcloud.LoadBalancer) (*plan.Record, error) {
		r := plan.RecordOf(now)
		if l.own.Owns(now.Labels, uid) {
			maps.Copy(r.Labels, marks)
		}
		return r, nil
	})
	return err
}

// end ends the Service's use of the load balancer.
func (l *Controller) end(ctx context.Context, svc *corev1.Service, settings *plan.Settings, lb *hcloud.LoadBalancer) error {
	if plan.RecordOf(lb).Shared {
		unlock, err := l.adopting.Lock(ctx, lb.Name) // no Service may join now
		if err != nil {
			return err
		}
		defer unlock()
		if lb, err = l.get(ctx, lb.ID); err != nil {
			return err
		}
	}
	if shared, err := l.endShare(ctx, svc, lb); shared || err != nil {
		return err
	}
	if plan.Retains(settings, lb) {
		return l.retain(ctx, svc, lb)
	}
	return l.delete(ctx, svc, settings, lb)
}

func (l *Controller) delete(ctx context.Context, svc *corev1.Service, settings *plan.Settings, lb *hcloud.LoadBalancer) error {
	if lb.Protection.Delete {
		if err := l.unprotect(ctx, svc, settings, lb); err != nil {
			return err
		}
	}
	l.noteDeletion(svc, lb.ID)
	defer l.store.Written(string(svc.UID))
	result, _, err := l.client.LoadBalancer.DeleteWithResult(ctx, lb)
	switch {
	case err == nil:
		err = l.slow.Wait(ctx, lb.ID, result.Action)
	case hcloud.IsError(err, hcloud.ErrorCodeNotFound): // a gateway may answer so for everything: the next try looks for it again
		err = errors.New("the API has just listed it, and says now that it does not exist; will look again")
	case hcloud.IsError(err, hcloud.ErrorCodeProtected):
		l.warnProtected(svc, lb)
	}
	if err != nil {
		return fmt.Errorf("deleting load balancer %d (%s): %w", lb.ID, lb.Name, err)
	}
	klog.InfoS("Deleted load balancer", "service", klog.KObj(svc), "loadBalancer", lb.ID)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended[string(svc.UID)] = true
	return nil
}

// deletionSettings returns the settings of a Service that is about to lose its load balancer, and that has the effective ones on it.
// It fails if it is not certain whether the load balancer is kept. One that the Service itself wants to keep is kept, even if those that
// shared it do not ask for that: a deletion cannot be undone.
func (l *Controller) deletionSettings(svc, effective *corev1.Service) (plan.Settings, error) {
	own, _, mistakes := plan.ParseAnnotations(svc.Annotations, l.defaults)
	settings, _, others := plan.ParseAnnotations(effective.Annotations, l.defaults)
	for _, m := range append(mistakes, others...) {
		if a, ok := errors.AsType[plan.AnnotationError](m); ok && a.Setting() == "keep-on-delete" {
			l.events.Warning(svc, event.InvalidSettings, "%v; the load balancer is neither deleted nor kept until this is corrected", a)
			return settings, plan.InvalidSettings(a)
		}
	}
	if keep := own.KeepOnDelete; keep != nil && *keep {
		settings.KeepOnDelete = keep
	}
	return settings, nil
}

// unprotect ends the protection against deletion if the Service asks for that. Otherwise it is an error.
func (l *Controller) unprotect(ctx context.Context, svc *corev1.Service, settings *plan.Settings, lb *hcloud.LoadBalancer) error {
	if on := settings.DeleteProtection; on == nil || *on {
		l.warnProtected(svc, lb)
		return fmt.Errorf("load balancer %d (%s) is protected against deletion", lb.ID, lb.Name)
	}
	if err := l.apply(ctx, lb, plan.Op{Kind: plan.OpProtect, Part: plan.PartProtection}); err != nil {
		return fmt.Errorf("ending the protection of load balancer %d (%s) against deletion: %w", lb.ID, lb.Name, err)
	}
	return nil
}

func (l *Controller) warnProtected(svc *corev1.Service, lb *hcloud.LoadBalancer) {
	l.events.Warning(svc, event.Protected, "Load balancer %d (%s) is protected against deletion: set %sdelete-protection to false, or "+
		"remove the label %s to keep it",
		lb.ID, lb.Name, plan.AnnotationPrefix, plan.LabelServiceUID)
}

// retain makes the load balancer one without an owner (keep-on-delete): it outlives the Service. It loses the Service's
// ports first. Its address, settings, targets, labels and foreign ports stay.
func (l *Controller) retain(ctx context.Context, svc *corev1.Service, lb *hcloud.LoadBalancer) error {
	uid := string(svc.UID)
	if err := l.removePorts(ctx, uid, lb, plan.PortsTo(svc, lb)...); err != nil {
		return err
	}
	released := false
	_, err := l.changeLabels(ctx, uid, lb.ID, func(now *hcloud.LoadBalancer) (*plan.Record, error) {
		if now.Labels[plan.LabelServiceUID] != uid {
			return plan.RecordOf(now), nil // a person has removed the label, which has the same effect
		}
		released = true
		// Without plan.LabelLastOwner, the same Service may adopt it again.
		return &plan.Record{Labels: plan.WithoutOurs(now.Labels)}, nil
	})
	if err != nil {
		return fmt.Errorf("keeping load balancer %d (%s): removing its ownership labels: %w", lb.ID, lb.Name, err)
	}
	if !released {
		return nil
	}
	klog.InfoS("Kept load balancer without its Service", "service", klog.KObj(svc), "loadBalancer", lb.ID)
	l.events.Normal(svc, event.Kept, "Kept load balancer %d (%s), which belongs to no Service any more: the annotation %sname: %q gives "+
		"it to another one", lb.ID, lb.Name, plan.AnnotationPrefix, lb.Name)
	return nil
}
