package cloud

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
)

// watcher keeps what events say that a project owns, as a data plane does.
type watcher struct {
	sub  *Subscription
	owns map[int64]map[Ref]bool // by project
}

func watch(t *testing.T, c *Cloud) *watcher {
	t.Helper()
	sub, _ := c.Subscribe()
	t.Cleanup(sub.Close)
	return &watcher{sub, map[int64]map[Ref]bool{}}
}

func (f *watcher) owned(project int64) map[Ref]bool {
	for events, more, _ := f.sub.poll(1 << 20); len(events) > 0; events, more, _ = f.sub.poll(1 << 20) {
		for _, e := range events {
			if f.owns[e.Project] == nil {
				f.owns[e.Project] = map[Ref]bool{}
			}
			f.owns[e.Project][Ref{e.Kind, e.ID}] = true
			if e.Type == EventDeleted {
				delete(f.owns[e.Project], Ref{e.Kind, e.ID})
			}
		}
		if !more {
			break
		}
	}
	return f.owns[project]
}

// checkNothingLeft fails if the cloud still has something of a project that was emptied.
func checkNothingLeft(t *testing.T, c *Cloud, p Project, f *watcher, before *State) {
	t.Helper()
	if st := p.View(); st.Servers.Len()+st.PrimaryIPs.Len()+st.Actions.Len() != 0 {
		t.Error("the project still owns something")
	}
	if owned := f.owned(p.ID()); len(owned) != 0 {
		t.Errorf("events have not told that %d resources are gone, such as %v", len(owned), owned)
	}
	for _, h := range c.hypervisors {
		for _, task := range h.tasks {
			if task.project == p.data {
				t.Errorf("hypervisor %s still has a task for action %d", h.Name, task.action)
			}
		}
	}
	for s := range before.Servers.All() {
		if _, ever := c.serverUsage.since(s.ID); ever {
			t.Errorf("the usage of server %d is kept", s.ID)
		}
	}
}

func checkTimeline(t *testing.T, c *Cloud, emptied Project) {
	t.Helper()
	for _, due := range c.Timeline() {
		if due.Project == emptied.ID() {
			t.Errorf("%+v is due", due)
		}
	}
}

// checkJobs fails if the queue and the counts of its jobs disagree.
func checkJobs(t *testing.T, c *Cloud) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	jobs, void, auto := map[*projectData]int{}, 0, 0
	for i, j := range c.queue {
		if !j.void() {
			jobs[j.project]++
			continue
		}
		if void++; i == 0 {
			t.Error("the first job of the queue is void")
		}
	}
	if void > c.voidJobs {
		t.Errorf("%d jobs are void, %d are counted", void, c.voidJobs)
	}
	for d := range c.projects.Load().Scan {
		if d.jobs != jobs[d] {
			t.Errorf("project %d has %d jobs, %d are counted", d.id, jobs[d], d.jobs)
		}
		if d.auto {
			auto++
		}
	}
	if auto != c.auto.count {
		t.Errorf("%d automatic projects, %d are counted", auto, c.auto.count)
	}
}

// TestADropLeavesNothing drops or resets a project while its actions run. Another project works in the meantime, and then has all
// addresses that are taken.
func TestADropLeavesNothing(t *testing.T) {
	longtest.SkipRace(t)
	t.Parallel()
	for _, seed := range longtest.Share(t, 8, 1) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			c, clk := autoCloud(t, Options{PublicIPv4: netip.MustParsePrefix("203.0.113.0/26")})
			if seed%2 == 0 {
				attach(t, Project{cloud: c}, hypervisor.Options{Selector: "role=a"})
			}
			f := watch(t, c)
			rnd := rand.New(rand.NewPCG(seed, 7))
			stays := enter(t, c, "stays")
			testNetwork(t, stays, "one", "10.0.0.0/24")
			survivor := &model{Project: stays, clk: clk, rnd: rnd}
			for range 40 {
				goes := enter(t, c, "goes")
				testNetwork(t, goes, "two"+fmt.Sprint(rnd.Uint32()), "10.1.0.0/24")
				m := &model{Project: goes, clk: clk, rnd: rnd}
				for range 40 {
					for _, each := range []*model{m, m, survivor} {
						operations := each.allOperations()
						operations[rnd.IntN(len(operations))]()
					}
					_ = c.ReportServerUsage(m.server(), hypervisor.Usage{CPU: 1})
					checkJobs(t, c)
				}
				_, _, _ = goes.CreateServer(smallServer("last")) // its actions run
				before := goes.View()
				if rnd.IntN(2) == 0 {
					c.DropProject(goes.ID())
				} else {
					goes.Reset()
				}
				checkNothingLeft(t, c, goes, f, before)
				if rnd.IntN(2) == 0 { // at times only: it sweeps the queue
					checkTimeline(t, c, goes)
				}
				checkInvariants(t, stays.View(), c)
				checkJobs(t, c)
				if t.Failed() {
					t.FailNow()
				}
				clk.Step(time.Duration(rnd.IntN(3)) * time.Second)
			}
			if stays.View().Servers.Len() == 0 {
				t.Error("the other project owns no server: the model tests little")
			}
		})
	}
}
