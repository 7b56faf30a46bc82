package ccmtest

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
)

// AutoClock is a clock that ends each wait at once: a new timer advances the time by its duration
// and fires. Now adds the time of all waits up.
type AutoClock struct {
	*testingclock.FakeClock
	mu sync.Mutex
}

var _ clock.WithTicker = (*AutoClock)(nil)

// NewAutoClock returns a clock that begins at a fixed time.
func NewAutoClock() *AutoClock {
	return &AutoClock{FakeClock: testingclock.NewFakeClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))}
}

// NewTimer returns a timer that has fired.
func (c *AutoClock) NewTimer(d time.Duration) clock.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.FakeClock.NewTimer(d)
	c.Step(d)
	return t
}
