package api

import (
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/bind"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// createServerRequest has fields that scripts write as texts, for the real API, too (api-facts.md, "What raw calls show").
type createServerRequest struct {
	Name             string            `json:"name" check:"required,hostname"`
	Image            bind.IDOrName     `json:"image" check:"required"`
	ServerType       bind.IDOrName     `json:"server_type" check:"required"`
	Location         bind.IDOrName     `json:"location"`
	Datacenter       bind.IDOrName     `json:"datacenter" until:"2026-07-01"`
	StartAfterCreate *bool             `json:"start_after_create" check:"text"`
	PlacementGroup   *int64            `json:"placement_group" check:"min=1"`
	SSHKeys          []bind.IDOrName   `json:"ssh_keys"`
	Volumes          []int64           `json:"volumes" check:"each.min=1"`
	Networks         []int64           `json:"networks" check:"each.min=1"`
	Firewalls        []firewallRef     `json:"firewalls"`
	UserData         string            `json:"user_data" check:"len=0:32768"`
	Labels           map[string]string `json:"labels"`
	Automount        *bool             `json:"automount" check:"text"`
	PublicNet        struct {
		EnableIPv4 *bool  `json:"enable_ipv4"`
		EnableIPv6 *bool  `json:"enable_ipv6"`
		IPv4       *int64 `json:"ipv4" check:"min=1"`
		IPv6       *int64 `json:"ipv6" check:"min=1"`
	} `json:"public_net"`
}

type firewallRef struct {
	Firewall int64 `json:"firewall" check:"required,min=1"`
}

// deref returns the value of a pointer, or otherwise for nil.
func deref[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

func createServer(r *Request, body createServerRequest) (Response, error) {
	location, err := locationOf(r, body.Location, body.Datacenter)
	if err != nil {
		return Response{}, err
	}
	out, st, err := r.Project.CreateServer(cloud.CreateServer{
		Name: body.Name, ServerType: string(body.ServerType), Image: string(body.Image), Location: location,
		Networks: body.Networks, Volumes: body.Volumes, Labels: body.Labels, UserData: body.UserData,
		PlacementGroup: deref(body.PlacementGroup, 0), StartAfterCreate: deref(body.StartAfterCreate, true),
		IPv4:      cloud.ServerPublicIP{Enabled: deref(body.PublicNet.EnableIPv4, true), PrimaryIP: deref(body.PublicNet.IPv4, 0)},
		IPv6:      cloud.ServerPublicIP{Enabled: deref(body.PublicNet.EnableIPv6, true), PrimaryIP: deref(body.PublicNet.IPv6, 0)},
		SSHKeys:   each(body.SSHKeys, func(k bind.IDOrName) string { return string(k) }),
		Firewalls: each(body.Firewalls, func(f firewallRef) int64 { return f.Firewall }),
	})
	return servers.created(r, out.Server, st, err,
		actionPart(st, out.Action), startedPart("next_actions", st, out.NextActions), rootPassword(out.RootPassword))
}

// rootPassword is null if the server has SSH keys and therefore no password.
func rootPassword(p string) Part { return Part{Key: "root_password", JSON: marshal(nullable(p))} }
