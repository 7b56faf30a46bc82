package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Command describes a program to run next to the control plane.
type Command struct {
	// Name is unique among the processes that run at one time. It names the log file. A later
	// process of the same name appends to that file.
	Name string
	// Path of the program, and its arguments without the name.
	Path string
	Args []string
	// Env is the whole environment, as in exec.Cmd: nil means ours.
	Env []string
}

// Process is a program that Run started. Its methods may be called at any time from any goroutine.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed
}

// Run starts a program. It ends with Stop or Kill, with the cluster, or with the calling process, whichever is first. Its output goes to
// <Name>.log in LogDir. It needs an embedded control plane.
func (c *Cluster) Run(command Command) (*Process, error) {
	if c.janitor == nil {
		return nil, errors.New("cannot run a process: the cluster is not embedded")
	}
	if command.Name == "" || strings.ContainsAny(command.Name, "/\x00") {
		return nil, fmt.Errorf("%q cannot name a process", command.Name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.processes = slices.DeleteFunc(c.processes, exited)
	for _, other := range c.processes {
		if other.name == command.Name {
			return nil, fmt.Errorf("a process named %s runs already, with number %d", other.name, other.PID())
		}
	}
	p := &Process{name: command.Name, log: filepath.Join(c.LogDir, command.Name+".log"), done: make(chan struct{})}
	output, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	//nolint:noctx // it lives until Stop, Kill or the end of the cluster, not as long as a call
	p.cmd = exec.Command(command.Path, command.Args...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = command.Env, output, output
	// The new process group keeps a terminal's Ctrl-C away, so that the process outlives the spec that uses it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start %s: %w", command.Name, err), output.Close())
	}
	if err := c.janitor.note(p.name, p.PID()); err != nil {
		return nil, errors.Join(err, p.cmd.Process.Kill(), p.cmd.Wait(), output.Close())
	}
	go func() {
		p.err = p.cmd.Wait()
		_ = c.janitor.forget(p.name)
		_ = output.Close()
		close(p.done)
	}()
	c.processes = append(c.processes, p)
	return p, nil
}

// PID returns the process number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// LogPath returns the path of the file with the process's output.
func (p *Process) LogPath() string { return p.log }

// Done is closed when the process exits.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the process ended, as exec.Cmd.Wait does; nil while it runs.
func (p *Process) Err() error {
	if !exited(p) {
		return nil
	}
	return p.err
}

// ExitCode returns the exit code of a process that exited by itself. It returns -1 if the process still runs or a signal ended it.
func (p *Process) ExitCode() int {
	if !exited(p) {
		return -1
	}
	return p.cmd.ProcessState.ExitCode()
}

// Signal sends the process a signal. It succeeds if the process is over.
func (p *Process) Signal(signal os.Signal) error {
	err := p.cmd.Process.Signal(signal)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// Stop asks the process to end (SIGTERM) and waits until it has. When ctx ends
// first the process is killed, and the error says so. How it exited is in Err.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%s did not end when told to: %w", p.name, ctx.Err()), p.Kill())
	}
}

// Kill ends the process without warning (SIGKILL), as a crash of its host
// would, with the processes that it started, and waits until it is gone.
func (p *Process) Kill() error {
	if exited(p) {
		return nil
	}
	err := syscall.Kill(-p.PID(), syscall.SIGKILL)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("cannot kill %s: %w", p.name, err)
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(killGrace):
		return fmt.Errorf("%s, process %d, was killed %s ago and is still there", p.name, p.PID(), killGrace)
	}
}

// exitError returns how the process ended.
func (p *Process) exitError() error {
	if p.err == nil {
		return fmt.Errorf("%s ended by itself", p.name)
	}
	return fmt.Errorf("%s ended: %w", p.name, p.err)
}

func exited(p *Process) bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
