package environment

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// heartbeat is how often a long step says that it still runs.
const heartbeat = 20 * time.Second

// Step is one of the steps of Up, and how long it took.
type Step struct {
	Name string
	Took time.Duration
}

// steps prints each step, and records its duration. If out is nil, nothing is shown.
type steps struct {
	out   io.Writer
	begin time.Time
	mu    sync.Mutex
	done  []Step
}

// say prints a line with the seconds since the beginning.
func (s *steps) say(format string, args ...any) {
	if s.out == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "%6.1f s  %s\n", time.Since(s.begin).Seconds(), fmt.Sprintf(format, args...))
}

// step runs work. It prints the beginning, repeats that the work is still running, and prints the
// duration at the end. Its error has the step's name.
func (s *steps) step(name string, work func() error) error {
	s.say("%s ...", name)
	begin := time.Now()
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	ended := make(chan error, 1)
	go func() { ended <- work() }()
	for {
		select {
		case err := <-ended:
			took := time.Since(begin)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			s.done = append(s.done, Step{name, took})
			s.say("%s: done in %.1f s", name, took.Seconds())
			return nil
		case <-ticker.C:
			s.say("%s: %.0f s so far (Ctrl-C stops it)", name, time.Since(begin).Seconds())
		}
	}
}
