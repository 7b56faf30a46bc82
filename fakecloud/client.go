package fakecloud

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
)

// Client returns a client of the default project. It needs no listener: its requests go to the handler within the
// process. The options are applied last and can replace everything: hcloud.WithToken makes it a client of another
// project.
func (c *Cloud) Client(opts ...hcloud.ClientOption) *hcloud.Client {
	opts = append([]hcloud.ClientOption{
		hcloud.WithEndpoint(inProcessURL + api.Prefix),
		hcloud.WithToken(c.token),
		hcloud.WithHTTPClient(&http.Client{Transport: c.Transport()}),
	}, opts...)
	return hcloud.NewClient(opts...)
}

// inProcessURL has a name that can never exist (RFC 6761): a request fails if it leaves the process by mistake.
const inProcessURL = "http://fakecloud.invalid"

// Token returns the token of the default project that [Cloud.Client] uses.
func (c *Cloud) Token() string { return c.token }

// Transport returns an http.RoundTripper that hands the requests for all hosts to the API within the process. Faults
// look as over a network: a dropped connection is an error of the round trip, a cut-off body ends with
// io.ErrUnexpectedEOF.
func (c *Cloud) Transport() http.RoundTripper { return InProcess(c.api) }

// InProcess returns an http.RoundTripper that calls h. Use it for a handler that wraps [Cloud.Handler]; otherwise use
// [Cloud.Transport].
func InProcess(h http.Handler) http.RoundTripper { return inProcess{h} }

// send sends a request to a handler within the process. It returns the status and the body of the answer.
func send(ctx context.Context, h http.Handler, method, path string, header http.Header, body []byte) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, inProcessURL+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header = header
	resp, err := InProcess(h).RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

type inProcess struct{ handler http.Handler }

func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }()
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	in := *r
	in.RequestURI = r.URL.RequestURI()
	in.RemoteAddr = "127.0.0.1:0"
	if in.Host == "" {
		in.Host = r.URL.Host
	}
	in.Proto, in.ProtoMajor, in.ProtoMinor = "HTTP/1.1", 1, 1
	if in.Body == nil {
		in.Body = http.NoBody
	}
	w := &memoryWriter{header: make(http.Header, 8)}
	if aborted := w.serve(t.handler, &in); aborted {
		switch {
		case r.Context().Err() != nil:
			return nil, r.Context().Err()
		case w.reset:
			return nil, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
		case w.status == 0:
			return nil, io.EOF
		}
		return w.response(r, io.MultiReader(&w.body, failing{io.ErrUnexpectedEOF})), nil
	}
	return w.response(r, &w.body), nil
}

// memoryWriter is an http.ResponseWriter without a connection.
type memoryWriter struct {
	header http.Header
	sent   http.Header // the header when the status was written
	status int
	body   bytes.Buffer
	reset  bool
}

func (w *memoryWriter) serve(h http.Handler, r *http.Request) (aborted bool) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			aborted = true
		default:
			panic(p)
		}
	}()
	h.ServeHTTP(w, r)
	return false
}

func (w *memoryWriter) Header() http.Header { return w.header }

func (w *memoryWriter) WriteHeader(status int) {
	if w.status != 0 {
		return
	}
	w.status = status
	w.sent = w.header
	if size, err := strconv.Atoi(w.header.Get("Content-Length")); err == nil {
		w.body.Grow(min(size, 1<<20))
	}
}

func (w *memoryWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// Flush implements http.Flusher.
func (w *memoryWriter) Flush() {}

// ResetConnection ends the request as a TCP reset would. Fault rules call it.
func (w *memoryWriter) ResetConnection() {
	w.reset = true
	panic(http.ErrAbortHandler)
}

func (w *memoryWriter) response(r *http.Request, body io.Reader) *http.Response {
	w.WriteHeader(http.StatusOK)
	length := int64(-1)
	if n, err := strconv.ParseInt(w.sent.Get("Content-Length"), 10, 64); err == nil {
		length = n
	} else if w.body.Len() == 0 {
		length = 0
	}
	return &http.Response{
		Status: strconv.Itoa(w.status) + " " + http.StatusText(w.status), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: io.NopCloser(body), ContentLength: length, Request: r,
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
