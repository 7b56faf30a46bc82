package cloud

import (
	"testing"
	"time"
)

func TestAServerIsOffWhenItsGuestHasShutDown(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	p.cloud.SetProfile(ProfileInstant)
	for _, tc := range []struct {
		outcome ActionOutcome
		do      func(Project, int64) (int64, *State, error) // after the shutdown
		takes   time.Duration
		want    ServerStatus
	}{
		{ActionOutcome{}, nil, minGuestShutdown, ServerOff},
		{ActionOutcome{}, Project.PowerOnServer, minGuestShutdown, ServerOff}, // a server that runs is not started
		{ActionOutcome{}, Project.ResetServer, time.Hour, ServerRunning},
		{ActionOutcome{GuestTakes: time.Minute}, nil, time.Minute, ServerOff},
		{ActionOutcome{GuestIgnores: true}, nil, time.Hour, ServerRunning},
	} {
		did(p.WithOutcome(&tc.outcome).ShutdownServer(id))(t)
		if tc.do != nil {
			did(tc.do(p, id))(t)
		}
		clk.Step(tc.takes - time.Millisecond)
		wantStatus(t, p, id, ServerRunning, false)
		clk.Step(time.Millisecond)
		wantStatus(t, p, id, tc.want, false)
		did(p.PowerOnServer(id))(t)
	}
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
