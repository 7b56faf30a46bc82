package job

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

// program writes a shell script that can be run.
func program(t *testing.T, dir, name, script string) {
	t.Helper()
	// A process that a parallel test starts meanwhile would hold the file open for writing, so that it could not be run.
	syscall.ForkLock.RLock()
	err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
}

// announcing is a clock that says when a ticker begins.
type announcing struct {
	*clocktesting.FakeClock
	tickers chan struct{}
}

func (c announcing) NewTicker(d time.Duration) clock.Ticker {
	defer func() { c.tickers <- struct{}{} }()
	return c.FakeClock.NewTicker(d)
}

func TestAnotherProcessIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	said := make(lines, 1)
	fake := announcing{clocktesting.NewFakeClock(time.Now()), make(chan struct{}, 1)}
	p := &Progress{Out: said, Clock: fake}
	unlock, err := p.Lock(t.Context(), path, "it")
	if err != nil || len(said) > 0 {
		t.Fatalf("a free lock was waited for: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (&Progress{}).Lock(ctx, path, "it"); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting went on after its context: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		unlock, err := p.Lock(t.Context(), path, "it")
		if err == nil {
			unlock()
		}
		got <- err
	}()
	if line := <-said; !strings.Contains(line, "another process is making it") {
		t.Error(line)
	}
	// A process that is being started has copies of all open files until its exec.
	for fd := range 100 {
		if held, err := syscall.Dup(fd); err == nil {
			defer func() { _ = syscall.Close(held) }()
		}
	}
	unlock()
	<-fake.tickers
	fake.Step(lockPoll)
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// lines gets what is written to it.
type lines chan string

func (l lines) Write(data []byte) (int, error) {
	l <- string(data)
	return len(data), nil
}

func TestALongStepShowsThatItStillRuns(t *testing.T) {
	t.Parallel()
	fake := clocktesting.NewFakeClock(time.Now())
	out := make(lines, 10)
	p := &Progress{Out: out, Clock: fake}
	err := p.Step("counting", func() error {
		fake.Step(heartbeat)
		for line := range out {
			if strings.Contains(line, "20s so far") {
				break
			}
		}
		return errors.New("lost count")
	})
	if err == nil || err.Error() != "counting: lost count" {
		t.Errorf("got %v", err)
	}
}

func TestAFailedProgramsLastWordsAreInTheError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program(t, dir, "fails", "i=0; while [ $i -lt 2000 ]; do echo filler; i=$((i+1)); done; echo 'the reason' >&2; exit 3")
	err := Command(t.Context(), filepath.Join(dir, "fails"), "now")
	if err == nil || !strings.Contains(err.Error(), "fails now: exit status 3") || LastLine(err) != "the reason" ||
		len(err.Error()) > 5000 {
		t.Errorf("got %v", err)
	}
	if err := Command(t.Context(), "no-such-program-anywhere"); err == nil ||
		!strings.Contains(err.Error(), "needs no-such-program-anywhere") {
		t.Errorf("got %v", err)
	}
}

func TestACancelledProgramEndsWithItsChildren(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// A pipe that ends when the last process that holds its writing end does.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	program(t, dir, "parent", "(trap '' TERM; echo started; sleep 1000) & wait")
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "parent"))
	cmd.Stdout = w
	done := make(chan error, 1)
	go func() {
		done <- Run(cmd, nil)
		_ = w.Close()
	}()
	if _, err := io.ReadFull(r, make([]byte, len("started\n"))); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("it ended well")
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
}
