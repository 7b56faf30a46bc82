package dataplane

import (
	"fmt"
	"net/netip"
)

// RouteKind is the router's treatment of packets for a destination.
type RouteKind int

// The kinds of routes.
const (
	// Unreachable refuses packets with ICMP "host unreachable".
	Unreachable RouteKind = iota
	// Via sends packets to a gateway, a neighbour on the interface.
	Via
	// OnLink sends packets directly to the destination, a neighbour on the interface.
	OnLink
)

// Route is one entry of a router's table.
type Route struct {
	// Destination is an IPv4 range without host bits. A table has one route per destination.
	Destination netip.Prefix
	Kind        RouteKind
	// Gateway is set only for Via.
	Gateway netip.Addr
}

// String returns the route in a format like that of the ip program.
func (r Route) String() string {
	switch r.Kind {
	case Via:
		return fmt.Sprintf("%s via %s", r.Destination, r.Gateway)
	case OnLink:
		return fmt.Sprintf("%s on link", r.Destination)
	}
	return fmt.Sprintf("unreachable %s", r.Destination)
}

// Check returns an error if the route is invalid.
func (r Route) Check() error {
	d := r.Destination
	switch {
	case !d.IsValid() || !d.Addr().Is4() || d != d.Masked():
		return fmt.Errorf("route %s: the destination must be an IPv4 range without host bits", r)
	case r.Kind == Via && !r.Gateway.Is4():
		return fmt.Errorf("route %s: the gateway must be an IPv4 address", r)
	case r.Kind != Via && r.Gateway.IsValid():
		return fmt.Errorf("route %s: must not have a gateway, got %s", r, r.Gateway)
	}
	return nil
}
