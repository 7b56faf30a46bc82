package cloud

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/tidwall/btree"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// Join is the request of a server or load balancer to become a member of a network.
type Join struct {
	Member  Ref
	Zone    string // the member's network zone
	Network int64
	// IP is the wanted address. The zero value means any free address.
	IP netip.Addr
	// Subnet, if valid, is the subnet to take the address from.
	Subnet   netip.Prefix
	AliasIPs []netip.Addr
}

// joinNetwork checks a Join and reserves its addresses. The member is "attaching", and private_net does
// not show the address, until joined is called.
// Errors: invalid_input, server_already_attached or load_balancer_already_attached,
// ip_not_available, no_subnet_available, networks_overlap, resource_limit_exceeded.
func (tx *Tx) joinNetwork(j Join) error {
	n, ok := tx.Networks.Get(j.Network)
	if !ok {
		return ErrField("network", fmt.Sprintf("network with ID '%d' not found", j.Network))
	}
	if err := tx.mayJoin(n, j.Member); err != nil {
		return err
	}
	ip, subnet, err := n.pick(j, tx.cloud.private)
	if err != nil {
		return err
	}
	if err := n.checkAliases(j.AliasIPs, j.Member, ip); err != nil {
		return err
	}
	tx.Networks.Update(n.ID, func(n *Network) {
		n.Members = append(n.Members, NetworkMember{
			Ref: j.Member, IP: ip, AliasIPs: slices.Clone(j.AliasIPs), Subnet: subnet, Status: MemberAttaching,
		})
		slices.SortFunc(n.Members, func(a, b NetworkMember) int { return compareRef(a.Ref, b.Ref) })
	})
	tx.memberships = store.CopyTree(tx.memberships)
	tx.memberships.Set(membership{j.Member, n.ID})
	return nil
}

// membership is an entry of the index from members to the networks that they are in or are joining.
type membership struct {
	member  Ref
	network int64
}

func newMembershipIndex() *btree.BTreeG[membership] {
	return store.NewTree(func(a, b membership) bool {
		return cmp.Or(compareRef(a.member, b.member), cmp.Compare(a.network, b.network)) < 0
	})
}

// networksOf returns the networks that a member is in or is joining, by id.
func (st *State) networksOf(member Ref) (all []*Network) {
	st.memberships.Ascend(membership{member: member}, func(m membership) bool {
		if m.member != member {
			return false
		}
		n, _ := st.Networks.Get(m.network)
		all = append(all, n)
		return true
	})
	return all
}

// mayJoin checks everything about a new member except its addresses.
func (tx *Tx) mayJoin(n *Network, member Ref) error {
	if _, in := n.Member(member); in {
		return alreadyAttached(member.Kind, "this network")
	}
	if len(n.Members) >= MaxMembersPerNetwork {
		return ErrLimitExceeded("network_resources_limit", fmt.Sprintf("a network has at most %d resources", MaxMembersPerNetwork))
	}
	joined := tx.networksOf(member)
	for _, other := range joined {
		switch {
		case member.Kind == KindLoadBalancer:
			return alreadyAttached(member.Kind, "a network")
		case other.IPRange.Overlaps(n.IPRange):
			return ErrOperation("networks_overlap", fmt.Sprintf(
				"the IP range %s overlaps with %s of network %d that the server is in", n.IPRange, other.IPRange, other.ID))
		}
	}
	if len(joined) >= MaxNetworksPerServer {
		return ErrLimitExceeded("server_networks_limit", fmt.Sprintf("a server can be in at most %d networks", MaxNetworksPerServer))
	}
	return nil
}

func alreadyAttached(kind store.Kind, what string) *Error {
	return ErrOperation(Code(kind)+"_already_attached", fmt.Sprintf("the %s is already attached to %s", kind, what))
}

// pick returns the address and the subnet for a new member. It picks a reserved address only if the
// member asks for it.
func (n *Network) pick(j Join, reserved reservations) (netip.Addr, netip.Prefix, error) {
	fail := func(err error) (netip.Addr, netip.Prefix, error) { return netip.Addr{}, netip.Prefix{}, err }
	if j.Subnet.IsValid() {
		if !slices.ContainsFunc(n.Subnets, func(s Subnet) bool { return s.IPRange == j.Subnet }) {
			return fail(ErrField("ip_range", fmt.Sprintf("the network has no subnet %s", j.Subnet)))
		}
		if j.IP.IsValid() && !j.Subnet.Contains(j.IP) {
			return fail(ErrField("ip", fmt.Sprintf("%s is not part of ip_range %s", j.IP, j.Subnet)))
		}
	}
	for _, s := range n.Subnets {
		if s.Type == SubnetVSwitch || s.NetworkZone != j.Zone || j.Subnet.IsValid() && s.IPRange != j.Subnet {
			continue
		}
		if !j.IP.IsValid() {
			if ip, ok := freeIn(s.IPRange, 1, func(a netip.Addr) bool { return reserved.contain(a) || n.taken(a) }); ok {
				return ip, s.IPRange, nil
			}
			continue
		}
		if s.IPRange.Contains(j.IP) {
			if n.taken(j.IP) || j.IP == s.IPRange.Addr() || j.IP == lastAddr(s.IPRange) {
				return fail(ErrOperation("ip_not_available", "IP not available"))
			}
			return j.IP, s.IPRange, nil
		}
	}
	if j.IP.IsValid() {
		return fail(ErrOperation("ip_not_available", fmt.Sprintf(
			"the IP %s is in no subnet of the network in network zone %s", j.IP, j.Zone)))
	}
	return fail(ErrOperation("no_subnet_available", "no subnet or IP available")) // terraform-provider-hcloud pull request 394
}

// checkAliases checks the wanted alias IPs of a member. ip is the member's address.
func (n *Network) checkAliases(aliases []netip.Addr, member Ref, ip netip.Addr) error {
	if len(aliases) > MaxAliasIPs {
		return ErrLimitExceeded("alias_ips_limit", fmt.Sprintf("a server has at most %d alias IPs in a network", MaxAliasIPs))
	}
	for i, a := range aliases {
		inSubnet := slices.ContainsFunc(n.Subnets, func(s Subnet) bool {
			return s.Type != SubnetVSwitch && s.IPRange.Contains(a) && a != s.IPRange.Addr() && a != lastAddr(s.IPRange)
		})
		own := false
		if m, in := n.Member(member); in {
			own = slices.Contains(m.AliasIPs, a)
		}
		if !inSubnet || a == ip || slices.Contains(aliases[:i], a) || n.taken(a) && !own {
			return ErrOperation("ip_not_available", fmt.Sprintf("the alias IP %s is not available", a))
		}
	}
	return nil
}

// gatewayOfPublicNet is the gateway of servers' public interfaces. Private networks may not use it.
var gatewayOfPublicNet = netip.MustParseAddr("172.31.1.1")

// taken reports whether an address is reserved or in use in the network.
func (n *Network) taken(a netip.Addr) bool {
	if a == n.gateway() || a == gatewayOfPublicNet {
		return true
	}
	return slices.ContainsFunc(n.Members, func(m NetworkMember) bool {
		return m.IP == a || slices.Contains(m.AliasIPs, a)
	})
}

// Member returns a resource's membership in the network.
func (n *Network) Member(r Ref) (NetworkMember, bool) {
	i, ok := slices.BinarySearchFunc(n.Members, r, func(m NetworkMember, r Ref) int { return compareRef(m.Ref, r) })
	if !ok {
		return NetworkMember{}, false
	}
	return n.Members[i], true
}

// updateMember changes a member of a network.
func (tx *Tx) updateMember(member Ref, network int64, change func(*NetworkMember)) {
	tx.Networks.Update(network, func(n *Network) {
		for i := range n.Members {
			if n.Members[i].Ref == member {
				change(&n.Members[i])
			}
		}
	})
}

// joined completes joinNetwork: the member is "ok", and its private_net shows the address.
func (tx *Tx) joined(member Ref, network int64) {
	n, ok := tx.Networks.Get(network)
	if !ok {
		return
	}
	m, in := n.Member(member)
	if !in {
		return
	}
	tx.updateMember(member, network, func(m *NetworkMember) { m.Status = MemberOK })
	switch member.Kind {
	case KindServer:
		tx.Servers.Update(member.ID, func(s *Server) {
			s.PrivateNets = append(s.PrivateNets, ServerPrivateNet{
				Network: network, IP: m.IP, AliasIPs: slices.Clone(m.AliasIPs), MAC: macOf(member.ID, network),
			})
		})
		tx.refreshTargets(member.ID)
	case KindLoadBalancer:
		tx.LoadBalancers.Update(member.ID, func(lb *LoadBalancer) {
			lb.PrivateNets = append(lb.PrivateNets, LoadBalancerPrivateNet{Network: network, IP: m.IP})
		})
		tx.refreshLoadBalancer(member.ID)
	}
}

// leaveNetwork removes a member from a network at once, and releases its addresses.
func (tx *Tx) leaveNetwork(member Ref, network int64) {
	tx.Networks.Update(network, func(n *Network) {
		n.Members = slices.DeleteFunc(n.Members, func(m NetworkMember) bool { return m.Ref == member })
	})
	tx.memberships = store.CopyTree(tx.memberships)
	tx.memberships.Delete(membership{member, network})
	switch member.Kind {
	case KindServer:
		if s, ok := tx.Servers.Get(member.ID); ok {
			if _, in := s.PrivateNet(network); in {
				tx.Servers.Update(member.ID, func(s *Server) {
					s.PrivateNets = slices.DeleteFunc(s.PrivateNets, func(p ServerPrivateNet) bool { return p.Network == network })
				})
				tx.refreshTargets(member.ID)
			}
		}
	case KindLoadBalancer:
		tx.LoadBalancers.Update(member.ID, func(lb *LoadBalancer) {
			lb.PrivateNets = slices.DeleteFunc(lb.PrivateNets, func(p LoadBalancerPrivateNet) bool { return p.Network == network })
		})
		tx.refreshLoadBalancer(member.ID)
	}
}

// attachToNetwork returns the action that completes joinNetwork.
func attachToNetwork(member Ref, network int64) ActionSpec {
	return ActionSpec{Command: "attach_to_network", Resources: []Ref{member, {KindNetwork, network}}, Does: attaching{member, network}}
}

type attaching struct {
	Member  Ref
	Network int64
}

func (e attaching) end(tx *Tx)              { tx.joined(e.Member, e.Network) }
func (e attaching) failed(tx *Tx, _ *Error) { tx.leaveNetwork(e.Member, e.Network) }

// detachFromNetwork returns the action that removes a member from a network.
func (tx *Tx) detachFromNetwork(member Ref, network int64) ActionSpec {
	tx.updateMember(member, network, func(m *NetworkMember) { m.Status = MemberDetaching })
	return ActionSpec{Command: "detach_from_network", Resources: []Ref{member, {KindNetwork, network}}, Does: detaching{member, network}}
}

type detaching attaching

func (e detaching) end(tx *Tx) { tx.leaveNetwork(e.Member, e.Network) }

func (e detaching) failed(tx *Tx, _ *Error) {
	tx.updateMember(e.Member, e.Network, func(m *NetworkMember) { m.Status = MemberOK })
}

// leaveAllNetworks is leaveNetwork for every network that the member is in or is joining.
func (tx *Tx) leaveAllNetworks(member Ref) {
	for _, n := range tx.networksOf(member) {
		tx.leaveNetwork(member, n.ID)
	}
}

// macOf derives the MAC address of an interface. It has the real cloud's prefix.
func macOf(member, network int64) string {
	h := uint64(member)*0x9e3779b97f4a7c15 ^ uint64(network)*0xc2b2ae3d27d4eb4f
	h ^= h >> 29
	return fmt.Sprintf("86:00:%02x:%02x:%02x:%02x", byte(h>>24), byte(h>>16), byte(h>>8), byte(h))
}

// MemberFilter selects members of a network; empty fields match all.
type MemberFilter struct {
	Types    []string
	Subnets  []string
	Statuses []string
}

// FilterMembers returns the members that match, by id.
func (n *Network) FilterMembers(f MemberFilter) []NetworkMember {
	matches := func(want []string, have string) bool { return len(want) == 0 || slices.Contains(want, have) }
	var out []NetworkMember
	for _, m := range n.Members {
		if matches(f.Types, string(m.Kind)) && matches(f.Subnets, m.Subnet.String()) && matches(f.Statuses, string(m.Status)) {
			out = append(out, m)
		}
	}
	slices.SortStableFunc(out, func(a, b NetworkMember) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
