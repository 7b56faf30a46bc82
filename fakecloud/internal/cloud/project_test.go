package cloud

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
)

// autoCloud returns a cloud with automatic projects, whose actions take a second on a clock that only the test moves.
func autoCloud(t *testing.T, o Options) (*Cloud, *testclock.FakeClock) {
	t.Helper()
	o.AutoProjects = true
	p, clk := serverCloud(t, o)
	return p.cloud, clk
}

func enter(t *testing.T, c *Cloud, token string) Project {
	t.Helper()
	valid, p, err := c.Enter(token)
	if err != nil || valid.Project != p.ID() {
		t.Fatalf("%q: project %d, %v", token, valid.Project, err)
	}
	return p
}

func TestAnUnknownTokenIsThatOfAProjectOfItsOwn(t *testing.T) {
	t.Parallel()
	c, _ := autoCloud(t, Options{})
	one, two := enter(t, c, "one"), enter(t, c, "two")
	must(t, one, func(tx *Tx) { putKey(tx, "a") })
	if again := enter(t, c, "one"); again.ID() != one.ID() || again.View().SSHKeys.Len() != 1 || !again.Auto() {
		t.Errorf("the second request of a token is in project %d, want %d", again.ID(), one.ID())
	}
	if two.ID() == one.ID() || two.View().SSHKeys.Len() != 0 {
		t.Error("two tokens share what they own")
	}
	for _, token := range []string{"", "a b", "\x00", string(make([]byte, 257))} {
		_, _, err := c.Enter(token)
		wantCode(t, "the token", err, "unauthorized")
	}
	if n := len(c.Projects()); n != 3 {
		t.Errorf("%d projects, want the first and two more", n)
	}
	off, _ := clockedCloud(t)
	_, _, err := off.cloud.Enter("one")
	wantCode(t, "the token", err, "unauthorized")
}

func TestManyClientsOfOneTokenShareOneProject(t *testing.T) {
	t.Parallel()
	c, _ := autoCloud(t, Options{})
	for round := range 20 {
		var wait sync.WaitGroup
		for i := range 50 {
			wait.Go(func() {
				_, p, err := c.Enter(fmt.Sprint("token-", round))
				if err == nil {
					_, err = p.update(func(tx *Tx) error { putKey(tx, fmt.Sprint(i)); return nil })
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wait.Wait()
		if p := enter(t, c, fmt.Sprint("token-", round)); p.View().SSHKeys.Len() != 50 {
			t.Errorf("%d keys, want those of all 50 clients", p.View().SSHKeys.Len())
		}
	}
	if n := len(c.Projects()); n != 21 {
		t.Errorf("%d projects, want 21", n)
	}
}

// The times are the machine's, whatever the cloud's clock shows. No request is needed.
func TestAProjectIsDroppedWhenItIsNotUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clk := testclock.NewFakeClock(testNow)
		c := New(Options{Clock: clk, AutoProjects: true})
		defer c.Close()
		c.AddToken("first", Token{Project: FirstProject})
		idle, busy := enter(t, c, "idle"), enter(t, c, "busy")
		exists := func(p Project) bool { _, ok := c.Project(p.ID()); return ok }
		for range 11 {
			time.Sleep(DefaultProjectTTL / 2)
			synctest.Wait()
			enter(t, c, "busy")
			clk.Step(24 * time.Hour)
		}
		if exists(idle) || !exists(busy) {
			t.Errorf("the idle project exists: %t, the busy one: %t", exists(idle), exists(busy))
		}
		again := enter(t, c, "idle")
		if again.ID() == idle.ID() || again.ID() == busy.ID() {
			t.Errorf("id %d is used again", again.ID())
		}
		time.Sleep(DefaultProjectTTL - time.Millisecond)
		synctest.Wait()
		if !exists(again) {
			t.Error("a project was dropped too early")
		}
		time.Sleep(DefaultProjectTTL/10 + time.Millisecond)
		synctest.Wait()
		if n := len(c.Projects()); exists(again) || n != 1 || c.auto.count != 0 {
			t.Errorf("%d projects are left, want the first", n)
		}
		if _, ok := c.Token("idle"); ok {
			t.Error("the token is still valid")
		}
		enter(t, c, "first")
	})
}

// A request meets a project that is about to be dropped: it gets that one or a new one, but never an error.
func TestARequestDuringADropIsServed(t *testing.T) {
	t.Parallel()
	c, _ := autoCloud(t, Options{ProjectTTL: 1})
	var wait sync.WaitGroup
	ended := make(chan struct{})
	wait.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				c.reap()
			}
		}
	})
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			for j := range 2000 {
				valid, p, err := c.Enter(fmt.Sprint("token-", i/2))
				if err != nil || valid.Project != p.ID() {
					t.Errorf("request %d: %v", j, err)
					return
				}
				_, _, _, err = p.CreatePrimaryIP(CreatePrimaryIP{Name: fmt.Sprint(i, "-", j), Type: IPv4, Location: "fsn1"})
				if e := (*Error)(nil); err != nil && (!errors.As(err, &e) || e.Code != "unauthorized") {
					t.Error(err)
				}
				p.View()
			}
		})
	}
	clients.Wait()
	close(ended)
	wait.Wait()
	c.reap()
	c.mu.Lock() // the cloud's goroutine may be in the middle of the last drop
	defer c.mu.Unlock()
	if n := len(c.Projects()); n != 1 || c.auto.count != 0 {
		t.Errorf("%d projects are left, want the first", n)
	}
	checkInvariants(t, c.projects.Load().Items()[0].state.Load(), c) // no write has taken an address for a project after its drop
}

func TestARequestUnderWayCannotWriteToADroppedProject(t *testing.T) {
	t.Parallel()
	c, clk := autoCloud(t, Options{})
	p := enter(t, c, "one")
	mustCreate(t, p, smallServer("a"))
	clk.Step(time.Minute)
	c.Settle()
	if len(c.finished) == 0 {
		t.Fatal("no action has ended")
	}
	if !c.DropProject(p.ID()) || c.DropProject(p.ID()) || c.DropProject(77) {
		t.Error("want one drop to succeed")
	}
	_, _, err := p.CreateServer(smallServer("b"))
	wantCode(t, "the token", err, "unauthorized")
	if n := p.View().Servers.Len(); n != 0 {
		t.Errorf("a reader sees %d servers", n)
	}
	clk.Step(2 * DefaultKeepActions)
	c.Settle()
	if len(c.finished) != 0 {
		t.Errorf("%d actions of a dropped project are not forgotten", len(c.finished))
	}
	first, _ := c.Project(FirstProject)
	checkInvariants(t, first.View(), c)
	if again := enter(t, c, "one"); again.ID() == p.ID() || again.View().Servers.Len() != 0 {
		t.Error("the token's next project is not new")
	}
}

func TestTheAddressesOfADroppedProjectAreGivenOutAgain(t *testing.T) {
	t.Parallel()
	for name, drop := range map[string]func(Project){
		"drop":  func(p Project) { p.cloud.DropProject(p.ID()) },
		"reset": Project.Reset,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := autoCloud(t, Options{PublicIPv4: netip.MustParsePrefix("203.0.113.0/29")})
			for round := range 5 {
				p := enter(t, c, "one")
				for i := range 6 {
					mustCreate(t, p, smallServer(fmt.Sprint(round, "-", i)))
				}
				_, _, err := p.CreateServer(smallServer("one too many"))
				wantCode(t, "one more server", err, "resource_unavailable")
				drop(p)
			}
		})
	}
}

func TestARevokedTokenStaysInvalid(t *testing.T) {
	t.Parallel()
	c, _ := autoCloud(t, Options{})
	p := enter(t, c, "one")
	c.RevokeToken("one")
	for range 2 {
		_, _, err := c.Enter("one")
		wantCode(t, "the token", err, "unauthorized")
		if _, ok := c.Token("one"); ok {
			t.Error("the token is valid")
		}
		c.DropProject(p.ID()) // makes no difference
	}
	for i := range maxRevoked {
		c.AddToken(fmt.Sprint(i), Token{Project: FirstProject})
		c.RevokeToken(fmt.Sprint(i))
	}
	if len(c.revoked) != maxRevoked {
		t.Errorf("%d revoked tokens are kept", len(c.revoked))
	}
	enter(t, c, "one")
	_, _, err := c.Enter("0")
	wantCode(t, "the token", err, "unauthorized")
	if c.AddToken("x", Token{Project: p.ID()}) {
		t.Error("a dropped project got a token")
	}
	if !c.AddToken("0", Token{Project: FirstProject}) || enter(t, c, "0").ID() != FirstProject {
		t.Error("a revoked token cannot be made valid again")
	}
}

func TestATokenThatMovedToAnotherProjectOutlivesTheFirst(t *testing.T) {
	t.Parallel()
	c, _ := autoCloud(t, Options{})
	one := enter(t, c, "one")
	c.AddToken("one", Token{Project: FirstProject, ReadOnly: true})
	c.DropProject(one.ID())
	if valid, p, err := c.Enter("one"); err != nil || p.ID() != FirstProject || !valid.ReadOnly {
		t.Errorf("project %d, %+v, %v", p.ID(), valid, err)
	}
}

func TestTheNumberOfAutomaticProjectsHasALimit(t *testing.T) {
	t.Parallel()
	c, _ := autoCloud(t, Options{})
	c.auto.max = 2
	one := enter(t, c, "one")
	enter(t, c, "two")
	_, _, err := c.Enter("three")
	wantCode(t, "one more project", err, "resource_limit_exceeded")
	enter(t, c, "two")
	c.DropProject(one.ID())
	enter(t, c, "three")
}

func TestAForkHasTheAutomaticProjects(t *testing.T) {
	t.Parallel()
	c, _ := autoCloud(t, Options{})
	one, two := enter(t, c, "one"), enter(t, c, "two")
	mustCreate(t, one, smallServer("a"))
	mustCreate(t, two, smallServer("a"))
	c.RevokeToken("two")
	gone := enter(t, c, "three")
	mustCreate(t, gone, smallServer("a"))
	c.DropProject(gone.ID())
	two.Reset()
	clk := testclock.NewFakeClock(testNow)
	f := c.Fork(clk)
	defer f.Close()
	if p := enter(t, f, "one"); p.ID() != one.ID() || !p.Auto() || p.View().Servers.Len() != 1 {
		t.Errorf("project %d with %d servers", p.ID(), p.View().Servers.Len())
	}
	_, _, err := f.Enter("two")
	wantCode(t, "the token", err, "unauthorized")
	if next := enter(t, f, "three"); next.ID() == gone.ID() || next.View().Servers.Len() != 0 {
		t.Errorf("the next project is %d", next.ID())
	}
	for _, due := range f.Timeline() {
		if due.Project != one.ID() {
			t.Errorf("%+v is due", due)
		}
	}
	f.DropProject(one.ID())
	clk.Step(time.Hour)
	f.Settle()
	if p := enter(t, c, "one"); p.View().Servers.Len() != 1 {
		t.Error("a drop in the fork changed the original")
	}
}

// TestManyProjectsAreLinear makes projects, each with work in the queue, and drops one after the other.
//
//nolint:paralleltest // it measures the process
func TestManyProjectsAreLinear(t *testing.T) {
	longtest.SkipRace(t)
	linear(t, "projects that are made and dropped", 500, func(n int) func() {
		c := New(Options{Clock: clock.RealClock{}, AutoProjects: true})
		t.Cleanup(c.Close)
		first, _ := c.Project(FirstProject)
		return func() {
			must(t, first, func(tx *Tx) { tx.schedule(time.Minute, timerFunc(nil)) }) // all others are behind it
			var all []Project
			for i := range n {
				p := enter(t, c, fmt.Sprint(i))
				must(t, p, func(tx *Tx) {
					for range 20 {
						tx.schedule(time.Hour, timerFunc(nil))
					}
				})
				all = append(all, p)
			}
			for _, p := range all {
				c.DropProject(p.ID())
			}
			if len(c.queue) > 2*minShrink {
				t.Errorf("%d jobs are in the queue, and all but one are those of dropped projects", len(c.queue))
			}
		}
	})
}

// A task that was never handed out waits for another hypervisor, but not that of a dropped project.
func TestAForkHasNoTasksOfDroppedProjects(t *testing.T) {
	t.Parallel()
	c, clk := autoCloud(t, Options{})
	p := enter(t, c, "one")
	h := attach(t, p, hypervisor.Options{Grace: time.Second, TaskTimeout: time.Hour})
	mustCreate(t, p, smallServer("a"))
	h.Suspend()
	clk.Step(2 * time.Second)
	c.Settle()
	if len(c.waiting) != 1 {
		t.Fatalf("%d tasks wait, want one", len(c.waiting))
	}
	c.DropProject(p.ID())
	f := c.Fork(testclock.NewFakeClock(clk.Now()))
	defer f.Close()
	for _, cloud := range []*Cloud{f, c} {
		next := attach(t, Project{cloud: cloud}, hypervisor.Options{})
		noTask(t, next)
		if len(cloud.waiting) != 0 {
			t.Error("the task still waits")
		}
	}
}
