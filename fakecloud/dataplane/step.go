package dataplane

import (
	"context"
	"time"
)

const (
	// stride is how far the clock moves at once while Step watches the probes.
	stride = time.Second
	// probePatience is how long Step waits for an answer to a probe, in the machine's time. A target that is reached through this
	// machine's network has answered by then, or never does.
	probePatience = 2 * time.Second
)

// Step moves the engine's clock forward. Each call of step moves it by its argument. Step waits for each probe that is due until
// then to end: by an answer, a refusal or its timeout. A target's health thus depends on the clock alone, not on how fast the machine
// is. For a probe that gets neither answer nor refusal, it waits two seconds of the machine's time; then its timeout decides.
//
// If a step is longer than all health checks need to change the health of a target, Step skips probes at its beginning.
func (e *Engine) Step(by time.Duration, step func(time.Duration) error) error {
	e.awaitProbes()
	d := by - e.longestChange()
	if d <= 0 {
		d = min(by, stride)
	}
	for {
		if err := step(d); err != nil {
			return err
		}
		e.awaitProbes()
		if by -= d; by <= 0 {
			return nil
		}
		d = min(by, stride)
	}
}

// longestChange returns how long it takes at most until the health of all targets shows a change.
func (e *Engine) longestChange() (longest time.Duration) {
	for _, lb := range e.snapshot() {
		e.mu.Lock()
		for _, s := range lb.services {
			hc := s.conf.Load().HealthCheck
			longest = max(longest, time.Duration(hc.Retries+1)*(hc.Interval+hc.Timeout))
		}
		e.mu.Unlock()
	}
	return longest
}

// awaitProbes waits until no probe that is due by now can end before its timeout.
func (e *Engine) awaitProbes() {
	var all []*backend
	for _, lb := range e.snapshot() {
		e.mu.Lock()
		for _, s := range lb.services {
			for _, b := range s.byKey {
				all = append(all, b.backend)
			}
		}
		e.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(e.ctx, probePatience)
	defer cancel()
	now := e.clock.Now()
	for _, b := range all {
		b.awaitProbe(ctx, now)
	}
}

// awaitProbe waits until the monitor does nothing before it is later than now, or ctx ends.
func (b *backend) awaitProbe(ctx context.Context, now time.Time) {
	for {
		b.mu.Lock()
		if b.pause.end.After(now) {
			b.mu.Unlock()
			return
		}
		if ctx.Err() != nil {
			b.pause.giveUp(now)
			b.mu.Unlock()
			return
		}
		if b.pause.changed == nil {
			b.pause.changed = make(chan struct{})
		}
		changed := b.pause.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// pause says when a monitor continues. The lock of its backend guards it.
type pause struct {
	end     time.Time     // nothing happens before; zero while the answer to a probe may arrive
	timeout time.Time     // of the probe
	changed chan struct{} // closed at the next change; nil if nothing waits for it
}

var never = time.Unix(1<<40, 0)

// begin says that a probe runs, or is about to.
func (p *pause) begin(timeout time.Time) {
	p.until(time.Time{})
	p.timeout = timeout
}

// drop says that the probe gets no answer.
func (p *pause) drop() { p.until(p.timeout) }

func (p *pause) until(end time.Time) {
	p.end = end
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// giveUp says that nothing has happened for too long.
func (p *pause) giveUp(now time.Time) {
	if p.drop(); !p.end.After(now) {
		p.until(never)
	}
}
