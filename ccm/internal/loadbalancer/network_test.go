package loadbalancer_test

import (
	"slices"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
)

// attach attaches a server to a network.
func (w *world) attach(network *hcloud.Network, id int64) {
	w.t.Helper()
	_, _, err := w.api.Server.AttachToNetwork(w.t.Context(), &hcloud.Server{ID: id}, hcloud.ServerAttachToNetworkOpts{Network: network})
	w.must(err)
}

// detach takes a server out of the world's network.
func (w *world) detach(id int64) {
	w.t.Helper()
	from := hcloud.ServerDetachFromNetworkOpts{Network: w.network}
	_, _, err := w.api.Server.DetachFromNetwork(w.t.Context(), &hcloud.Server{ID: id}, from)
	w.must(err)
}

// An operator gives HCLOUD_NETWORK another network, in which no server is yet: by mistake, or before the servers follow.
func TestALoadBalancerStaysInItsNetworkUntilTheServersAreInTheOther(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]map[string]string{
		"private": {"use-private-ip": "true", "disable-public-network": "true"},
		"public":  {"use-private-ip": "true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 2)
			svc, ids := newService("web", settings, 80), serverIDs(w.nodes)
			w.ensure(w.provider(), svc)
			home := w.network
			other := w.otherNetwork()
			moved := func(c *ccm.Config) { c.Network = "other" }
			expect := func(network *hcloud.Network) {
				t.Helper()
				lb := w.theLoadBalancer()
				if !slices.Equal(targetIDs(lb), ids) || len(lb.PrivateNet) != 1 || lb.PrivateNet[0].Network.ID != network.ID {
					t.Errorf("targets %v in %+v, want %v in network %d", targetIDs(lb), lb.PrivateNet, ids, network.ID)
				}
			}
			for range 2 { // as many as were attached in the first round
				w.wire.take()
				w.expectError(w.provider(moved), svc, "stays in network")
				w.expectNoWrites()
				expect(home)
				if server, _, _ := w.api.Server.GetByID(t.Context(), ids[0]); len(server.PrivateNet) == 1 {
					w.attach(other, ids[0])
				}
			}
			w.attach(other, ids[1])
			cloud := w.provider(moved)
			w.ensure(cloud, svc)
			expect(other)
			w.expectQuiet(cloud, svc)
		})
	}
}

// A server joins the network after its Node is there, as with a tool that attaches servers in a step of its own.
// Its targets would go with the address that it had.
func TestAnAdoptedLoadBalancerHasItsTargetsWithItsNewAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 2)
	w.create(hcloud.LoadBalancerCreateOpts{Name: "edge", Network: w.network})
	svc := newService("web", map[string]string{"name": "edge", "private-ipv4": "10.0.0.77", "use-private-ip": "true"}, 80)
	if _, err := w.tryEnsure(w.provider(), svc); err != nil {
		t.Error(err)
	}
	lb := w.theLoadBalancer()
	if len(lb.PrivateNet) != 1 || lb.PrivateNet[0].IP.String() != "10.0.0.77" || !slices.Equal(targetIDs(lb), serverIDs(w.nodes)) {
		t.Errorf("networks %v, targets %v", lb.PrivateNet, targetIDs(lb))
	}
}

func TestAServerThatJoinsTheNetworkLateIsATargetWithTheNextComparison(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]map[string]string{
		"private": {"use-private-ip": "true"}, "hidden": {"disable-public-network": "true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 2)
			late := serverIDs(w.nodes)[1]
			w.detach(late)
			svc, cloud := newService("web", settings, 80), w.provider()
			w.ensure(cloud, svc)
			if n := len(w.theLoadBalancer().Targets); n != 1 {
				t.Fatalf("%d targets", n)
			}
			r, _ := w.resyncOf(cloud, svc)
			w.clock.Step(time.Minute)
			before := w.unrest.Load()
			r.SyncLoadBalancers(t.Context())
			if w.unrest.Load() == before {
				t.Error("the comparison does not look again soon")
			}
			w.attach(w.network, late)
			w.clock.Step(time.Minute)
			r.SyncLoadBalancers(t.Context())
			w.expectTargets(serverIDs(w.nodes))
		})
	}
}
