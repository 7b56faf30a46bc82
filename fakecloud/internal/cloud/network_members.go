package cloud

import "net/netip"

// Join asks for a place in a network for a server or a load balancer.
type Join struct {
	Member  Ref
	Zone    string // the member's network zone
	Network int64
	// IP is the wanted address; the zero value means any free one.
	IP netip.Addr
	// Subnet, if valid, is the subnet to take the address from.
	Subnet   netip.Prefix
	AliasIPs []netip.Addr
}

// joinNetwork checks a Join and reserves its addresses. The member is "attaching", and neither it
// nor anybody else sees the address in private_net, until joined is called.
// Errors: not_found, invalid_input, server_already_attached or load_balancer_already_attached,
// ip_not_available, no_subnet_available, networks_overlap, resource_limit_exceeded.
func (tx *Tx) joinNetwork(j Join) error { panic("being written") }

// joined makes a reserved place visible: the member is "ok" and its private_net has the address.
func (tx *Tx) joined(member Ref, network int64) { panic("being written") }

// leaveNetwork takes a member out of a network at once and releases its addresses.
func (tx *Tx) leaveNetwork(member Ref, network int64) { panic("being written") }

// leaveAllNetworks is leaveNetwork for every network that the member is in or is joining.
func (tx *Tx) leaveAllNetworks(member Ref) { panic("being written") }
