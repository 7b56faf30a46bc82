package nodes_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/nodes"
)

func TestACreatedServerIsAContainerThatBoots(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(w.options())
	o := w.createOpts("node")
	o.UserData = "#!/bin/sh\n"
	s := w.create(o)
	w.driver.await(t, "it has booted", func() bool { _, ok := w.driver.boots["node"]; return ok })
	if got := w.driver.called(); !slices.Equal(got, []string{"create node", "start node", "boot node"}) {
		t.Errorf("%v", got)
	}
	if data := w.driver.boots["node"]; data != o.UserData {
		t.Errorf("user data %q", data)
	}
	w.awaitStatus(s, hcloud.ServerStatusRunning)
}

func TestPowerIsThatOfTheContainer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		off  bool // before
		do   func(*hcloud.ServerClient, context.Context, *hcloud.Server) (*hcloud.Action, *hcloud.Response, error)
		want []string
		ends hcloud.ServerStatus
	}{
		"power off": {false, (*hcloud.ServerClient).Poweroff, []string{"kill node"}, hcloud.ServerStatusOff},
		"power on":  {true, (*hcloud.ServerClient).Poweron, []string{"start node", "boot node"}, hcloud.ServerStatusRunning},
		"shutdown":  {false, (*hcloud.ServerClient).Shutdown, []string{"shutdown node"}, hcloud.ServerStatusStopping},
		"reboot":    {false, (*hcloud.ServerClient).Reboot, []string{"restart node", "boot node"}, hcloud.ServerStatusRunning},
		"reset":     {false, (*hcloud.ServerClient).Reset, []string{"kill node", "start node", "boot node"}, hcloud.ServerStatusRunning},
		"rebuild": {false, func(c *hcloud.ServerClient, ctx context.Context, s *hcloud.Server) (*hcloud.Action, *hcloud.Response, error) {
			res, resp, err := c.RebuildWithResult(ctx, s, hcloud.ServerRebuildOpts{Image: &hcloud.Image{Name: "ubuntu-24.04"}})
			return res.Action, resp, err
		}, []string{"remove node", "create node", "start node", "boot node"}, hcloud.ServerStatusRunning},
		"change of type": {true, func(c *hcloud.ServerClient, ctx context.Context, s *hcloud.Server) (*hcloud.Action, *hcloud.Response,
			error) {
			return c.ChangeType(ctx, s, hcloud.ServerChangeTypeOpts{ServerType: &hcloud.ServerType{Name: "cpx32"}})
		}, []string{"start node", "boot node"}, hcloud.ServerStatusRunning},
		"delete": {false, func(c *hcloud.ServerClient, ctx context.Context, s *hcloud.Server) (*hcloud.Action, *hcloud.Response, error) {
			res, resp, err := c.DeleteWithResult(ctx, s)
			return res.Action, resp, err
		}, []string{"remove node"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.run(w.options())
			s := w.create(w.createOpts("node"))
			w.driver.awaitCall(t, "boot node")
			if c.off {
				w.act(w.client.Server.Poweroff(t.Context(), s))
			}
			w.driver.called()
			w.act(c.do(&w.client.Server, t.Context(), s))
			w.awaitStatus(s, c.ends)
			w.driver.await(t, "all is done", func() bool { return len(w.driver.calls) >= len(c.want) })
			if got := w.driver.called(); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
			if c.ends == hcloud.ServerStatusStopping { // until the guest has shut down
				if err := w.driver.power("node", false); err != nil {
					t.Fatal(err)
				}
				w.awaitStatus(s, hcloud.ServerStatusOff)
			}
		})
	}
}

func TestWhatHappensToContainersIsSeen(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(w.options())
	s := w.create(w.createOpts("node"))
	power := func(on bool) {
		t.Helper()
		if err := w.driver.power("node", on); err != nil {
			t.Fatal(err)
		}
	}
	power(false)
	w.awaitStatus(s, hcloud.ServerStatusOff)
	power(true)
	w.awaitStatus(s, hcloud.ServerStatusRunning)
	w.driver.set("node", nil) // docker rm
	w.awaitStatus(s, hcloud.ServerStatusOff)
	w.act(w.client.Server.Poweron(t.Context(), s))
	if got := w.driver.called(); slices.Index(got, "create node") < 0 || len(w.driver.containers) != 1 {
		t.Errorf("a server that is started again gets no container: %v", got)
	}
}

func TestARestartTooQuickToBeSeenEndsAShutdown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(w.options())
	s := w.create(w.createOpts("node"))
	w.act(w.client.Server.Shutdown(t.Context(), s))
	w.awaitStatus(s, hcloud.ServerStatusStopping)
	w.driver.mu.Lock()
	c := *w.driver.containers["node"]
	c.Started = c.Started.Add(time.Hour)
	w.driver.setLocked("node", &c)
	w.driver.mu.Unlock()
	w.awaitStatus(s, hcloud.ServerStatusRunning)
}

func TestAServerThatCannotBeBackedEndsInAnActionError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.driver.fail["create"] = &hypervisor.Error{Code: nodes.CodeUnavailable, Message: "no image"}
	w.run(w.options())
	res, _, err := w.client.Server.Create(t.Context(), w.createOpts("node"))
	if err != nil {
		t.Fatal(err)
	}
	err = w.client.Action.WaitFor(t.Context(), append(res.NextActions, res.Action)...)
	if e := (hcloud.ActionError{}); !errors.As(err, &e) || e.Code != "resource_unavailable" || e.Message != "no image" {
		t.Errorf("%v", err)
	}
	w.awaitStatus(res.Server, hcloud.ServerStatusOff)
	w.driver.mu.Lock()
	w.driver.fail["create"] = nil
	w.driver.fail["start"] = errors.New("no power")
	w.driver.mu.Unlock()
	action, _, err := w.client.Server.Poweron(t.Context(), res.Server)
	if err != nil {
		t.Fatal(err)
	}
	err = w.client.Action.WaitFor(t.Context(), action)
	if e := (hcloud.ActionError{}); !errors.As(err, &e) || e.Code != "server_error" || e.Message != "no power" {
		t.Errorf("%v", err)
	}
}

func TestABootEndsWithThePower(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.driver.hang["boot"] = make(chan struct{})
	w.run(w.options())
	s := w.create(w.createOpts("node"))
	w.driver.awaitCall(t, "boot node")
	w.driver.called()
	w.act(w.client.Server.Poweroff(t.Context(), s))
	if got := w.driver.called(); !slices.Equal(got, []string{"boot-cancelled node", "kill node"}) {
		t.Errorf("%v", got)
	}
	w.act(w.client.Server.Poweron(t.Context(), s))
	w.driver.awaitCall(t, "boot node")
	if err := w.driver.power("node", false); err != nil { // it dies
		t.Fatal(err)
	}
	w.driver.awaitCall(t, "boot-cancelled node")
	if err := w.driver.power("node", true); err != nil {
		t.Fatal(err)
	}
	w.driver.await(t, "it boots again", func() bool { return slices.Index(w.driver.calls[2:], "boot node") >= 0 })
	res, _, err := w.client.Server.DeleteWithResult(t.Context(), s)
	w.act(res.Action, nil, err)
}

func TestServersDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(w.options())
	slow := w.create(w.createOpts("slow"))
	quick := w.create(w.createOpts("quick"))
	release := make(chan struct{})
	w.driver.mu.Lock()
	w.driver.hang["kill"] = release
	w.driver.mu.Unlock()
	off, _, err := w.client.Server.Poweroff(t.Context(), slow)
	if err != nil {
		t.Fatal(err)
	}
	w.driver.awaitCall(t, "kill slow")
	w.act(w.client.Server.Reboot(t.Context(), quick))
	close(release)
	w.wait(off)
}

func TestASuccessorTakesOverWhatIsThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(w.options())
	own := w.create(w.createOpts("own"))
	w.driver.mu.Lock()
	w.driver.hang["kill"] = make(chan struct{})
	w.driver.mu.Unlock()
	off, _, err := w.client.Server.Poweroff(t.Context(), own)
	if err != nil {
		t.Fatal(err)
	}
	w.driver.awaitCall(t, "kill own")
	if err := w.stop(); err != nil { // in the middle of it
		t.Fatal(err)
	}
	if a, _, err := w.client.Action.GetByID(t.Context(), off.ID); err != nil || a.Status != hcloud.ActionStatusRunning {
		t.Errorf("%+v, %v", a, err)
	}
	w.driver.mu.Lock()
	delete(w.driver.hang, "kill")
	w.driver.mu.Unlock()
	w.run(w.options())
	w.wait(off)
	w.awaitStatus(own, hcloud.ServerStatusOff)
	w.act(w.client.Server.Poweron(t.Context(), own))
	if got := w.driver.called(); slices.Contains(got[2:], "create own") {
		t.Errorf("made again: %v", got)
	}
}

func TestASuccessorMakesTheServersThatWereCreatedMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(w.options())
	if err := w.stop(); err != nil {
		t.Fatal(err)
	}
	res, _, err := w.client.Server.Create(t.Context(), w.createOpts("node"))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cloud.Step(t.Context(), 2*hypervisor.DefaultGrace); err != nil { // longer than the cloud waits for the first
		t.Fatal(err)
	}
	w.run(w.options())
	w.wait(append(res.NextActions, res.Action)...)
	w.driver.awaitCall(t, "boot node")
	if got := w.driver.called(); !slices.Equal(got, []string{"create node", "start node", "boot node"}) {
		t.Errorf("%v", got)
	}
	w.awaitStatus(res.Server, hcloud.ServerStatusRunning)
}

func TestServersThatWereThereBefore(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodes.Container{Name: "kinds", Running: true}, nodes.Container{Name: "off"},
		nodes.Container{Name: "labelled", Running: true}, nodes.Container{Name: "other", Server: 7, Running: true})
	named, off, none, other := w.create(w.createOpts("kinds")), w.create(w.createOpts("off")), w.create(w.createOpts("none")),
		w.create(w.createOpts("other"))
	o := w.createOpts("its-name")
	o.Labels = map[string]string{nodes.ContainerLabel: "labelled"}
	labelled := w.create(o)
	o = w.createOpts("without")
	o.Labels = map[string]string{nodes.NoNodeLabel: ""}
	without := w.create(o)
	w.run(w.options())
	w.awaitStatus(off, hcloud.ServerStatusOff)
	w.awaitStatus(none, hcloud.ServerStatusOff)
	w.awaitStatus(other, hcloud.ServerStatusOff)
	w.act(w.client.Server.Poweroff(t.Context(), labelled))
	w.act(w.client.Server.Poweroff(t.Context(), named))
	w.act(w.client.Server.Poweroff(t.Context(), without))
	if got := w.driver.called(); !slices.Equal(got, []string{"kill labelled", "kill kinds"}) {
		t.Errorf("%v", got)
	}
	// kind has booted it.
	w.act(w.client.Server.Poweron(t.Context(), named))
	w.act(w.client.Server.Poweron(t.Context(), none))
	w.driver.awaitCall(t, "boot none")
	if got := w.driver.called(); !slices.Equal(got, []string{"start kinds", "create none", "start none", "boot none"}) {
		t.Errorf("%v", got)
	}
}

func TestAResetOfTheCloudRemovesWhatWasMadeForIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodes.Container{Name: "kinds", Running: true})
	w.create(w.createOpts("kinds"))
	w.run(w.options())
	w.create(w.createOpts("own"))
	if err := w.cloud.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.driver.awaitCall(t, "remove own")
	w.create(w.createOpts("own"))
	if got := w.driver.called(); slices.Contains(got, "remove kinds") {
		t.Errorf("%v", got)
	}
}

func TestASecondHypervisorTakesTheFirstsPlace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run(w.options())
	w.create(w.createOpts("a"))
	first := w.ended
	w.run(w.options())
	if err := first(); !errors.Is(err, hypervisor.ErrReplaced) {
		t.Errorf("%v", err)
	}
	w.create(w.createOpts("b"))
	if err := w.stop(); err != nil {
		t.Error(err)
	}
}

func TestWhatIsLostIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.options()
	attempts, good := atomic.Int32{}, o.Attach
	o.Attach = func(ctx context.Context) (hypervisor.Session, error) {
		if attempts.Load() == 0 {
			attempts.Add(1)
			return nil, errors.New("connection refused")
		}
		s, err := good(ctx)
		attempts.Add(1)
		w.driver.mu.Lock()
		defer w.driver.mu.Unlock()
		w.driver.touchLocked()
		return s, err
	}
	clk := newSteppingClock()
	o.Clock = clk
	w.start(o)
	clk.stepOverNextWait(t)
	w.driver.await(t, "it is attached and watches", func() bool { return attempts.Load() == 2 && len(w.driver.watchers) == 1 })
	s := w.create(w.createOpts("node"))
	// The daemon goes away, and with it the news that the container has died.
	w.driver.mu.Lock()
	for id, events := range w.driver.watchers {
		close(events)
		delete(w.driver.watchers, id)
	}
	w.driver.mu.Unlock()
	if err := w.driver.power("node", false); err != nil {
		t.Fatal(err)
	}
	clk.stepOverNextWait(t)
	w.awaitStatus(s, hcloud.ServerStatusOff)
}

func TestANodeBootsThoughDockerDidNotAnswerWhenItStarted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	start := make(chan struct{})
	w.driver.hang["start"] = start
	o := w.options()
	clk := newSteppingClock()
	o.Clock = clk
	w.run(o)
	res, _, err := w.client.Server.Create(t.Context(), w.createOpts("node"))
	if err != nil {
		t.Fatal(err)
	}
	w.driver.awaitCall(t, "start node")
	list := func(err error) {
		w.driver.mu.Lock()
		defer w.driver.mu.Unlock()
		w.driver.fail["list"] = err
	}
	list(errors.New("the daemon is busy"))
	close(start)
	w.driver.awaitCall(t, "list failed")
	list(nil)
	clk.stepOverNextWait(t)
	w.driver.awaitCall(t, "boot node")
	w.wait(append(res.NextActions, res.Action)...)
}

func TestContainersBecomeServers(t *testing.T) {
	t.Parallel()
	addr := netip.MustParseAddr
	containers := []nodes.Container{
		{Name: "kind-control-plane", Address: addr("172.30.1.2"), Running: true, ControlPlane: true},
		{Name: "kind-worker", Address: addr("172.30.1.3"), Running: true},
		{Name: "kind-worker2", Address: addr("172.30.1.4")},
	}
	for _, before := range []bool{true, false} {
		t.Run(map[bool]string{true: "before the hypervisor", false: "with the hypervisor"}[before], func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, containers...)
			a := nodes.Adoption{
				Client: w.client, Network: "kind", IPRange: netip.MustParsePrefix("172.30.0.0/16"),
				Subnet: netip.MustParsePrefix("172.30.1.0/24"),
				Labels: map[string]string{"cluster": "kind"},
			}
			if !before {
				w.run(w.options())
			}
			got, err := nodes.Adopt(t.Context(), a, containers)
			if err != nil {
				t.Fatal(err)
			}
			if before {
				w.run(w.options())
			}
			for _, c := range containers {
				s := got.Servers[c.Name]
				if s == nil || s.Name != c.Name || len(s.PrivateNet) != 1 || s.PrivateNet[0].IP.String() != c.Address.String() ||
					s.Protection.Delete != c.ControlPlane || s.Labels["cluster"] != "kind" || s.Labels[nodes.ContainerLabel] != c.Name {
					t.Fatalf("%s: %+v", c.Name, s)
				}
				w.awaitStatus(s, map[bool]hcloud.ServerStatus{true: hcloud.ServerStatusRunning, false: hcloud.ServerStatusOff}[c.Running])
			}
			again, err := nodes.Adopt(t.Context(), a, containers)
			if err != nil || again.Network.ID != got.Network.ID || again.Servers["kind-worker"].ID != got.Servers["kind-worker"].ID {
				t.Errorf("again: %+v, %v", again, err)
			}
			w.act(w.client.Server.Poweroff(t.Context(), got.Servers["kind-worker"]))
			if calls := w.driver.called(); calls[len(calls)-1] != "kill kind-worker" || slices.ContainsFunc(calls, func(c string) bool {
				return strings.HasPrefix(c, "create") || strings.HasPrefix(c, "boot")
			}) {
				t.Errorf("%v", calls)
			}
			// The next server gets an address that is not taken.
			o := w.createOpts("new")
			o.Networks = []*hcloud.Network{got.Network}
			w.create(o)
			w.driver.await(t, "it has one", func() bool { c := w.driver.containers["new"]; return c != nil && c.Running })
			if at := w.driver.containers["new"].Address; slices.ContainsFunc(containers,
				func(c nodes.Container) bool { return c.Address == at }) || !a.Subnet.Contains(at) {
				t.Errorf("the new server's address is %s", at)
			}
		})
	}
}

func TestAdoptionRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	container := nodes.Container{Name: "node", Address: netip.MustParseAddr("172.30.1.2")}
	a := nodes.Adoption{
		Client: w.client, Network: "kind", IPRange: netip.MustParsePrefix("172.30.0.0/16"), Subnet: netip.MustParsePrefix("172.30.1.0/24"),
	}
	w.create(w.createOpts("node")) // has another address, none
	if _, err := nodes.Adopt(t.Context(), a, []nodes.Container{container}); err == nil || !strings.Contains(err.Error(), "172.30.1.2") {
		t.Errorf("address: %v", err)
	}
	a.IPRange = netip.MustParsePrefix("172.29.0.0/16")
	if _, err := nodes.Adopt(t.Context(), a, nil); err == nil || !strings.Contains(err.Error(), "172.29.0.0/16") {
		t.Errorf("range: %v", err)
	}
	a.Network, a.Location = "other", "nowhere"
	if _, err := nodes.Adopt(t.Context(), a, nil); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("location: %v", err)
	}
}

func TestAServerCannotHaveAnotherOnesContainer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nodes.Container{Name: "kinds", Running: true})
	w.run(w.options())
	w.create(w.createOpts("kinds"))
	for label, message := range map[string]string{"kinds": "belongs to server", "nowhere": "no container"} {
		o := w.createOpts("thief-of-" + label)
		o.Labels = map[string]string{nodes.ContainerLabel: label}
		res, _, err := w.client.Server.Create(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.client.Action.WaitFor(t.Context(), res.Action); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("%s: %v", label, err)
		}
	}
}
