package dataplane

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// httpProxy forwards the HTTP requests of one service with httputil.ReverseProxy. It chooses a target
// for each request, also for several requests on one connection.
type httpProxy struct {
	service *service
	reverse httputil.ReverseProxy
	// shared reuses connections to targets for requests of all clients. single opens a connection per
	// request; it is for services with the PROXY protocol, where a connection belongs to one client.
	shared, single *http.Transport
}

// idleTargetConns is the maximum number of idle connections to one target.
const idleTargetConns = 64

func newHTTPProxy(s *service) *httpProxy {
	p := &httpProxy{service: s}
	p.shared = p.newTransport()
	p.single = p.newTransport()
	p.single.DisableKeepAlives = true
	p.reverse = httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      roundTripperFunc(p.roundTrip),
		FlushInterval:  -1, // forward data as soon as it arrives
		BufferPool:     bufferPool{},
		ErrorHandler:   p.fail,
		ModifyResponse: p.stick,
		ErrorLog:       slog.NewLogLogger(s.lb.engine.log.Handler(), slog.LevelDebug),
	}
	return p
}

func (p *httpProxy) newTransport() *http.Transport {
	return &http.Transport{
		DialContext:            p.dial,
		DisableCompression:     true, // forward bodies unchanged
		MaxIdleConnsPerHost:    idleTargetConns,
		IdleConnTimeout:        DefaultIdleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// closeIdle closes idle connections to targets.
func (p *httpProxy) closeIdle() {
	p.shared.CloseIdleConnections()
	p.single.CloseIdleConnections()
}

// exchange is one request and its answer.
type exchange struct {
	client   *clientConn
	conf     *serviceConf // at the start of the request
	cancel   context.CancelCauseFunc
	last     atomic.Int64 // time of the last data, in nanoseconds of the engine's clock
	received atomic.Bool  // the request is complete
	answered atomic.Bool  // the answer's header was sent
	tunnel   atomic.Bool  // upgraded: clientConn.idle decides about idleness

	backend *backend     // the backend that got the request
	sticky  stickyCookie // the client's cookie, if valid

	mu      sync.Mutex
	control *http.ResponseController // nil after the handler: it must not be used any more
}

var (
	errIdle        = errors.New("idle timeout")
	exchangeKey    = new(byte)
	errUnsupported = errors.New("method CONNECT is not supported")
	errorTexts     = map[int]string{
		http.StatusServiceUnavailable: "No server is available to handle this request.",
		http.StatusGatewayTimeout:     "The server did not respond in time.",
		http.StatusRequestTimeout:     "The request did not arrive in time.",
		http.StatusBadGateway:         "The server's response was invalid or incomplete.",
	}
)

// ServeHTTP answers one request.
func (p *httpProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s := p.service
	client := r.Context().Value(clientConnKey{}).(*clientConn)
	conf := s.conf.Load()
	s.lb.stats.requests.Add(1)
	if conf.Protocol == redirect {
		redirectToHTTPS(w, r, conf.DestinationPort)
		return
	}
	if r.Method == http.MethodConnect {
		http.Error(w, errUnsupported.Error(), http.StatusMethodNotAllowed)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	x := &exchange{client: client, conf: conf, cancel: cancel, control: http.NewResponseController(w)}
	// Targets may answer before they have read the whole request.
	_ = x.control.EnableFullDuplex()
	x.begin()
	defer x.end()
	// The request's context does not end when a hijacked connection is closed.
	defer context.AfterFunc(client.ctx, func() { cancel(net.ErrClosed) })()

	r = r.WithContext(context.WithValue(ctx, exchangeKey, x))
	if r.ContentLength == 0 { // -1 means an unknown length
		x.received.Store(true)
	} else {
		r.Body = &requestBody{ReadCloser: r.Body, x: x}
	}
	p.reverse.ServeHTTP(&responseWriter{ResponseWriter: w, x: x}, r)
}

func (x *exchange) touch() { x.last.Store(x.client.lb.engine.clock.Now().UnixNano()) }

func (x *exchange) begin() {
	x.touch()
	x.client.requests.Add(1)
	lb := x.client.lb
	lb.engine.tasks.start()
	lb.mu.Lock()
	defer lb.mu.Unlock()
	lb.exchanges[x] = struct{}{}
}

func (x *exchange) end() {
	lb := x.client.lb
	lb.mu.Lock()
	delete(lb.exchanges, x)
	lb.mu.Unlock()
	x.mu.Lock()
	x.control = nil
	x.mu.Unlock()
	x.cancel(context.Canceled)
	x.client.wait()
	x.client.requests.Add(-1)
	lb.engine.tasks.done()
}

func (x *exchange) idle(now time.Time) bool {
	return !x.tunnel.Load() && now.Sub(time.Unix(0, x.last.Load())) >= x.conf.HTTP.TimeoutIdle
}

// expire ends an idle exchange. If no answer was begun, fail sends an error; otherwise the answer is cut
// off.
func (x *exchange) expire() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.control == nil {
		return
	}
	answered := x.answered.Load() // before cancel, which makes the handler begin an error answer
	x.cancel(errIdle)             // before the deadlines, because an expired one could cancel with another cause
	past := time.Unix(1, 0)
	_ = x.control.SetReadDeadline(past) // the handler may wait for the body
	if answered {
		_ = x.control.SetWriteDeadline(past) // the handler may wait for a client that does not read
	}
}

// requestBody records when data of the request's body arrive and when the body ends.
type requestBody struct {
	io.ReadCloser
	x *exchange
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.x.touch()
	}
	if errors.Is(err, io.EOF) {
		b.x.received.Store(true)
	}
	return n, err
}

// responseWriter records when data of the answer are sent.
type responseWriter struct {
	http.ResponseWriter
	x *exchange
}

// Unwrap gives http.ResponseController access to the wrapped writer.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *responseWriter) WriteHeader(code int) {
	w.x.touch()
	if code >= 200 { // not for informational answers
		w.x.answered.Store(true)
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *responseWriter) Write(p []byte) (int, error) {
	w.x.answered.Store(true)
	w.x.touch()
	n, err := w.ResponseWriter.Write(p)
	w.x.touch()
	return n, err
}

// rewrite prepares the request to the target. It keeps the client's host, path and query.
//
// The real load balancer adds X-Forwarded-For according to its FAQ, section "Do Load Balancers forward
// special HTTP headers?" (linked by the maintainers in hcloud-cloud-controller-manager issues 92 and
// 171; the page itself could not be read here). The client's own X-Forwarded-For comes first, as with
// HAProxy's option forwardfor. X-Forwarded-Proto and X-Forwarded-Port are replaced.
func (p *httpProxy) rewrite(r *httputil.ProxyRequest) {
	x := r.In.Context().Value(exchangeKey).(*exchange)
	r.Out.URL.Scheme = "http"
	r.Out.URL.Host = "target" // roundTrip sets the address
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = r.In.Host
	for _, name := range []string{"Forwarded", "X-Forwarded-Host"} { // ReverseProxy has removed them
		if v, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = v
		}
	}
	forwarded := slices.Clone(r.In.Header["X-Forwarded-For"])
	if ip, _, err := net.SplitHostPort(r.In.RemoteAddr); err == nil {
		forwarded = append(forwarded, ip)
	}
	r.Out.Header.Set("X-Forwarded-For", strings.Join(forwarded, ", "))
	r.Out.Header.Set("X-Forwarded-Proto", string(x.conf.Protocol))
	r.Out.Header.Set("X-Forwarded-Port", strconv.Itoa(int(p.service.port)))
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// dialError is a failure to connect. After it the request can go to another target.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

// roundTrip sends the request to the target in the client's cookie, or to one that the algorithm
// chooses. It skips unreachable targets.
func (p *httpProxy) roundTrip(r *http.Request) (*http.Response, error) {
	x := r.Context().Value(exchangeKey).(*exchange)
	s, conf := p.service, x.conf
	transport := p.shared
	if conf.ProxyProtocol {
		transport = p.single
	}
	if r.Body != nil {
		// A transport closes the body of a request that it could not send, but the next attempt needs the
		// body. The server closes it.
		r.Body = io.NopCloser(r.Body)
	}
	var tried []*backend
	errs := []error{errNoTarget}
	b := p.stuckTo(x, r)
	for ; ; b = nil {
		if b == nil {
			b = s.pick(conf, tried)
		}
		if b == nil {
			return nil, errors.Join(errs...)
		}
		address, err := s.lb.engine.opts.Resolver(b.target, conf.DestinationPort)
		if err == nil {
			b.active.Add(1)
			r.URL.Host = address
			var resp *http.Response
			ctx := context.WithValue(r.Context(), attemptKey{}, attempt{b.target, conf.DestinationPort})
			if resp, err = transport.RoundTrip(r.WithContext(ctx)); err == nil {
				x.backend = b
				x.tunnel.Store(resp.StatusCode == http.StatusSwitchingProtocols)
				countUntilClosed(resp, b)
				return resp, nil
			}
			b.active.Add(-1)
			if !errors.As(err, &dialError{}) || r.Context().Err() != nil {
				return nil, err
			}
		}
		errs = append(errs, err)
		tried = append(tried, b)
	}
}

// attempt is where roundTrip tries to send a request. It is in the context of the attempt.
type attempt struct {
	target Target
	port   uint16
}

type attemptKey struct{}

// dial connects the transports to a target. With the PROXY protocol the connection serves only one
// request, whose client is in the context.
func (p *httpProxy) dial(ctx context.Context, _, address string) (net.Conn, error) {
	e := p.service.lb.engine
	// The transport continues to dial after the request has ended; stop when the load balancer is removed.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.service.lb.ctx, cancel)()
	ctx, cancel = withTimeout(ctx, e.clock, e.opts.ConnectTimeout)
	defer cancel()
	a := ctx.Value(attemptKey{}).(attempt)
	if err := e.filter(ctx, p.service.lb.id, a.target, a.port); err != nil {
		return nil, dialError{err}
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, dialError{err}
	}
	c = a.target.counted(c)
	if x, ok := ctx.Value(exchangeKey).(*exchange); ok && x.conf.ProxyProtocol {
		if err := writeHeader(c, e.opts.ProxyProtocolVersion, x.client.RemoteAddr(), x.client.front); err != nil {
			closeQuietly(c)
			return nil, dialError{err}
		}
	}
	return c, nil
}

// stuckTo returns the target in the client's cookie, or nil without a valid cookie and healthy target.
func (p *httpProxy) stuckTo(x *exchange, r *http.Request) *backend {
	if !x.conf.HTTP.StickySessions {
		return nil
	}
	now := p.service.lb.engine.clock.Now()
	for _, cookie := range r.CookiesNamed(x.conf.HTTP.CookieName) {
		c := parseStickyCookie(cookie.Value)
		if !c.valid(now, x.conf.HTTP.CookieLifetime) {
			continue
		}
		for _, b := range x.conf.backends {
			if b.cookie == c.target && b.healthy() {
				x.sticky = c
				return b
			}
		}
	}
	return nil
}

// stick adds the cookie that sends the client's next request to the same target, unless the client
// already has an equal cookie.
func (p *httpProxy) stick(resp *http.Response) error {
	x := resp.Request.Context().Value(exchangeKey).(*exchange)
	if !x.conf.HTTP.StickySessions {
		return nil
	}
	now := p.service.lb.engine.clock.Now()
	c := stickyCookie{target: x.backend.cookie, last: now, first: now}
	if x.sticky.target == c.target {
		c.first = x.sticky.first
	}
	if c.String() != x.sticky.String() {
		// http.SetCookie would quote some of these characters.
		resp.Header.Add("Set-Cookie", x.conf.HTTP.CookieName+"="+c.String()+"; path=/")
	}
	return nil
}

// fail sends an error answer for a request that no target has answered.
func (p *httpProxy) fail(w http.ResponseWriter, r *http.Request, err error) {
	x := r.Context().Value(exchangeKey).(*exchange)
	code := http.StatusBadGateway
	switch {
	case errors.Is(context.Cause(r.Context()), errIdle) && x.received.Load():
		code = http.StatusGatewayTimeout
	case errors.Is(context.Cause(r.Context()), errIdle):
		code = http.StatusRequestTimeout
	case errors.Is(err, errNoTarget):
		code = http.StatusServiceUnavailable
	}
	p.service.lb.engine.log.Debug("HTTP request failed", "load_balancer", p.service.lb.id, "listen_port", p.service.port, "status", code, "error", err)
	h := w.Header()
	h.Set("Content-Type", "text/html")
	h.Set("Cache-Control", "no-cache")
	h.Set("Connection", "close")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, "<html><body><h1>"+statusLine(code)+"</h1>\n"+errorTexts[code]+"\n</body></html>\n")
}

// countUntilClosed counts the request as active until its answer's body is closed.
func countUntilClosed(resp *http.Response, b *backend) {
	done := sync.OnceFunc(func() { b.active.Add(-1) })
	if rw, ok := resp.Body.(io.ReadWriteCloser); ok {
		resp.Body = &countedTunnel{ReadWriteCloser: rw, done: done} // an upgraded connection
		return
	}
	resp.Body = &countedBody{ReadCloser: resp.Body, done: done}
}

type countedBody struct {
	io.ReadCloser
	done func()
}

func (b *countedBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}

type countedTunnel struct {
	io.ReadWriteCloser
	done func()
}

// CloseWrite tells the target that the client sends no more data.
func (t *countedTunnel) CloseWrite() error {
	if cw, ok := t.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return nil
}

func (t *countedTunnel) Close() error {
	defer t.done()
	return t.ReadWriteCloser.Close()
}

// bufferPool shares the buffers with TCP services.
type bufferPool struct{}

func (bufferPool) Get() []byte  { return *copyBuffers.Get().(*[]byte) }
func (bufferPool) Put(b []byte) { copyBuffers.Put(&b) }
