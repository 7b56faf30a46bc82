package nodeimage

import (
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// heartbeat is how often a long step says that it still runs.
const heartbeat = 20 * time.Second

// progress tells a person what goes on, in lines. A nil out tells nobody.
type progress struct {
	mu    sync.Mutex
	out   io.Writer
	clock clock.WithTicker
}

// say prints a line.
func (p *progress) say(format string, args ...any) {
	if p.out == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "node image: "+format+"\n", args...)
}

// step runs work and says when it begins, that it goes on, and how long it took.
// It returns work's error, with the step's name.
func (p *progress) step(name string, work func() error) error {
	begin := p.clock.Now()
	since := func() time.Duration { return p.clock.Since(begin).Round(time.Second) }
	p.say("%s ...", name)
	ticker := p.clock.NewTicker(heartbeat)
	defer ticker.Stop()
	done := make(chan error, 1)
	go func() { done <- work() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			p.say("%s: done in %s", name, since())
			return nil
		case <-ticker.C():
			p.say("%s: %s so far", name, since())
		}
	}
}
