package cloud

import (
	"testing"
	"time"
)

func TestAServerThatIsStartedAgainWhileItShutsDownStaysOn(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	did(p.ShutdownServer(id))(t)
	clk.Step(time.Second)
	wantStatus(t, p, id, ServerStopping, false)
	p.cloud.SetProfile(ProfileInstant)
	did(p.PowerOnServer(id))(t)
	clk.Step(time.Hour)
	wantStatus(t, p, id, ServerRunning, false)
}

func TestAFailedPowerActionChangesNothing(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	for _, do := range []func(Project, int64) (int64, *State, error){Project.PowerOffServer, Project.ResetServer, Project.DeleteServer} {
		did(do(p.WithOutcome(&ActionOutcome{Fail: true}), id))(t)
		clk.Step(time.Second)
		wantStatus(t, p, id, ServerRunning, false)
	}
	did(p.PowerOffServer(id))(t)
	clk.Step(time.Second)
	did(p.WithOutcome(&ActionOutcome{Fail: true}).PowerOnServer(id))(t)
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
	did(p.RebootServer(id))(t)
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
	did(p.DisableServerRescue(id))(t)
	clk.Step(time.Second)
	want("disabled", false)
	_, _, _, err := p.EnableServerRescue(id, []int64{1})
	wantCode(t, "unknown SSH key", err, "ssh_keys")
}
