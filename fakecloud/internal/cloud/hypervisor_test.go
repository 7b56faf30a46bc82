package cloud

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
)

func attach(t *testing.T, p Project, o hypervisor.Options) *HypervisorSession {
	t.Helper()
	if o.Name == "" {
		o.Name = "h"
	}
	h, err := p.cloud.AttachHypervisor(o)
	check(t, err)
	t.Cleanup(h.Close)
	return h
}

// nextTask returns the next task. It does not wait for one.
func nextTask(t *testing.T, h *HypervisorSession, command string) hypervisor.Task {
	t.Helper()
	task, ok, err := h.take()
	if err != nil || !ok || task.Command != command {
		t.Fatalf("next task: %+v, %v, %v; want %s", task, ok, err, command)
	}
	return task
}

func noTask(t *testing.T, h *HypervisorSession) {
	t.Helper()
	h.cloud.Settle()
	if task, ok, err := h.take(); ok || err != nil {
		t.Fatalf("got %+v, %v; want no task", task, err)
	}
}

func complete(t *testing.T, h *HypervisorSession, command string, failure error) {
	t.Helper()
	check(t, h.Complete(t.Context(), nextTask(t, h, command).Action, failure))
}

func TestTheHypervisorEndsTheActionsOnItsGuests(t *testing.T) {
	t.Parallel()
	noRoom := &hypervisor.Error{Code: "resource_unavailable", Message: "no room"}
	gone := ServerStatus("")
	for name, c := range map[string]struct {
		off     bool // the server is powered off before
		do      func(Project, int64) (int64, *State, error)
		command string
		runs    bool
		// while the action runs, after it succeeded, after it failed
		during, done, failed ServerStatus
	}{
		"start":          {true, Project.PowerOnServer, "start_server", true, ServerStarting, ServerRunning, ServerOff},
		"stop":           {false, Project.PowerOffServer, "stop_server", false, ServerStopping, ServerOff, ServerRunning},
		"shutdown":       {false, Project.ShutdownServer, "shutdown_server", false, ServerRunning, ServerStopping, ServerRunning},
		"reboot":         {false, Project.RebootServer, "reboot_server", true, ServerRunning, ServerRunning, ServerRunning},
		"reset":          {false, Project.ResetServer, "reset_server", true, ServerStarting, ServerRunning, ServerRunning},
		"reset when off": {true, Project.ResetServer, "reset_server", true, ServerStarting, ServerRunning, ServerOff},
		"delete":         {false, Project.DeleteServer, "delete_server", false, ServerDeleting, gone, ServerRunning},
		"rebuild": {false, func(p Project, id int64) (int64, *State, error) {
			_, action, st, err := p.RebuildServer(id, RebuildServer{Image: "debian"})
			return action, st, err
		}, "rebuild_server", true, ServerRebuilding, ServerRunning, ServerOff},
		"change of type": {true, func(p Project, id int64) (int64, *State, error) {
			return p.ChangeServerType(id, "big", false)
		}, "change_server_type", true, ServerMigrating, ServerRunning, ServerOff},
	} {
		for _, failure := range []error{nil, noRoom, errors.New("broken")} {
			t.Run(fmt.Sprint(name, ", ", failure), func(t *testing.T) {
				t.Parallel()
				// Without a hypervisor, all actions end at once.
				p, clk := serverCloud(t, Options{Profile: ProfileInstant})
				id := mustCreate(t, p, smallServer("a")).Server.ID
				if c.off {
					did(p.PowerOffServer(id))(t)
				}
				h := attach(t, p, hypervisor.Options{})
				noTask(t, h)
				action := did(c.do(p, id))(t)
				clk.Step(hypervisor.DefaultTaskTimeout - time.Second)
				wantStatus(t, p, id, c.during, true)
				wantAction(t, p, action, c.command, ActionRunning)
				task := nextTask(t, h, c.command)
				if task.Action != action || task.Runs != c.runs || task.Guest.Server != id || task.Guest.Name != "a" {
					t.Errorf("%+v", task)
				}
				if want := testNow.Add(hypervisor.DefaultTaskTimeout); !task.Deadline.Equal(want) {
					t.Errorf("deadline %v, want %v", task.Deadline, want)
				}
				check(t, h.Complete(t.Context(), action, failure))
				want, status := c.done, ActionSuccess
				if failure != nil {
					want, status = c.failed, ActionFailed
				}
				wantAction(t, p, action, c.command, status)
				if _, exists := p.View().Servers.Get(id); want == gone && exists {
					t.Error("the server is still there")
				} else if want != gone {
					wantStatus(t, p, id, want, false)
				}
				if a, _ := p.View().Actions.Get(action); errors.Is(failure, noRoom) &&
					(string(a.ErrorCode) != noRoom.Code || a.ErrorMessage != noRoom.Message) ||
					failure != nil && !errors.Is(failure, noRoom) && (a.ErrorCode != ActionFailedCode || a.ErrorMessage != "broken") {
					t.Errorf("%+v", a)
				}
				if err := h.Complete(t.Context(), action, nil); !errors.Is(err, hypervisor.ErrNoTask) {
					t.Errorf("completed twice: %v", err)
				}
				clk.Step(time.Hour) // the deadline no longer matters
				wantAction(t, p, action, c.command, status)
				checkInvariants(t, p.View(), p.cloud)
			})
		}
	}
}

func TestActionsThatDoNotChangeAGuestAreNotTasks(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{Profile: ProfileInstant})
	n := testNetwork(t, p, "n", "10.0.0.0/24")
	on := mustCreate(t, p, smallServer("on")).Server.ID
	off := mustCreate(t, p, smallServer("off")).Server.ID
	did(p.PowerOffServer(off))(t)
	did(p.AttachServerToNetwork(on, AttachServerToNetwork{Network: n.ID}))(t)
	h := attach(t, p, hypervisor.Options{})
	for name, do := range map[string]func() (int64, *State, error){
		"power on when on":   func() (int64, *State, error) { return p.PowerOnServer(on) },
		"power off when off": func() (int64, *State, error) { return p.PowerOffServer(off) },
		"shutdown when off":  func() (int64, *State, error) { return p.ShutdownServer(off) },
		"reboot when off":    func() (int64, *State, error) { return p.RebootServer(off) },
		"attach when off": func() (int64, *State, error) {
			return p.AttachServerToNetwork(off, AttachServerToNetwork{Network: n.ID})
		},
		"detach when on": func() (int64, *State, error) { return p.DetachServerFromNetwork(on, n.ID) },
		"power off with a fault rule": func() (int64, *State,
			error) {
			return p.WithOutcome(&ActionOutcome{Fail: true}).PowerOffServer(on)
		},
	} {
		action, _, err := do()
		if err != nil {
			t.Fatal(name, err)
		}
		if a, _ := p.View().Actions.Get(action); a.Status == ActionRunning {
			t.Errorf("%s: the action waits for a task", name)
		}
		noTask(t, h)
	}
}

// The guest gets the interface, or the hypervisor says why not.
func TestTheHypervisorAttachesAServerThatIsOn(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{Profile: ProfileInstant})
	n := testNetwork(t, p, "n", "10.0.0.0/24")
	id := mustCreate(t, p, smallServer("a")).Server.ID
	h := attach(t, p, hypervisor.Options{})
	for _, failure := range []error{&hypervisor.Error{Code: "resource_unavailable", Message: "no room"}, nil} {
		action := did(p.AttachServerToNetwork(id, AttachServerToNetwork{Network: n.ID}))(t)
		wantStatus(t, p, id, ServerRunning, true)
		task := nextTask(t, h, hypervisor.CommandAttach)
		net, _ := p.View().Networks.Get(n.ID)
		if m, in := net.Member(server(t, p, id).Ref()); !in || !task.Runs || len(task.Guest.Networks) != 1 ||
			task.Guest.Networks[0].IP != m.IP {
			t.Errorf("%+v", task)
		}
		check(t, h.Complete(t.Context(), action, failure))
		wantAction(t, p, action, "attach_to_network", map[bool]ActionStatus{true: ActionSuccess, false: ActionFailed}[failure == nil])
		if _, attached := server(t, p, id).PrivateNet(n.ID); attached != (failure == nil) {
			t.Errorf("after %v, the server is attached: %v", failure, attached)
		}
		checkInvariants(t, p.View(), p.cloud)
	}
}

func TestANewServerGetsAGuestAndThenStarts(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	n := testNetwork(t, p, "n", "10.0.0.0/24")
	if _, err := p.update(func(tx *Tx) error { putKey(tx, "key"); return nil }); err != nil {
		t.Fatal(err)
	}
	h := attach(t, p, hypervisor.Options{})
	in := smallServer("a")
	in.Networks, in.UserData, in.SSHKeys = []int64{n.ID}, "#!/bin/sh", []string{"key"}
	in.Labels = map[string]string{"role": "worker"}
	out := mustCreate(t, p, in)
	task := nextTask(t, h, "create_server")
	m := task.Guest
	ip, _ := p.View().PrimaryIPs.Get(out.Server.PublicIPv4)
	net, _ := p.View().Networks.Get(n.ID)
	member, _ := net.Member(out.Server.Ref())
	if m.PublicIPv4 != ip.IP.Addr() || len(m.Networks) != 1 || m.Networks[0].IP != member.IP || m.Networks[0].Name != "n" ||
		!m.PublicIPv6.IsValid() {
		t.Errorf("addresses: %+v", m)
	}
	if m.UserData != in.UserData || m.Labels["role"] != "worker" || m.ServerType != "small" || m.Cores != 2 || m.MemoryGB != 4 ||
		m.DiskGB != 40 || m.Image != "debian" || m.ImageID != 101 || m.Location != "fsn1" || m.NetworkZone != "eu-central" ||
		len(m.SSHKeys) != 1 ||
		m.Architecture != "x86" || m.Project != 1 || m.Status != string(ServerInitializing) {
		t.Errorf("%+v", m)
	}
	noTask(t, h)
	check(t, h.Complete(t.Context(), task.Action, nil))
	wantStatus(t, p, out.Server.ID, ServerStarting, true)
	complete(t, h, "start_server", nil)
	wantStatus(t, p, out.Server.ID, ServerRunning, true)
	wantAction(t, p, out.NextActions[1], "attach_to_network", ActionRunning)
	clk.Step(time.Second)
	wantStatus(t, p, out.Server.ID, ServerRunning, false)
	if pn, ok := server(t, p, out.Server.ID).PrivateNet(n.ID); !ok || pn.IP != m.Networks[0].IP || pn.MAC != m.Networks[0].MAC {
		t.Errorf("interface %+v, but the task described %+v", pn, m.Networks)
	}
}

func TestAServerIsOffIfItsGuestCannotBeCreated(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{Profile: ProfileInstant})
	h := attach(t, p, hypervisor.Options{})
	out := mustCreate(t, p, smallServer("a"))
	long := "no such image!" + strings.Repeat(" é", 1<<19)
	complete(t, h, "create_server", &hypervisor.Error{Code: "image_unavailable", Message: long})
	a, _ := p.View().Actions.Get(out.Action)
	if a.Status != ActionFailed || a.ErrorCode != "image_unavailable" || a.ErrorMessage != long[:1023]+"…" {
		t.Errorf("%.2000v", a)
	}
	if _, err := p.cloud.AttachHypervisor(hypervisor.Options{Name: "a", Selector: strings.Repeat("a,", 5000) + "a"}); err == nil {
		t.Error("a selector of 10 kB was taken")
	}
	wantAction(t, p, out.NextActions[0], "start_server", ActionFailed)
	wantStatus(t, p, out.Server.ID, ServerOff, false)
	noTask(t, h)
	did(p.DeleteServer(out.Server.ID))(t)
	complete(t, h, "delete_server", nil)
	checkInvariants(t, p.View(), p.cloud)
}

func TestTheTaskOfARebuildDescribesTheRebuiltServer(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{Profile: ProfileInstant})
	id := mustCreate(t, p, smallServer("a")).Server.ID
	h := attach(t, p, hypervisor.Options{})
	data := "#!/bin/new"
	if _, _, _, err := p.RebuildServer(id, RebuildServer{Image: "onlyx86", UserData: &data}); err != nil {
		t.Fatal(err)
	}
	if m := nextTask(t, h, "rebuild_server").Guest; m.UserData != data || m.Image != "onlyx86" || m.ImageID != 103 {
		t.Errorf("%+v", m)
	}
	if s := server(t, p, id); s.UserData != "" || s.Image.Name != "debian" {
		t.Errorf("changed before the task is complete: %+v", s)
	}
}

func TestATaskThatIsNotDoneInTimeFails(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	h := attach(t, p, hypervisor.Options{TaskTimeout: time.Minute})
	action := did(p.PowerOffServer(id))(t)
	clk.Step(time.Minute)
	wantAction(t, p, action, "stop_server", ActionFailed)
	if a, _ := p.View().Actions.Get(action); a.ErrorCode != "timeout" {
		t.Errorf("%+v", a)
	}
	wantStatus(t, p, id, ServerRunning, false)
	noTask(t, h)
	if err := h.Complete(t.Context(), action, nil); !errors.Is(err, hypervisor.ErrNoTask) {
		t.Errorf("completed late: %v", err)
	}
}

func TestReportsOfGuestsChangeTheirServers(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{Profile: ProfileInstant})
	id := mustCreate(t, p, smallServer("a")).Server.ID
	other := mustCreate(t, p, smallServer("b")).Server.ID
	if _, err := p.UpdateServer(id, UpdateResource{Labels: map[string]string{"mine": ""}}); err != nil {
		t.Fatal(err)
	}
	h := attach(t, p, hypervisor.Options{Selector: "mine"})
	report := func(running bool, want ServerStatus) {
		t.Helper()
		check(t, h.Report(t.Context(), id, running))
		if s := server(t, p, id); s.Status != want {
			t.Fatalf("reported %v: %s, want %s", running, s.Status, want)
		}
	}
	report(false, ServerOff)
	before := server(t, p, id)
	report(false, ServerOff)
	if server(t, p, id) != before {
		t.Error("a report of the known state changed the server")
	}
	report(true, ServerRunning)
	did(p.ShutdownServer(id))(t)
	task := nextTask(t, h, "shutdown_server")
	report(false, ServerRunning) // ignored while the task runs
	check(t, h.Complete(t.Context(), task.Action, nil))
	report(true, ServerStopping) // stopping until the guest is off
	report(false, ServerOff)
	for _, server := range []int64{other, 7} {
		if err := h.Report(t.Context(), server, false); !errors.Is(err, hypervisor.ErrNoGuest) {
			t.Errorf("report about %d: %v", server, err)
		}
	}
	wantStatus(t, p, other, ServerRunning, false)
}

func TestAReportDuringAnActionThatIsNotATask(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	h := attach(t, p, hypervisor.Options{})
	if _, _, _, err := p.ResetServerPassword(id); err != nil {
		t.Fatal(err)
	}
	check(t, h.Report(t.Context(), id, false))
	wantStatus(t, p, id, ServerOff, true)
}

func TestEachServerHasOneHypervisor(t *testing.T) {
	t.Parallel()
	p, _ := serverCloud(t, Options{Profile: ProfileInstant})
	q := p.cloud.AddProject("other")
	create := func(p Project, name string, labels map[string]string) int64 {
		in := smallServer(name)
		in.Labels = labels
		return mustCreate(t, p, in).Server.ID
	}
	a := create(p, "a", map[string]string{"role": "a"})
	b := create(p, "b", map[string]string{"role": "b"})
	elsewhere := create(q, "a", map[string]string{"role": "a"})
	hs := map[string]*HypervisorSession{}
	for _, o := range []hypervisor.Options{
		{Name: "first", Selector: "role=a", Project: 1}, {Name: "second", Project: 1}, {Name: "third"},
	} {
		hs[o.Name] = attach(t, p, o)
	}
	for name, want := range map[string]int64{"first": a, "second": b, "third": elsewhere} {
		if ms := hs[name].Guests(); len(ms) != 1 || ms[0].Server != want {
			t.Errorf("%s has %+v, want %d", name, ms, want)
		}
	}
	for _, s := range []struct {
		p  Project
		id int64
	}{{p, a}, {p, b}, {q, elsewhere}} {
		did(s.p.PowerOffServer(s.id))(t)
	}
	for name, want := range map[string]int64{"first": a, "second": b, "third": elsewhere} {
		if task := nextTask(t, hs[name], "stop_server"); task.Guest.Server != want {
			t.Errorf("%s gets %+v", name, task)
		}
		if got := hs[name].attached.tasks; len(got) != 1 {
			t.Errorf("%s has %d tasks", name, len(got))
		}
	}
	all := p.cloud.Hypervisors()
	if len(all) != 3 || all[0].Name != "first" || !all[0].Connected || len(all[0].Tasks) != 1 {
		t.Errorf("%+v", all)
	}
}

func TestDetachingAHypervisorFailsItsUnfinishedTasks(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*HypervisorSession, func(time.Duration)){
		"closed": func(h *HypervisorSession, _ func(time.Duration)) { h.Close() },
		"by name": func(h *HypervisorSession, _ func(time.Duration)) {
			if err := h.cloud.DetachHypervisor("h"); err != nil {
				t.Error(err)
			}
		},
		"suspended for too long": func(h *HypervisorSession, step func(time.Duration)) { h.Suspend(); step(hypervisor.DefaultGrace) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, clk := serverCloud(t, Options{})
			working := runningServer(t, p, clk, smallServer("a")).ID
			stopping := runningServer(t, p, clk, smallServer("b")).ID
			h := attach(t, p, hypervisor.Options{})
			did(p.ShutdownServer(stopping))(t)
			complete(t, h, "shutdown_server", nil)
			created := mustCreate(t, p, smallServer("c"))
			action := did(p.PowerOffServer(working))(t)
			nextTask(t, h, "create_server")
			nextTask(t, h, "stop_server")
			leave(h, clk.Step)
			wantAction(t, p, action, "stop_server", ActionFailed)
			wantStatus(t, p, working, ServerRunning, false)
			wantAction(t, p, created.Action, "create_server", ActionFailed)
			wantAction(t, p, created.NextActions[0], "start_server", ActionFailed)
			wantStatus(t, p, stopping, ServerStopping, false)
			if _, err := h.Next(t.Context()); !errors.Is(err, hypervisor.ErrDetached) {
				t.Errorf("Next: %v", err)
			}
			if err := errors.Join(h.Complete(t.Context(), action, nil)); !errors.Is(err, hypervisor.ErrDetached) {
				t.Errorf("Complete: %v", err)
			}
			if err := p.cloud.ReportGuest("h", working, false); !errors.Is(err, hypervisor.ErrDetached) {
				t.Errorf("ReportGuest: %v", err)
			}
			// From now on, actions follow the profile.
			did(p.PowerOffServer(working))(t)
			clk.Step(time.Second)
			wantStatus(t, p, working, ServerOff, false)
			wantStatus(t, p, stopping, ServerOff, false)
			clk.Step(time.Hour)
			checkInvariants(t, p.View(), p.cloud)
		})
	}
}

func TestASuspendedHypervisorThatReturnsGetsItsTasksAgain(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	h := attach(t, p, hypervisor.Options{})
	off := did(p.PowerOffServer(id))(t)
	nextTask(t, h, "stop_server")
	h.Suspend()
	created := mustCreate(t, p, smallServer("b")) // while it is suspended
	clk.Step(hypervisor.DefaultGrace - time.Second)
	if all := p.cloud.Hypervisors(); len(all) != 1 || all[0].Connected || !slices.Equal(all[0].Tasks, []int64{off, created.Action}) {
		t.Errorf("%+v", all)
	}
	again := attach(t, p, hypervisor.Options{})
	if ms := again.Guests(); len(ms) != 2 || ms[0].Server != id {
		t.Errorf("%+v", ms)
	}
	complete(t, again, "stop_server", nil)
	clk.Step(time.Minute) // the end of the first one's grace has no effect
	complete(t, again, "create_server", nil)
	wantStatus(t, p, id, ServerOff, false)
	h.Suspend() // nor has this
	h.Close()
	complete(t, again, "start_server", nil)
	wantStatus(t, p, created.Server.ID, ServerRunning, false)
}

func TestAHypervisorReplacesOneOfTheSameName(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	h := attach(t, p, hypervisor.Options{})
	did(p.PowerOffServer(id))(t)
	waiting := make(chan error)
	nextTask(t, h, "stop_server")
	go func() { _, err := h.Next(context.WithoutCancel(t.Context())); waiting <- err }()
	again := attach(t, p, hypervisor.Options{})
	if err := <-waiting; !errors.Is(err, hypervisor.ErrReplaced) {
		t.Errorf("Next of the first: %v", err)
	}
	if err := h.Report(t.Context(), id, false); !errors.Is(err, hypervisor.ErrReplaced) {
		t.Errorf("Report of the first: %v", err)
	}
	complete(t, again, "stop_server", nil)
}

func TestAResetMakesHypervisorsForgetTheirGuests(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	h := attach(t, p, hypervisor.Options{})
	lost := attach(t, p, hypervisor.Options{Name: "lost"})
	lost.Suspend()
	action := did(p.PowerOffServer(id))(t)
	p.cloud.Reset()
	if task := nextTask(t, h, hypervisor.CommandForget); task.Action != 0 || task.Guest.Server != id || task.Guest.Name != "a" {
		t.Errorf("%+v", task)
	}
	if err := h.Complete(t.Context(), action, nil); !errors.Is(err, hypervisor.ErrNoTask) {
		t.Errorf("an action that is gone: %v", err)
	}
	noTask(t, h)
	clk.Step(hypervisor.DefaultGrace)
	if all := p.cloud.Hypervisors(); len(all) != 1 || all[0].Name != "h" {
		t.Errorf("%+v", all)
	}
	mustCreate(t, p, smallServer("a"))
	complete(t, h, "create_server", nil)
}

func TestAHangingActionBecomesATaskWhenItIsResumed(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	h := attach(t, p, hypervisor.Options{})
	did(p.WithOutcome(&ActionOutcome{Hang: true}).PowerOffServer(id))(t)
	noTask(t, h)
	if n := p.cloud.ResumeActions(); n != 1 {
		t.Errorf("%d resumed", n)
	}
	wantStatus(t, p, id, ServerStopping, true)
	complete(t, h, "stop_server", nil)
	wantStatus(t, p, id, ServerOff, false)
}

func TestASlowActionIsATask(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	id := runningServer(t, p, clk, smallServer("a")).ID
	h := attach(t, p, hypervisor.Options{})
	did(p.WithOutcome(&ActionOutcome{Duration: time.Hour}).PowerOffServer(id))(t)
	complete(t, h, "stop_server", nil)
	wantStatus(t, p, id, ServerOff, false)
}

func TestNextWaitsForATask(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	ids := []int64{runningServer(t, p, clk, smallServer("a")).ID, runningServer(t, p, clk, smallServer("b")).ID}
	h := attach(t, p, hypervisor.Options{})
	got := make(chan int64)
	for range 2 {
		go func() {
			task, err := h.Next(context.WithoutCancel(t.Context()))
			if err != nil {
				t.Error(err)
			}
			got <- task.Guest.Server
		}()
	}
	for _, id := range ids {
		did(p.PowerOffServer(id))(t)
	}
	servers := []int64{<-got, <-got}
	if slices.Sort(servers); !slices.Equal(servers, ids) {
		t.Errorf("tasks for %v, want %v", servers, ids)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := h.Next(ctx); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
	p.cloud.Close()
	if _, err := h.Next(t.Context()); !errors.Is(err, hypervisor.ErrClosed) {
		t.Errorf("%v", err)
	}
	if _, err := p.cloud.AttachHypervisor(hypervisor.Options{Name: "late"}); !errors.Is(err, hypervisor.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// TestReferencesAgreeWithAFaultyHypervisor runs the model of the cloud with a hypervisor that fails, is late,
// is suspended and makes wrong reports.
func TestReferencesAgreeWithAFaultyHypervisor(t *testing.T) {
	longtest.SkipRace(t)
	t.Parallel()
	for _, seed := range longtest.Share(t, 4, 1) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			p, clk := serverCloud(t, Options{PublicIPv4: netip.MustParsePrefix("203.0.113.0/27")})
			testNetwork(t, p, "one", "10.0.0.0/24")
			m := &model{Project: p, clk: clk, rnd: rand.New(rand.NewPCG(seed, 2))}
			options := hypervisor.Options{Name: "h", Selector: "role=a", TaskTimeout: 20 * time.Second, Grace: 2 * time.Second}
			h := attach(t, p, options)
			done := 0
			work := func() {
				task, ok, err := h.take()
				switch {
				case err != nil:
					h = attach(t, p, options)
				case ok && task.Action != 0:
					var failure error
					if m.rnd.IntN(6) == 0 {
						failure = &hypervisor.Error{Code: "resource_unavailable", Message: "no room"}
					}
					if err := h.Complete(t.Context(), task.Action, failure); err != nil {
						t.Error(err)
					}
					done++
				}
			}
			operations := append(m.operations(), work, work, work, work, work,
				func() { _ = h.Report(t.Context(), m.server(), m.coin()) },
				func() {
					switch m.rnd.IntN(20) {
					case 0:
						h.Close()
					case 1:
						h.Suspend()
					case 2:
						h = attach(t, p, options)
					}
				})
			for i := range 1500 {
				op := m.rnd.IntN(len(operations))
				operations[op]()
				checkInvariants(t, p.View(), p.cloud)
				if t.Failed() {
					t.Fatalf("after step %d, operation %d of seed %d", i, op, seed)
				}
			}
			if done < 20 {
				t.Errorf("only %d tasks were done: the model tests nothing", done)
			}
			h.Close()
			clk.Step(time.Hour)
			for a := range p.View().Actions.All() {
				if a.Status == ActionRunning {
					t.Errorf("action %d %s never ends", a.ID, a.Command)
				}
			}
		})
	}
}
