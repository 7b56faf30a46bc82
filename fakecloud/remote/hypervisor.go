package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
)

// Limits of a connection, in the machine's time.
const (
	// silence is how many pings may be missed before a connection counts as lost.
	silence = 3
	// requestTimeout bounds a result or a report.
	requestTimeout = 10 * time.Second
	// maxLine is enough for a guest with 32 KiB of user data, escaped.
	maxLine = 1 << 20
)

// session is a hypervisor.Session over the control API.
type session struct {
	client *Client
	path   string // of the hypervisor
	guests []hypervisor.Guest
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	queue  []hypervisor.Task
	err    error         // the end of the session
	signal chan struct{} // something has changed
	done   chan struct{} // closed when the stream is no longer read
}

// AttachHypervisor attaches a hypervisor, which from now on decides how the actions of servers' guests end: see
// package hypervisor. It returns when the hypervisor's servers are known. The context is for that only: the session
// lasts until it is suspended or closed, or until the connection is lost. Then Next returns the error; attach again.
//
// The client must not have a timeout of its own, because the stream of tasks is one answer.
func (c *Client) AttachHypervisor(ctx context.Context, o hypervisor.Options) (hypervisor.Session, error) {
	if o.Ping == 0 {
		o.Ping = wire.DefaultPing
	}
	s := &session{
		client: c, path: "/hypervisors/" + url.PathEscape(o.Name), signal: make(chan struct{}, 1), done: make(chan struct{}),
	}
	body, err := json.Marshal(wire.AttachRequest{
		Options: o, TaskTimeout: fault.Duration(o.TaskTimeout), Grace: fault.Duration(o.Grace), Ping: fault.Duration(o.Ping),
	})
	if err != nil {
		return nil, err
	}
	var streaming context.Context
	streaming, s.cancel = context.WithCancelCause(context.Background())
	stop := context.AfterFunc(ctx, func() { s.cancel(context.Cause(ctx)) })
	if err := s.attach(streaming, body, silence*o.Ping); err != nil {
		s.cancel(nil)
		return nil, fmt.Errorf("attach hypervisor %q: %w", o.Name, err)
	}
	if !stop() { // the context ended after attach returned
		s.Suspend()
		return nil, context.Cause(ctx)
	}
	return s, nil
}

// attach opens the stream and reads it up to the first task.
func (s *session) attach(ctx context.Context, body []byte, patience time.Duration) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.client.url+"/hypervisors", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.http.Do(req)
	if err != nil {
		return cmpCause(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		return errorOf(req, resp)
	}
	lines := &lineReader{scanner: bufio.NewScanner(resp.Body), patience: patience, cancel: s.cancel}
	lines.scanner.Buffer(nil, maxLine)
	for {
		l, err := lines.next()
		if err != nil {
			_ = resp.Body.Close()
			return cmpCause(ctx, err)
		}
		switch {
		case l.Type == wire.MessageGuest && l.Guest != nil:
			s.guests = append(s.guests, *l.Guest)
		case l.Type == wire.MessageSynced:
			go s.read(ctx, lines, resp.Body)
			return nil
		case l.Type == wire.MessageEnd:
			_ = resp.Body.Close()
			return endOf(l)
		}
	}
}

// read takes tasks from the stream until it ends.
func (s *session) read(ctx context.Context, lines *lineReader, body io.Closer) {
	defer close(s.done)
	defer func() { _ = body.Close() }()
	for {
		l, err := lines.next()
		switch {
		case err != nil:
			s.end(cmpCause(ctx, err))
			return
		case l.Type == wire.MessageEnd:
			s.end(endOf(l))
			return
		case l.Type == wire.MessageTask && l.Task != nil:
			s.mu.Lock()
			s.queue = append(s.queue, *l.Task)
			s.mu.Unlock()
			s.notify()
		}
	}
}

// cmpCause returns the reason why a connection was cut, if there is one, instead of the resulting error.
func cmpCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func endOf(m wire.Message) error {
	if m.Replaced {
		return hypervisor.ErrReplaced
	}
	return fmt.Errorf("%w: %s", hypervisor.ErrDetached, m.Reason)
}

// lineReader reads the messages of a stream that is never silent for long.
type lineReader struct {
	scanner  *bufio.Scanner
	patience time.Duration
	cancel   context.CancelCauseFunc
}

func (r *lineReader) next() (m wire.Message, err error) {
	watchdog := time.AfterFunc(r.patience, func() {
		r.cancel(fmt.Errorf("the connection to the cloud is lost: no message for %v", r.patience))
	})
	defer watchdog.Stop()
	if !r.scanner.Scan() {
		if err := r.scanner.Err(); err != nil {
			return m, fmt.Errorf("the connection to the cloud is lost: %w", err)
		}
		return m, fmt.Errorf("the connection to the cloud is lost: %w", io.ErrUnexpectedEOF)
	}
	if err := json.Unmarshal(r.scanner.Bytes(), &m); err != nil {
		return m, fmt.Errorf("cannot read a message of the cloud: %w", err)
	}
	return m, nil
}

func (s *session) notify() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// end makes err the end of the session, unless it has ended.
func (s *session) end(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.mu.Unlock()
	s.notify()
}

// ended returns what ended the session, nil while it lasts.
func (s *session) ended() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Guests implements hypervisor.Session.
func (s *session) Guests() []hypervisor.Guest { return s.guests }

// Next implements hypervisor.Session.
func (s *session) Next(ctx context.Context) (hypervisor.Task, error) {
	for {
		s.mu.Lock()
		queue, err := s.queue, s.err
		if err == nil && len(queue) > 0 {
			s.queue = queue[1:]
		}
		s.mu.Unlock()
		if err != nil || len(queue) > 1 {
			s.notify() // wakes another caller
		}
		switch {
		case err != nil:
			return hypervisor.Task{}, err
		case len(queue) > 0:
			return queue[0], nil
		}
		select {
		case <-s.signal:
		case <-ctx.Done():
			return hypervisor.Task{}, context.Cause(ctx)
		}
	}
}

// Complete implements hypervisor.Session.
func (s *session) Complete(ctx context.Context, action int64, failure error) error {
	var in wire.CompleteRequest
	if failure != nil && !errors.As(failure, &in.Error) {
		in.Error = &hypervisor.Error{Message: failure.Error()}
	}
	return s.post(ctx, "/tasks/"+strconv.FormatInt(action, 10), in)
}

// Report implements hypervisor.Session.
func (s *session) Report(ctx context.Context, server int64, running bool) error {
	return s.post(ctx, "/servers/"+strconv.FormatInt(server, 10), wire.ReportRequest{Running: &running})
}

func (s *session) post(ctx context.Context, path string, in any) error {
	if err := s.ended(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := s.client.call(ctx, http.MethodPost, s.path+path, nil, in, nil)
	var e *Error
	if !errors.As(err, &e) || e.Foreign {
		return err
	}
	switch e.Status {
	case http.StatusNotFound:
		return fmt.Errorf("%w: %w", hypervisor.ErrNoGuest, err)
	case http.StatusGone:
		return fmt.Errorf("%w: %w", hypervisor.ErrNoTask, err)
	case http.StatusConflict:
		return fmt.Errorf("%w: %w", hypervisor.ErrDetached, err)
	}
	return err
}

// Suspend implements hypervisor.Session.
func (s *session) Suspend() {
	s.end(hypervisor.ErrDetached)
	s.cancel(hypervisor.ErrDetached)
	<-s.done
}

// Close implements hypervisor.Session. A cloud that cannot be reached detaches the hypervisor after its grace.
func (s *session) Close() {
	if s.ended() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		defer cancel()
		_ = s.client.call(ctx, http.MethodDelete, s.path, nil, nil, nil)
	}
	s.Suspend()
}
