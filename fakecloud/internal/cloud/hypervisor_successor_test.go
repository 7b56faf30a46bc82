package cloud

import (
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
)

// wantNewServer checks the create action, the start action and the status of a new server.
func wantNewServer(t *testing.T, p Project, created CreatedServer, actions ActionStatus, status ServerStatus, locked bool) {
	t.Helper()
	wantAction(t, p, created.Action, "create_server", actions)
	wantAction(t, p, created.NextActions[0], "start_server", actions)
	wantStatus(t, p, created.Server.ID, status, locked)
}

func TestASuccessorGetsTheTasksThatWereNeverHandedOut(t *testing.T) {
	t.Parallel()
	for name, successor := range map[string]hypervisor.Options{
		"of the same name": {}, "of another name": {Name: "other"}, "for some servers": {Selector: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, clk := serverCloud(t, Options{})
			h := attach(t, p, hypervisor.Options{})
			begun := mustCreate(t, p, smallServer("begun"))
			nextTask(t, h, "create_server")
			h.Suspend()
			in := smallServer("waits")
			in.Labels = map[string]string{"a": ""}
			created := mustCreate(t, p, in)
			clk.Step(hypervisor.DefaultTaskTimeout - time.Second)
			wantNewServer(t, p, begun, ActionFailed, ServerOff, false)
			wantNewServer(t, p, created, ActionRunning, ServerInitializing, true)
			if all := p.cloud.Hypervisors(); len(all) != 0 {
				t.Errorf("%+v", all)
			}
			noTask(t, attach(t, p, hypervisor.Options{Name: "elsewhere", Selector: "!a"}))
			next := attach(t, p, successor)
			complete(t, next, "create_server", nil)
			complete(t, next, "start_server", nil)
			wantNewServer(t, p, created, ActionSuccess, ServerRunning, false)
			noTask(t, next)
			clk.Step(time.Hour) // the deadline no longer matters
			wantNewServer(t, p, created, ActionSuccess, ServerRunning, false)
			checkInvariants(t, p.View(), p.cloud)
		})
	}
}

func TestATaskWithoutASuccessor(t *testing.T) {
	t.Parallel()
	suspended := func(t *testing.T) (Project, *testclock.FakeClock, CreatedServer) {
		t.Helper()
		p, clk := serverCloud(t, Options{})
		attach(t, p, hypervisor.Options{}).Suspend()
		return p, clk, mustCreate(t, p, smallServer("a"))
	}
	t.Run("fails at its deadline", func(t *testing.T) {
		t.Parallel()
		p, clk, created := suspended(t)
		clk.Step(hypervisor.DefaultGrace)
		wantNewServer(t, p, created, ActionRunning, ServerInitializing, true)
		clk.Step(hypervisor.DefaultTaskTimeout)
		wantNewServer(t, p, created, ActionFailed, ServerOff, false)
		if a, _ := p.View().Actions.Get(created.Action); a.ErrorCode != "timeout" {
			t.Errorf("%+v", a)
		}
		noTask(t, attach(t, p, hypervisor.Options{}))
	})
	t.Run("goes to another hypervisor that is attached and has the server", func(t *testing.T) {
		t.Parallel()
		p, clk, created := suspended(t)
		other := attach(t, p, hypervisor.Options{Name: "other"})
		noTask(t, other)
		clk.Step(hypervisor.DefaultGrace)
		p.cloud.Settle()
		complete(t, other, "create_server", nil)
		complete(t, other, "start_server", nil)
		wantNewServer(t, p, created, ActionSuccess, ServerRunning, false)
	})
	t.Run("is gone after a reset", func(t *testing.T) {
		t.Parallel()
		p, clk, _ := suspended(t)
		clk.Step(hypervisor.DefaultGrace)
		p.cloud.Settle()
		p.cloud.Reset()
		noTask(t, attach(t, p, hypervisor.Options{}))
	})
}
