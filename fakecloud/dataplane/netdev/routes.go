package netdev

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
)

// diff returns the changes from the routes have to the routes want. The caller first adds the routes in
// set. An added route may replace one with the same destination. Then the caller deletes those in
// remove. Both are sorted by destination. If several wanted routes have the same destination, the first
// one is used.
func diff(have, want []dataplane.Route) (set, remove []dataplane.Route) {
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

func byDestination(routes []dataplane.Route) map[netip.Prefix]dataplane.Route {
	out := make(map[netip.Prefix]dataplane.Route, len(routes))
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
