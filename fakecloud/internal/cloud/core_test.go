package cloud

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"
	"weak"

	testclock "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// clockedCloud returns a cloud whose actions take a minute on a clock that only the test moves.
func clockedCloud(t *testing.T) (Project, *testclock.FakeClock) {
	t.Helper()
	return serverCloud(t, Options{Profile: ProfileFixed(time.Minute)})
}

// putKey stores an SSH key without going through the API's rules.
func putKey(tx *Tx, name string) *SSHKey {
	k := &SSHKey{Meta: tx.NewMeta(name, nil)}
	tx.SSHKeys.Put(k)
	return k
}

func TestAFailedWriteChangesNothing(t *testing.T) {
	t.Parallel()
	p, _ := clockedCloud(t)
	sub, _ := p.cloud.Subscribe()
	defer sub.Close()
	boom := errors.New("boom")
	before := p.View()
	st, err := p.update(func(tx *Tx) error {
		putKey(tx, "a")
		if _, err := tx.TakeIPv4(); err != nil {
			return err
		}
		tx.Start(ActionSpec{Command: "x", Resources: []Ref{{KindSSHKey, 1}}, Locks: []Ref{{KindSSHKey, 1}}})
		return boom
	})
	if !errors.Is(err, boom) || st != before || p.View() != before {
		t.Fatalf("err %v; the state must be the one before", err)
	}
	if p.cloud.ips.v4.used.Len() != 0 {
		t.Error("the address did not go back to the pool")
	}
	if p.cloud.nextDue.Load() != noJob {
		t.Error("the action of the failed write is still scheduled")
	}
	if events, _, _ := sub.poll(1); len(events) != 0 {
		t.Errorf("events of a failed write: %v", events)
	}
}

// TestTheIndexesOfAStateThatWasReadNeverChange writes at random. Each state must keep its orders, labels and actions.
func TestTheIndexesOfAStateThatWasReadNeverChange(t *testing.T) {
	longtest.SkipRace(t)
	t.Parallel()
	p, _ := clockedCloud(t)
	r := rand.New(rand.NewPCG(1, 0))
	random := func() string { return strconv.Itoa(r.IntN(1000)) }
	show := func(st *State) (text string) {
		for _, o := range []store.Order{store.ByID, store.ByName} {
			for _, e := range st.SSHKeys.Page(store.Page{Order: o, N: 1000}) {
				text += e.Value.Name + " "
			}
		}
		for _, selector := range []string{"a", "b=1"} {
			s, _ := store.ParseSelector(selector)
			c, _ := st.SSHKeys.Candidates(s)
			text += fmt.Sprintln(selector, c.IDs(0, c.Len()))
		}
		for e := range st.Actions.OfKind(KindSSHKey, false) {
			text += fmt.Sprintln(e.Value.ID, e.Value.Resources, st.Actions.Locked(e.Value.Resources[0]))
		}
		return text
	}
	states := map[*State]string{}
	for range 200 {
		fails := r.IntN(4) == 0
		st, _ := p.update(func(tx *Tx) error {
			for range r.IntN(4) {
				k := &SSHKey{Meta: tx.NewMeta(random(), map[string]string{"a": random(), "b": strconv.Itoa(r.IntN(3))})}
				tx.SSHKeys.Put(k)
				tx.Start(ActionSpec{Command: "x", Resources: []Ref{{KindSSHKey, k.ID}}, Locks: []Ref{{KindSSHKey, k.ID}}})
			}
			if n := tx.SSHKeys.Len(); n > 0 {
				id := tx.SSHKeys.Page(store.Page{First: r.IntN(n), N: 1})[0].Value.ID
				tx.SSHKeys.Update(id, func(k *SSHKey) { k.Name, k.Labels = random(), map[string]string{"a": random()} })
				tx.SSHKeys.Delete(tx.SSHKeys.Page(store.Page{First: r.IntN(n), N: 1})[0].Value.ID)
			}
			if fails {
				return errors.New("boom")
			}
			return nil
		})
		if want, known := states[st]; known && show(st) != want {
			t.Fatal("a failed write changed the state")
		}
		states[st] = show(st)
	}
	for st, want := range states {
		if got := show(st); got != want {
			t.Fatalf("a later write changed a state from\n%s\nto\n%s", want, got)
		}
	}
}

// testEffect is an effect that a test watches.
type testEffect struct {
	does   func(*Tx) error
	undoes func()
}

func (e testEffect) try(tx *Tx) error { return e.does(tx) }

func (e testEffect) failed(*Tx, *Error) {
	if e.undoes != nil {
		e.undoes()
	}
}

// timerFunc is due work that a test watches.
type timerFunc func(*Tx)

func (f timerFunc) due(tx *Tx) { f(tx) }
func (timerFunc) about() Ref   { return Ref{} }

// startOn starts an action that locks one resource.
func startOn(t *testing.T, p Project, spec ActionSpec) *Action {
	t.Helper()
	var a *Action
	if _, err := p.update(func(tx *Tx) error { a = tx.Start(spec); return nil }); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAnEffectThatFailsIsDropped(t *testing.T) {
	t.Parallel()
	p, clk := clockedCloud(t)
	undone := false
	a := startOn(t, p, ActionSpec{
		Command: "x", Resources: []Ref{{KindServer, 1}},
		Does: testEffect{func(tx *Tx) error {
			putKey(tx, "half done")
			return ErrOperation("placement_error", "no room")
		}, func() { undone = true }},
	})
	clk.Step(time.Minute)
	st := p.View()
	got, _ := st.Actions.Get(a.ID)
	if got.Status != ActionFailed || got.ErrorCode != "placement_error" || st.SSHKeys.Len() != 0 || !undone {
		t.Errorf("%+v, %d keys, undone %t", got, st.SSHKeys.Len(), undone)
	}
}

// What clients see of an action that waited for another one does not change when it begins.
func TestAnActionThatBeginsIsNoEvent(t *testing.T) {
	t.Parallel()
	p, clk := clockedCloud(t)
	var a, b *Action
	must(t, p, func(tx *Tx) {
		a = tx.Start(ActionSpec{Command: "a", Resources: []Ref{{KindServer, 1}}})
		b = tx.Start(ActionSpec{Command: "b", Resources: []Ref{{KindServer, 1}}, After: a.ID})
	})
	sub, _ := p.cloud.Subscribe()
	defer sub.Close()
	clk.Step(time.Minute) // a ends, b begins
	p.View()
	clk.Step(time.Minute) // b ends
	p.View()
	for _, id := range []int64{a.ID, b.ID} {
		if e, err := sub.Next(t.Context()); err != nil || e.ID != id || e.New.(*Action).Status != ActionSuccess {
			t.Errorf("%s of action %d, %v; want the end of action %d", e.Type, e.ID, err, id)
		}
	}
}

func TestEachChangeIsOneEventInOrder(t *testing.T) {
	t.Parallel()
	p, _ := clockedCloud(t)
	sub, states := p.cloud.Subscribe()
	defer sub.Close()
	if states[1].SSHKeys.Len() != 0 {
		t.Fatal("the snapshot is not empty")
	}
	var id int64
	_, _ = p.update(func(tx *Tx) error {
		id = putKey(tx, "a").ID
		tx.SSHKeys.Update(id, func(k *SSHKey) { k.Name = "b" }) // one write, one event
		gone := putKey(tx, "gone")
		tx.SSHKeys.Delete(gone.ID) // no event
		return nil
	})
	_, _ = p.update(func(tx *Tx) error { tx.SSHKeys.Update(id, func(k *SSHKey) { k.Name = "c" }); return nil })
	_, _ = p.update(func(tx *Tx) error { tx.SSHKeys.Delete(id); return nil })
	for i, want := range []struct {
		typ      EventType
		old, new string
	}{{EventCreated, "", "b"}, {EventUpdated, "b", "c"}, {EventDeleted, "c", ""}} {
		e, err := sub.Next(t.Context())
		check(t, err)
		name := func(v any) string {
			if k, ok := v.(*SSHKey); ok {
				return k.Name
			}
			return ""
		}
		if e.Type != want.typ || name(e.Old) != want.old || name(e.New) != want.new || e.Seq != uint64(i+1) {
			t.Errorf("event %d: %s %q → %q, seq %d", i, e.Type, name(e.Old), name(e.New), e.Seq)
		}
	}
	p.cloud.Close()
	if _, err := sub.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestAllSubscribersShareTheTextOfAnEvent(t *testing.T) {
	t.Parallel()
	p, _ := clockedCloud(t)
	var subs []*Subscription
	for range 5 {
		sub, _ := p.cloud.Subscribe()
		defer sub.Close()
		subs = append(subs, sub)
	}
	must(t, p, func(tx *Tx) { putKey(tx, "a") })
	encoded := 0
	var text weak.Pointer[eventText]
	for _, sub := range subs {
		e, err := sub.Next(t.Context())
		check(t, err)
		text = weak.Make(e.text)
		if got := e.Encoded(func(*Event) []byte { encoded++; return []byte("x") }); string(got) != "x" || encoded != 1 {
			t.Errorf("%q, encoded %d times, want once", got, encoded)
		}
	}
	if runtime.GC(); text.Value() != nil {
		t.Error("all subscribers have taken the event, and its text is still in memory")
	}
	subs[0].Close()
	must(t, p, func(tx *Tx) { putKey(tx, "b") })
	if _, err := subs[0].Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed subscription: %v", err)
	}
	if e, err := subs[1].Next(t.Context()); err != nil || e.Seq != 2 {
		t.Errorf("another subscription: %+v, %v", e, err)
	}
}

func TestAwaitReturnsWhenTheConditionHolds(t *testing.T) {
	t.Parallel()
	p, clk := clockedCloud(t)
	ref := Ref{KindServer, 1}
	a := startOn(t, p, ActionSpec{Command: "x", Resources: []Ref{ref}, Locks: []Ref{ref}})
	result := make(chan error, 1)
	go func() {
		result <- p.Await(t.Context(), func(st *State) bool { return !st.Actions.Locked(ref) })
	}()
	clk.Step(time.Minute)
	check(t, <-result)
	if got, _ := p.View().Actions.Get(a.ID); got.Status != ActionSuccess {
		t.Errorf("status %s", got.Status)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Await(ctx, func(*State) bool { return false }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestResetKeepsOnlyProjectsAndTokens(t *testing.T) {
	t.Parallel()
	p, clk := clockedCloud(t)
	p.cloud.AddToken("t", Token{Project: 1})
	ran := false
	_, _ = p.update(func(tx *Tx) error {
		putKey(tx, "a")
		_, err := tx.TakeIPv4()
		tx.Start(ActionSpec{
			Command: "x", Resources: []Ref{{KindServer, 1}}, Does: testEffect{func(*Tx) error { ran = true; return nil }, nil},
		})
		return err
	})
	p.cloud.Reset()
	clk.Step(time.Hour)
	st := p.View()
	if st.SSHKeys.Len() != 0 || st.Actions.Len() != 0 || ran || p.cloud.ips.v4.used.Len() != 0 {
		t.Errorf("%d keys, %d actions, ran %t", st.SSHKeys.Len(), st.Actions.Len(), ran)
	}
	if _, ok := p.cloud.Token("t"); !ok {
		t.Error("the token is gone")
	}
}

func TestPublicAddressesAreNeverHandedOutTwice(t *testing.T) {
	t.Parallel()
	p, _ := clockedCloud(t)
	seen := map[string]bool{}
	_, err := p.update(func(tx *Tx) error {
		for range 3000 {
			a, err := tx.TakeIPv4()
			if err != nil {
				return err
			}
			n, err := tx.TakeIPv6()
			if err != nil {
				return err
			}
			if seen[a.String()] || seen[n.String()] {
				return fmt.Errorf("%s or %s twice", a, n)
			}
			seen[a.String()], seen[n.String()] = true, true
			if len(seen)%3 == 0 { // a returned address is not reused soon
				tx.GiveBack(a)
			}
		}
		return nil
	})
	check(t, err)
}

// While a write runs, the clock may pass the end of a deletion.
func TestAWriteReturnsWhatItStoredAlthoughADeletionIsDue(t *testing.T) {
	t.Parallel()
	p, clk := clockedCloud(t)
	var id int64
	must(t, p, func(tx *Tx) {
		id = putKey(tx, "before").ID
		tx.Start(ActionSpec{Command: "delete", Does: testEffect{func(tx *Tx) error { tx.SSHKeys.Delete(id); return nil }, nil}})
	})
	st, err := p.update(func(tx *Tx) error {
		clk.Step(time.Hour)
		tx.SSHKeys.Update(id, func(k *SSHKey) { k.Name = "after" })
		return nil
	})
	check(t, err)
	if k, ok := st.SSHKeys.Get(id); !ok || k.Name != "after" {
		t.Errorf("the write returned %v, want the key named after", k)
	}
	if _, ok := p.View().SSHKeys.Get(id); ok {
		t.Error("the deletion did not happen after the write")
	}
}

func TestReadersSeeConsistentStatesWhileWritersWrite(t *testing.T) {
	t.Parallel()
	p, _ := clockedCloud(t)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				st := p.View()
				// Each write adds a pair, so that an odd number is a torn read.
				n := 0
				for range st.SSHKeys.All() {
					n++
				}
				if n%2 != 0 || n != st.SSHKeys.Len() {
					t.Errorf("torn read: %d of %d", n, st.SSHKeys.Len())
					return
				}
			}
		})
	}
	for i := range 300 {
		_, _ = p.update(func(tx *Tx) error {
			putKey(tx, fmt.Sprintf("a%d", i))
			putKey(tx, fmt.Sprintf("b%d", i))
			return nil
		})
	}
	close(stop)
	wg.Wait()
}
