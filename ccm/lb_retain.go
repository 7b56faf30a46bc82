package ccm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// deletionSettings returns the settings of a Service that is about to lose its load balancer. It fails if it
// is not certain what the Service wants then: a mistyped keep-on-delete must not delete anything.
func (l *loadBalancers) deletionSettings(svc *corev1.Service) (lbSettings, error) {
	settings, _, mistakes := parseAnnotations(svc.Annotations, l.defaults)
	for _, m := range mistakes {
		if a, ok := errors.AsType[annotationError](m); ok && a.setting() == "keep-on-delete" {
			l.events.warning(svc, EventInvalidSettings, "%v; the load balancer is neither deleted nor kept until this is corrected", a)
			return settings, invalidSettings(a)
		}
	}
	return settings, nil
}

// unprotect ends the protection against deletion if the Service asks for that. Otherwise it is an error.
func (l *loadBalancers) unprotect(ctx context.Context, svc *corev1.Service, settings *lbSettings, lb *hcloud.LoadBalancer) error {
	if on := settings.DeleteProtection; on == nil || *on {
		l.warnProtected(svc, lb)
		return fmt.Errorf("load balancer %d (%s) is protected against deletion", lb.ID, lb.Name)
	}
	if err := l.apply(ctx, lb, lbOp{Kind: opProtect, Part: partProtection}); err != nil {
		return fmt.Errorf("ending the protection of load balancer %d (%s) against deletion: %w", lb.ID, lb.Name, err)
	}
	return nil
}

func (l *loadBalancers) warnProtected(svc *corev1.Service, lb *hcloud.LoadBalancer) {
	l.events.warning(svc, EventProtected, "Load balancer %d (%s) is protected against deletion: set %sdelete-protection to false, or remove the label %s to keep it",
		lb.ID, lb.Name, annotationPrefix, labelServiceUID)
}

// keepWithoutService makes the load balancer one without an owner (keep-on-delete). It loses the Service's
// ports first. Its address, settings, targets, labels and foreign ports stay.
func (l *loadBalancers) keepWithoutService(ctx context.Context, svc *corev1.Service, lb *hcloud.LoadBalancer) error {
	defer l.store.writing(string(svc.UID))()
	if err := l.removePorts(ctx, svc, lb); err != nil {
		return err
	}
	now, err := l.get(ctx, lb.ID)
	if err != nil {
		return err
	}
	if now.Labels[labelServiceUID] != string(svc.UID) {
		return nil // a person has removed the label, which has the same effect
	}
	// Without labelLastOwner, the same Service may adopt it again.
	if _, _, err := l.client.LoadBalancer.Update(ctx, now, hcloud.LoadBalancerUpdateOpts{Labels: withoutOurs(now.Labels)}); err != nil {
		return fmt.Errorf("keeping load balancer %d (%s): removing its ownership labels: %w", lb.ID, lb.Name, err)
	}
	klog.InfoS("Kept load balancer without its Service", "service", klog.KObj(svc), "loadBalancer", lb.ID)
	l.events.normal(svc, EventKept, "Kept load balancer %d (%s), which belongs to no Service any more: the annotation %sname: %q gives it to another one", lb.ID, lb.Name, annotationPrefix, lb.Name)
	return nil
}

// withoutOurs returns a copy of labels without those that make something a Service's.
func withoutOurs(labels map[string]string) map[string]string {
	result := maps.Clone(labels)
	maps.DeleteFunc(result, func(k, _ string) bool { return strings.HasPrefix(k, labelPrefix) || k == labelServiceUIDHcloud })
	return result
}
