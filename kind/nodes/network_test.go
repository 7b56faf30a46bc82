package nodes_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodes"
)

// networks is a world of containers with addresses in only one of the cloud's networks, as with Docker.
type networks struct {
	*world
	cluster, other *hcloud.Network
}

func newNetworks(t *testing.T) *networks {
	t.Helper()
	w := newWorld(t)
	w.driver.subnet = netip.MustParsePrefix("172.30.0.0/16")
	create := func(name, ipRange string) *hcloud.Network {
		_, r, err := net.ParseCIDR(ipRange)
		if err != nil {
			t.Fatal(err)
		}
		n, _, err := w.client.Network.Create(t.Context(), hcloud.NetworkCreateOpts{Name: name, IPRange: r,
			Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, IPRange: r, NetworkZone: hcloud.NetworkZoneEUCentral}}})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	// The other network has the lower id, so that it is the first in a task.
	n := &networks{world: w, other: create("other", "10.1.0.0/16"), cluster: create("cluster", "172.30.0.0/16")}
	w.run(w.options())
	return n
}

// off describes a server that is created off.
func (n *networks) off(public bool) hcloud.ServerCreateOpts {
	o := n.createOpts("node")
	o.StartAfterCreate = new(bool)
	o.PublicNet = &hcloud.ServerCreatePublicNet{EnableIPv4: public, EnableIPv6: public}
	return o
}

func (n *networks) attach(s *hcloud.Server, to *hcloud.Network, ip string) (*hcloud.Action, *hcloud.Response, error) {
	return n.client.Server.AttachToNetwork(n.Context(), s, hcloud.ServerAttachToNetworkOpts{Network: to, IP: net.ParseIP(ip)})
}

func (n *networks) detach(s *hcloud.Server, from *hcloud.Network) {
	n.Helper()
	n.act(n.client.Server.DetachFromNetwork(n.Context(), s, hcloud.ServerDetachFromNetworkOpts{Network: from}))
}

// wantCalls waits until the driver was called so often, and compares.
func (n *networks) wantCalls(want ...string) {
	n.Helper()
	n.driver.await(n.T, "all is done", func() bool { return len(n.driver.calls) >= len(want) })
	if got := n.driver.called(); !slices.Equal(got, want) {
		n.Errorf("calls %q, want %q", got, want)
	}
}

func (n *networks) wantAddress(want string) {
	n.Helper()
	n.driver.mu.Lock()
	defer n.driver.mu.Unlock()
	if c := n.driver.containers["node"]; c == nil || c.Address.String() != want {
		n.Errorf("the container is %+v, want the address %s", c, want)
	}
}

// failed waits until an action has failed because the server cannot be backed.
func (n *networks) failed(a *hcloud.Action, _ *hcloud.Response, err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
	err = n.client.Action.WaitFor(n.Context(), a)
	if e := (hcloud.ActionError{}); !errors.As(err, &e) || e.Code != nodes.CodeUnavailable {
		n.Errorf("%v, want %s", err, nodes.CodeUnavailable)
	}
}

// Terraform's provider creates servers without public addresses in this order, and Cluster API's providers all servers.
func TestAServerThatIsCreatedOffGetsItsContainerWhenItStarts(t *testing.T) {
	t.Parallel()
	for name, public := range map[string]bool{"with public addresses": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNetworks(t)
			s := n.create(n.off(public))
			n.act(n.attach(s, n.other, ""))
			n.act(n.attach(s, n.cluster, "172.30.1.9"))
			n.wantCalls()
			n.act(n.client.Server.Poweron(t.Context(), s))
			n.wantCalls("create node", "start node", "boot node")
			n.wantAddress("172.30.1.9")
			n.awaitStatus(s, hcloud.ServerStatusRunning)
		})
	}
}

// Terraform's provider creates servers with public addresses in this order.
func TestAServerThatIsOnGetsItsContainerWhenItIsAttached(t *testing.T) {
	t.Parallel()
	n := newNetworks(t)
	s := n.create(n.createOpts("node"))
	n.act(n.attach(s, n.other, ""))
	n.wantCalls()
	n.awaitStatus(s, hcloud.ServerStatusRunning)
	n.act(n.attach(s, n.cluster, ""))
	n.wantCalls("create node", "start node", "boot node")
	n.wantAddress("172.30.0.2")
	n.awaitStatus(s, hcloud.ServerStatusRunning)
	if err := n.driver.power("node", false); err != nil { // it dies
		t.Fatal(err)
	}
	n.awaitStatus(s, hcloud.ServerStatusOff)
}

func TestAServerThatIsOnAndCannotBeBackedIsNotAttached(t *testing.T) {
	t.Parallel()
	n := newNetworks(t)
	s := n.create(n.createOpts("node"))
	noRoom := func(err error) {
		n.driver.mu.Lock()
		defer n.driver.mu.Unlock()
		n.driver.fail["create"] = err
	}
	noRoom(&hypervisor.Error{Code: nodes.CodeUnavailable, Message: "no room"})
	n.failed(n.attach(s, n.cluster, ""))
	if now, _, err := n.client.Server.GetByID(t.Context(), s.ID); err != nil || now.Status != hcloud.ServerStatusRunning ||
		len(now.PrivateNet) > 0 {
		t.Errorf("%+v, %v", now, err)
	}
	n.wantCalls("create node")
	noRoom(nil)
	n.act(n.attach(s, n.cluster, ""))
	n.wantCalls("create node", "start node", "boot node")
}

func TestPowerOfAServerThatHasNeverHadAContainer(t *testing.T) {
	t.Parallel()
	rebuild := func(c *hcloud.ServerClient, ctx context.Context, s *hcloud.Server) (*hcloud.Action, *hcloud.Response, error) {
		res, resp, err := c.RebuildWithResult(ctx, s, hcloud.ServerRebuildOpts{Image: &hcloud.Image{Name: "ubuntu-24.04"}})
		return res.Action, resp, err
	}
	remove := func(c *hcloud.ServerClient, ctx context.Context, s *hcloud.Server) (*hcloud.Action, *hcloud.Response, error) {
		res, resp, err := c.DeleteWithResult(ctx, s)
		return res.Action, resp, err
	}
	for name, c := range map[string]struct {
		off     bool // it was never on
		do      func(*hcloud.ServerClient, context.Context, *hcloud.Server) (*hcloud.Action, *hcloud.Response, error)
		running hcloud.ServerStatus
	}{
		"power on":            {true, (*hcloud.ServerClient).Poweron, hcloud.ServerStatusRunning},
		"power off":           {false, (*hcloud.ServerClient).Poweroff, hcloud.ServerStatusOff},
		"shutdown":            {false, (*hcloud.ServerClient).Shutdown, hcloud.ServerStatusOff},
		"reboot":              {false, (*hcloud.ServerClient).Reboot, hcloud.ServerStatusRunning},
		"reset":               {false, (*hcloud.ServerClient).Reset, hcloud.ServerStatusRunning},
		"reset when off":      {true, (*hcloud.ServerClient).Reset, hcloud.ServerStatusRunning},
		"rebuild":             {false, rebuild, hcloud.ServerStatusRunning},
		"rebuild when off":    {true, rebuild, hcloud.ServerStatusRunning},
		"delete":              {false, remove, ""},
		"delete when off":     {true, remove, ""},
		"a look at all of it": {false, nil, hcloud.ServerStatusRunning},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNetworks(t)
			o := n.createOpts("node")
			if c.off {
				o = n.off(true)
			}
			s := n.create(o)
			if c.do != nil {
				n.act(c.do(&n.client.Server, t.Context(), s))
			}
			// A successor looks at all servers again.
			if err := n.stop(); err != nil {
				t.Fatal(err)
			}
			n.run(n.options())
			n.awaitStatus(s, c.running)
			n.wantCalls()
			if c.running == "" {
				return
			}
			n.act(n.attach(s, n.cluster, ""))
			if c.running == hcloud.ServerStatusOff {
				n.wantCalls()
				n.act(n.client.Server.Poweron(t.Context(), s))
			}
			n.wantCalls("create node", "start node", "boot node")
		})
	}
}

func TestAServerThatWasAttachedElsewhereWhileItWasOffMoves(t *testing.T) {
	t.Parallel()
	n := newNetworks(t)
	o := n.createOpts("node")
	o.Networks = []*hcloud.Network{n.cluster, n.other}
	s := n.create(o)
	n.wantCalls("create node", "start node", "boot node")
	n.act(n.client.Server.Poweroff(t.Context(), s))
	n.detach(s, n.cluster)
	n.act(n.attach(s, n.cluster, "172.30.1.9"))
	n.act(n.client.Server.Poweron(t.Context(), s))
	n.wantCalls("kill node", "move node", "start node", "boot node")
	n.wantAddress("172.30.1.9")
	// Without a network it is on without its container. It keeps the container.
	n.act(n.client.Server.Poweroff(t.Context(), s))
	n.detach(s, n.cluster)
	n.act(n.client.Server.Poweron(t.Context(), s))
	n.awaitStatus(s, hcloud.ServerStatusRunning)
	n.wantCalls("kill node")
	n.act(n.attach(s, n.cluster, "172.30.1.10"))
	n.wantCalls("move node", "start node", "boot node")
	n.wantAddress("172.30.1.10")
}

func TestAContainerKeepsItsAddressWhileItsServerIsOn(t *testing.T) {
	t.Parallel()
	n := newNetworks(t)
	o := n.createOpts("node")
	o.Networks = []*hcloud.Network{n.cluster}
	s := n.create(o)
	n.wantCalls("create node", "start node", "boot node")
	n.detach(s, n.cluster)
	n.act(n.attach(s, n.other, ""))
	n.failed(n.attach(s, n.cluster, "172.30.1.9"))
	n.act(n.attach(s, n.cluster, "172.30.0.2"))
	n.detach(s, n.cluster)
	n.wantCalls()
	n.awaitStatus(s, hcloud.ServerStatusRunning)
	n.act(n.client.Server.Reset(t.Context(), s))
	n.wantCalls("kill node")
	n.awaitStatus(s, hcloud.ServerStatusRunning)
	n.act(n.attach(s, n.cluster, "172.30.1.9"))
	n.wantCalls("move node", "start node", "boot node")
}

func TestASuccessorAttachesWhatWasBeingAttached(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"create", "start"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			n := newNetworks(t)
			s := n.create(n.createOpts("node"))
			n.driver.mu.Lock()
			n.driver.hang[step] = make(chan struct{})
			n.driver.mu.Unlock()
			action, _, err := n.attach(s, n.cluster, "")
			if err != nil {
				t.Fatal(err)
			}
			n.driver.awaitCall(t, step+" node")
			if err := n.stop(); err != nil {
				t.Fatal(err)
			}
			n.driver.mu.Lock()
			delete(n.driver.hang, step)
			n.driver.mu.Unlock()
			n.run(n.options())
			n.wait(action)
			n.awaitStatus(s, hcloud.ServerStatusRunning)
			n.wantAddress("172.30.0.2")
		})
	}
}
