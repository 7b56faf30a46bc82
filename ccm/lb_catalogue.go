package ccm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// catalogueNames are names that only the API can validate. "" is not checked.
type catalogueNames struct {
	Type, Location, NetworkZone string
}

// checkNames returns a settingsError if names do not exist; its text lists the valid names. It costs
// one call for types and one for locations. So it is used only after the API has refused a name, and
// before a change of the type.
func (l *loadBalancers) checkNames(ctx context.Context, svc *corev1.Service, names catalogueNames) error {
	var mistakes []error
	check := func(annotation, value string, known []string) {
		if value == "" || slices.Contains(known, value) {
			return
		}
		slices.Sort(known)
		mistakes = append(mistakes, annotationError{l.sourceOf(svc, annotation), value,
			"does not exist: must be one of " + strings.Join(slices.Compact(known), ", ")})
	}
	if names.Type != "" {
		types, err := l.client.LoadBalancerType.All(ctx)
		if err != nil {
			return fmt.Errorf("listing load balancer types: %w", err)
		}
		var known []string
		for _, t := range types {
			known = append(known, t.Name)
		}
		check("type", names.Type, known)
	}
	if names.Location != "" || names.NetworkZone != "" {
		locations, err := l.client.Location.All(ctx)
		if err != nil {
			return fmt.Errorf("listing locations: %w", err)
		}
		var known, zones []string
		for _, location := range locations {
			known = append(known, location.Name)
			zones = append(zones, string(location.NetworkZone))
		}
		check("location", names.Location, known)
		check("network-zone", names.NetworkZone, zones)
	}
	return invalidSettings(mistakes...)
}

// sourceOf returns the source of a setting: the annotation's full name, or the name of the environment
// variable with its default.
func (l *loadBalancers) sourceOf(svc *corev1.Service, name string) string {
	a := annotationByName(name)
	if _, set := svc.Annotations[a.key()]; !set && l.defaults[name] != "" {
		return a.Env
	}
	return a.key()
}
