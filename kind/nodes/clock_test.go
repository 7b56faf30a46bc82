package nodes_test

import (
	"testing"
	"time"

	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
)

// steppingClock is a clock that a test steps when the code under test waits for it.
type steppingClock struct {
	*testclock.FakeClock
	waits chan struct{}
}

func newSteppingClock() *steppingClock {
	return &steppingClock{testclock.NewFakeClock(time.Unix(0, 0)), make(chan struct{}, 100)}
}

func (c *steppingClock) NewTimer(d time.Duration) clock.Timer {
	t := c.FakeClock.NewTimer(d)
	c.waits <- struct{}{}
	return t
}

func (c *steppingClock) stepOverNextWait(t *testing.T) {
	t.Helper()
	select {
	case <-c.waits:
		c.Step(time.Hour)
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}
