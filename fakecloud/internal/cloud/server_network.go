package cloud

import (
	"fmt"
	"net/netip"
	"slices"
)

// AttachServerToNetwork is the input of POST /servers/{id}/actions/attach_to_network.
type AttachServerToNetwork struct {
	Network  int64
	IP       netip.Addr   // zero for any free address
	IPRange  netip.Prefix // zero for any subnet
	AliasIPs []netip.Addr
}

// AttachServerToNetwork gives a server an interface in a network. Its addresses are reserved at once, and
// shown when the action has succeeded. If the server is on and has a hypervisor, that ends the action.
// Errors: not_found, locked, and those of joining a network.
func (p Project) AttachServerToNetwork(id int64, in AttachServerToNetwork) (int64, *State, error) {
	return act(p, inServers, id, func(tx *Tx, s *Server) (ActionSpec, error) {
		spec := attachToNetwork(s.Ref(), in.Network)
		spec.Guest = workIfOn(s, true)
		return spec, tx.joinNetwork(Join{
			Member: s.Ref(), Zone: s.Location.NetworkZone, Network: in.Network,
			IP: in.IP, Subnet: in.IPRange, AliasIPs: in.AliasIPs,
		})
	})
}

// DetachServerFromNetwork removes a server from a network. Errors: not_found, locked,
// invalid_input (it is not attached).
func (p Project) DetachServerFromNetwork(id, network int64) (int64, *State, error) {
	return act(p, inServers, id, func(tx *Tx, s *Server) (ActionSpec, error) {
		if err := tx.requireAttached(s, network); err != nil {
			return ActionSpec{}, err
		}
		return tx.detachFromNetwork(s.Ref(), network), nil
	})
}

// ChangeAliasIPs replaces a server's alias IPs in a network. Errors: not_found, locked,
// invalid_input (it is not attached), ip_not_available, resource_limit_exceeded.
func (p Project) ChangeAliasIPs(id, network int64, aliases []netip.Addr) (int64, *State, error) {
	return act(p, inServers, id, func(tx *Tx, s *Server) (ActionSpec, error) {
		if err := tx.requireAttached(s, network); err != nil {
			return ActionSpec{}, err
		}
		n, _ := tx.Networks.Get(network)
		before, _ := n.Member(s.Ref())
		if err := n.checkAliases(aliases, s.Ref(), before.IP); err != nil {
			return ActionSpec{}, err
		}
		// The old and the new addresses are both reserved until the action ends.
		both := slices.Concat(before.AliasIPs, aliases)
		slices.SortFunc(both, netip.Addr.Compare)
		tx.updateMember(s.Ref(), network, func(m *NetworkMember) {
			m.Status, m.AliasIPs = MemberUpdating, slices.Compact(both)
		})
		return ActionSpec{
			Command: "change_alias_ips", Resources: []Ref{s.Ref(), {KindNetwork, network}},
			Does: aliasChange{s.Ref(), network, before.AliasIPs, aliases},
		}, nil
	})
}

type aliasChange struct {
	Member      Ref
	Network     int64
	Before, New []netip.Addr
}

func (e aliasChange) settle(tx *Tx, to []netip.Addr) {
	tx.updateMember(e.Member, e.Network, func(m *NetworkMember) { m.Status, m.AliasIPs = MemberOK, slices.Clone(to) })
}

func (e aliasChange) end(tx *Tx) {
	e.settle(tx, e.New)
	tx.Servers.Update(e.Member.ID, func(s *Server) {
		for i := range s.PrivateNets {
			if s.PrivateNets[i].Network == e.Network {
				s.PrivateNets[i].AliasIPs = slices.Clone(e.New)
			}
		}
	})
}

func (e aliasChange) failed(tx *Tx, _ *Error) { e.settle(tx, e.Before) }

func (tx *Tx) requireAttached(s *Server, network int64) error {
	if _, ok := s.PrivateNet(network); !ok {
		return ErrField("network", fmt.Sprintf("the server is not attached to network %d", network))
	}
	return nil
}
