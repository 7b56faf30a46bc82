package dataplane

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
)

type clientConnKey struct{}

// newHTTP2Server returns the server for clients with HTTP/2. All of them are past their TLS handshake.
func newHTTP2Server(s *service) *http.Server {
	return &http.Server{
		Handler:        s.proxy,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(s.lb.engine.log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, clientConnKey{}, clientOf(c))
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew, http.StateActive, http.StateIdle:
				clientOf(c).wait()
			case http.StateClosed:
				closeQuietly(clientOf(c))
			}
		},
	}
}

// ServeHTTP answers a request of a client with HTTP/2.
func (p *httpProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	lb := p.service.lb
	lb.stats.requests.Add(1)
	answer := &http2Answer{ResponseWriter: w, control: http.NewResponseController(w)}
	x := &exchange{client: r.Context().Value(clientConnKey{}).(*clientConn), inform: answer.inform, cut: answer.cut}
	x.ip, x.last, answer.x = x.client.ip(), new(atomic.Int64), x
	lb.engine.tasks.start()
	defer lb.engine.tasks.done()
	x.touch()
	x.begin(p.service.conf.Load())
	defer x.end()
	lb.enter(x)
	defer lb.leave(x)
	defer context.AfterFunc(r.Context(), x.stop)()

	asHTTP1(r)
	if err := invalid(r); err != nil {
		p.logFailure(http.StatusBadRequest, err)
		answer.refuse(http.StatusBadRequest)
		return
	}
	if r.Method == http.MethodConnect {
		answer.refuse(http.StatusMethodNotAllowed)
		return
	}
	resp, err := p.forward(x, r) //nolint:bodyclose // finish ends it
	if err != nil {
		code := p.failure(x, err)
		if code == 0 {
			panic(http.ErrAbortHandler)
		}
		answer.refuse(code)
		closeQuietly(r.Body) // ends the goroutine that sends it
		x.awaitBody()
		return
	}
	complete := answer.pass(resp)
	closeQuietly(r.Body)
	x.finish(resp, complete)
	if !complete {
		panic(http.ErrAbortHandler)
	}
}

// asHTTP1 makes a request of HTTP/2 one of HTTP/1.1, for the target.
func asHTTP1(r *http.Request) {
	r.RequestURI, r.Proto, r.ProtoMajor, r.ProtoMinor = r.URL.RequestURI(), "HTTP/1.1", 1, 1
	delete(r.Header, "Content-Length") // may be invalid
	if r.ContentLength > 0 || r.ContentLength == 0 && slices.Contains([]string{"POST", "PUT", "PATCH"}, r.Method) {
		r.Header.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	}
}

// http2Answer is the answer to a client with HTTP/2.
type http2Answer struct {
	http.ResponseWriter
	control *http.ResponseController
	x       *exchange
}

// Write sends a part of the body at once.
func (a *http2Answer) Write(b []byte) (int, error) {
	a.x.touch()
	n, err := a.ResponseWriter.Write(b)
	if err == nil {
		err = a.control.Flush()
	}
	a.x.touch()
	return n, err
}

// cut ends an answer that was begun: the handler may wait for a client that does not read.
func (a *http2Answer) cut() { _ = a.control.SetWriteDeadline(past) }

// pass passes the target's answer on. It returns whether the client got it completely.
func (a *http2Answer) pass(resp *http.Response) bool {
	h := a.Header()
	maps.Copy(h, resp.Header)
	for _, name := range []string{"Connection", "Keep-Alive", "Proxy-Connection", "Upgrade"} { // RFC 9113, section 8.2.2
		delete(h, name)
	}
	a.x.touch()
	a.x.answered.Store(true)
	a.WriteHeader(resp.StatusCode)
	if resp.Body == http.NoBody {
		return true
	}
	in := a.x.target.in
	if in.Buffered() == 0 {
		_ = a.control.Flush()
	}
	readErr, writeErr := pass(bufio.NewWriter(a), resp.Body, in, false, nil)
	for name, values := range resp.Trailer {
		h[http.TrailerPrefix+name] = values
	}
	return readErr == nil && writeErr == nil
}

// inform passes an informational answer on.
func (a *http2Answer) inform(resp *http.Response) {
	maps.Copy(a.Header(), resp.Header)
	a.WriteHeader(resp.StatusCode)
	clear(a.Header())
}

func (a *http2Answer) refuse(code int) {
	a.Header().Set("Content-Type", "text/html")
	a.Header().Set("Cache-Control", "no-cache")
	a.WriteHeader(code)
	_, _ = io.WriteString(a.ResponseWriter, errorPage(code))
}
