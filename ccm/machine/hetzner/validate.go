package hetzner

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// Validate implements [machine.Provider]. It asks the API whether all that the spec names exists and fits.
func (p *provider) Validate(ctx context.Context, spec v1alpha1.MachineSpec) (warnings []string, err error) {
	if err := checkOS(spec.ProviderSpec.OperatingSystem); err != nil {
		return nil, err
	}
	c, s, err := p.client(ctx, spec)
	if err != nil {
		return nil, err
	}
	if bad := checkLabels(s.labels); bad != nil {
		return nil, bad
	}
	kind, _, err := c.ServerType.Get(ctx, s.serverType)
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot get the server type %s: %w", s.serverType, err)
	case kind == nil:
		return nil, machine.Invalid("cloudProviderSpec.serverType: there is no server type %q, or it has retired: "+
			"choose one of the project's", s.serverType)
	}
	if warnings, err = checkLocation(ctx, c, s.location, kind); err != nil {
		return nil, err
	}
	if err := checkImage(ctx, c, s.image, kind, spec.ProviderSpec.OperatingSystem); err != nil {
		return nil, err
	}
	_, err = lookUp(ctx, c, s)
	return warnings, err
}

func checkLabels(labels map[string]string) error {
	for key := range labels {
		if strings.HasPrefix(key, "machine.ccm-from-scratch.dev/") {
			return machine.Invalid("cloudProviderSpec.labels: %s is reserved: remove it", key)
		}
	}
	if _, err := hcloud.ValidateResourceLabels(toAny(labels)); err != nil {
		return machine.Invalid("cloudProviderSpec.labels: %w", err)
	}
	return nil
}

func toAny(labels map[string]string) map[string]any {
	all := make(map[string]any, len(labels))
	for key, value := range labels {
		all[key] = value
	}
	return all
}

// checkLocation checks that the server type can be ordered in the location, or anywhere if the location is "". It warns of locations in
// which the type retires. A type without locations comes from an API that does not show them.
func checkLocation(ctx context.Context, c *hcloud.Client, name string, kind *hcloud.ServerType) (warnings []string, err error) {
	if name != "" {
		location, _, err := c.Location.Get(ctx, name)
		switch {
		case err != nil:
			return nil, fmt.Errorf("cannot get the location %s: %w", name, err)
		case location == nil:
			return nil, machine.Invalid("cloudProviderSpec.location: there is no location %q", name)
		}
		name = location.Name
	}
	now := time.Now()
	var names []string
	for _, l := range kind.Locations {
		last := l.UnavailableAfter()
		if l.IsDeprecated() && last.Before(now) {
			continue
		}
		names = append(names, l.Location.Name)
		if l.IsDeprecated() && (name == "" || name == l.Location.Name) {
			warnings = append(warnings, fmt.Sprintf("server type %s retires in %s on %s: choose another type before that day",
				kind.Name, l.Location.Name, last.Format(time.DateOnly)))
		}
	}
	if len(kind.Locations) == 0 || slices.Contains(names, name) || name == "" && len(names) > 0 {
		return warnings, nil
	}
	return nil, machine.Invalid("cloudProviderSpec.serverType: %s is not available in %s: choose another type, or one of the locations %q",
		kind.Name, cmp.Or(name, "any location"), names)
}

func checkImage(ctx context.Context, c *hcloud.Client, name string, kind *hcloud.ServerType, os v1alpha1.OperatingSystem) error {
	image, _, err := c.Image.GetForArchitecture(ctx, name, kind.Architecture)
	switch {
	case err != nil:
		return fmt.Errorf("cannot get the image %s: %w", name, err)
	case image == nil:
		return machine.Invalid("cloudProviderSpec.image: there is no image %q for the architecture %s", name, kind.Architecture)
	case image.Architecture != kind.Architecture:
		return machine.Invalid("cloudProviderSpec.image: %s is for the architecture %s, and server type %s has %s", name,
			image.Architecture, kind.Name, kind.Architecture)
	case image.Type == hcloud.ImageTypeSystem && image.OSFlavor != cmp.Or(flavors[os], string(os)):
		return machine.Invalid("cloudProviderSpec.image: %s is %s, and operatingSystem is %s", name, image.OSFlavor, os)
	}
	return nil
}

// found holds what a spec names, with IDs.
type found struct {
	networks  []*hcloud.Network
	firewalls []*hcloud.ServerCreateFirewall
	keys      []*hcloud.SSHKey
	group     *hcloud.PlacementGroup
}

// lookUp finds what the settings name.
func lookUp(ctx context.Context, c *hcloud.Client, s settings) (f found, err error) {
	if f.networks, err = named(ctx, s.networks, "networks", "network", c.Network.Get); err != nil {
		return f, err
	}
	firewalls, err := named(ctx, s.firewalls, "firewalls", "firewall", c.Firewall.Get)
	if err != nil {
		return f, err
	}
	for _, w := range firewalls {
		f.firewalls = append(f.firewalls, &hcloud.ServerCreateFirewall{Firewall: *w})
	}
	if f.keys, err = named(ctx, s.keys, "sshKeys", "SSH key", c.SSHKey.Get); err != nil || s.placementGroup == "" {
		return f, err
	}
	groups, err := named(ctx, []string{s.placementGroup}, "placementGroup", "placement group", c.PlacementGroup.Get)
	if err == nil {
		f.group = groups[0]
	}
	return f, err
}

// named returns the things of a kind that a field names.
func named[T any](ctx context.Context, names []string, field, kind string,
	get func(context.Context, string) (*T, *hcloud.Response, error)) (all []*T, err error) {
	for _, name := range names {
		one, _, err := get(ctx, name)
		switch {
		case err != nil:
			return nil, fmt.Errorf("cannot get the %s %s: %w", kind, name, err)
		case one == nil:
			return nil, machine.Invalid("cloudProviderSpec.%s: there is no %s %q: create it, or correct the name", field, kind, name)
		}
		all = append(all, one)
	}
	return all, nil
}
