package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/proxy"
)

// server is what the state file says of the server that fakecloud start has started.
type server struct {
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"` // on the machine's clock
	Endpoint string    `json:"endpoint"`
	Token    string    `json:"token"`
	// CA is the file with the certificate that clients have to trust, or "".
	CA      string `json:"ca,omitempty"`
	Control string `json:"control"`
	Log     string `json:"log"`
	// Door is how programs use the proxy, or nil.
	Door *proxy.Access `json:"door,omitempty"`
}

// pollInterval is how often a command looks for something that it cannot wait for.
const pollInterval = 20 * time.Millisecond

// Files next to the state file. A server has the first lock as long as it lives: what the state file says is true only while it is
// taken, also if the process id is another program's by now. A start has the second one until its server is ready.
const (
	serverLock = ".lock"
	startLock  = ".start"
)

// path returns the path of the state file.
func (c *clientFlags) path() (string, error) {
	if c.stateFile != "" {
		return filepath.Abs(c.stateFile)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("%w; set --state-file", err)
	}
	return filepath.Join(dir, "fakecloud", "server.json"), nil
}

// logPath returns the path of the log of a server.
func logPath(state string) string { return strings.TrimSuffix(state, ".json") + ".log" }

// server returns the server that runs, or nil.
func (c *clientFlags) server() (*server, error) {
	path, err := c.path()
	if err != nil {
		return nil, err
	}
	return readServer(path)
}

func readServer(path string) (*server, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	lock, err := openLock(path + serverLock)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }()
	if free, err := tryLock(lock); free || err != nil {
		return nil, err
	}
	s := &server{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it", path, err)
	}
	return s, nil
}

func openLock(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) }

// acquire waits until it has the lock of a file. Close the file to give it back.
func acquire(ctx context.Context, path string) (*os.File, error) {
	lock, err := openLock(path)
	if err != nil {
		return nil, err
	}
	for {
		ok, err := tryLock(lock)
		if ok {
			return lock, nil
		}
		if err == nil {
			select {
			case <-ctx.Done():
				err = fmt.Errorf("another fakecloud has the lock %s: %w", path, context.Cause(ctx))
			case <-time.After(pollInterval):
				continue
			}
		}
		_ = lock.Close()
		return nil, err
	}
}

// claimTimeout is how long a server waits for the lock, which commands that look for a server take for a moment.
const claimTimeout = 2 * time.Second

// claim takes the lock of a server that fakecloud start starts. The caller calls release in the end.
func (s *settings) claim(ctx context.Context) (release func(), err error) {
	if s.background == "" {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	lock, err := acquire(ctx, s.background+serverLock)
	if err != nil {
		return nil, err
	}
	return func() {
		_ = os.Remove(s.background)
		_ = lock.Close()
	}, nil
}

// announce prints what to paste into a shell. A server of fakecloud start writes the state file first.
func (s *settings) announce(out io.Writer, now server) error {
	if s.background != "" {
		now.PID, now.Started, now.Log = os.Getpid(), time.Now().UTC().Truncate(time.Second), logPath(s.background)
		if err := now.write(s.background); err != nil {
			return fmt.Errorf("state file: %w", err)
		}
	}
	_ = now.export(out, shellPOSIX) // a server without an open stdout serves, too
	return nil
}

func (s *server) write(path string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(path, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// replaceFile writes a file as a whole, with mode 0600: after an error, the old one is unchanged.
func replaceFile(path string, write func(io.Writer) error) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // with mode 0600
	if err == nil {
		if err = errors.Join(write(file), file.Close()); err == nil {
			err = os.Rename(file.Name(), path)
		}
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}
	// The name of the temporary file says nothing to a user.
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = fmt.Errorf("write %s: %w", path, e.Err)
	} else if e, ok := errors.AsType[*os.LinkError](err); ok {
		err = fmt.Errorf("write %s: %w", path, e.Err)
	}
	return err
}
