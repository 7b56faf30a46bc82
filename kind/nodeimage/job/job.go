// Package job runs long commands with progress, cancellation and a lock.
package job

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// heartbeat is how often a long step says that it still runs.
const heartbeat = 20 * time.Second

// Progress shows a person what happens, in lines. The zero value shows nothing.
type Progress struct {
	// Out is where the lines go. If nil, nothing is shown.
	Out io.Writer
	// Clock measures how long a step has taken. If nil, it is the host's.
	Clock clock.WithTicker

	mu sync.Mutex
}

func (p *Progress) clock() clock.WithTicker {
	if p.Clock == nil {
		return clock.RealClock{}
	}
	return p.Clock
}

// Now returns the time of the clock.
func (p *Progress) Now() time.Time { return p.clock().Now() }

// Write passes on what a program prints, so that no line is cut by another.
func (p *Progress) Write(data []byte) (int, error) {
	if p.Out == nil {
		return len(data), nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Out.Write(data)
}

// Say prints a line.
func (p *Progress) Say(format string, args ...any) {
	fmt.Fprintf(p, "node image: "+format+"\n", args...)
}

// Step runs work. It says at once that work begins, again from time to time while it runs, and how long it took.
// The error is that of work, with the step's name.
func (p *Progress) Step(name string, work func() error) error {
	begin := p.Now()
	since := func() time.Duration { return p.clock().Since(begin).Round(time.Second) }
	p.Say("%s ...", name)
	ticker := p.clock().NewTicker(heartbeat)
	defer ticker.Stop()
	done := make(chan error, 1)
	go func() { done <- work() }()
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			p.Say("%s: done in %s", name, since())
			return nil
		case <-ticker.C():
			p.Say("%s: %s so far (Ctrl-C stops it)", name, since())
		}
	}
}

// Go runs a go command that compiles, in folder dir of the checkout root, for Linux or another system on arch. It is
// not disturbed by settings that are meant for other modules. scripts/progress.sh shows what is downloaded and compiled.
func (p *Progress) Go(ctx context.Context, root, dir, name, system, arch string, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(root, "scripts", "progress.sh"), append([]string{"node image: " + name, "go"},
		args...)...)
	cmd.Dir = dir
	cmd.Env = GoEnv(system, arch)
	if err := Run(cmd, p); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// GoEnv is the environment of a go command that builds for a platform.
func GoEnv(system, arch string) []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GO111MODULE=on", "GOOS="+system, "GOARCH="+arch)
}

// stopGrace is how long a cancelled program has to end by itself.
const stopGrace = 5 * time.Second

// Run runs a command and copies what it says on standard error to also, if that is not nil. If the command fails, the
// error holds the end of what it said. When the command's context ends, so do all processes that it started, such as
// compilers or debootstrap's chroots.
func Run(cmd *exec.Cmd, also io.Writer) error {
	said := &tail{limit: 4 << 10}
	if cmd.Cancel != nil {
		// A group of its own: Ctrl-C in a terminal reaches this program alone, which then stops the whole group.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
		cmd.WaitDelay = stopGrace
		defer func() {
			if cmd.Process != nil {
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			}
		}()
	}
	cmd.Stderr = said
	if also != nil {
		cmd.Stderr = io.MultiWriter(said, also)
	}
	if cmd.Stdout == nil {
		cmd.Stdout = said
	}
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("building a node image needs %s: %w", filepath.Base(cmd.Path), err)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(cmd.Path), cmd.Args[min(1, len(cmd.Args)-1)], err, bytes.TrimSpace(said.data))
	}
	return nil
}

// Command runs a program; the end of its output is in the error.
func Command(ctx context.Context, name string, args ...string) error {
	return Run(exec.CommandContext(ctx, name, args...), nil)
}

// LastLine is the end of an error's text, which says what went wrong after a program's command line and progress.
func LastLine(err error) string {
	text := strings.TrimSpace(err.Error())
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// tail is a writer that keeps the last limit bytes.
type tail struct {
	limit int
	data  []byte
}

func (t *tail) Write(data []byte) (int, error) {
	t.data = append(t.data, data...)
	if over := len(t.data) - t.limit; over > 0 {
		t.data = t.data[over:]
	}
	return len(data), nil
}
