package netdev

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// RouteKind is what the router does with packets for a destination.
type RouteKind int

// The kinds of routes.
const (
	// Unreachable refuses packets with ICMP "host unreachable".
	Unreachable RouteKind = iota
	// Via sends packets to a gateway, which is a neighbour on the interface.
	Via
	// OnLink sends packets directly to the destination, which is a neighbour on the interface.
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

// check returns an error if the route is invalid.
func (r Route) check() error {
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

// Diff returns the changes from the routes have to the routes want. The caller first adds the routes in
// set, which may replace a route with the same destination, and then deletes those in remove. Both are
// sorted by destination. If several wanted routes have the same destination, the first one is used.
func Diff(have, want []Route) (set, remove []Route) {
	old, wanted := byDestination(have), byDestination(want)
	for _, d := range slices.SortedFunc(maps.Keys(wanted), comparePrefix) {
		if r := wanted[d]; old[d] != r {
			set = append(set, r)
		}
	}
	for _, d := range slices.SortedFunc(maps.Keys(old), comparePrefix) {
		if _, ok := wanted[d]; !ok {
			remove = append(remove, old[d])
		}
	}
	return set, remove
}

func byDestination(routes []Route) map[netip.Prefix]Route {
	out := make(map[netip.Prefix]Route, len(routes))
	for _, r := range routes {
		if _, ok := out[r.Destination]; !ok {
			out[r.Destination] = r
		}
	}
	return out
}

func comparePrefix(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}
