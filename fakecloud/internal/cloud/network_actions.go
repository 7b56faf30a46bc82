package cloud

import (
	"fmt"
	"net/netip"
	"slices"
)

// startOnNetwork starts an action that locks a network.
func (tx *Tx) startOnNetwork(n *Network, command string, done func(*Tx) error) int64 {
	return tx.Start(ActionSpec{
		Command: command, Resources: []Ref{n.Ref()}, Locks: []Ref{n.Ref()}, Done: done,
	}).ID
}

// changeNetwork starts an action on a network. It calls check now, and change when the action succeeds.
func (p Project) changeNetwork(id int64, command string, check func(*Network) error, change func(*Network)) (action int64, st *State,
	err error) {
	st, err = p.update(func(tx *Tx) error {
		n, err := tx.freeNetwork(id)
		if err != nil {
			return err
		}
		if err := check(n); err != nil {
			return err
		}
		action = tx.startOnNetwork(n, command, func(tx *Tx) error {
			if _, ok := tx.Networks.Update(id, change); !ok {
				return ErrNotFound(KindNetwork, id)
			}
			return nil
		})
		return nil
	})
	return action, st, err
}

// AddSubnet adds a subnet. Without an IP range, the subnet gets the first free /24.
// Errors: not_found, conflict, invalid_input, resource_limit_exceeded.
func (p Project) AddSubnet(id int64, s Subnet) (int64, *State, error) {
	zones := p.cloud.catalogue.NetworkZones()
	var checked *Network
	return p.changeNetwork(id, "add_subnet", func(n *Network) error {
		checked = n.Clone()
		return checked.addSubnet(s, zones, "")
	}, func(n *Network) { n.Subnets = checked.Subnets })
}

// DeleteSubnet deletes a subnet that has no members. Errors: not_found (also for the subnet), conflict,
// service_error.
func (p Project) DeleteSubnet(id int64, r netip.Prefix) (int64, *State, error) {
	return p.changeNetwork(id, "delete_subnet", func(n *Network) error {
		if !slices.ContainsFunc(n.Subnets, func(s Subnet) bool { return s.IPRange == r }) {
			return &Error{Code: "not_found", Status: 404, Message: fmt.Sprintf("the network has no subnet %s", r)}
		}
		// terraform-provider-hcloud issues 343, 388 and 412 show both messages.
		var err error
		for _, m := range n.Members {
			if m.Subnet != r && !slices.ContainsFunc(m.AliasIPs, r.Contains) {
				continue
			}
			if m.Kind == KindServer {
				return ErrServiceError("cannot remove subnet because servers are attached to it")
			}
			err = ErrServiceError("network has attached resources")
		}
		return err
	}, func(n *Network) {
		n.Subnets = slices.DeleteFunc(n.Subnets, func(s Subnet) bool { return s.IPRange == r })
	})
}

// AddRoute adds a route. Errors: not_found, conflict, invalid_input, resource_limit_exceeded.
func (p Project) AddRoute(id int64, r Route) (int64, *State, error) {
	return p.changeNetwork(id, "add_route",
		func(n *Network) error { return n.checkRoute(r, "") },
		func(n *Network) { n.Routes = append(n.Routes, r) })
}

// DeleteRoute deletes the route with this destination and gateway. Errors: not_found (also for the
// route), conflict.
func (p Project) DeleteRoute(id int64, r Route) (int64, *State, error) {
	return p.changeNetwork(id, "delete_route", func(n *Network) error {
		if !slices.Contains(n.Routes, r) {
			return &Error{
				Code: "not_found", Status: 404,
				Message: fmt.Sprintf("the network has no route to %s via %s", r.Destination, r.Gateway),
			}
		}
		return nil
	}, func(n *Network) {
		n.Routes = slices.DeleteFunc(n.Routes, func(x Route) bool { return x == r })
	})
}

// ChangeIPRange makes a network larger. Errors: not_found, conflict, invalid_input.
func (p Project) ChangeIPRange(id int64, r netip.Prefix) (int64, *State, error) {
	return p.changeNetwork(id, "change_ip_range",
		func(n *Network) error { return n.checkGrowth(r) },
		func(n *Network) { n.IPRange = r })
}

// ChangeNetworkProtection sets the delete protection; nil changes nothing. The action ends at once.
// Errors: not_found, conflict.
func (p Project) ChangeNetworkProtection(id int64, protect *bool) (action int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		n, err := tx.freeNetwork(id)
		if err != nil {
			return err
		}
		action = tx.Start(ActionSpec{
			Command: "change_protection", Resources: []Ref{n.Ref()}, Immediate: true,
			Done: func(tx *Tx) error {
				if protect != nil {
					tx.Networks.Update(id, func(n *Network) { n.DeleteProtection = *protect })
				}
				return nil
			},
		}).ID
		return nil
	})
	return action, st, err
}
