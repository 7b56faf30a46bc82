// Package simclock is a clock that can be stepped, sped up, slowed down and stopped. Until then it runs with
// the machine's clock. Its timers and tickers follow it.
//
// Not modelled: a step does not stop at each timer on the way. If its period is much shorter than the step,
// a ticker ticks once, like a time.Ticker with a slow reader. A timer that is started because another one
// fired counts from the time after the step.
package simclock

import (
	"container/heap"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// MaxSpeed is the largest factor of [Clock.SetSpeed].
const MaxSpeed = 1_000_000

const maxStep = 100 * 365 * 24 * time.Hour

// Latest is the latest time that a clock can be set to. An int64 counts nanoseconds only until 2262.
var Latest = time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC)

// Clock implements k8s.io/utils/clock.WithTicker. All methods may be called from
// several goroutines.
type Clock struct {
	rate atomic.Pointer[rate] // read by Now without a lock, written under mu

	mu      sync.Mutex
	waiters waiters
	seq     uint64
	wakeup  *time.Timer // for the earliest waiter
}

var _ clock.WithTicker = (*Clock)(nil)

// rate converts the machine's time to the clock's: the clock showed `sim` at the machine's time `real`, and runs at `speed` since then.
type rate struct {
	real  time.Time // with a monotonic reading
	sim   time.Time // without
	speed float64
}

func (r *rate) now() time.Time {
	elapsed := time.Since(r.real)
	if r.speed == 1 {
		return r.sim.Add(elapsed)
	}
	return r.sim.Add(scale(elapsed, r.speed))
}

// scale multiplies a duration. The result is at most the largest duration.
func scale(d time.Duration, by float64) time.Duration {
	f := float64(d) * by
	if f >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(f)
}

// New returns a clock that shows the machine's time and runs at speed 1.
func New() *Clock { return NewAt(time.Now(), 1) }

// NewAt returns a clock that shows start and runs at a speed. With speed 0, it moves only by steps.
// It panics on a speed that SetSpeed refuses.
func NewAt(start time.Time, speed float64) *Clock {
	if err := checkSpeed(speed); err != nil {
		panic(err)
	}
	c := &Clock{}
	c.rate.Store(&rate{real: time.Now(), sim: start.Round(0), speed: speed})
	return c
}

// Fork returns another clock that shows the same time and runs at the same speed.
func (c *Clock) Fork() *Clock {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &Clock{}
	f.rate.Store(c.rate.Load())
	return f
}

func checkSpeed(x float64) error {
	if math.IsNaN(x) || x < 0 || x > MaxSpeed {
		return fmt.Errorf("clock speed %v: must be 0 (stand still) to %d", x, MaxSpeed)
	}
	return nil
}

// Now returns the clock's time.
func (c *Clock) Now() time.Time { return c.rate.Load().now() }

// Since returns the clock's time since t.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Speed returns the number of the clock's seconds per second of the machine.
func (c *Clock) Speed() float64 { return c.rate.Load().speed }

// Step moves the clock forward. Before it returns, it fires all timers and tickers that are due.
func (c *Clock) Step(d time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.CheckStep(d); err != nil {
		return err
	}
	c.turn(c.Now().Add(d), c.rate.Load().speed)
	return nil
}

// CheckStep returns the error of Step.
func (c *Clock) CheckStep(d time.Duration) error {
	if d < 0 || d > maxStep || c.Now().Add(d).After(Latest) {
		return fmt.Errorf("clock step %v: must be 0 to %v, and must not lead beyond the year %d", d, maxStep, Latest.Year())
	}
	return nil
}

// Set makes the clock show a time, even an earlier one. It fires nothing: timers and tickers wait as long as before.
func (c *Clock) Set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := t.Sub(c.Now())
	for _, w := range c.waiters {
		w.due = w.due.Add(by)
	}
	c.turn(t.Round(0), c.rate.Load().speed)
}

// SetSpeed changes the speed of the clock. 1 is the machine's speed, and with 0 the clock stands still.
func (c *Clock) SetSpeed(x float64) error {
	if err := checkSpeed(x); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn(c.Now(), x)
	return nil
}

func (c *Clock) turn(sim time.Time, speed float64) {
	c.rate.Store(&rate{real: time.Now(), sim: sim, speed: speed})
	c.fire()
}

// fire fires the due waiters and sets the wakeup for the others. The caller holds mu.
func (c *Clock) fire() {
	now := c.Now()
	for len(c.waiters) > 0 && !c.waiters[0].due.After(now) {
		w := c.waiters[0]
		if w.period > 0 {
			// The next tick after now, in step with the earlier ones.
			missed := now.Sub(w.due) / w.period
			w.due = w.due.Add((missed + 1) * w.period)
			heap.Fix(&c.waiters, 0)
		} else {
			heap.Pop(&c.waiters)
		}
		w.fire(now)
	}
	c.arm(now)
}

// arm sets the machine's timer for the earliest waiter. The caller holds mu.
func (c *Clock) arm(now time.Time) {
	speed := c.rate.Load().speed
	if len(c.waiters) == 0 || speed == 0 {
		if c.wakeup != nil {
			c.wakeup.Stop()
		}
		return
	}
	// Rounded up, because a wakeup before the due time does nothing.
	wait := scale(c.waiters[0].due.Sub(now), 1/speed)
	if wait < math.MaxInt64 {
		wait++
	}
	if c.wakeup == nil {
		c.wakeup = time.AfterFunc(wait, c.wake)
		return
	}
	c.wakeup.Reset(wait)
}

func (c *Clock) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fire()
}

// NewTimer returns a timer that fires when d has passed on the clock.
func (c *Clock) NewTimer(d time.Duration) clock.Timer { return c.start(d, 0) }

// NewTicker returns a ticker. Like time.NewTicker it panics if d is not positive.
func (c *Clock) NewTicker(d time.Duration) clock.Ticker {
	if d <= 0 {
		panic("simclock: period of a ticker must be positive")
	}
	return ticker{c.start(d, d)}
}

// After returns the channel of a new timer.
func (c *Clock) After(d time.Duration) <-chan time.Time { return c.NewTimer(d).C() }

// Tick returns the channel of a new ticker that cannot be stopped.
func (c *Clock) Tick(d time.Duration) <-chan time.Time { return c.NewTicker(d).C() }

// Sleep waits until d has passed on the clock.
func (c *Clock) Sleep(d time.Duration) { <-c.After(d) }

func (c *Clock) start(d, period time.Duration) *waiter {
	w := &waiter{clock: c, ch: make(chan time.Time, 1), period: period, index: -1}
	w.Reset(d)
	return w
}

// waiter is a timer or a ticker. The clock's mutex guards its fields.
type waiter struct {
	clock  *Clock
	ch     chan time.Time
	due    time.Time
	seq    uint64
	period time.Duration // 0 for a timer
	index  int           // in the heap, -1 if it is not in it
}

func (w *waiter) fire(now time.Time) {
	select {
	case w.ch <- now:
	default: // the previous tick has not been read
	}
}

// C implements clock.Timer.
func (w *waiter) C() <-chan time.Time { return w.ch }

// Stop implements clock.Timer. Like time.Timer, it leaves no stale value in the channel.
func (w *waiter) Stop() bool {
	c := w.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	active := w.remove()
	c.arm(c.Now())
	return active
}

// Reset implements clock.Timer.
func (w *waiter) Reset(d time.Duration) bool {
	c := w.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	active := w.remove()
	c.seq++
	w.seq, w.due = c.seq, c.Now().Add(d)
	heap.Push(&c.waiters, w)
	c.fire()
	return active
}

func (w *waiter) remove() (active bool) {
	active = w.index >= 0
	if active {
		heap.Remove(&w.clock.waiters, w.index)
	}
	select {
	case <-w.ch:
	default:
	}
	return active
}

type ticker struct{ *waiter }

// Stop implements clock.Ticker.
func (t ticker) Stop() { t.waiter.Stop() }

// waiters is a heap by due time.
type waiters []*waiter

func (q waiters) Len() int { return len(q) }
func (q waiters) Less(i, j int) bool {
	if !q[i].due.Equal(q[j].due) {
		return q[i].due.Before(q[j].due)
	}
	return q[i].seq < q[j].seq
}

func (q waiters) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *waiters) Push(x any) {
	w := x.(*waiter)
	w.index = len(*q)
	*q = append(*q, w)
}

func (q *waiters) Pop() any {
	old := *q
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	w.index = -1
	return w
}
