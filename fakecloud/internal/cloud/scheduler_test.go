package cloud

import (
	"testing"
	"time"

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
		tx.schedule(time.Minute, func(tx *Tx) {
			close(held)
			<-release
			putKey(tx, "after")
		})
	})
	if err := clk.Step(time.Hour); err != nil {
		t.Fatal(err)
	}
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
	for name, want := range map[string]struct {
		subscribe bool
		batches   int
	}{
		"no subscriber": {false, 2},
		"a subscriber, which sees each job's state": {true, jobs},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, clk := clockedCloud(t)
			var times []time.Time
			must(t, p, func(tx *Tx) {
				for i := range jobs {
					tx.schedule(time.Duration(1+i), func(tx *Tx) {
						times = append(times, tx.Now())
						putKey(tx, "")
					})
				}
			})
			if want.subscribe {
				sub, _ := p.cloud.Subscribe()
				defer sub.Close()
			}
			p.cloud.mu.Lock()
			defer p.cloud.mu.Unlock()
			batches := 0
			for p.cloud.isDue(clk.Now().Add(time.Hour)) {
				p.cloud.settleBatch(clk.Now().Add(time.Hour))
				batches++
			}
			if batches != want.batches {
				t.Errorf("%d jobs took %d transactions, want %d", jobs, batches, want.batches)
			}
			for i, at := range times {
				if got := at.Sub(times[0]); got != time.Duration(i) {
					t.Fatalf("job %d ran %v after the first, want %v, its due time", i, got, time.Duration(i))
				}
			}
		})
	}
}

// A job that is scheduled by an earlier job of the batch runs before later jobs.
func TestABatchRunsJobsInTheOrderOfTheirTimes(t *testing.T) {
	t.Parallel()
	p, clk := clockedCloud(t)
	var order string
	must(t, p, func(tx *Tx) {
		tx.schedule(time.Second, func(tx *Tx) {
			order += "a"
			tx.schedule(time.Second, func(*Tx) { order += "b" })
		})
		tx.schedule(3*time.Second, func(*Tx) { order += "c" })
	})
	clk.Step(time.Hour)
	if p.View(); order != "abc" {
		t.Errorf("order %q, want abc", order)
	}
}
