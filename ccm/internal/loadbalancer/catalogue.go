package loadbalancer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// checkNames returns a plan.SettingsError if names do not exist; its text lists the valid names. A name that is "" is not
// checked. It costs one call for types and one for locations. So it is used only after the API has refused a name, and
// before a change of the type.
func (l *Controller) checkNames(ctx context.Context, svc *corev1.Service, typ, location, zone string) error {
	var mistakes []error
	check := func(annotation, value string, known []string) {
		if value == "" || slices.Contains(known, value) {
			return
		}
		slices.Sort(known)
		mistakes = append(mistakes, plan.AnnotationError{Source: l.sourceOf(svc, annotation), Value: value,
			Reason: "does not exist: must be one of " + strings.Join(slices.Compact(known), ", ")})
	}
	if typ != "" {
		types, err := l.types.Get(ctx)
		if err != nil {
			return err
		}
		var known []string
		for _, t := range types {
			known = append(known, t.Name)
		}
		if plan.TypeNamed(types, typ) == nil {
			check("type", typ, known)
		}
	}
	if location != "" || zone != "" {
		locations, err := l.client.Location.All(ctx)
		if err != nil {
			return fmt.Errorf("listing locations: %w", err)
		}
		var known, zones []string
		for _, loc := range locations {
			known = append(known, loc.Name)
			zones = append(zones, string(loc.NetworkZone))
		}
		check("location", location, known)
		check("network-zone", zone, zones)
	}
	return plan.InvalidSettings(mistakes...)
}

// maxCatalogueAge is the maximum age of cached load balancer types. They hardly ever change.
const maxCatalogueAge = 10 * time.Minute

// limitsOf returns the type with its limits, or nil if they cannot be read: then the API refuses what
// exceeds them.
func (l *Controller) limitsOf(ctx context.Context, name string) *hcloud.LoadBalancerType {
	types, err := l.types.Get(ctx)
	if err != nil {
		klog.ErrorS(err, "Could not read the limits of a load balancer type", "type", name)
		return nil
	}
	return plan.TypeNamed(types, name)
}

// sourceOf returns the source of a setting: the annotation's full name, or the name of the environment
// variable with its default.
func (l *Controller) sourceOf(svc *corev1.Service, name string) string {
	a := plan.AnnotationByName(name)
	key := a.KeyIn(svc.Annotations)
	if _, set := svc.Annotations[key]; !set && l.defaults[name] != "" {
		return a.Env
	}
	return key
}
