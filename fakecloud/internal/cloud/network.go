package cloud

import (
	"net/netip"
	"slices"
)

// Network is a private network.
type Network struct {
	Meta
	IPRange               netip.Prefix
	Subnets               []Subnet
	Routes                []Route
	Members               []NetworkMember // by kind and id
	DeleteProtection      bool
	ExposeRoutesToVSwitch bool
}

// Subnet is a part of a network that addresses are taken from.
type Subnet struct {
	Type        string // cloud, server (deprecated) or vswitch
	IPRange     netip.Prefix
	NetworkZone string
	Gateway     netip.Addr
	VSwitchID   int64 // 0 unless Type is vswitch
}

// Route sends traffic for a destination to a member of the network.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr
}

// NetworkMember is a server or load balancer in a network.
type NetworkMember struct {
	Ref
	IP       netip.Addr
	AliasIPs []netip.Addr
	Subnet   netip.Prefix
	Status   MemberStatus
}

// MemberStatus is how far a member is in joining or leaving a network.
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
