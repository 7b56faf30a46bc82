package hypervisor

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
	"strings"
	"sync"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/control"
)

// Limits of a connection, in the machine's time.
const (
	// silence is how many pings may be missed before a connection counts as lost.
	silence = 3
	// requestTimeout bounds a result or a report.
	requestTimeout = 10 * time.Second
	// maxLine holds a machine with user data of 32 KiB, escaped.
	maxLine = 1 << 20
)

// Remote is a Session over the control API.
type Remote struct {
	url      string // of the control API
	name     string
	client   *http.Client
	ping     time.Duration
	machines []Machine
	cancel   context.CancelCauseFunc

	mu     sync.Mutex
	queue  []Task
	err    error         // the end of the stream
	signal chan struct{} // something has changed
	done   chan struct{} // closed when nothing reads any more
}

// DialOption changes what Dial does.
type DialOption func(*Remote)

// WithHTTPClient makes the session use a client. It must have no timeout of its own: the stream of
// tasks is one response.
func WithHTTPClient(c *http.Client) DialOption { return func(r *Remote) { r.client = c } }

// WithPing sets how often the cloud says that it is there. Default: 5 s. After three times as long
// without a word the connection counts as lost.
func WithPing(d time.Duration) DialOption { return func(r *Remote) { r.ping = d } }

// Dial attaches a hypervisor over the control API at a URL such as http://127.0.0.1:4243. It returns when the
// servers that the hypervisor has are known. The context is for that only: the session goes on until it is
// suspended or closed, or until the connection is lost, which Next returns as an error; dial
// again then.
func Dial(ctx context.Context, controlURL string, o Options, opts ...DialOption) (*Remote, error) {
	r := &Remote{
		url: strings.TrimRight(controlURL, "/"), name: o.Name, client: http.DefaultClient, ping: control.DefaultPing,
		signal: make(chan struct{}, 1), done: make(chan struct{}),
	}
	for _, opt := range opts {
		opt(r)
	}
	body, err := json.Marshal(control.AttachRequest{
		HypervisorOptions: o, TaskTimeout: fault.Duration(o.TaskTimeout), Grace: fault.Duration(o.Grace), Ping: fault.Duration(r.ping),
	})
	if err != nil {
		return nil, err
	}
	var streaming context.Context
	streaming, r.cancel = context.WithCancelCause(context.Background())
	stop := context.AfterFunc(ctx, func() { r.cancel(context.Cause(ctx)) })
	if err := r.attach(streaming, body); err != nil {
		r.cancel(nil)
		return nil, fmt.Errorf("attach hypervisor %q: %w", o.Name, err)
	}
	if !stop() { // the context ended at the very last moment
		r.Suspend()
		return nil, context.Cause(ctx)
	}
	return r, nil
}

// attach opens the stream and reads it up to the first task.
func (r *Remote) attach(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/hypervisors", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return cmpCause(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer func() { _ = resp.Body.Close() }()
		return errorOf(resp)
	}
	lines := &lineReader{scanner: bufio.NewScanner(resp.Body), patience: silence * r.ping, cancel: r.cancel}
	lines.scanner.Buffer(nil, maxLine)
	for {
		l, err := lines.next()
		if err != nil {
			_ = resp.Body.Close()
			return cmpCause(ctx, err)
		}
		switch {
		case l.Type == control.LineMachine && l.Machine != nil:
			r.machines = append(r.machines, *l.Machine)
		case l.Type == control.LineSynced:
			go r.read(ctx, lines, resp.Body)
			return nil
		case l.Type == control.LineEnd:
			_ = resp.Body.Close()
			return endOf(l)
		}
	}
}

// read takes tasks from the stream until it ends.
func (r *Remote) read(ctx context.Context, lines *lineReader, body io.Closer) {
	defer close(r.done)
	defer func() { _ = body.Close() }()
	for {
		l, err := lines.next()
		switch {
		case err != nil:
			r.end(cmpCause(ctx, err))
			return
		case l.Type == control.LineEnd:
			r.end(endOf(l))
			return
		case l.Type == control.LineTask && l.Task != nil:
			r.mu.Lock()
			r.queue = append(r.queue, *l.Task)
			r.mu.Unlock()
			r.notify()
		}
	}
}

// cmpCause prefers the reason for which a connection was cut to the error that the cut caused.
func cmpCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func endOf(l control.HypervisorLine) error {
	if l.Replaced {
		return ErrReplaced
	}
	return fmt.Errorf("%w: %s", ErrDetached, l.Reason)
}

// lineReader reads lines of a stream that is never silent for long.
type lineReader struct {
	scanner  *bufio.Scanner
	patience time.Duration
	cancel   context.CancelCauseFunc
}

func (r *lineReader) next() (l control.HypervisorLine, err error) {
	watchdog := time.AfterFunc(r.patience, func() {
		r.cancel(fmt.Errorf("the cloud has not said a word for %v: the connection is lost", r.patience))
	})
	defer watchdog.Stop()
	if !r.scanner.Scan() {
		if err := r.scanner.Err(); err != nil {
			return l, fmt.Errorf("the connection to the cloud is lost: %w", err)
		}
		return l, fmt.Errorf("the connection to the cloud is lost: %w", io.ErrUnexpectedEOF)
	}
	if err := json.Unmarshal(r.scanner.Bytes(), &l); err != nil {
		return l, fmt.Errorf("a line of the cloud's stream: %w", err)
	}
	return l, nil
}

func (r *Remote) notify() {
	select {
	case r.signal <- struct{}{}:
	default:
	}
}

// end makes err the end of the session, unless it has ended.
func (r *Remote) end(err error) {
	r.mu.Lock()
	if r.err == nil {
		r.err = err
	}
	r.mu.Unlock()
	r.notify()
}

// ended returns what ended the session, nil while it goes on.
func (r *Remote) ended() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Machines implements Session.
func (r *Remote) Machines() []Machine { return r.machines }

// Next implements Session.
func (r *Remote) Next(ctx context.Context) (Task, error) {
	for {
		r.mu.Lock()
		queue, err := r.queue, r.err
		if err == nil && len(queue) > 0 {
			r.queue = queue[1:]
		}
		r.mu.Unlock()
		if err != nil || len(queue) > 1 {
			r.notify() // whoever else waits
		}
		switch {
		case err != nil:
			return Task{}, err
		case len(queue) > 0:
			return queue[0], nil
		}
		select {
		case <-r.signal:
		case <-ctx.Done():
			return Task{}, context.Cause(ctx)
		}
	}
}

// Complete implements Session.
func (r *Remote) Complete(ctx context.Context, action int64, failure error) error {
	var in control.CompleteRequest
	if failure != nil && !errors.As(failure, &in.Error) {
		in.Error = &Error{Message: failure.Error()}
	}
	return r.post(ctx, "tasks", action, in)
}

// Report implements Session.
func (r *Remote) Report(ctx context.Context, server int64, running bool) error {
	return r.post(ctx, "servers", server, control.ReportRequest{Running: &running})
}

func (r *Remote) post(ctx context.Context, what string, id int64, in any) error {
	if err := r.ended(); err != nil {
		return err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	return r.send(ctx, http.MethodPost, what+"/"+strconv.FormatInt(id, 10), body)
}

func (r *Remote) send(ctx context.Context, method, path string, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	u := r.url + "/hypervisors/" + url.PathEscape(r.name)
	if path != "" {
		u += "/" + path
	}
	req, err := http.NewRequestWithContext(ctx, method, u, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return errorOf(resp)
	}
	return nil
}

// errorOf returns the error that an answer of the control API is.
func errorOf(resp *http.Response) error {
	var body struct {
		Error string `json:"error"`
	}
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if json.Unmarshal(b, &body) != nil || body.Error == "" {
		body.Error = resp.Status
	}
	switch resp.StatusCode {
	case http.StatusNotFound:
		return fmt.Errorf("%w: %s", ErrNoMachine, body.Error)
	case http.StatusGone:
		return fmt.Errorf("%w: %s", ErrNoTask, body.Error)
	case http.StatusConflict:
		return fmt.Errorf("%w: %s", ErrDetached, body.Error)
	}
	return errors.New(body.Error)
}

// Suspend implements Session.
func (r *Remote) Suspend() {
	r.end(ErrDetached)
	r.cancel(ErrDetached)
	<-r.done
}

// Close implements Session. A cloud that cannot be reached finds out by itself.
func (r *Remote) Close() {
	if r.ended() == nil {
		_ = r.send(context.Background(), http.MethodDelete, "", nil)
	}
	r.Suspend()
}
