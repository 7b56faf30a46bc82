package guests

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Limits of the log.
const (
	maxEntries = 1000
	maxCommand = 4 << 10
)

// Entry is something that a guest was told and has answered.
type Entry struct {
	Time   time.Time `json:"time"`
	Server int64     `json:"server"`
	Name   string    `json:"name"` // of the server
	// Kind is exec, shell (a line), script (a command of a script) or sftp.
	Kind string `json:"kind"`
	// Command has no tokens of the cloud, and at most 4 KiB.
	Command  string `json:"command"`
	ExitCode int    `json:"exit_code"`
	Rule     bool   `json:"rule,omitempty"` // a rule has answered the whole command
}

// add adds an entry to the log.
func (d *Door) add(e Entry) {
	if len(e.Command) > maxCommand {
		e.Command = strings.ToValidUTF8(e.Command[:maxCommand], "") + "…"
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log[max(0, len(d.log)+1-maxEntries):], e)
	d.wake()
}

// wake lets those look again who wait for a guest or a command. The caller holds mu.
func (d *Door) wake() {
	close(d.changed)
	d.changed = make(chan struct{})
}

// wait waits until found returns true. It calls found with mu held.
func (d *Door) wait(ctx context.Context, found func() bool) error {
	for {
		d.mu.Lock()
		ok, changed := found(), d.changed
		d.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Log returns what a server was told, the oldest first. 0 means all servers. The latest 1,000 entries of all servers are kept.
func (d *Door) Log(server int64) []Entry {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(d.log), func(e Entry) bool { return server != 0 && e.Server != server })
}

// Await waits until a server has answered a command that matches a regular expression, and returns the first one. 0 means all servers.
func (d *Door) Await(ctx context.Context, server int64, match string) (e Entry, err error) {
	pattern, err := regexp.Compile(match)
	if err != nil {
		return e, fmt.Errorf("await %q: %w; see https://pkg.go.dev/regexp/syntax", match, err)
	}
	err = d.wait(ctx, func() bool {
		i := slices.IndexFunc(d.log, func(e Entry) bool { return (server == 0 || e.Server == server) && pattern.MatchString(e.Command) })
		if i >= 0 {
			e = d.log[i]
		}
		return i >= 0
	})
	if err != nil {
		err = fmt.Errorf("await %q: %w; the server was told %d other commands", match, err, len(d.Log(server)))
	}
	return e, err
}
