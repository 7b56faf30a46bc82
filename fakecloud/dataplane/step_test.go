package dataplane

import (
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// step steps the lab's clock as a cloud does.
func (l *lab) step(by time.Duration) {
	l.t.Helper()
	if err := l.Step(by, func(d time.Duration) error { l.clock.Step(d); return nil }); err != nil {
		l.t.Fatal(err)
	}
}

// The health that a step leads to depends on the clock alone. A step may be as long as a probe's timeout, or longer.
func TestAStepWaitsForTheProbesThatAreDue(t *testing.T) {
	t.Parallel()
	const interval = defaultCheckInterval
	for _, tc := range []struct {
		name  string
		steps []time.Duration
		want  HealthStatus // of a target that was healthy, and then is off or dropped
		drop  HealthStatus
	}{
		{"nothing is due", []time.Duration{0}, Healthy, Healthy},
		{"less than an interval", []time.Duration{interval - 1}, Healthy, Healthy},
		{"one probe of two", []time.Duration{interval}, Healthy, Healthy},
		{"two probes", []time.Duration{interval, interval}, Unhealthy, Healthy},
		{"two probes in one step", []time.Duration{2 * interval}, Unhealthy, Healthy},
		{"two probes and their timeouts", []time.Duration{2*interval + defaultCheckTimeout}, Unhealthy, Unhealthy},
		{"by seconds", slices.Repeat([]time.Duration{time.Second}, 40), Unhealthy, Unhealthy},
		{"an hour", []time.Duration{time.Hour}, Unhealthy, Unhealthy},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWall()
			l := newLab(t, Options{Filter: w.filter})
			var targets []Target
			for _, name := range []string{"on", "off", "dropped"} {
				targets = append(targets, l.place(name, newTCPTarget(t, name).at()))
			}
			l.apply(balance([]Service{tcpService(80)}, targets...))
			l.step(0)
			for _, tg := range targets {
				if got := l.last(tg.Key, 80).Status; got != Healthy {
					t.Fatalf("%s is %s after the first probe, want healthy", tg.Key, got)
				}
			}
			w.power("off", false)
			w.close("dropped", 80)
			for _, by := range tc.steps {
				l.step(by)
			}
			for name, want := range map[string]HealthStatus{"on": Healthy, "off": tc.want, "dropped": tc.drop} {
				if got := l.last(name, 80).Status; got != want {
					t.Errorf("%s is %s, want %s", name, got, want)
				}
			}
			w.power("off", true)
			w.close("dropped")
			l.step(2*interval + defaultCheckTimeout)
			for _, tg := range targets {
				if got := l.last(tg.Key, 80).Status; got != Healthy {
					t.Errorf("%s is %s at the end, want healthy", tg.Key, got)
				}
			}
		})
	}
}

// A target that accepts and says nothing does not hold a step up for long: its probe ends by its timeout, on the engine's clock.
func TestAStepDoesNotWaitForATargetThatSaysNothing(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	silent := l.place("silent", newTCPTargetAt(t, "silent", "127.0.0.1:0", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }).at())
	web := l.place("web", at(newHTTPTarget(t, "web", nil)))
	l.apply(balance([]Service{httpChecked(HTTPCheck{})}, silent, web))
	l.step(defaultCheckTimeout - 1)
	if a, b := l.last("silent", 80).Status, l.last("web", 80).Status; a != Unknown || b != Healthy {
		t.Errorf("before the timeout: %s and %s, want unknown and healthy", a, b)
	}
	l.step(1)
	if r := l.last("silent", 80); r.Status != Unhealthy || r.Detail != DetailResponseTimeout {
		t.Errorf("after the timeout: %+v", r)
	}
}

func TestAStepReturnsTheErrorOfTheClock(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	l.apply(balance([]Service{tcpService(80)}, Target{Key: "a"}))
	broken := errors.New("broken")
	for _, by := range []time.Duration{-1, 0, time.Hour} {
		if err := l.Step(by, func(time.Duration) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("step %v: %v", by, err)
		}
	}
}
