package netdev

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
)

func via(destination, gateway string) dataplane.Route {
	return dataplane.Route{Destination: netip.MustParsePrefix(destination), Kind: dataplane.Via, Gateway: netip.MustParseAddr(gateway)}
}

func to(kind dataplane.RouteKind, destination string) dataplane.Route {
	return dataplane.Route{Destination: netip.MustParsePrefix(destination), Kind: kind}
}

func TestOnlyTheDifferenceOfTwoTablesIsApplied(t *testing.T) {
	t.Parallel()
	a, b := via("10.244.1.0/24", "10.0.0.2"), via("10.244.2.0/24", "10.0.0.3")
	moved := via("10.244.1.0/24", "10.0.0.4")
	rest := to(dataplane.Unreachable, "0.0.0.0/0")
	for name, tc := range map[string]struct{ have, want, set, remove []dataplane.Route }{
		"nothing":                   {},
		"first":                     {nil, []dataplane.Route{b, a, rest}, []dataplane.Route{rest, a, b}, nil},
		"the same in another order": {[]dataplane.Route{a, b, rest}, []dataplane.Route{rest, b, a}, nil, nil},
		"a gateway that changed":    {[]dataplane.Route{a, b}, []dataplane.Route{moved, b}, []dataplane.Route{moved}, nil},
		"a kind that changed": {[]dataplane.Route{rest}, []dataplane.Route{via("0.0.0.0/0", "10.0.0.2")},
			[]dataplane.Route{via("0.0.0.0/0", "10.0.0.2")}, nil},
		"one less":                {[]dataplane.Route{a, b}, []dataplane.Route{b}, nil, []dataplane.Route{a}},
		"none":                    {[]dataplane.Route{b, a}, nil, nil, []dataplane.Route{a, b}},
		"two for one destination": {nil, []dataplane.Route{a, moved}, []dataplane.Route{a}, nil},
		"one instead of another":  {[]dataplane.Route{a}, []dataplane.Route{b}, []dataplane.Route{b}, []dataplane.Route{a}},
		"a range and its first part": {[]dataplane.Route{to(dataplane.OnLink, "10.0.0.0/16")},
			[]dataplane.Route{to(dataplane.OnLink, "10.0.0.0/24")}, []dataplane.Route{to(dataplane.OnLink, "10.0.0.0/24")},
			[]dataplane.Route{to(dataplane.OnLink, "10.0.0.0/16")}},
	} {
		set, remove := diff(tc.have, tc.want)
		if !slices.Equal(set, tc.set) || !slices.Equal(remove, tc.remove) {
			t.Errorf("%s: set %v, remove %v", name, set, remove)
		}
	}
}

func TestADiffLeadsFromAnyTableToAnyOther(t *testing.T) {
	t.Parallel()
	var universe []dataplane.Route
	for _, d := range []string{"10.1.0.0/16", "10.2.0.0/16"} {
		universe = append(universe, to(dataplane.Unreachable, d), to(dataplane.OnLink, d), via(d, "10.0.0.1"))
	}
	subsets := func(f func([]dataplane.Route)) {
		for mask := range 1 << len(universe) {
			var s []dataplane.Route
			for i, r := range universe {
				if mask&(1<<i) != 0 {
					s = append(s, r)
				}
			}
			f(s)
		}
	}
	subsets(func(have []dataplane.Route) {
		subsets(func(want []dataplane.Route) {
			table := byDestination(have)
			set, remove := diff(have, want)
			for _, r := range set {
				table[r.Destination] = r
			}
			for _, r := range remove {
				delete(table, r.Destination)
			}
			wanted := byDestination(want)
			if len(table) != len(wanted) {
				t.Fatalf("%v to %v: %v", have, want, table)
			}
			for d, r := range wanted {
				if table[d] != r {
					t.Fatalf("%v to %v: %v", have, want, table)
				}
			}
		})
	})
}
