package cloud

import (
	"fmt"
	"net/netip"
	"slices"
)

// changeNetwork starts an action on a network. plan checks the change and returns it.
func (p Project) changeNetwork(id int64, command string, plan func(*Network) (effect, error)) (int64, *State, error) {
	return act(p, inNetworks, id, func(_ *Tx, n *Network) (ActionSpec, error) {
		does, err := plan(n)
		return ActionSpec{Command: command, Does: does}, err
	})
}

// AddSubnet adds a subnet. Without an IP range, the subnet gets the first free /24.
// Errors: not_found, conflict, invalid_input, resource_limit_exceeded.
func (p Project) AddSubnet(id int64, s Subnet) (int64, *State, error) {
	zones := p.cloud.offered.NetworkZones()
	return p.changeNetwork(id, "add_subnet", func(n *Network) (effect, error) {
		checked := n.Clone()
		err := checked.addSubnet(s, zones, "")
		return subnetAddition{subnetChange{id, checked.Subnets}, n.Subnets}, err
	})
}

// DeleteSubnet deletes a subnet that has no members. Errors: not_found (including a missing subnet),
// conflict, service_error.
func (p Project) DeleteSubnet(id int64, r netip.Prefix) (int64, *State, error) {
	return p.changeNetwork(id, "delete_subnet", func(n *Network) (effect, error) {
		left := slices.DeleteFunc(slices.Clone(n.Subnets), func(s Subnet) bool { return s.IPRange == r })
		if len(left) == len(n.Subnets) {
			return nil, &Error{Code: "not_found", Status: 404, Message: fmt.Sprintf("the network has no subnet %s", r)}
		}
		// terraform-provider-hcloud issues 343, 388 and 412 show both messages.
		var err error
		for _, m := range n.Members {
			if m.Subnet != r && !slices.ContainsFunc(m.AliasIPs, r.Contains) {
				continue
			}
			if m.Kind == KindServer {
				return nil, ErrServiceError("cannot remove subnet because servers are attached to it")
			}
			err = ErrServiceError("network has attached resources")
		}
		return subnetChange{id, left}, err
	})
}

// The network is locked until one of the changes below ends, so that they may replace a list as a whole.

type subnetChange struct {
	Network int64
	Subnets []Subnet
}

func (e subnetChange) end(tx *Tx) {
	tx.Networks.Update(e.Network, func(n *Network) { n.Subnets = e.Subnets })
}

// subnetAddition is shown while its action runs: a client that was written for the real API reads it at once.
type subnetAddition struct {
	subnetChange
	Was []Subnet
}

func (e subnetAddition) begin(tx *Tx)            { e.end(tx) }
func (e subnetAddition) failed(tx *Tx, _ *Error) { subnetChange{e.Network, e.Was}.end(tx) }

type routeChange struct {
	Network int64
	Routes  []Route
}

func (e routeChange) end(tx *Tx) {
	tx.Networks.Update(e.Network, func(n *Network) { n.Routes = e.Routes })
}

// AddRoute adds a route. Errors: not_found, conflict, invalid_input, resource_limit_exceeded.
func (p Project) AddRoute(id int64, r Route) (int64, *State, error) {
	return p.changeNetwork(id, "add_route", func(n *Network) (effect, error) {
		return routeChange{id, append(slices.Clone(n.Routes), r)}, n.checkRoute(r, "")
	})
}

// DeleteRoute deletes the route with this destination and gateway. Errors: not_found (including a
// missing route), conflict.
func (p Project) DeleteRoute(id int64, r Route) (int64, *State, error) {
	return p.changeNetwork(id, "delete_route", func(n *Network) (effect, error) {
		left := slices.DeleteFunc(slices.Clone(n.Routes), func(x Route) bool { return x == r })
		if len(left) == len(n.Routes) {
			return nil, &Error{
				Code: "not_found", Status: 404,
				Message: fmt.Sprintf("the network has no route to %s via %s", r.Destination, r.Gateway),
			}
		}
		return routeChange{id, left}, nil
	})
}

// ChangeIPRange makes a network larger. Errors: not_found, conflict, invalid_input.
func (p Project) ChangeIPRange(id int64, r netip.Prefix) (int64, *State, error) {
	return p.changeNetwork(id, "change_ip_range", func(n *Network) (effect, error) { return rangeChange{id, r}, n.checkGrowth(r) })
}

type rangeChange struct {
	Network int64
	IPRange netip.Prefix
}

func (e rangeChange) end(tx *Tx) {
	tx.Networks.Update(e.Network, func(n *Network) { n.IPRange = e.IPRange })
}

// ChangeNetworkProtection sets the delete protection; nil changes nothing. The action ends at once.
// Errors: not_found, conflict.
func (p Project) ChangeNetworkProtection(id int64, protect *bool) (int64, *State, error) {
	return act(p, inNetworks, id, func(_ *Tx, n *Network) (ActionSpec, error) {
		return ActionSpec{Command: "change_protection", Immediate: true, Does: protectionOf(n.Ref(), protect)}, nil
	})
}
