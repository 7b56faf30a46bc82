package fakecloud

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
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
			{Ref: cloud.Ref{Kind: cloud.KindServer, ID: 1}, IP: addr("172.30.0.11"), Status: cloud.MemberOK, AliasIPs: []netip.Addr{addr("172.30.0.12")}},
			{Ref: cloud.Ref{Kind: cloud.KindServer, ID: 2}, IP: addr("172.30.0.13"), Status: cloud.MemberAttaching},
			{Ref: cloud.Ref{Kind: cloud.KindServer, ID: 3}, IP: addr("172.30.0.14"), Status: cloud.MemberDetaching},
			{Ref: cloud.Ref{Kind: cloud.KindLoadBalancer, ID: 4}, IP: addr("172.30.0.15"), Status: cloud.MemberOK},
		},
	}
	gateways := []string{"172.30.0.11", "172.30.0.12", "172.30.0.13", "172.30.0.14", "172.30.0.15", "172.30.0.16"}
	for i, g := range gateways {
		n.Routes = append(n.Routes, cloud.Route{Destination: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24), Gateway: addr(g)})
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
		return &cloud.Network{Meta: cloud.Meta{ID: id, Name: name}}
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

// lastRoutes is a RouteTable that holds its last routes until they are taken.
type lastRoutes chan []dataplane.Route

func (l lastRoutes) Set(routes []dataplane.Route) error {
	select {
	case <-l:
	default:
	}
	l <- routes
	return nil
}

// awaitPublic waits until the table's routes, except those of subnets, are these.
func (l lastRoutes) awaitPublic(t *testing.T, when string, want ...string) {
	t.Helper()
	var got []string
	timeout := time.After(time.Minute)
	for got == nil || !slices.Equal(got, want) {
		select {
		case routes := <-l:
			got = []string{}
			for _, r := range routes {
				if r.Kind != dataplane.OnLink {
					got = append(got, r.String())
				}
			}
		case <-timeout:
			t.Fatalf("%s: the routes are %q, want %q", when, got, want)
		}
	}
}

// user is a user of the API who gets no errors.
type user struct {
	*testing.T
	client *hcloud.Client
}

func (u user) did(_ any, _ *hcloud.Response, err error) {
	u.Helper()
	if err != nil {
		u.Fatal(err)
	}
}

func (u user) server(name string) *hcloud.Server {
	u.Helper()
	created, _, err := u.client.Server.Create(u.Context(), hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"}, Location: &hcloud.Location{Name: "fsn1"},
	})
	u.did(nil, nil, err)
	return created.Server
}

func (u user) floatingIP(kind hcloud.FloatingIPType) *hcloud.FloatingIP {
	u.Helper()
	created, _, err := u.client.FloatingIP.Create(u.Context(), hcloud.FloatingIPCreateOpts{Type: kind, HomeLocation: &hcloud.Location{Name: "fsn1"}})
	u.did(nil, nil, err)
	return created.FloatingIP
}

func (u user) assign(f *hcloud.FloatingIP, s *hcloud.Server) {
	u.Helper()
	action, response, err := u.client.FloatingIP.Assign(u.Context(), f, s)
	u.did(action, response, err)
}

// network creates a network with the subnet 10.0.1.0/24, and attaches the servers one after the other.
func (u user) network(name string, servers ...*hcloud.Server) {
	u.Helper()
	_, ipRange, _ := net.ParseCIDR("10.0.0.0/16")
	_, subnet, _ := net.ParseCIDR("10.0.1.0/24")
	network, response, err := u.client.Network.Create(u.Context(), hcloud.NetworkCreateOpts{Name: name, IPRange: ipRange, Subnets: []hcloud.NetworkSubnet{
		{Type: hcloud.NetworkSubnetTypeCloud, IPRange: subnet, NetworkZone: hcloud.NetworkZoneEUCentral},
	}})
	u.did(network, response, err)
	for _, s := range servers {
		action, response, err := u.client.Server.AttachToNetwork(u.Context(), s, hcloud.ServerAttachToNetworkOpts{Network: network})
		u.did(action, response, err)
	}
}

func TestAFloatingIPLeadsToTheServerThatHasIt(t *testing.T) {
	t.Parallel()
	table := make(lastRoutes, 1)
	fake := New(Options{Router: &RouterOptions{Table: table, Network: "net", Logger: slog.New(slog.DiscardHandler)}})
	t.Cleanup(fake.Close)
	u := user{t, fake.Client()}
	a, b, elsewhere := u.server("a"), u.server("b"), u.server("elsewhere")
	u.network("another", elsewhere)
	u.assign(u.floatingIP(hcloud.FloatingIPTypeIPv6), a) // IPv6 is not routed
	f := u.floatingIP(hcloud.FloatingIPTypeIPv4)
	address := f.IP.String() + "/32"
	unreachable, viaA, viaB := "unreachable "+address, address+" via 10.0.1.1", address+" via 10.0.1.2"
	table.awaitPublic(t, "a new one", unreachable)

	u.assign(f, a)
	table.awaitPublic(t, "its server is in no network", unreachable)
	u.network("net", a, b)
	table.awaitPublic(t, "its server joins the network", viaA)
	u.assign(f, b)
	table.awaitPublic(t, "moved", viaB)
	u.assign(f, elsewhere)
	table.awaitPublic(t, "moved to a server in another network", unreachable)
	u.assign(f, a)
	table.awaitPublic(t, "moved back", viaA)
	action, response, err := u.client.FloatingIP.Unassign(t.Context(), f)
	u.did(action, response, err)
	table.awaitPublic(t, "unassigned", unreachable)
	u.assign(f, a)
	table.awaitPublic(t, "assigned again", viaA)
	deleted, response, err := u.client.Server.DeleteWithResult(t.Context(), a)
	u.did(deleted, response, err)
	table.awaitPublic(t, "its server is deleted", unreachable)
	response, err = u.client.FloatingIP.Delete(t.Context(), f)
	u.did(nil, response, err)
	table.awaitPublic(t, "deleted")
}
