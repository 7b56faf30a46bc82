package dataplane

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"sync"
	"sync/atomic"
	"time"
)

// exchange is one request and its answer. A client with HTTP/1 has one exchange after the other in the same value.
type exchange struct {
	client *clientConn
	ip     string               // the client's address
	conf   *serviceConf         // at the start of the request
	last   *atomic.Int64        // time of the last data to or from the client, in nanoseconds of the engine's clock
	in     *bufio.Reader        // what the body comes from; nil with HTTP/2
	inform func(*http.Response) // passes an informational answer on
	cut    func()               // ends an answer that was begun
	web    *webServer           // that serves the connection; nil with HTTP/2
	sticky stickyCookie         // the client's cookie, if valid

	backend *backend  // that got the request
	target  *link     // its connection
	sent    chan bool // gets whether the body was sent, from a goroutine; nil without one

	received   atomic.Bool // the request is complete
	bodyFailed atomic.Bool // the client's body is invalid or incomplete
	answered   atomic.Bool // the answer was begun
	expired    atomic.Bool // the idle timeout has ended the request

	mu      sync.Mutex
	running bool
	ended   bool    // stop was called
	waiting stopper // what the exchange waits for: an attempt to connect, or a connection to a target
}

// stopper is something that ends when stop is called.
type stopper interface{ stop() }

// begin starts an exchange.
func (x *exchange) begin(conf *serviceConf) {
	x.conf, x.backend, x.target, x.sent = conf, nil, nil, nil
	x.received.Store(false)
	x.bodyFailed.Store(false)
	x.answered.Store(false)
	x.expired.Store(false)
	x.client.requests.Add(1)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.running, x.waiting = true, nil
	x.ended = x.client.ctx.Err() != nil
}

// end ends an exchange. Afterwards it can begin again.
func (x *exchange) end() {
	x.mu.Lock()
	x.running, x.waiting = false, nil
	x.mu.Unlock()
	x.client.wait()
	x.client.requests.Add(-1)
}

// hold makes stop end s too. It returns false if stop was called already.
func (x *exchange) hold(s stopper) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.waiting = s
	return !x.ended
}

// stop interrupts the exchange while it waits.
func (x *exchange) stop() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stopLocked()
}

func (x *exchange) stopLocked() {
	x.ended = true
	if x.waiting != nil {
		x.waiting.stop()
	}
}

func (x *exchange) stopped() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ended
}

func (x *exchange) touch() { x.last.Store(x.client.lb.engine.clock.Now().UnixNano()) }

// idle reports whether the exchange runs and has reached its idle timeout. clientConn.idle decides about others.
func (x *exchange) idle(now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.idleLocked(now)
}

func (x *exchange) idleLocked(now time.Time) bool {
	return x.running && !x.client.tunnel.Load() && now.Sub(time.Unix(0, x.last.Load())) >= x.conf.HTTP.TimeoutIdle
}

// expire ends the exchange if it is idle. If no answer was begun, an error is sent; otherwise the answer is cut off.
func (x *exchange) expire(now time.Time) {
	if x.markExpired(now) {
		x.cut()
	}
}

// markExpired returns whether the exchange was idle and its answer had begun.
func (x *exchange) markExpired(now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.idleLocked(now) {
		return false // the next request has begun
	}
	answered := x.answered.Load() // before stop, which makes the error answer begin
	x.expired.Store(true)
	x.stopLocked()
	return answered
}

// ask sends a request to a target and returns the head of the answer. A target may answer early: the request's body may still be on its way
// then.
func (x *exchange) ask(t *link, r *http.Request) (*http.Response, error) {
	t.writeHead(r)
	switch {
	case r.ContentLength == 0:
		_ = t.out.Flush() // if it fails, so does the answer
	case x.in != nil && r.ContentLength > 0 && int64(x.in.Buffered()) >= r.ContentLength:
		_, _ = io.CopyN(t.out, r.Body, r.ContentLength)
		x.received.Store(true)
		_ = t.out.Flush()
	default:
		x.sent = make(chan bool, 1)
		x.client.lb.engine.tasks.run(func() { x.sent <- x.sendBody(t, r) })
	}
	for {
		resp, err := t.readHead(r)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, nil
		}
		x.inform(resp)
	}
}

// sendBody sends the request's body to the target. It returns false if the client or the target could not complete it.
func (x *exchange) sendBody(t *link, r *http.Request) bool {
	body := io.Reader(r.Body)
	if x.in == nil {
		body = touchReader{r.Body, x}
	}
	readErr, writeErr := pass(t.out, body, x.in, r.ContentLength < 0, &r.Trailer)
	switch {
	case readErr == nil && writeErr == nil:
		x.received.Store(true)
		return true
	case readErr != nil:
		x.bodyFailed.Store(true)
		x.stop() // nothing is left to wait for
	}
	return false
}

// finish ends the use of a target's connection, and keeps it for further requests if it can have any. complete says that
// the answer was read to its end. finish returns whether the client can send a further request.
func (x *exchange) finish(resp *http.Response, complete bool) bool {
	if x.target == nil {
		return x.received.Load()
	}
	if !complete {
		x.stop()
	}
	sent := x.awaitBody()
	ended := !x.hold(nil)
	x.backend.end()
	if complete && sent && !ended && !resp.Close && !x.conf.ProxyProtocol && x.target.in.Buffered() == 0 {
		x.client.lb.spare.put(x.backend, x.target, x.client.lb.engine.clock.Now())
	} else {
		closeQuietly(x.target)
	}
	return complete && sent && !ended
}

// awaitBody waits for the goroutine that sends the request's body.
func (x *exchange) awaitBody() bool {
	if x.sent == nil {
		return true
	}
	defer func() { x.sent = nil }()
	return <-x.sent
}

// touchReader records when data of a body arrive.
type touchReader struct {
	io.Reader
	x *exchange
}

func (r touchReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.x.touch()
	}
	return n, err
}

// pass copies a body and then its trailers. The body is read from in unless in is nil. pass flushes before it waits for more input.
func pass(out *bufio.Writer, body io.Reader, in *bufio.Reader, chunked bool, trailer *http.Header) (readErr, writeErr error) {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	w := io.WriteCloser(nopCloser{out})
	if chunked {
		w = httputil.NewChunkedWriter(out)
	}
	if in == nil || in.Buffered() == 0 {
		writeErr = out.Flush()
	}
	for writeErr == nil {
		n, err := body.Read(*buf)
		if n > 0 {
			_, writeErr = w.Write((*buf)[:n])
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err, writeErr
		}
		if writeErr == nil && (in == nil || in.Buffered() == 0) {
			writeErr = out.Flush()
		}
	}
	if writeErr == nil && chunked {
		_ = w.Close() // a bufio.Writer keeps its error
		_ = trailer.Write(out)
		_, _ = out.WriteString("\r\n")
	}
	if writeErr == nil {
		writeErr = out.Flush()
	}
	return nil, writeErr
}

type nopCloser struct{ *bufio.Writer }

func (nopCloser) Close() error { return nil }
