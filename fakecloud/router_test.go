package fakecloud

import (
	"log/slog"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
)

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
	check(u, err)
}

func (u user) server(name string) *hcloud.Server {
	u.Helper()
	created, _, err := u.client.Server.Create(u.Context(), hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
		Location: &hcloud.Location{Name: "fsn1"},
	})
	u.did(nil, nil, err)
	return created.Server
}

func (u user) floatingIP(kind hcloud.FloatingIPType) *hcloud.FloatingIP {
	u.Helper()
	created, _, err := u.client.FloatingIP.Create(u.Context(),
		hcloud.FloatingIPCreateOpts{Type: kind, HomeLocation: &hcloud.Location{Name: "fsn1"}})
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
	network, response, err := u.client.Network.Create(u.Context(), hcloud.NetworkCreateOpts{Name: name, IPRange: ipRange,
		Subnets: []hcloud.NetworkSubnet{
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
