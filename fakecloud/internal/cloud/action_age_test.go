package cloud

import (
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// cycle starts an action on a server, and lets it end.
func cycle(t *testing.T, p Project, clk interface{ Step(time.Duration) }) int64 {
	t.Helper()
	a := startOn(t, p, ActionSpec{Command: "x", Resources: []Ref{{KindServer, 1}, {KindVolume, 2}}, Locks: []Ref{{KindServer, 1}}})
	clk.Step(time.Minute)
	return a.ID
}

// wantActions checks how many actions are kept, also in the indexes.
func wantActions(t *testing.T, p Project, want int) {
	t.Helper()
	st := p.View()
	p.cloud.mu.Lock()
	finished := len(p.cloud.finished)
	p.cloud.mu.Unlock()
	got := []int{
		st.Actions.Len(), st.Actions.byResource.Len() / 2, st.Actions.all.keys.Len() / 2,
		st.Actions.CountOfKind(KindServer, false), st.Actions.CountOfKind(KindVolume, false), finished + st.Actions.Unfinished(),
	}
	for _, n := range got {
		if n != want {
			t.Errorf("%v actions in the table, the indexes and the queue; want %d everywhere", got, want)
			return
		}
	}
}

func TestFinishedActionsAreForgottenAfterTheirTime(t *testing.T) {
	t.Parallel()
	p, clk := clockedCloud(t)
	p.cloud.mu.Lock()
	p.cloud.keepActions = 100 * time.Minute
	p.cloud.mu.Unlock()
	hanging := startOn(t, p.WithOutcome(&ActionOutcome{Hang: true}),
		ActionSpec{Command: "x", Resources: []Ref{{KindServer, 1}, {KindVolume, 2}}})
	first := cycle(t, p, clk)
	clk.Step(99 * time.Minute)
	wantActions(t, p, 2)
	sub, _ := p.cloud.Subscribe()
	defer sub.Close()
	clk.Step(2 * time.Minute)
	wantActions(t, p, 1)
	if e, err := sub.Next(t.Context()); err != nil || e.Type != EventDeleted || e.Kind != KindAction || e.ID != first {
		t.Errorf("the event of a forgotten action: %+v, %v", e, err)
	}
	for range 300 {
		cycle(t, p, clk)
	}
	// A hundredth of the time may pass before the oldest is forgotten: a minute, in which one action ends.
	if n := p.View().Actions.Len(); n < 101 || n > 103 {
		t.Errorf("%d actions are kept after 300 minutes with one each, want those of 100 minutes", n)
	}
	p.cloud.ResumeActions()
	if a, ok := p.View().Actions.Get(hanging.ID); !ok || a.Status != ActionSuccess {
		t.Errorf("the action that was running all the time: %+v, %t", a, ok)
	}
	p.cloud.Reset()
	wantActions(t, p, 0)
	cycle(t, p, clk)
	clk.Step(101 * time.Minute)
	wantActions(t, p, 0)
}

func TestTheNumberOfFinishedActionsIsBounded(t *testing.T) {
	t.Parallel()
	p, clk := clockedCloud(t)
	p.cloud.mu.Lock()
	p.cloud.maxFinished = 100
	p.cloud.mu.Unlock()
	var last int64
	for range 1000 {
		if last = cycle(t, p, clk); p.View().Actions.Len() > 100+forgetBatch {
			t.Fatalf("%d actions are kept, want at most %d", p.View().Actions.Len(), 100+forgetBatch)
		}
	}
	if _, ok := p.View().Actions.Get(last); !ok {
		t.Error("the latest action is gone")
	}
	wantActions(t, p, p.View().Actions.Len())
}

// A page of an index is what a walk over all actions finds.
func TestActionsOfAKindArePagesOfAnIndex(t *testing.T) {
	t.Parallel()
	p, clk := clockedCloud(t)
	refs := [][]Ref{{{KindServer, 1}}, {{KindVolume, 2}, {KindServer, 1}}, {{KindZone, 3}, {KindZone, 4}}, nil}
	for i := range 200 {
		startOn(t, p, ActionSpec{Command: "x", Resources: refs[i%len(refs)]})
		clk.Step(time.Second)
	}
	st := p.View()
	if got := st.Actions.Unfinished(); got != 59 {
		t.Errorf("%d running actions, want those of the last minute: 59", got)
	}
	for _, kind := range Kinds() {
		for _, running := range []bool{false, true} {
			var want []int64
			for a := range st.Actions.All() {
				has := false
				for _, r := range a.Resources {
					has = has || r.Kind == kind
				}
				if has && (!running || a.Status == ActionRunning) {
					want = append(want, a.ID)
				}
			}
			n := 0
			for e := range st.Actions.OfKind(kind, running) {
				if n >= len(want) || e.Value.ID != want[n] {
					t.Fatalf("%s, running %t: action %d of the index is %d, want %v", kind, running, n, e.Value.ID, want)
				}
				n++
			}
			if total := st.Actions.CountOfKind(kind, running); total != len(want) || n != total {
				t.Errorf("%s, running %t: %d actions, %d counted, want %d", kind, running, n, total, len(want))
			}
			for first := 0; first < len(want)+3; first += 7 {
				for _, desc := range []bool{false, true} {
					page := st.Actions.PageOfKind(kind, running, store.Page{First: first, N: 7, Desc: desc})
					for i, e := range page {
						at := first + i
						if desc {
							at = len(want) - 1 - at
						}
						if e.Value.ID != want[at] {
							t.Fatalf("%s, running %t, descending %t: action %d is %d, want %d", kind, running, desc, first+i, e.Value.ID,
								want[at])
						}
					}
					if len(page) != max(0, min(7, len(want)-first)) {
						t.Errorf("%s: %d actions from %d of %d", kind, len(page), first, len(want))
					}
				}
			}
		}
	}
}
