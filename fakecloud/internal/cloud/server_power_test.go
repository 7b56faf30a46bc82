package cloud

import (
	"strings"
	"testing"
	"time"
)

func TestPower(t *testing.T) {
	t.Parallel()
	type step struct {
		do   func(Project, int64) (int64, *State, error)
		name string
		// during, atEnd and later are the statuses while the action runs, when it has ended and a second
		// after that.
		during, atEnd, later ServerStatus
	}
	on := func(d, e, l ServerStatus) step { return step{Project.PowerOnServer, "poweron", d, e, l} }
	off := func(d, e, l ServerStatus) step { return step{Project.PowerOffServer, "poweroff", d, e, l} }
	shutdown := func(d, e, l ServerStatus) step { return step{Project.ShutdownServer, "shutdown", d, e, l} }
	reboot := func(d, e, l ServerStatus) step { return step{Project.RebootServer, "reboot", d, e, l} }
	reset := func(d, e, l ServerStatus) step { return step{Project.ResetServer, "reset", d, e, l} }
	for name, steps := range map[string][]step{
		"off and on": {
			off(ServerStopping, ServerOff, ServerOff), off(ServerOff, ServerOff, ServerOff),
			on(ServerStarting, ServerRunning, ServerRunning), on(ServerRunning, ServerRunning, ServerRunning),
		},
		"shutdown ends after its action": {
			shutdown(ServerRunning, ServerStopping, ServerOff), shutdown(ServerOff, ServerOff, ServerOff),
		},
		"reboot keeps the guest running": {reboot(ServerRunning, ServerRunning, ServerRunning)},
		"reset":                          {reset(ServerStarting, ServerRunning, ServerRunning)},
		"off does not react to a reboot": {
			off(ServerStopping, ServerOff, ServerOff), reboot(ServerOff, ServerOff, ServerOff),
			reset(ServerStarting, ServerRunning, ServerRunning),
		},
	} {
		p, clk := serverCloud(t, Options{})
		id := runningServer(t, p, clk, smallServer("a")).ID
		for i, s := range steps {
			action, _, err := s.do(p, id)
			if err != nil {
				t.Fatalf("%s: %s: %v", name, s.name, err)
			}
			_, _, err = s.do(p, id)
			wantCode(t, name+": "+s.name+" twice", err, "locked")
			wantStatus(t, p, id, s.during, true)
			clk.Step(time.Second)
			wantStatus(t, p, id, s.atEnd, false)
			if a, _ := p.View().Actions.Get(action); a.Status != ActionSuccess {
				t.Errorf("%s: step %d: %+v", name, i, a)
			}
			clk.Step(time.Second)
			wantStatus(t, p, id, s.later, false)
		}
	}
}

func TestAServerThatIsStartedAgainWhileItShutsDownStaysOn(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	if _, _, err := p.ShutdownServer(id); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	wantStatus(t, p, id, ServerStopping, false)
	p.cloud.SetProfile(ProfileInstant)
	if _, _, err := p.PowerOnServer(id); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Hour)
	wantStatus(t, p, id, ServerRunning, false)
}

func TestAFailedPowerActionChangesNothing(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	for _, do := range []func(Project, int64) (int64, *State, error){Project.PowerOffServer, Project.ResetServer, Project.DeleteServer} {
		if _, _, err := do(p.WithOutcome(&ActionOutcome{Fail: true}), id); err != nil {
			t.Fatal(err)
		}
		clk.Step(time.Second)
		wantStatus(t, p, id, ServerRunning, false)
	}
	if _, _, err := p.PowerOffServer(id); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	if _, _, err := p.WithOutcome(&ActionOutcome{Fail: true}).PowerOnServer(id); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	wantStatus(t, p, id, ServerOff, false)
}

func TestAServerWithoutAnInterfaceCannotBePoweredOn(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	in := smallServer("a")
	in.IPv4.Enabled, in.IPv6.Enabled = false, false
	id := offServer(t, p, clk, in).ID
	_, _, err := p.PowerOnServer(id)
	wantCode(t, "power on", err, "unsupported_error")
	_, _, err = p.ResetServer(id)
	wantCode(t, "reset", err, "unsupported_error")
	wantStatus(t, p, id, ServerOff, false)
}

func TestRescueModeLastsUntilTheNextBootOrAnHour(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	enable := func() {
		t.Helper()
		if password, _, _, err := p.EnableServerRescue(id, nil); err != nil || password == "" {
			t.Fatal(password, err)
		}
		clk.Step(time.Second)
	}
	want := func(what string, on bool) {
		t.Helper()
		if server(t, p, id).RescueEnabled != on {
			t.Fatalf("%s: rescue mode is %v", what, !on)
		}
	}
	enable()
	want("enabled", true)
	if _, _, err := p.RebootServer(id); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	want("after a reboot", false)

	enable()
	clk.Step(59 * time.Minute)
	enable() // the hour starts again
	clk.Step(30 * time.Minute)
	want("half an hour after it was enabled again", true)
	clk.Step(30 * time.Minute)
	want("after an hour", false)

	enable()
	if _, _, err := p.DisableServerRescue(id); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second)
	want("disabled", false)
	_, _, _, err := p.EnableServerRescue(id, []int64{1})
	wantCode(t, "unknown SSH key", err, "ssh_keys")
}

func TestPasswordsAndConsoles(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	seen := map[string]bool{}
	for range 3 {
		password, _, _, err := p.ResetServerPassword(id)
		if err != nil || len(password) != 20 || seen[password] {
			t.Fatalf("password %q: %v", password, err)
		}
		seen[password] = true
		clk.Step(time.Second)
	}
	c, _, _, err := p.RequestServerConsole(id)
	if err != nil || !strings.HasPrefix(c.URL, "wss://") || c.Password == "" {
		t.Errorf("console %+v: %v", c, err)
	}
	clk.Step(time.Second)
	off := offServer(t, p, clk, smallServer("off")).ID
	_, _, _, err = p.ResetServerPassword(off)
	wantCode(t, "password of a server that is off", err, "unsupported_error")
}
