package apicall

import (
	"context"
	"errors"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

func TestACachedValueIsFetchedAgainWhenItIsTooOld(t *testing.T) {
	t.Parallel()
	clk := testingclock.NewFakeClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	fetched := 0
	var during func()
	var fails error
	c := NewCache(clk, time.Minute, func(context.Context) (int, error) {
		fetched++
		if during != nil {
			during()
		}
		return fetched, fails
	})
	expect := func(when string, want int) {
		t.Helper()
		if got, err := c.Get(t.Context()); got != want || !errors.Is(err, fails) {
			t.Errorf("%s: %d, %v; want %d", when, got, err, want)
		}
	}
	c.Update(func(int) int { return 100 }) // nothing to update
	expect("the first time", 1)
	clk.Step(time.Minute - time.Second)
	expect("before it is too old", 1)
	c.Update(func(n int) int { return n + 10 })
	expect("after a write with a known result", 11)
	clk.Step(time.Second)
	expect("when it is too old", 2)
	c.Forget()
	c.Update(func(int) int { return 100 })
	expect("after it is forgotten", 3)

	c.Forget()
	during = c.Forget
	expect("forgotten while it is fetched", 4)
	during = nil
	expect("after that", 5)

	c.Forget()
	fails = errors.New("no answer")
	expect("with an error", 0)
	fails = nil
	expect("after the error", 7)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	c.Forget()
	if _, free := c.fetching.TryLock(""); !free { // another caller fetches
		t.Fatal("a fetch that has ended holds the lock")
	}
	if _, err := c.Get(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that gives up: %v", err)
	}
}

func TestALockIsPerKey(t *testing.T) {
	t.Parallel()
	var locks KeyLock
	unlock, err := locks.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, free := locks.TryLock("a"); free {
		t.Error("a lock that is held is free")
	}
	other, free := locks.TryLock("b")
	if !free {
		t.Fatal("the lock of another key is not free")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := locks.Lock(ended, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that gives up: %v", err)
	}
	other()
	unlock()
	if len(locks.locks) != 0 {
		t.Errorf("locks that are free are kept: %v", locks.locks)
	}
	if _, free := locks.TryLock("a"); !free {
		t.Error("a lock that was given back is not free")
	}
}
