package recording

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
)

// maxBody is the size of the largest body that passes. The API's own limit for requests is smaller; the largest answers have some MiB.
const maxBody = 8 << 20

// Recorder is a reverse proxy that records what passes. Close it after its last request.
type Recorder struct {
	proxy *httputil.ReverseProxy
	now   func() time.Time
	log   *slog.Logger

	mu       sync.Mutex
	out      io.WriteCloser
	redactor *Redactor
	first    time.Time // when the first request began
	seq      int
	failed   error // of the file
}

// Options configure a Recorder.
type Options struct {
	// Target is the API with its base path, such as https://api.hetzner.cloud/v1.
	Target *url.URL
	// Catalogue are the names that pass: see [CatalogueNames].
	Catalogue []string
	// Transport sends the requests. If nil, it is http.DefaultTransport.
	Transport http.RoundTripper
	// Now returns the time. If nil, it is time.Now.
	Now func() time.Time
	// Logger gets what cannot be recorded. If nil, it is slog.Default().
	Logger *slog.Logger
}

// Create makes a folder if necessary, and the file [FileName] in it. Only its owner may read the file. An existing recording is an error.
func Create(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, FileName)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s exists: choose another folder, or remove that recording", path)
	}
	return file, err
}

// NewRecorder returns a recorder that writes to out. It writes the first line at once, and closes out when it is closed.
func NewRecorder(out io.WriteCloser, o Options) (*Recorder, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger, o.Transport = cmp.Or(o.Logger, slog.Default()), cmp.Or(o.Transport, http.DefaultTransport)
	r := &Recorder{now: o.Now, log: o.Logger, out: out, redactor: NewRedactor(o.Catalogue)}
	target := "other"
	if o.Target.Hostname() == RealHost {
		target = RealHost
	}
	r.proxy = &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Path = strings.TrimPrefix(p.Out.URL.Path, api.Prefix)
			p.Out.URL.RawPath = strings.TrimPrefix(p.Out.URL.RawPath, api.Prefix)
			p.SetURL(o.Target)
			p.Out.Header.Del("Accept-Encoding") // the transport decompresses what it asked for
		},
		ModifyResponse: func(resp *http.Response) error {
			changeLinks(resp, o.Target)
			return nil
		},
		Transport:    transport{r, o.Transport},
		ErrorHandler: r.unreachable,
		ErrorLog:     slog.NewLogLogger(o.Logger.Handler(), slog.LevelWarn),
	}
	return r, r.writeLine(encode(Header{Format: format, Version: Version, Target: target, Started: o.Now().UTC().Truncate(time.Second)}))
}

// ServeHTTP implements http.Handler. Only paths below /v1 are passed on.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	// A web page must not use the API by rebinding its name to a loopback address.
	if onLoopback, ok := api.HostAllowed(req, nil); onLoopback && !ok {
		http.Error(w, "fakecloud record: "+api.HostRefused(req), http.StatusForbidden)
		return
	}
	if !strings.HasPrefix(req.URL.Path, api.Prefix+"/") {
		http.Error(w, "fakecloud record: only paths below "+api.Prefix+" are passed on: use the printed endpoint", http.StatusNotFound)
		return
	}
	r.proxy.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), startKey{}, r.begin(req))))
}

func (r *Recorder) unreachable(w http.ResponseWriter, _ *http.Request, err error) {
	r.log.Warn("no answer to pass on: check --target and the network", "error", err)
	w.WriteHeader(http.StatusBadGateway)
}

// startKey is the key of a start in a request's context.
type startKey struct{}

// start is when a request began, and its path.
type start struct {
	seq  int
	at   time.Time
	path string
}

// begin counts a request. The client's path is kept: the target's base path may be another one.
func (r *Recorder) begin(req *http.Request) start {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	if r.seq == 0 {
		r.first = now
	}
	r.seq++
	return start{r.seq, now, strings.TrimPrefix(req.URL.EscapedPath(), api.Prefix)}
}

// transport records the round trips of the proxy. It reads both bodies as a whole.
type transport struct {
	recorder *Recorder
	next     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	begun := req.Context().Value(startKey{}).(start)
	m := &Message{Method: req.Method, Path: begun.path, Query: req.URL.RawQuery, RequestHeader: req.Header}
	if req.Body != nil {
		body, err := readAll(req.Body)
		if err != nil {
			return nil, fmt.Errorf("read the request: %w", err)
		}
		m.Request = body
		req.Body = io.NopCloser(bytes.NewReader(body))
		req.ContentLength = int64(len(body))
		if len(body) == 0 {
			req.Body = http.NoBody
		}
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		t.recorder.record(begun, m)
		return nil, err
	}
	body, err := readAll(resp.Body)
	if err != nil {
		t.recorder.record(begun, m)
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	m.Status, m.ResponseHeader, m.Response = resp.StatusCode, resp.Header, body
	resp.Body = io.NopCloser(bytes.NewReader(body))
	t.recorder.record(begun, m)
	return resp, nil
}

// readAll reads and closes a body of at most maxBody bytes.
func readAll(body io.ReadCloser) ([]byte, error) {
	defer func() { _ = body.Close() }()
	all, err := io.ReadAll(io.LimitReader(body, maxBody+1))
	if err == nil && len(all) > maxBody {
		return nil, fmt.Errorf("it is larger than %d MiB", maxBody>>20)
	}
	return all, err
}

// record writes an exchange at its end.
func (r *Recorder) record(begun start, m *Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.redactor.Exchange(m)
	e.Seq, e.At, e.End = begun.seq, begun.at.Sub(r.first).Milliseconds(), r.now().Sub(r.first).Milliseconds()
	if r.failed == nil {
		if r.failed = r.writeLine(encode(e)); r.failed != nil {
			r.log.Error("the recording ends here: it cannot be written", "error", r.failed)
		}
	}
}

// writeLine writes a line at once, so that another line never comes between. The caller holds mu, or has the only reference.
func (r *Recorder) writeLine(line []byte) error {
	_, err := r.out.Write(append(line, '\n'))
	return err
}

// Close closes the file and returns how many requests began. The error is the first one of the file.
func (r *Recorder) Close() (exchanges int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seq, errors.Join(r.failed, r.out.Close())
}

// changeLinks makes the Link header lead through the proxy: clients that follow it would leave it otherwise.
func changeLinks(resp *http.Response, target *url.URL) {
	local, ok := resp.Request.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return
	}
	for i, link := range resp.Header["Link"] {
		resp.Header["Link"][i] = strings.ReplaceAll(link, "<"+strings.TrimSuffix(target.String(), "/")+"/",
			"<http://"+local.String()+api.Prefix+"/")
	}
}
