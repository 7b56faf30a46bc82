package cloud

import (
	"container/heap"
	"math"
	"time"
)

// job is work that is due at a time.
type job struct {
	due     time.Time
	seq     uint64 // orders jobs that are due at the same time
	project *projectData
	run     func(*Tx)
	// outside, if set, runs instead of run. It runs with Cloud.mu held and without a transaction.
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

// minShrink is the capacity up to which the queue keeps its memory.
const minShrink = 1024

func (q *jobQueue) Pop() any {
	old := *q
	j := old[len(old)-1]
	old[len(old)-1] = job{}
	*q = old[:len(old)-1]
	if cap(old) > minShrink && len(*q) < cap(old)/4 {
		*q = append(make(jobQueue, 0, cap(old)/2), *q...)
	}
	return j
}

// scheduleLocked runs fn when d has passed, with Cloud.mu held. The caller holds it, too.
func (c *Cloud) scheduleLocked(d time.Duration, fn func()) {
	c.jobSeq++
	heap.Push(&c.queue, job{due: c.clock.Now().Add(d), seq: c.jobSeq, outside: fn})
	c.rearm()
}

const noJob = math.MaxInt64

// maxBatch is the maximum number of jobs in one transaction. It limits how long others wait for
// Cloud.mu while Settle runs.
const maxBatch = 1000

// Settle runs all work that is due now. Call it after you step the clock. Before a write and while the
// clock runs, the cloud does so by itself.
func (c *Cloud) Settle() {
	now := c.clock.Now()
	for more := true; more && now.UnixNano() >= c.nextDue.Load(); {
		c.mu.Lock()
		more = c.settleBatch(now)
		c.mu.Unlock()
	}
}

func (c *Cloud) settleLocked() { c.settleUntil(c.clock.Now()) }

// settleUntil runs all work that is due by now, including work that it schedules itself. The caller
// holds Cloud.mu.
func (c *Cloud) settleUntil(now time.Time) {
	for c.settleBatch(now) {
	}
}

// settleBatch runs some of the work that is due by now, and reports whether there may be more.
func (c *Cloud) settleBatch(now time.Time) (more bool) {
	defer c.rearm()
	if !c.isDue(now) {
		return false
	}
	first := heap.Pop(&c.queue).(job)
	if first.outside != nil {
		first.outside()
		return true
	}
	tx := c.begin(first.project, first.project.state.Load(), first.due.UTC(), nil)
	first.run(tx)
	c.commitWithDue(tx, now)
	return true
}

// commitWithDue commits a transaction together with the next jobs that are due by now, if they are of the same
// project. They share the transaction, which copies each changed part of the trees only once. If there are
// subscribers, each job has a transaction of its own, because its events show the state between two jobs. These
// transactions are published together.
func (c *Cloud) commitWithDue(tx *Tx, now time.Time) {
	batch := []*Tx{tx}
	for range maxBatch - 1 {
		// A job may schedule another that is due before the next one. A task ends the batch: a hypervisor
		// gets it when the transaction ends, and a later job may be its deadline.
		c.enqueue(tx)
		if len(tx.tasks) > 0 || !c.isDue(now) || c.queue[0].project != tx.project {
			break
		}
		next := heap.Pop(&c.queue).(job)
		if len(c.events.subs) > 0 && len(tx.log.changes) > 0 {
			c.seal(tx)
			tx = c.begin(tx.project, tx.State, tx.now, nil)
			batch = append(batch, tx)
		}
		tx.now = next.due.UTC()
		next.run(tx)
	}
	c.commit(batch...)
}

func (c *Cloud) isDue(now time.Time) bool { return len(c.queue) > 0 && !c.queue[0].due.After(now) }

// enqueue moves the jobs that a transaction has scheduled so far to the queue.
func (c *Cloud) enqueue(tx *Tx) {
	for _, j := range tx.jobs {
		c.jobSeq++
		j.seq = c.jobSeq
		heap.Push(&c.queue, j)
	}
	tx.jobs = tx.jobs[:0]
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

// runner runs work when it is due.
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
