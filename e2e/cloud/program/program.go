// Package program makes a driver of any program: it answers calls on its standard input with JSON lines on its standard output. README.md
// is the protocol.
package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// Protocol is the version of the protocol.
const Protocol = 1

// Driver runs a program for each cloud.
type Driver struct {
	// Path and Args are the command.
	Path string
	Args []string
	// Env are environment variables in addition to those of this process, such as "NAME=value".
	Env []string
	// Timeout is the longest that a call may take. 0: a minute.
	Timeout time.Duration
	// Grace is how long the program may take to end. 0: ten seconds.
	Grace time.Duration
}

// interfaces are the optional ones that a program can implement. Dialer is missing: JSON cannot carry a connection.
var interfaces = []string{"Renamer", "Router", "Recorder", "Faulty", "Limiter", "Dumper", "Mute"}

// Start implements cloud.Driver.
func (d Driver) Start(ctx context.Context, o cloud.Options) (cloud.Cloud, error) {
	return d.run(ctx, "Start", o)
}

// Open implements cloud.Driver.
func (d Driver) Open(ctx context.Context, o cloud.Options) (cloud.Cloud, error) {
	return d.run(ctx, "Open", o)
}

// options are cloud.Options as a program gets them.
type options struct {
	ProviderPrefix string `json:"providerPrefix"`
	OwnerLabel     string `json:"ownerLabel"`
	UserAgent      string `json:"userAgent"`
	Servers        string `json:"servers"`
	LoadBalancers  string `json:"loadBalancers"`
}

// run starts the program, and makes it start or open a cloud.
func (d Driver) run(ctx context.Context, method string, o cloud.Options) (cloud.Cloud, error) {
	c := &program{driver: d, name: d.Path, ended: make(chan struct{})}
	if err := c.start(o.Log); err != nil {
		return nil, fmt.Errorf("cannot start the driver %q: %w; make it executable, or give its path", d.Path, err)
	}
	if err := d.begin(ctx, c, method, o); err != nil {
		return nil, errors.Join(err, c.end())
	}
	return c, nil
}

// begin asks a program to describe itself, and makes it start or open a cloud.
func (d Driver) begin(ctx context.Context, c *program, method string, o cloud.Options) error {
	var is struct {
		Protocol   int      `json:"protocol"`
		Interfaces []string `json:"interfaces"`
	}
	if err := c.call(ctx, "Describe", map[string]int{"protocol": Protocol}, &is); err != nil {
		return err
	}
	if err := c.accept(is.Protocol, is.Interfaces); err != nil {
		return err
	}
	var started struct {
		CCM *cloud.CCM `json:"ccm"`
	}
	params := options{o.ProviderPrefix, o.OwnerLabel, o.UserAgent, o.Servers.String(), o.LoadBalancers.String()}
	if err := c.call(ctx, method, params, &started); err != nil {
		return err
	}
	if started.CCM == nil {
		return fmt.Errorf(`%s: the result of %s has no "ccm": write what a CCM of the cloud is started with`, c.name, method)
	}
	c.ccm = *started.CCM
	return nil
}

// accept checks a program's answer to Describe.
func (c *program) accept(protocol int, implements []string) error {
	if protocol != Protocol {
		return fmt.Errorf("%s speaks version %d of the protocol: it must answer Describe with version %d", c.name, protocol, Protocol)
	}
	for _, name := range implements {
		if !slices.Contains(interfaces, name) {
			return fmt.Errorf("%s implements %q, which is not one of %v: leave it out", c.name, name, interfaces)
		}
	}
	c.implements = implements
	return nil
}

// program is a cloud behind a program that runs.
type program struct {
	driver     Driver
	name       string
	implements []string
	ccm        cloud.CCM
	command    *exec.Cmd
	stdin      io.Closer
	conn       *conn
	ended      chan struct{} // closed when the process has ended
	close      sync.Once
	closed     error
}

// start starts the process.
func (c *program) start(log io.Writer) error {
	command := exec.Command(c.driver.Path, c.driver.Args...) //nolint:noctx // it ends with Close; the context is that of one call
	command.Env = append(os.Environ(), c.driver.Env...)
	command.Stderr = log
	command.WaitDelay = moment // for what the process has started, which may keep the standard error open
	stdin, err := command.StdinPipe()
	if err != nil {
		return err
	}
	stdout, answers, err := os.Pipe() // not that of the command, which ends with the process, before its last answers are read
	if err != nil {
		return err
	}
	command.Stdout = answers
	err = command.Start()
	_ = answers.Close()
	if err != nil {
		return errors.Join(err, stdout.Close())
	}
	c.command, c.stdin = command, stdin
	c.conn = newConn(stdin, stdout, c.why)
	go func() {
		_ = command.Wait() // why says how it ended
		close(c.ended)
		select {
		case <-c.conn.read:
		case <-time.After(moment): // what it has started keeps the standard output open
		}
		_ = stdout.Close()
	}()
	return nil
}

// moment bounds the steps of a process's end.
const moment = time.Second

// why returns the reason for the end of the answers.
func (c *program) why() error {
	select {
	case <-c.ended:
		return fmt.Errorf("it has ended: %s; its log says why", c.command.ProcessState)
	case <-time.After(moment):
		return errors.New("it has closed its standard output, and still runs: answer each line of the standard input")
	}
}

// call asks the program. An error says which program, and which call.
func (c *program) call(ctx context.Context, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.driver.Timeout, time.Minute))
	defer cancel()
	if err := c.conn.ask(ctx, method, params, result); err != nil {
		return fmt.Errorf("%s: %s: %w", c.name, method, err)
	}
	return nil
}

// end closes the standard input of the process, and kills the process if it does not end.
func (c *program) end() error {
	_ = c.stdin.Close() // it may be gone
	grace := cmp.Or(c.driver.Grace, 10*time.Second)
	select {
	case <-c.ended:
		return nil
	case <-time.After(grace):
		err := c.command.Process.Kill()
		<-c.ended
		return errors.Join(err, fmt.Errorf("%s: it was killed %s after its standard input was closed: end when the standard input ends",
			c.name, grace))
	}
}

// Close implements cloud.Cloud.
func (c *program) Close() error {
	c.close.Do(func() { c.closed = errors.Join(c.call(context.Background(), "Close", struct{}{}, nil), c.end()) })
	return c.closed
}

// Implements implements cloud.Partial.
func (c *program) Implements(optional string) bool { return slices.Contains(c.implements, optional) }
