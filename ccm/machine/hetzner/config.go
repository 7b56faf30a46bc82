package hetzner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

// Config is the provider's part of a Machine's spec, cloudProviderSpec. The example explains each field:
// ccm/machine/examples/hetzner-machinedeployment.yaml.
type Config struct {
	// Token is an API token with read and write permission. Default: the variable HCLOUD_TOKEN.
	Token v1alpha1.ConfigValue `json:"token,omitzero"`
	// Endpoint is the base URL of the API. Default: the variable HCLOUD_ENDPOINT, else https://api.hetzner.cloud/v1.
	Endpoint v1alpha1.ConfigValue `json:"endpoint,omitzero"`
	// ServerType is the name of a server type, such as cx23. It must be set.
	ServerType v1alpha1.ConfigValue `json:"serverType,omitzero"`
	// Location is the name of a location, such as fsn1. If nothing is set, the API chooses.
	Location v1alpha1.ConfigValue `json:"location,omitzero"`
	// Image is the name or the ID of an image. Default: the newest image of the operating system that this provider knows.
	Image v1alpha1.ConfigValue `json:"image,omitzero"`
	// Networks are names or IDs of private networks.
	Networks []v1alpha1.ConfigValue `json:"networks,omitempty"`
	// Firewalls are names or IDs of firewalls.
	Firewalls []v1alpha1.ConfigValue `json:"firewalls,omitempty"`
	// SSHKeys are names or IDs of the project's SSH keys. Without one, the cloud sends the root password by mail.
	SSHKeys []v1alpha1.ConfigValue `json:"sshKeys,omitempty"`
	// PlacementGroup is the name or the ID of a placement group.
	PlacementGroup v1alpha1.ConfigValue `json:"placementGroup,omitzero"`
	// PlacementGroupPrefix has the server join a placement group of type spread with a name of this, a hyphen and a number. One is made if
	// none has room: a group holds ten servers. Empty groups stay, and cost nothing.
	PlacementGroupPrefix v1alpha1.ConfigValue `json:"placementGroupPrefix,omitzero"`
	// Labels are added to the server's.
	Labels map[string]string `json:"labels,omitempty"`
	// AssignPublicIPv4 and AssignPublicIPv6 give the server public addresses. Default: true.
	AssignPublicIPv4 *bool `json:"assignPublicIPv4,omitempty"`
	AssignPublicIPv6 *bool `json:"assignPublicIPv6,omitempty"`
}

// settings holds the values of a Config.
type settings struct {
	token, endpoint                   string
	serverType, location, image       string
	networks, firewalls, keys         []string
	placementGroup, groupPrefix       string
	labels                            map[string]string
	assignPublicIPv4, assignPublicIP6 bool
}

// images are the names of the newest system images, by operating system: https://docs.hetzner.cloud/reference/cloud#images, as of 2026-11.
var images = map[v1alpha1.OperatingSystem]string{
	v1alpha1.Ubuntu: "ubuntu-24.04", v1alpha1.Debian: "debian-13", v1alpha1.Fedora: "fedora-44", v1alpha1.CentOS: "centos-stream-10",
	v1alpha1.RockyLinux: "rocky-10", v1alpha1.AlmaLinux: "alma-10", v1alpha1.OpenSUSE: "opensuse-16",
}

// flavors are the operating systems as the API names them, where that differs.
var flavors = map[v1alpha1.OperatingSystem]string{v1alpha1.RockyLinux: "rocky", v1alpha1.AlmaLinux: "alma"}

func decode(spec v1alpha1.MachineSpec) (c Config, err error) {
	raw := spec.ProviderSpec.CloudProviderSpec.Raw
	if len(raw) == 0 {
		return c, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, machine.Invalid("cannot read spec.providerSpec.cloudProviderSpec: %w", err)
	}
	return c, nil
}

// read returns the settings of a spec.
func (p *provider) read(ctx context.Context, spec v1alpha1.MachineSpec) (s settings, err error) {
	c, err := decode(spec)
	if err != nil {
		return s, err
	}
	var errs []error
	text := func(v v1alpha1.ConfigValue, variable string) string {
		text, err := p.resolver.String(ctx, v, variable)
		errs = append(errs, err)
		return strings.TrimSpace(text)
	}
	texts := func(v []v1alpha1.ConfigValue) []string {
		texts, err := p.resolver.Strings(ctx, v)
		errs = append(errs, err)
		return texts
	}
	s = settings{
		token: text(c.Token, "HCLOUD_TOKEN"), endpoint: text(c.Endpoint, "HCLOUD_ENDPOINT"),
		serverType: text(c.ServerType, ""), location: text(c.Location, ""), image: text(c.Image, ""),
		networks: texts(c.Networks), firewalls: texts(c.Firewalls), keys: texts(c.SSHKeys),
		placementGroup: text(c.PlacementGroup, ""), groupPrefix: text(c.PlacementGroupPrefix, ""), labels: c.Labels,
		assignPublicIPv4: ptr.Deref(c.AssignPublicIPv4, true), assignPublicIP6: ptr.Deref(c.AssignPublicIPv6, true),
	}
	if err := errors.Join(errs...); err != nil {
		return s, err
	}
	switch {
	case s.token == "":
		return s, errors.New("there is no API token: set cloudProviderSpec.token, or the variable HCLOUD_TOKEN of the machine controller")
	case s.serverType == "":
		return s, machine.Invalid("cloudProviderSpec.serverType is missing: set it to a server type, such as cx23")
	case s.placementGroup != "" && s.groupPrefix != "":
		return s, machine.Invalid("cloudProviderSpec.placementGroup and placementGroupPrefix exclude each other: set one of them")
	case !s.assignPublicIPv4 && !s.assignPublicIP6 && len(s.networks) == 0:
		return s, machine.Invalid("the server would have no address: set cloudProviderSpec.networks, assignPublicIPv4 or assignPublicIPv6")
	}
	return s, nil
}

// AddDefaults implements [machine.Provider]. The default image follows the operating system.
func (p *provider) AddDefaults(_ context.Context, spec v1alpha1.MachineSpec) (v1alpha1.MachineSpec, error) {
	if spec.ProviderSpec.OperatingSystem == "" {
		spec.ProviderSpec.OperatingSystem = v1alpha1.Ubuntu
	}
	c, err := decode(spec)
	if err != nil {
		return spec, err
	}
	image, known := images[spec.ProviderSpec.OperatingSystem]
	if !c.Image.IsZero() || !known {
		return spec, nil
	}
	c.Image.Value = image
	raw, err := json.Marshal(c)
	if err != nil {
		return spec, fmt.Errorf("cannot write cloudProviderSpec: %w", err)
	}
	spec.ProviderSpec.CloudProviderSpec.Raw = raw
	return spec, nil
}

// checkOS returns an error for an operating system without an image in the cloud.
func checkOS(os v1alpha1.OperatingSystem) error {
	if _, known := images[os]; known {
		return nil
	}
	var names []string
	for name := range images {
		names = append(names, string(name))
	}
	slices.Sort(names)
	return machine.Invalid("%w: operatingSystem %q must be one of %s", machine.ErrOSNotSupported, os, strings.Join(names, ", "))
}
