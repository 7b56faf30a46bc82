package cloud

import (
	"container/heap"
	"math"
	"time"
)

// job is work that is due at a time.
type job struct {
	due     time.Time
	seq     uint64 // order of scheduling, among jobs that are due at the same time
	project *projectData
	run     func(*Tx) error
	// outside, if set, runs in place of run, with Cloud.mu held and no transaction open.
	outside func()
}

type jobQueue []job

func (q jobQueue) Len() int      { return len(q) }
func (q jobQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *jobQueue) Push(x any)   { *q = append(*q, x.(job)) }
func (q jobQueue) Less(i, j int) bool {
	if !q[i].due.Equal(q[j].due) {
		return q[i].due.Before(q[j].due)
	}
	return q[i].seq < q[j].seq
}

func (q *jobQueue) Pop() any {
	old := *q
	j := old[len(old)-1]
	old[len(old)-1] = job{}
	*q = old[:len(old)-1]
	return j
}

// scheduleLocked runs fn, with Cloud.mu held, when d has passed.
func (c *Cloud) scheduleLocked(d time.Duration, fn func()) {
	c.jobSeq++
	heap.Push(&c.queue, job{due: c.clock.Now().Add(d), seq: c.jobSeq, outside: fn})
	c.rearm()
}

const noJob = math.MaxInt64

// Settle does all work that is due. Reads and writes call it; whoever steps a clock and then only
// listens to events may call it too.
func (c *Cloud) Settle() {
	next := c.nextDue.Load()
	if next == noJob || c.clock.Now().UnixNano() < next {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settleLocked()
}

func (c *Cloud) settleLocked() { c.settleUntil(c.clock.Now()) }

// settleUntil does all work that is due at a time, and what becomes due by it. Cloud.mu is held.
func (c *Cloud) settleUntil(now time.Time) {
	for len(c.queue) > 0 && !c.queue[0].due.After(now) {
		j := heap.Pop(&c.queue).(job)
		if j.outside != nil {
			j.outside()
			continue
		}
		// A scheduled job has nobody to report an error to; what it did is dropped.
		_ = c.transact(j.project, j.due.UTC(), nil, j.run)
	}
	c.rearm()
}

func (c *Cloud) rearm() {
	next := int64(noJob)
	if len(c.queue) > 0 {
		next = c.queue[0].due.UnixNano()
	}
	if c.nextDue.Swap(next) != next {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// runner does due work when nobody reads or writes.
func (c *Cloud) runner() {
	for {
		next := c.nextDue.Load()
		if next == noJob {
			select {
			case <-c.wake:
				continue
			case <-c.closed:
				return
			}
		}
		timer := c.clock.NewTimer(time.Unix(0, next).Sub(c.clock.Now()))
		select {
		case <-timer.C():
			c.Settle()
		case <-c.wake:
		case <-c.closed:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}
