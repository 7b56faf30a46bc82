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

// httpProxy forwards the HTTP requests of one service; httputil.ReverseProxy does the work. Requests
// are balanced one by one, also those that come over one connection.
type httpProxy struct {
	service *service
	reverse httputil.ReverseProxy
	// shared keeps connections to targets for any client's next request; single, for services with
	// the PROXY protocol, where a connection belongs to one client, opens one per request.
	shared, single *http.Transport
}

// idleTargetConns is how many connections to one target wait for use.
const idleTargetConns = 64

func newHTTPProxy(s *service) *httpProxy {
	p := &httpProxy{service: s}
	p.shared = p.newTransport()
	p.single = p.newTransport()
	p.single.DisableKeepAlives = true
	p.reverse = httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      roundTripperFunc(p.roundTrip),
		FlushInterval:  -1, // pass on what arrives when it arrives
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
		DisableCompression:     true, // bodies are none of our business
		MaxIdleConnsPerHost:    idleTargetConns,
		IdleConnTimeout:        DefaultIdleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
}

// closeIdle closes connections to targets that no request uses.
func (p *httpProxy) closeIdle() {
	p.shared.CloseIdleConnections()
	p.single.CloseIdleConnections()
}

// exchange is one request and its answer.
type exchange struct {
	client   *clientConn
	conf     *serviceConf // at the beginning
	cancel   context.CancelCauseFunc
	last     atomic.Int64 // when something moved, in nanoseconds of the engine's clock
	received atomic.Bool  // the request is complete
	answered atomic.Bool  // the answer's header was sent
	tunnel   atomic.Bool  // upgraded: the connection decides about idleness

	backend *backend     // that got the request
	sticky  stickyCookie // that the client sent, if valid

	mu      sync.Mutex
	control *http.ResponseController // nil when the handler is done and it must not be used any more
}

var (
	errIdle        = errors.New("nothing moved for too long")
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
	// A hijacked connection does not end the request's context when it is closed.
	defer context.AfterFunc(client.ctx, func() { cancel(net.ErrClosed) })()

	r = r.WithContext(context.WithValue(ctx, exchangeKey, x))
	if r.ContentLength == 0 { // not -1: a length that is not announced
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

// expire ends an idle exchange: with an error answer if none was begun (fail chooses it), else by
// cutting it off.
func (x *exchange) expire() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.control == nil {
		return
	}
	x.cancel(errIdle) // first: a deadline that passes may cancel for less telling reasons
	past := time.Unix(1, 0)
	_ = x.control.SetReadDeadline(past) // the body may be waited for
	if x.answered.Load() {
		_ = x.control.SetWriteDeadline(past) // the client may not be reading
	}
}

// requestBody notices when the request's body moves and ends.
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

// responseWriter notices when the answer moves.
type responseWriter struct {
	http.ResponseWriter
	x *exchange
}

// Unwrap lets http.ResponseController reach what is below.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *responseWriter) WriteHeader(code int) {
	w.x.touch()
	if code >= 200 { // not for informational ones
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

// rewrite prepares the request to the target. Host, path and query stay as the client sent them.
//
// That the real load balancer adds X-Forwarded-For is in its FAQ, section "Do Load Balancers forward
// special HTTP headers?" (linked by the maintainers in hcloud-cloud-controller-manager issues 92 and
// 171; the page itself could not be read here). A client's own X-Forwarded-For is kept in front, as
// with HAProxy's option forwardfor; X-Forwarded-Proto and X-Forwarded-Port are replaced.
func (p *httpProxy) rewrite(r *httputil.ProxyRequest) {
	x := r.In.Context().Value(exchangeKey).(*exchange)
	r.Out.URL.Scheme = "http"
	r.Out.URL.Host = "target" // roundTrip knows better
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.Host = r.In.Host
	for _, name := range []string{"Forwarded", "X-Forwarded-Host"} { // ReverseProxy took them off
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

// dialError marks a failure to connect, after which the request may go to another target.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

// roundTrip sends the request to a target: the one that the client's cookie names, or one that the
// algorithm chooses. Targets that cannot be reached are passed over.
func (p *httpProxy) roundTrip(r *http.Request) (*http.Response, error) {
	x := r.Context().Value(exchangeKey).(*exchange)
	s, conf := p.service, x.conf
	transport := p.shared
	if conf.ProxyProtocol {
		transport = p.single
	}
	if r.Body != nil {
		// A transport closes the body of a request that it could not send. The server closes it too.
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
			if resp, err = transport.RoundTrip(r); err == nil {
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

// dial is how the transports connect. With the PROXY protocol the connection serves one request
// only, whose client is in the context.
func (p *httpProxy) dial(ctx context.Context, _, address string) (net.Conn, error) {
	e := p.service.lb.engine
	// The transport keeps dialing when the request is gone, but not when the load balancer is.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.service.lb.ctx, cancel)()
	c, err := e.dialTarget(ctx, address)
	if err != nil {
		return nil, dialError{err}
	}
	if x, ok := ctx.Value(exchangeKey).(*exchange); ok && x.conf.ProxyProtocol {
		if err := writeHeader(c, e.opts.ProxyProtocolVersion, x.client.RemoteAddr(), x.client.front); err != nil {
			closeQuietly(c)
			return nil, dialError{err}
		}
	}
	return c, nil
}

// stuckTo returns the target that the client's cookie names, nil if it has none that may be used.
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

// stick adds the cookie that leads the client's next request to the same target, unless the client
// has it already with the same dates.
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
		// Not http.SetCookie: it would refuse none of these characters, but quote some.
		resp.Header.Add("Set-Cookie", x.conf.HTTP.CookieName+"="+c.String()+"; path=/")
	}
	return nil
}

// fail answers a request that no target answered.
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
	p.service.lb.engine.log.Debug("http", "load_balancer", p.service.lb.id, "listen_port", p.service.port, "status", code, "error", err)
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

// CloseWrite passes on that the client sends no more.
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

// bufferPool shares the buffers of TCP services.
type bufferPool struct{}

func (bufferPool) Get() []byte  { return *copyBuffers.Get().(*[]byte) }
func (bufferPool) Put(b []byte) { copyBuffers.Put(&b) }
