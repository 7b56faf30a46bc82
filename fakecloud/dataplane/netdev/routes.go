package netdev

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// RouteKind says what becomes of packets for a destination.
type RouteKind int

// The kinds of routes.
const (
	// Unreachable packets are refused with ICMP "host unreachable".
	Unreachable RouteKind = iota
	// Via a gateway, which is a neighbour on the interface.
	Via
	// OnLink destinations are neighbours on the interface themselves.
	OnLink
)

// Route is one entry of a router's table.
type Route struct {
	// Destination is an IPv4 range without host bits. A table has one route per destination.
	Destination netip.Prefix
	Kind        RouteKind
	// Gateway is set for Via only.
	Gateway netip.Addr
}

// String returns the route as the ip program writes it.
func (r Route) String() string {
	switch r.Kind {
	case Via:
		return fmt.Sprintf("%s via %s", r.Destination, r.Gateway)
	case OnLink:
		return fmt.Sprintf("%s on link", r.Destination)
	}
	return fmt.Sprintf("unreachable %s", r.Destination)
}

// check returns what is wrong with a route that is to be set.
func (r Route) check() error {
	d := r.Destination
	switch {
	case !d.IsValid() || !d.Addr().Is4() || d != d.Masked():
		return fmt.Errorf("route %s: the destination must be an IPv4 range without host bits", r)
	case r.Kind == Via && !r.Gateway.Is4():
		return fmt.Errorf("route %s: the gateway must be an IPv4 address", r)
	case r.Kind != Via && r.Gateway.IsValid():
		return fmt.Errorf("route %s: has a gateway %s that it does not use", r, r.Gateway)
	}
	return nil
}

// Diff returns what is to be done to get from the routes that there are to those that there shall be:
// set adds a route or replaces that of the same destination, and is to be done first, remove takes
// away one whose destination nobody wants. Both are in the order of their destinations. Of several wanted
// routes with one destination the first counts.
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
