package cloud

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/simclock"
)

// steppedCloud returns a cloud whose actions take a minute. With its clock, reads do not run due work.
func steppedCloud(t *testing.T) (Project, *simclock.Clock) {
	t.Helper()
	clk := simclock.NewAt(testNow, 0)
	c := New(Options{Clock: clk, Profile: ProfileFixed(time.Minute)})
	t.Cleanup(c.Close)
	p, _ := c.Project(1)
	return p, clk
}

func TestAReadDoesNotWaitForDueWork(t *testing.T) {
	t.Parallel()
	p, clk := steppedCloud(t)
	held, release := make(chan struct{}), make(chan struct{})
	must(t, p, func(tx *Tx) {
		putKey(tx, "before")
		tx.schedule(time.Minute, timerFunc(func(tx *Tx) {
			close(held)
			<-release
			putKey(tx, "after")
		}))
	})
	check(t, clk.Step(time.Hour))
	settled := make(chan struct{})
	go func() { defer close(settled); p.cloud.Settle() }()
	<-held
	// If the read waits, the test times out.
	if got := p.View().SSHKeys.Len(); got != 1 {
		t.Errorf("%d keys while the work runs, want 1", got)
	}
	close(release)
	<-settled
	if got := p.View().SSHKeys.Len(); got != 2 {
		t.Errorf("%d keys after Settle, want 2", got)
	}
}

func TestDueWorkIsDoneInBatches(t *testing.T) {
	t.Parallel()
	const jobs = maxBatch + 1
	for _, subscribe := range []bool{false, true} {
		t.Run(fmt.Sprintf("with a subscriber: %v", subscribe), func(t *testing.T) {
			t.Parallel()
			p, clk := clockedCloud(t)
			var times []time.Time
			must(t, p, func(tx *Tx) {
				for i := range jobs {
					tx.schedule(time.Duration(1+i), timerFunc(func(tx *Tx) {
						times = append(times, tx.Now())
						putKey(tx, "")
					}))
				}
			})
			var sub *Subscription
			if subscribe {
				sub, _ = p.cloud.SubscribeEncoded(keysThen)
				defer sub.Close()
			}
			batches := 0
			p.cloud.mu.Lock()
			for p.cloud.isDue(clk.Now().Add(time.Hour)) {
				p.cloud.settleBatch(clk.Now().Add(time.Hour))
				batches++
			}
			p.cloud.mu.Unlock()
			if batches != 2 {
				t.Errorf("%d jobs took %d batches, want 2", jobs, batches)
			}
			for i, at := range times {
				if got := at.Sub(times[0]); got != time.Duration(i) {
					t.Fatalf("job %d ran %v after the first, want %v, its due time", i, got, time.Duration(i))
				}
			}
			if subscribe {
				wantStateOfEachJob(t, sub, times)
			}
		})
	}
}

// keysThen encodes how many keys there are after an event, and whether its own is one of them.
func keysThen(e *Event) []byte {
	_, has := e.State.SSHKeys.Get(e.ID)
	return fmt.Append(nil, e.State.SSHKeys.Len(), has)
}

// wantStateOfEachJob checks the events of jobs that each create a key: an event has the time of its job, and shows the state after it.
func wantStateOfEachJob(t *testing.T, sub *Subscription, times []time.Time) {
	t.Helper()
	events, err := sub.NextAll(t.Context())
	if err != nil || len(events) != len(times) {
		t.Fatalf("%d events, want %d, %v", len(events), len(times), err)
	}
	for i, e := range events {
		if got, want := string(e.Encoded(keysThen)), fmt.Sprint(i+1, true); !e.Time.Equal(times[i]) || got != want {
			t.Fatalf("event %d: %v, %s keys; want %v, %s keys", i, e.Time, got, times[i], want)
		}
	}
}

// What is encoded during a transaction is bounded: others wait for it. Nothing is encoded for who only follows the states.
func TestABatchEndsWhenItsEventsAreLong(t *testing.T) {
	t.Parallel()
	p, clk := steppedCloud(t)
	follower, _ := p.cloud.Subscribe()
	defer follower.Close()
	encoded := 0
	shown, _ := p.cloud.SubscribeEncoded(func(*Event) []byte {
		encoded++
		return make([]byte, maxBatchText/2)
	})
	wantBatches := func(sizes ...int) {
		t.Helper()
		must(t, p, func(tx *Tx) {
			for range 9 {
				tx.schedule(time.Minute, timerFunc(func(tx *Tx) { putKey(tx, "") }))
			}
		})
		check(t, clk.Step(time.Hour))
		p.cloud.Settle()
		for _, size := range sizes {
			if events, _, err := follower.NextBatch(t.Context()); err != nil || len(events) != size {
				t.Fatalf("a batch has %d events, want %d; %v", len(events), size, err)
			}
		}
	}
	wantBatches(3, 3, 3)
	if encoded != 6 { // those of the last job when a subscriber reads them
		t.Errorf("encoded %d events, want 6", encoded)
	}
	shown.Close()
	if wantBatches(9); encoded != 6 {
		t.Errorf("encoded %d events, which no subscriber shows", encoded-6)
	}
}

func TestABatchWhoseLastJobChangesNothingIsPublished(t *testing.T) {
	t.Parallel()
	p, clk := steppedCloud(t)
	must(t, p, func(tx *Tx) {
		tx.schedule(time.Minute, timerFunc(func(tx *Tx) { putKey(tx, "") }))
		tx.schedule(time.Minute, timerFunc(func(*Tx) {}))
	})
	sub, _ := p.cloud.Subscribe()
	defer sub.Close()
	check(t, clk.Step(time.Hour))
	p.cloud.Settle()
	if keys := p.View().SSHKeys.Len(); keys != 1 {
		t.Fatalf("%d keys, want 1", keys)
	}
	if e, err := sub.Next(t.Context()); err != nil || e.Type != EventCreated {
		t.Errorf("%s, %v; want the event of the key", e.Type, err)
	}
}

// A subscriber that reads after an event must not see an older state.
func TestTheStateIsPublishedBeforeItsEvents(t *testing.T) {
	t.Parallel()
	p, clk := steppedCloud(t)
	must(t, p, func(tx *Tx) {
		for range 100 {
			tx.schedule(time.Minute, timerFunc(func(tx *Tx) { putKey(tx, "") }))
		}
	})
	sub, _ := p.cloud.Subscribe()
	defer sub.Close()
	check(t, clk.Step(time.Hour))
	go p.cloud.Settle()
	for range 100 {
		e, err := sub.Next(t.Context())
		check(t, err)
		if now := p.View().SSHKeys.Len(); now < e.State.SSHKeys.Len() {
			t.Fatalf("the event's state has %d keys, a later read %d", e.State.SSHKeys.Len(), now)
		}
	}
}

// A job that is scheduled by an earlier job of the batch runs before later jobs.
func TestABatchRunsJobsInTheOrderOfTheirTimes(t *testing.T) {
	t.Parallel()
	p, clk := clockedCloud(t)
	var order string
	must(t, p, func(tx *Tx) {
		tx.schedule(time.Second, timerFunc(func(tx *Tx) {
			order += "a"
			tx.schedule(time.Second, timerFunc(func(*Tx) { order += "b" }))
		}))
		tx.schedule(3*time.Second, timerFunc(func(*Tx) { order += "c" }))
	})
	clk.Step(time.Hour)
	if p.View(); order != "abc" {
		t.Errorf("order %q, want abc", order)
	}
}

func TestAnActionHasOneJobAtATime(t *testing.T) {
	t.Parallel()
	p, clk := steppedCloud(t)
	const n = 5000
	for range n {
		must(t, p, func(tx *Tx) { tx.Start(ActionSpec{Command: "wait"}) })
	}
	c := p.cloud
	for passed := 0; passed < 60; passed += 15 {
		if len(c.queue) != n {
			t.Errorf("after %d seconds, %d actions have %d jobs; want one each", passed, n, len(c.queue))
		}
		check(t, clk.Step(15*time.Second))
		c.Settle()
	}
	if len(c.queue) != 0 || cap(c.queue) > minShrink {
		t.Errorf("the queue has %d jobs and room for %d after all actions have ended", len(c.queue), cap(c.queue))
	}
}

// A write waits for one batch of due work at most, and its own work at once does not wait for the rest.
func TestAWriteRunsAtMostABatchOfDueWork(t *testing.T) {
	t.Parallel()
	p, clk := steppedCloud(t)
	const n = 100_000
	c, ran := p.cloud, 0
	must(t, p, func(tx *Tx) {
		for range n {
			tx.schedule(time.Minute, timerFunc(func(*Tx) { ran++ }))
		}
	})
	c.SetProfile(ProfileInstant)
	c.mu.Lock() // the cloud's goroutine runs no batch meanwhile
	check(t, clk.Step(time.Hour))
	for i, want := range []int{maxBatch, maxBatch} { // the second write does not run another batch
		at := c.catchUp()
		if ran != want || !at.Equal(testNow.Add(time.Minute)) {
			t.Errorf("write %d: %d jobs ran before it, want %d; its time is %v, want that of the next job", i, ran, want, at)
		}
		var ids []int64
		err := c.write(p.data, at, nil, func(tx *Tx) error {
			first := tx.Start(ActionSpec{Command: "first"})
			ids = append(ids, first.ID, tx.Start(ActionSpec{Command: "then", After: first.ID}).ID)
			return nil
		})
		if err != nil || ran != want {
			t.Errorf("write %d: %v, %d jobs ran, want none with it", i, err, ran-want)
		}
		for _, id := range ids {
			if a, _ := p.data.state.Load().Actions.Get(id); a.Status != ActionSuccess || !a.Finished.Equal(at) {
				t.Errorf("write %d: an action that takes no time: %+v", i, a)
			}
		}
	}
	c.mu.Unlock()
	c.Settle()
	c.mu.Lock()
	defer c.mu.Unlock()
	if ran != n || c.backlog || !c.catchUp().Equal(testNow.Add(time.Hour)) {
		t.Errorf("after Settle, %d of %d jobs have run; backlog %t, time %v", ran, n, c.backlog, c.catchUp())
	}
}

// A write leaves what has just become due to the cloud's goroutine, and happens before it, unless the clock stands still.
func TestAWriteLeavesWhatHasJustBecomeDue(t *testing.T) {
	t.Parallel()
	const nearlyStill = 1e-9 // seconds per second of the machine: the test steps the clock, but it runs by itself
	for _, tc := range []struct {
		speed float64
		late  time.Duration
		left  bool
	}{{nearlyStill, 0, true}, {nearlyStill, runnerPause / 2, true}, {nearlyStill, runnerPause, false}, {0, 0, false}} {
		clk := simclock.NewAt(testNow, tc.speed)
		c := New(Options{Clock: clk, Profile: ProfileFixed(time.Minute)})
		t.Cleanup(c.Close)
		p, _ := c.Project(1)
		ran := false
		must(t, p, func(tx *Tx) { tx.schedule(time.Minute, timerFunc(func(*Tx) { ran = true })) })
		c.mu.Lock() // the cloud's goroutine does nothing meanwhile
		due := c.queue[0].due
		check(t, clk.Step(due.Add(tc.late).Sub(clk.Now())))
		at := c.beforeWrite()
		c.mu.Unlock()
		if ran == tc.left || tc.left && !at.Equal(due) || !tc.left && at.Before(due.Add(tc.late)) {
			t.Errorf("%v after the work became due, at speed %v: it ran %t, the write's time is %v after that", tc.late, tc.speed, ran,
				at.Sub(due))
		}
		c.Settle()
		if !ran {
			t.Error("the work that was left did not run")
		}
	}
}

// A test in a bubble may close the cloud at any time: no goroutine may sleep then, because time stands still when the test has ended.
func TestAClosedCloudLeavesABubbleAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(Options{Clock: clock.RealClock{}})
		p, _ := c.Project(1)
		must(t, p, func(tx *Tx) { tx.schedule(time.Second, timerFunc(func(tx *Tx) { putKey(tx, "due") })) })
		time.Sleep(time.Second + runnerPause/2)
		if got := p.View().SSHKeys.Len(); got != 1 {
			t.Errorf("%d keys, want that of the due work", got)
		}
		c.Close()
	})
}
