package cloud

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// KindNetwork is the kind of networks.
const KindNetwork store.Kind = "network"

// Network is a private network.
//
// Reproduced: subnets, routes and IP range with the checks of the API document, the reserved addresses,
// the statuses of members, protection, conflict while an action runs. Left out: Robot vSwitches. A
// subnet of type vswitch is accepted if its vswitch_id is at least [MinVSwitchID], and connects nothing. It does not begin
// with the first IP of its network (ansible-collections/hetzner.hcloud #359).
type Network struct {
	store.Meta
	IPRange               netip.Prefix    `json:"ip_range,omitzero"`
	Subnets               []Subnet        `json:"subnets,omitzero"`
	Routes                []Route         `json:"routes,omitzero"`
	Members               []NetworkMember `json:"members,omitzero"` // by kind and id
	DeleteProtection      bool            `json:"delete_protection,omitzero"`
	ExposeRoutesToVSwitch bool            `json:"expose_routes_to_vswitch,omitzero"`
}

// Subnet is a part of a network that addresses are taken from.
type Subnet struct {
	Type        string       `json:"type,omitzero"` // cloud, server (deprecated) or vswitch
	IPRange     netip.Prefix `json:"ip_range,omitzero"`
	NetworkZone string       `json:"network_zone,omitzero"`
	Gateway     netip.Addr   `json:"gateway,omitzero"`
	VSwitchID   int64        `json:"vswitch_id,omitzero"` // 0 unless Type is vswitch
}

// Route sends traffic for a destination to a member of the network.
type Route struct {
	Destination netip.Prefix `json:"destination,omitzero"`
	Gateway     netip.Addr   `json:"gateway,omitzero"`
}

// NetworkMember is a server or load balancer in a network.
type NetworkMember struct {
	Ref
	IP       netip.Addr   `json:"ip,omitzero"`
	AliasIPs []netip.Addr `json:"alias_ips,omitzero"`
	Subnet   netip.Prefix `json:"subnet,omitzero"`
	Status   MemberStatus `json:"status,omitzero"`
}

// MemberStatus shows whether a member is joining or leaving a network.
type MemberStatus string

// The statuses of a network's member.
const (
	MemberOK        MemberStatus = "ok"
	MemberAttaching MemberStatus = "attaching"
	MemberDetaching MemberStatus = "detaching"
	MemberUpdating  MemberStatus = "updating"
	MemberError     MemberStatus = "error"
)

// Clone implements Object.
func (n *Network) Clone() *Network {
	c := *n
	c.Subnets = slices.Clone(n.Subnets)
	c.Routes = slices.Clone(n.Routes)
	c.Members = slices.Clone(n.Members)
	for i := range c.Members {
		c.Members[i].AliasIPs = slices.Clone(c.Members[i].AliasIPs)
	}
	return &c
}

// Ref returns the reference to the network.
func (n *Network) Ref() Ref { return Ref{KindNetwork, n.ID} }

// The types of a subnet. "cloud" replaces "server", a deprecated type.
const (
	SubnetCloud   = "cloud"
	SubnetServer  = "server"
	SubnetVSwitch = "vswitch"
)

// gateway returns the first address of the network. It belongs to the network's router.
func (n *Network) gateway() netip.Addr { return n.IPRange.Addr().Next() }

// CreateNetwork is the input of POST /networks.
type CreateNetwork struct {
	Name                  string
	IPRange               netip.Prefix
	Labels                map[string]string
	Subnets               []Subnet // without IPRange: the first free /24; Gateway is not read
	Routes                []Route
	ExposeRoutesToVSwitch bool
}

// CreateNetwork creates a network with its subnets and routes, without an action.
// Errors: invalid_input, uniqueness_error, resource_limit_exceeded.
func (p Project) CreateNetwork(in CreateNetwork) (*Network, *State, error) {
	var n *Network
	st, err := p.update(func(tx *Tx) error {
		if err := cmp.Or(ValidateLabels(in.Labels), checkNetworkRange(in.IPRange), tx.checkLimit(&tx.Networks),
			RequireUniqueName(&tx.Networks, in.Name, 0)); err != nil {
			return err
		}
		n = &Network{
			Meta: tx.NewMeta(in.Name, in.Labels), IPRange: in.IPRange, ExposeRoutesToVSwitch: in.ExposeRoutesToVSwitch,
		}
		for i, s := range in.Subnets {
			if err := n.addSubnet(s, tx.Catalogue.NetworkZones(), fmt.Sprintf("subnets[%d].", i)); err != nil {
				return err
			}
		}
		for i, r := range in.Routes {
			if err := n.addRoute(r, fmt.Sprintf("routes[%d].", i)); err != nil {
				return err
			}
		}
		tx.Networks.Put(n)
		return nil
	})
	return n, st, err
}

// UpdateNetwork is the input of PUT /networks/{id}.
type UpdateNetwork struct {
	UpdateResource
	ExposeRoutesToVSwitch *bool
}

// UpdateNetwork changes name, labels and ExposeRoutesToVSwitch. Errors: not_found, conflict,
// invalid_input, uniqueness_error.
func (p Project) UpdateNetwork(id int64, in UpdateNetwork) (*State, error) {
	return onFree(p, inNetworks, id, func(tx *Tx, _ *Network) error {
		if err := setMeta(&tx.Networks, id, in.UpdateResource); err != nil {
			return err
		}
		if in.ExposeRoutesToVSwitch != nil {
			tx.Networks.Update(id, func(n *Network) { n.ExposeRoutesToVSwitch = *in.ExposeRoutesToVSwitch })
		}
		return nil
	})
}

// DeleteNetwork deletes a network and detaches its members. Errors: not_found, protected,
// conflict.
func (p Project) DeleteNetwork(id int64) error {
	_, err := onFree(p, inNetworks, id, func(tx *Tx, n *Network) error {
		if n.DeleteProtection {
			return ErrProtected("network is delete protected")
		}
		for _, m := range n.Members {
			if m.Status != MemberOK {
				return ErrConflict(fmt.Sprintf("the %s %d is %s, please retry", m.Kind, m.ID, m.Status))
			}
		}
		for _, m := range n.Members {
			tx.leaveNetwork(m.Ref, id)
		}
		tx.Networks.Delete(id)
		return nil
	})
	return err
}
