package cloud

import (
	"net/netip"
	"slices"
	"testing"
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// takeAll takes addresses until there are none left.
func takeAll(t *testing.T, p Project, take func(*Tx) (netip.Addr, error)) []string {
	t.Helper()
	var out []string
	_, err := p.update(func(tx *Tx) error {
		for {
			a, err := take(tx)
			if err != nil {
				return nil //nolint:nilerr // the pool is empty
			}
			out = append(out, a.String())
		}
	})
	check(t, err)
	slices.Sort(out)
	return out
}

func TestPoolsSkipReservedAddressesAndThoseOfOtherPools(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		servers, balancers, reserved string
		wantServers, wantBalancers   []string
	}{
		"reserved": {
			"10.0.0.0/29", "", "10.0.0.2/31", []string{"10.0.0.1", "10.0.0.4", "10.0.0.5", "10.0.0.6"}, nil,
		},
		"load balancers inside": {
			"10.0.0.0/28", "10.0.0.8/29", "10.0.0.10/32",
			[]string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"},
			[]string{"10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.14", "10.0.0.9"},
		},
		"servers inside": {
			"10.0.0.8/30", "10.0.0.0/28", "10.0.0.0/29",
			[]string{"10.0.0.10", "10.0.0.9"}, []string{"10.0.0.12", "10.0.0.13", "10.0.0.14"},
		},
		"the same": {"10.0.0.0/30", "10.0.0.0/30", "10.9.0.0/16", []string{"10.0.0.1", "10.0.0.2"}, nil},
		"all":      {"10.0.0.0/29", "", "10.0.0.0/8", nil, nil},
	} {
		o := Options{PublicIPv4: netip.MustParsePrefix(tc.servers), Reserved: prefixes(tc.reserved)}
		if tc.balancers != "" {
			o.LoadBalancerIPv4 = netip.MustParsePrefix(tc.balancers)
		}
		c := New(o)
		t.Cleanup(c.Close)
		p, _ := c.Project(1)
		if got := takeAll(t, p, (*Tx).TakeIPv4); !slices.Equal(got, tc.wantServers) {
			t.Errorf("%s: servers got %v", name, got)
		}
		if got := takeAll(t, p, (*Tx).TakeLoadBalancerIPv4); !slices.Equal(got, tc.wantBalancers) {
			t.Errorf("%s: load balancers got %v", name, got)
		}
	}
}

func TestANetworkGivesReservedAddressesOnlyOnRequest(t *testing.T) {
	t.Parallel()
	c := New(Options{
		PublicIPv4: netip.MustParsePrefix("10.0.0.8/29"), Reserved: prefixes("10.0.0.0/29"),
		Catalogue: &Catalogue{Locations: []*Location{{ID: 1, Name: "fsn1", NetworkZone: "eu-central"}}},
	})
	t.Cleanup(c.Close)
	p, _ := c.Project(1)
	n := did(p.CreateNetwork(CreateNetwork{
		Name: "net", IPRange: netip.MustParsePrefix("10.0.0.0/16"),
		Subnets: []Subnet{{Type: SubnetCloud, IPRange: netip.MustParsePrefix("10.0.0.0/24"), NetworkZone: "eu-central"}},
	}))(t)
	for want, ask := range map[string]netip.Addr{
		"10.0.0.5": netip.MustParseAddr("10.0.0.5"), "10.0.0.9": netip.MustParseAddr("10.0.0.9"), "10.0.0.16": {},
	} {
		s := putServer(t, p, "s"+want, "fsn1")
		_, st, err := p.AttachServerToNetwork(s.ID, AttachServerToNetwork{Network: n.ID, IP: ask})
		check(t, err)
		got, _ := st.Servers.Get(s.ID)
		if in, ok := got.PrivateNet(n.ID); !ok || in.IP.String() != want {
			t.Errorf("asked for %v, got %v", ask, got.PrivateNets)
		}
	}
}
