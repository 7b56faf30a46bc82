package plane

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

func TestARouterHasTheRoutesOfTheNetwork(t *testing.T) {
	t.Parallel()
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	n := &cloud.Network{
		IPRange: prefix("172.30.0.0/16"),
		Subnets: []cloud.Subnet{
			{Type: cloud.SubnetCloud, IPRange: prefix("172.30.0.0/24")}, {Type: cloud.SubnetServer, IPRange: prefix("172.30.1.0/24")},
			{Type: cloud.SubnetVSwitch, IPRange: prefix("172.30.2.0/24")},
		},
		Members: []cloud.NetworkMember{
			{Ref: cloud.Ref{Kind: cloud.KindServer, ID: 1}, IP: addr("172.30.0.11"), Status: cloud.MemberOK,
				AliasIPs: []netip.Addr{addr("172.30.0.12")}},
			{Ref: cloud.Ref{Kind: cloud.KindServer, ID: 2}, IP: addr("172.30.0.13"), Status: cloud.MemberAttaching},
			{Ref: cloud.Ref{Kind: cloud.KindServer, ID: 3}, IP: addr("172.30.0.14"), Status: cloud.MemberDetaching},
			{Ref: cloud.Ref{Kind: cloud.KindLoadBalancer, ID: 4}, IP: addr("172.30.0.15"), Status: cloud.MemberOK},
		},
	}
	gateways := []string{"172.30.0.11", "172.30.0.12", "172.30.0.13", "172.30.0.14", "172.30.0.15", "172.30.0.16"}
	for i, g := range gateways {
		n.Routes = append(n.Routes, cloud.Route{Destination: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24),
			Gateway: addr(g)})
	}
	n.Routes = append(n.Routes, cloud.Route{Destination: prefix("0.0.0.0/0"), Gateway: addr("172.30.0.11")})
	var got []string
	for _, r := range routingTable(n) {
		got = append(got, r.String())
	}
	want := []string{
		"172.30.0.0/24 on link", "172.30.1.0/24 on link",
		"10.244.0.0/24 via 172.30.0.11", "10.244.1.0/24 via 172.30.0.12", "unreachable 10.244.2.0/24",
		"10.244.3.0/24 via 172.30.0.14", "unreachable 10.244.4.0/24", "unreachable 10.244.5.0/24", "0.0.0.0/0 via 172.30.0.11",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if routingTable(nil) != nil {
		t.Error("there are routes without a network")
	}
}

func TestARouterChoosesANetwork(t *testing.T) {
	t.Parallel()
	network := func(id int64, name string) *cloud.Network {
		return &cloud.Network{Meta: store.Meta{ID: id, Name: name}}
	}
	all := []*cloud.Network{network(12, "b"), network(11, "a"), network(10, "b"), network(13, "11")}
	for _, tc := range []struct {
		networks []*cloud.Network
		want     string
		id       int64
		others   int
	}{
		{nil, "", 0, 0}, {nil, "a", 0, 0},
		{all[:1], "", 12, 0}, {all, "", 10, 3},
		{all, "a", 11, 3}, {all, "b", 10, 3}, {all, "13", 13, 3}, {all, "11", 11, 3},
		{all, "c", 0, 4}, {all, "9", 0, 4},
	} {
		n, others := chooseNetwork(slices.Values(tc.networks), tc.want)
		if n == nil {
			n = &cloud.Network{}
		}
		if n.ID != tc.id || others != tc.others {
			t.Errorf("%q of %d: network %d, %d others", tc.want, len(tc.networks), n.ID, others)
		}
	}
}
