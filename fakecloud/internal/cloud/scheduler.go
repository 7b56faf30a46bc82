package cloud

import (
	"math"
	"slices"
	"time"
)

// job is work that is due at a time.
type job struct {
	due     time.Time
	own     bool         // a write has made it due at once, and does not end before it
	epoch   uint32       // of the project when the job was scheduled: see void
	seq     uint64       // orders jobs that are due at the same time
	project *projectData // nil for a cloudTimer
	timer   timer
}

// A timer is work of one project that is due at a time. It is a value, not a function, so that it can be copied and stored.
type timer interface {
	due(*Tx)
	about() Ref // the resource that it is about
}

// A cloudTimer is work of no project, or of several. Its due does nothing.
type cloudTimer interface {
	timer
	run(c *Cloud, due time.Time)
}

func (j *job) before(k *job) bool {
	if !j.due.Equal(k.due) {
		return j.due.Before(k.due)
	}
	if j.own != k.own {
		return j.own
	}
	return j.seq < k.seq
}

// jobQueue is a binary heap: the first job is the earliest. It does without container/heap, since that allocates memory for each job that
// it takes or returns.
type jobQueue []job

func (q *jobQueue) push(j job) {
	all := append(*q, j)
	*q = all
	i := len(all) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !j.before(&all[parent]) {
			break
		}
		all[i] = all[parent]
		i = parent
	}
	all[i] = j
}

// minShrink is the capacity that the queue always keeps.
const minShrink = 1024

// pop removes the earliest job and returns it. The queue must not be empty.
func (q *jobQueue) pop() job {
	all := *q
	first, last := all[0], all[len(all)-1]
	all[len(all)-1] = job{}
	all = all[:len(all)-1]
	for i := 0; len(all) > 0; {
		child := 2*i + 1
		if child+1 < len(all) && all[child+1].before(&all[child]) {
			child++
		}
		if child >= len(all) || !all[child].before(&last) {
			all[i] = last
			break
		}
		all[i] = all[child]
		i = child
	}
	if cap(all) > minShrink && len(all) < cap(all)/4 {
		all = append(make(jobQueue, 0, cap(all)/2), all...)
	}
	*q = all
	return first
}

// sorted returns the jobs, the next one first.
func (q jobQueue) sorted() []job {
	return slices.SortedFunc(slices.Values(q), func(a, b job) int {
		if a.before(&b) {
			return -1
		}
		return 1
	})
}

// void reports whether the job's project was emptied, or its scenario ended, after the job was scheduled: it is not done any more.
func (j *job) void() bool {
	if step, ok := j.timer.(scenarioStep); ok {
		return step.of.ended
	}
	return j.project != nil && j.epoch != j.project.epoch
}

// push adds a job to the queue.
func (c *Cloud) push(j job) {
	if j.project != nil {
		j.epoch = j.project.epoch
		j.project.jobs++
		if c.saver != nil {
			c.saver.put(j.entry())
		}
	}
	c.queue.push(j)
}

// pop removes the first job of the queue and returns it. The queue must not be empty.
func (c *Cloud) pop() job {
	j := c.queue.pop()
	if j.project != nil {
		j.project.jobs--
		if c.saver != nil {
			c.saver.remove(j.key())
		}
	}
	c.skipVoid()
	return j
}

// skipVoid removes void jobs from the beginning of the queue, and all if they are many.
func (c *Cloud) skipVoid() {
	for len(c.queue) > 0 && c.queue[0].void() {
		c.queue.pop()
	}
	if c.voidJobs > minShrink && c.voidJobs > len(c.queue)/2 {
		c.sweep()
	}
}

// sweep removes all void jobs. To do so for each project that is dropped would cost as much as all projects have scheduled.
func (c *Cloud) sweep() {
	if c.voidJobs == 0 {
		return
	}
	all := c.queue
	c.queue, c.voidJobs = nil, 0
	for i := range all {
		if !all[i].void() {
			c.queue.push(all[i])
		}
	}
}

const noJob = math.MaxInt64

// maxBatch is the maximum number of jobs in one transaction, and of those that a write runs before it begins. It limits how
// long others wait for Cloud.mu.
const maxBatch = 500

// Settle runs all work that is due now. Call it after you step the clock. Before a write and while the
// clock runs, the cloud does so by itself. Others can read and write between its batches. With a disk, the work is then saved.
func (c *Cloud) Settle() {
	c.settle()
	_ = c.Sync() // see OnDiskError
}

// settle is Settle without waiting for the disk.
func (c *Cloud) settle() {
	now := c.clock.Now()
	for more := true; more && now.UnixNano() >= c.nextDue.Load(); {
		c.mu.Lock()
		more = c.settleBatch(now) > 0
		c.backlog = c.backlog && c.isDue(now)
		c.mu.Unlock()
	}
}

// catchUp runs the work that is due, and returns the time for a write. If more is due than a batch, it leaves the rest to the
// cloud's goroutine: the time is then that of the next job, because the write happens before it. The caller holds Cloud.mu.
//
// While such a backlog lasts, no write runs a part of it: the last of many waiting writes would wait for all their parts.
func (c *Cloud) catchUp() time.Time {
	now := c.Now()
	for left := maxBatch; left > 0 && !c.backlog; {
		done := c.settleBatch(now)
		if done == 0 {
			break
		}
		left -= done
	}
	c.backlog = c.isDue(now)
	return c.writeTime(now)
}

// beforeWrite is catchUp for a write, while the clock runs by itself. It leaves work to the cloud's goroutine that has been due for less
// than runnerPause: the goroutine is about to do it together with further work, and the write happens before it. A busy cloud has some due
// work before every write. In a transaction for each one or two jobs, the work would copy the changed parts of the trees again and again.
func (c *Cloud) beforeWrite() time.Time {
	now := c.Now()
	if clk, ok := c.clock.(interface{ Speed() float64 }); ok && clk.Speed() > 0 && c.isDue(now) && now.Sub(c.queue[0].due) < runnerPause {
		return c.writeTime(now)
	}
	return c.catchUp()
}

// writeTime returns the time of a write: now, or that of the next job if that is due.
func (c *Cloud) writeTime(now time.Time) time.Time {
	if c.isDue(now) {
		return c.queue[0].due.UTC()
	}
	return now
}

// settleOwn runs the work that a write made due at once, and further work that this makes due at once. The caller holds Cloud.mu.
func (c *Cloud) settleOwn() {
	for len(c.queue) > 0 && c.queue[0].own {
		c.settleBatch(c.queue[0].due)
	}
}

// settleBatch runs some of the work that is due by now, and returns how much: 0 if nothing is due.
func (c *Cloud) settleBatch(now time.Time) (done int) {
	defer c.rearm()
	if c.forgets(now) {
		return c.forgetActions(now)
	}
	if !c.isDue(now) {
		return 0
	}
	first := c.pop()
	if work, ok := first.timer.(cloudTimer); ok {
		work.run(c, first.due.UTC())
		return 1
	}
	tx := c.begin(first.project, first.project.state.Load(), first.due.UTC(), nil)
	tx.own = first.own
	first.timer.due(tx)
	return 1 + c.commitWithDue(tx, now)
}

// maxBatchText limits how much JSON of events one transaction encodes, for the same reason. Only its last job may exceed it.
const maxBatchText = 2 << 20

// commitWithDue commits a transaction together with the next jobs that are due by now, if they are of the same project. They share the
// transaction, so that it copies each changed part of the trees only once. If the cloud has subscribers, each job gets separate events.
// These show the state between two jobs. commitWithDue returns the number of these jobs. After a job of a write come only others of that
// write.
func (c *Cloud) commitWithDue(tx *Tx, now time.Time) (jobs int) {
	own := tx.own
	for jobs < maxBatch-1 && c.events.text < maxBatchText {
		// A job may schedule another that is due before the next one. A task ends the batch: a hypervisor
		// gets it when the transaction ends, and a later job may be its deadline.
		c.enqueue(tx)
		if len(tx.tasks) > 0 || !c.isDue(now) || c.queue[0].project != tx.project || own && !c.queue[0].own {
			break
		}
		next := c.pop()
		jobs++
		if c.events.subscribers > 0 {
			c.record(tx, true)
		}
		tx.now, tx.own = next.due.UTC(), next.own
		next.timer.due(tx)
	}
	c.commit(tx)
	return jobs
}

func (c *Cloud) isDue(now time.Time) bool { return len(c.queue) > 0 && !c.queue[0].due.After(now) }

// enqueue moves the jobs that a transaction has scheduled so far to the queue.
func (c *Cloud) enqueue(tx *Tx) {
	for _, j := range tx.jobs {
		c.jobSeq++
		j.seq, j.own = c.jobSeq, tx.own && !j.due.After(tx.now)
		c.push(j)
	}
	tx.jobs = tx.jobs[:0]
}

func (c *Cloud) rearm() {
	next := int64(noJob)
	if len(c.queue) > 0 {
		next = c.queue[0].due.UnixNano()
	}
	if at, ok := c.forgetDue(); ok {
		next = min(next, at.UnixNano())
	}
	c.nextDue.Store(next)
	if next < c.armed.Load() {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// runnerPause is the least time between two rounds of the runner, in the machine's time. Jobs that become due meanwhile share a
// transaction and a wakeup, so that a busy cloud needs less of both.
const runnerPause = time.Millisecond

// awake is the value of Cloud.armed while the runner does not wait, so that nothing has to wake it.
const awake = math.MinInt64

// runner runs work when it is due, and drops projects that are not used.
func (c *Cloud) runner() {
	reap, stop := c.auto.reapTimes()
	defer stop()
	for {
		next := c.nextDue.Load()
		c.armed.Store(next)
		if c.nextDue.Load() < next {
			continue // rearm may have compared it with the old value of armed
		}
		if next == noJob {
			select {
			case <-c.wake:
				continue
			case <-reap:
				c.reap()
				continue
			case <-c.closed:
				return
			}
		}
		timer := c.clock.NewTimer(time.Unix(0, next).Sub(c.clock.Now()))
		select {
		case <-timer.C():
			c.armed.Store(awake)
			c.settle()
			select {
			case <-time.After(runnerPause):
			case <-c.closed: // the end of a synctest bubble does not wait for a pause
			}
		case <-c.wake:
		case <-reap:
			c.reap()
		case <-c.closed:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}
