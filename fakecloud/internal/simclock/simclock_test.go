package simclock

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// fired reports whether a channel holds a value, without waiting.
func fired(ch <-chan time.Time) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestAStoppedClockMovesOnlyBySteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewAt(start, 0)
		timer := c.NewTimer(10 * time.Second)
		time.Sleep(time.Hour)
		if !c.Now().Equal(start) || fired(timer.C()) {
			t.Fatalf("moved to %v by itself", c.Now())
		}
		if err := c.Step(9 * time.Second); err != nil || fired(timer.C()) {
			t.Fatalf("fired a second early (%v)", err)
		}
		if err := c.Step(time.Second); err != nil || !fired(timer.C()) {
			t.Fatalf("not fired when Step returned (%v)", err)
		}
		if c.Since(start) != 10*time.Second {
			t.Errorf("10 s of steps moved it by %v", c.Since(start))
		}
	})
}

func TestARunningClockKeepsItsSpeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewAt(start, 60)
		began := time.Now()
		c.Sleep(time.Hour)
		if d := time.Since(began).Round(time.Millisecond); d != time.Minute {
			t.Errorf("an hour at speed 60 took %v", d)
		}
		if d := c.Since(start).Round(time.Second); d != time.Hour {
			t.Errorf("an hour of sleep moved the clock by %v", d)
		}
	})
}

func TestATimerFiresOnTimeAfterAChangeOfSpeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewAt(start, 1)
		began := time.Now()
		timer := c.NewTimer(100 * time.Second)
		time.Sleep(10 * time.Second) // 90 s are left
		_ = c.SetSpeed(9)
		time.Sleep(5 * time.Second) // 45 s are left
		_ = c.SetSpeed(0)
		time.Sleep(time.Hour)
		if fired(timer.C()) {
			t.Fatal("fired while the clock stood still")
		}
		_ = c.SetSpeed(9)
		<-timer.C()
		if d := time.Since(began).Round(time.Millisecond); d != time.Hour+20*time.Second {
			t.Errorf("fired after %v, want 10 s + 5 s + 1 h + 5 s", d)
		}
	})
}

func TestTimersFireInTheOrderOfTheirTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewAt(start, 1)
		timers := map[time.Duration]<-chan time.Time{}
		for _, s := range []time.Duration{3, 1, 2} {
			timers[s] = c.After(s * time.Second)
		}
		for s, timer := range timers {
			if at := <-timer; at.Sub(start).Round(time.Millisecond) != s*time.Second {
				t.Errorf("the timer of %d s fired at %v", s, at)
			}
		}
	})
}

func TestATimerCanBeStoppedAndReset(t *testing.T) {
	t.Parallel()
	c := NewAt(start, 0)
	timer := c.NewTimer(time.Second)
	if !timer.Stop() || timer.Stop() {
		t.Error("Stop must return true for a running timer and false for a stopped one")
	}
	_ = c.Step(time.Minute)
	if fired(timer.C()) {
		t.Error("a stopped timer fired")
	}
	if timer.Reset(time.Second) {
		t.Error("Reset of a stopped timer returned true")
	}
	_ = c.Step(time.Second)
	if timer.Reset(time.Second) {
		t.Error("Reset of a fired timer returned true")
	}
	if fired(timer.C()) {
		t.Error("a stale value is in the channel after Reset")
	}
	if !timer.Reset(2 * time.Second) {
		t.Error("Reset of a running timer returned false")
	}
	_ = c.Step(time.Second)
	if fired(timer.C()) {
		t.Error("fired at the time from before Reset")
	}
	for _, d := range []time.Duration{0, -time.Second} {
		if immediate := c.NewTimer(d); !fired(immediate.C()) {
			t.Errorf("a timer of %v did not fire at once", d)
		}
	}
}

func TestATickerKeepsItsPeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := NewAt(start, 1)
		ticker := c.NewTicker(10 * time.Second)
		for i := 1; i <= 3; i++ {
			<-ticker.C()
			if d := c.Since(start).Round(time.Millisecond); d != time.Duration(i)*10*time.Second {
				t.Errorf("tick %d at %v", i, d)
			}
		}
		_ = c.Step(35 * time.Second) // to 65 s: three ticks are late, one is kept
		if !fired(ticker.C()) || fired(ticker.C()) {
			t.Error("a long step must tick exactly once")
		}
		<-ticker.C()
		if d := c.Since(start).Round(time.Millisecond); d != 70*time.Second {
			t.Errorf("next tick at %v, want 70 s", d)
		}
		ticker.Stop()
		_ = c.Step(time.Hour)
		if fired(ticker.C()) {
			t.Error("a stopped ticker ticked")
		}
	})
}

func TestBadStepsAndSpeedsAreRefused(t *testing.T) {
	t.Parallel()
	c := NewAt(start, 0)
	for _, d := range []time.Duration{-1, math.MinInt64, math.MaxInt64} {
		if err := c.Step(d); err == nil {
			t.Errorf("step of %v is accepted", d)
		}
	}
	for _, x := range []float64{-1, math.NaN(), math.Inf(1), MaxSpeed + 1} {
		if err := c.SetSpeed(x); err == nil {
			t.Errorf("speed of %v is accepted", x)
		}
	}
	for range 10 {
		_ = c.Step(maxStep)
	}
	if now := c.Now(); now.After(Latest) || !now.After(start) {
		t.Errorf("steps led to %v", now)
	}
}

func TestAClockIsSafeForManyGoroutines(t *testing.T) {
	t.Parallel()
	c := NewAt(start, 0)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range 200 {
				timer := c.NewTimer(time.Duration(i) * time.Millisecond)
				_ = c.Step(time.Duration(i) * time.Millisecond)
				<-timer.C()
				_ = c.SetSpeed(float64(i % 2))
				ticker := c.NewTicker(time.Second)
				_ = c.Now()
				ticker.Stop()
			}
		})
	}
	wg.Wait()
	if len(c.waiters) != 0 {
		t.Errorf("%d timers are left", len(c.waiters))
	}
}
