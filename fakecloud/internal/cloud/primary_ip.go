package cloud

import (
	"maps"
	"net/netip"
)

// IPType is the version of an address.
type IPType string

// The two types of a Primary IP.
const (
	IPv4 IPType = "ipv4"
	IPv6 IPType = "ipv6"
)

// PrimaryIP is a public address, or an IPv6 network of 64 bits, that exists apart from what it is
// assigned to.
type PrimaryIP struct {
	Meta
	Type     IPType
	IP       netip.Prefix // of 32 or 64 bits
	Location *Location
	// Assignee is the server or load balancer that has the address; its zero value means none.
	Assignee   Ref
	AutoDelete bool
	Blocked    bool
	// DNSPtr maps addresses to their reverse DNS entry.
	DNSPtr           map[netip.Addr]string
	DeleteProtection bool
}

// Clone implements Object.
func (p *PrimaryIP) Clone() *PrimaryIP {
	c := *p
	c.DNSPtr = maps.Clone(p.DNSPtr)
	return &c
}

// Ref returns the reference to the Primary IP.
func (p *PrimaryIP) Ref() Ref { return Ref{KindPrimaryIP, p.ID} }
