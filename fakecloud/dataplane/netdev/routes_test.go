package netdev

import (
	"net/netip"
	"slices"
	"testing"
)

func via(destination, gateway string) Route {
	return Route{Destination: netip.MustParsePrefix(destination), Kind: Via, Gateway: netip.MustParseAddr(gateway)}
}

func to(kind RouteKind, destination string) Route {
	return Route{Destination: netip.MustParsePrefix(destination), Kind: kind}
}

func TestOnlyTheDifferenceOfTwoTablesIsApplied(t *testing.T) {
	t.Parallel()
	a, b := via("10.244.1.0/24", "10.0.0.2"), via("10.244.2.0/24", "10.0.0.3")
	moved := via("10.244.1.0/24", "10.0.0.4")
	rest := to(Unreachable, "0.0.0.0/0")
	for name, tc := range map[string]struct{ have, want, set, remove []Route }{
		"nothing":                    {},
		"first":                      {nil, []Route{b, a, rest}, []Route{rest, a, b}, nil},
		"the same in another order":  {[]Route{a, b, rest}, []Route{rest, b, a}, nil, nil},
		"a gateway that changed":     {[]Route{a, b}, []Route{moved, b}, []Route{moved}, nil},
		"a kind that changed":        {[]Route{rest}, []Route{via("0.0.0.0/0", "10.0.0.2")}, []Route{via("0.0.0.0/0", "10.0.0.2")}, nil},
		"one less":                   {[]Route{a, b}, []Route{b}, nil, []Route{a}},
		"none":                       {[]Route{b, a}, nil, nil, []Route{a, b}},
		"two for one destination":    {nil, []Route{a, moved}, []Route{a}, nil},
		"one instead of another":     {[]Route{a}, []Route{b}, []Route{b}, []Route{a}},
		"a range and its first part": {[]Route{to(OnLink, "10.0.0.0/16")}, []Route{to(OnLink, "10.0.0.0/24")}, []Route{to(OnLink, "10.0.0.0/24")}, []Route{to(OnLink, "10.0.0.0/16")}},
	} {
		set, remove := Diff(tc.have, tc.want)
		if !slices.Equal(set, tc.set) || !slices.Equal(remove, tc.remove) {
			t.Errorf("%s: set %v, remove %v", name, set, remove)
		}
	}
}

func TestADiffLeadsFromAnyTableToAnyOther(t *testing.T) {
	t.Parallel()
	var universe []Route
	for _, d := range []string{"10.1.0.0/16", "10.2.0.0/16"} {
		universe = append(universe, to(Unreachable, d), to(OnLink, d), via(d, "10.0.0.1"))
	}
	subsets := func(f func([]Route)) {
		for mask := range 1 << len(universe) {
			var s []Route
			for i, r := range universe {
				if mask&(1<<i) != 0 {
					s = append(s, r)
				}
			}
			f(s)
		}
	}
	subsets(func(have []Route) {
		subsets(func(want []Route) {
			table := byDestination(have)
			set, remove := Diff(have, want)
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
