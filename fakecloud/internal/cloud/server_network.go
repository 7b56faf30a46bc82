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

// freeServer returns a server that no action has locked. Errors: not_found, locked.
func (tx *Tx) freeServer(id int64) (*Server, error) {
	s, err := Find(&tx.Servers, id)
	if err != nil {
		return nil, err
	}
	return s, tx.RequireUnlocked(s.Ref())
}

// startOnServerAndNetwork starts an action on a server and a network. It locks only the server.
func (tx *Tx) startOnServerAndNetwork(s *Server, network int64, command string, done func(*Tx) error, failed func(*Tx)) int64 {
	return tx.Start(ActionSpec{
		Command: command, Resources: []Ref{s.Ref(), {KindNetwork, network}}, Locks: []Ref{s.Ref()},
		Done: done, Failed: failed,
	}).ID
}

// AttachServerToNetwork gives a server an interface in a network. Its addresses are reserved at once, and
// shown when the action has succeeded. If the server is on and has a hypervisor, that ends the action.
// Errors: not_found, locked, and those of joining a network.
func (p Project) AttachServerToNetwork(id int64, in AttachServerToNetwork) (action int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		s, err := tx.freeServer(id)
		if err != nil {
			return err
		}
		err = tx.joinNetwork(Join{
			Member: s.Ref(), Zone: s.Location.NetworkZone, Network: in.Network,
			IP: in.IP, Subnet: in.IPRange, AliasIPs: in.AliasIPs,
		})
		if err != nil {
			return err
		}
		action = tx.Start(ActionSpec{
			Command: "attach_to_network", Resources: []Ref{s.Ref(), {KindNetwork, in.Network}}, Locks: []Ref{s.Ref()},
			Guest:  workIfOn(s, true),
			Effect: func(tx *Tx) { tx.joined(s.Ref(), in.Network) },
			Failed: func(tx *Tx) { tx.leaveNetwork(s.Ref(), in.Network) },
		}).ID
		return nil
	})
	return action, st, err
}

// DetachServerFromNetwork removes a server from a network. Errors: not_found, locked,
// invalid_input (it is not attached).
func (p Project) DetachServerFromNetwork(id, network int64) (action int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		s, err := tx.freeServer(id)
		if err != nil {
			return err
		}
		if err := tx.requireAttached(s, network); err != nil {
			return err
		}
		tx.updateMember(s.Ref(), network, func(m *NetworkMember) { m.Status = MemberDetaching })
		action = tx.startOnServerAndNetwork(s, network, "detach_from_network", func(tx *Tx) error {
			tx.leaveNetwork(s.Ref(), network)
			return nil
		}, func(tx *Tx) {
			tx.updateMember(s.Ref(), network, func(m *NetworkMember) { m.Status = MemberOK })
		})
		return nil
	})
	return action, st, err
}

// ChangeAliasIPs replaces a server's alias IPs in a network. Errors: not_found, locked,
// invalid_input (it is not attached), ip_not_available, resource_limit_exceeded.
func (p Project) ChangeAliasIPs(id, network int64, aliases []netip.Addr) (action int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		s, err := tx.freeServer(id)
		if err != nil {
			return err
		}
		if err := tx.requireAttached(s, network); err != nil {
			return err
		}
		n, _ := tx.Networks.Get(network)
		before, _ := n.Member(s.Ref())
		if err := n.checkAliases(aliases, s.Ref(), before.IP); err != nil {
			return err
		}
		// The old and the new addresses are both reserved until the action has ended.
		both := slices.Concat(before.AliasIPs, aliases)
		slices.SortFunc(both, netip.Addr.Compare)
		tx.updateMember(s.Ref(), network, func(m *NetworkMember) {
			m.Status, m.AliasIPs = MemberUpdating, slices.Compact(both)
		})
		settle := func(tx *Tx, to []netip.Addr) {
			tx.updateMember(s.Ref(), network, func(m *NetworkMember) {
				m.Status, m.AliasIPs = MemberOK, slices.Clone(to)
			})
		}
		action = tx.startOnServerAndNetwork(s, network, "change_alias_ips", func(tx *Tx) error {
			settle(tx, aliases)
			tx.Servers.Update(id, func(s *Server) {
				for i := range s.PrivateNets {
					if s.PrivateNets[i].Network == network {
						s.PrivateNets[i].AliasIPs = slices.Clone(aliases)
					}
				}
			})
			return nil
		}, func(tx *Tx) { settle(tx, before.AliasIPs) })
		return nil
	})
	return action, st, err
}

func (tx *Tx) requireAttached(s *Server, network int64) error {
	if _, ok := s.PrivateNet(network); !ok {
		return ErrField("network", fmt.Sprintf("the server is not attached to network %d", network))
	}
	return nil
}
