package dataplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// httpProxy forwards the HTTP requests of one service. It chooses a target for each request, even on one connection.
//
// It parses with net/http's functions, but uses net/http's Server, Transport and ReverseProxy only for clients with HTTP/2: those hand each
// request and each answer from one goroutine to another. That costs more than all the rest.
type httpProxy struct {
	service *service
	port    []string // the listen port, for X-Forwarded-Port
}

var (
	errStopped     = errors.New("the request was given up")
	errUnsupported = errors.New("method CONNECT is not supported")
	errUpgrade     = errors.New("the target switches to a protocol that the client did not ask for")
	errorTexts     = map[int]string{
		http.StatusBadRequest:         "Your browser sent an invalid request.",
		http.StatusServiceUnavailable: "No server is available to handle this request.",
		http.StatusGatewayTimeout:     "The server did not respond in time.",
		http.StatusRequestTimeout:     "The request did not arrive in time.",
		http.StatusBadGateway:         "The server's response was invalid or incomplete.",
		http.StatusMethodNotAllowed:   "Method CONNECT is not supported.",
	}
)

// errorPage returns the body of an error answer, in HAProxy's form.
func errorPage(code int) string {
	return "<html><body><h1>" + statusLine(code) + "</h1>\n" + errorTexts[code] + "\n</body></html>\n"
}

// invalid returns why HAProxy refuses a request that net/http accepts.
func invalid(r *http.Request) error {
	if r.Method == "PRI" {
		return errors.New("a client with HTTP/2 needs TLS here")
	}
	if strings.ContainsFunc(r.RequestURI, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '#' }) {
		return errors.New("the URI has a character that must be escaped")
	}
	for name := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) { // such as a space before the colon
			return fmt.Errorf("%q is not a field's name", name)
		}
	}
	if isUpgrade(r) && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") && r.Header.Get("Sec-Websocket-Key") == "" {
		return errors.New("the request for a WebSocket has no key")
	}
	return nil
}

// isUpgrade reports whether the client asks for another protocol. As with HAProxy, a request with a body cannot.
func isUpgrade(r *http.Request) bool {
	return r.Header["Upgrade"] != nil && r.ContentLength == 0 &&
		httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade")
}

// endToEnd removes the fields of a header that concern one of the two connections only. Like HAProxy it keeps other headers that RFC 9110
// does not forward, such as TE and Keep-Alive.
func endToEnd(h http.Header) {
	values, ok := h["Connection"]
	if !ok {
		return
	}
	var kept []string
	for _, v := range values {
		for token := range strings.SplitSeq(v, ",") {
			token = strings.TrimSpace(token)
			if !strings.EqualFold(token, "close") && !strings.EqualFold(token, "keep-alive") {
				kept = append(kept, token)
			}
		}
	}
	if len(kept) == 0 {
		delete(h, "Connection")
		return
	}
	h["Connection"] = []string{strings.Join(kept, ", ")}
}

// prepare makes the header of a client's request that of the request to the target.
//
// The real load balancer adds X-Forwarded-For according to its FAQ, section "Do Load Balancers forward
// special HTTP headers?" (linked by the maintainers in hcloud-cloud-controller-manager issues 92 and
// 171; the page itself could not be read here). The client's own X-Forwarded-For comes first, as with
// HAProxy's option forwardfor. X-Forwarded-Proto and X-Forwarded-Port are replaced.
func (p *httpProxy) prepare(x *exchange, r *http.Request) {
	h := r.Header
	endToEnd(h)
	if r.ContentLength != 0 {
		delete(h, "Upgrade")
	}
	h["X-Forwarded-For"] = []string{strings.Join(append(h["X-Forwarded-For"], x.ip), ", ")}
	h["X-Forwarded-Proto"] = []string{string(x.conf.Protocol)}
	h["X-Forwarded-Port"] = p.port
}

// dialError is a failure to connect. After it the request can go to another target.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

// forward sends the request to the target in the client's cookie, or to one that the algorithm chooses, and returns the
// head of its answer. It skips up to maxTries unreachable targets. The caller passes the body on and calls x.finish.
func (p *httpProxy) forward(x *exchange, r *http.Request) (*http.Response, error) {
	var tried []*backend
	errs := []error{errNoTarget}
	x.received.Store(r.ContentLength == 0)
	p.prepare(x, r)
	for b := p.stuckTo(x, r); ; b = nil {
		if b == nil {
			b = p.service.pick(x.conf, tried)
		}
		if b == nil {
			return nil, errors.Join(errs...)
		}
		b.begin()
		resp, err := p.try(x, b, r)
		_, unreachable := errors.AsType[dialError](err)
		if !unreachable {
			b.stats.taken.Add(1)
		}
		if err == nil {
			x.backend = b
			p.stick(x, resp)
			return resp, nil
		}
		b.end()
		if !unreachable || x.stopped() {
			return nil, err
		}
		errs = append(errs, err)
		tried = append(tried, b)
	}
}

// try sends the request to one target, by a spare connection if there is one.
func (p *httpProxy) try(x *exchange, b *backend, r *http.Request) (*http.Response, error) {
	s := p.service
	address, err := s.lb.engine.opts.Resolver(b.target, x.conf.DestinationPort)
	if err != nil {
		return nil, dialError{err}
	}
	for {
		var t *link
		if !x.conf.ProxyProtocol {
			t = s.lb.spare.take(b, address, !repeatable(r))
		}
		if t == nil {
			if t, err = p.dial(x, b, address); err != nil {
				return nil, dialError{err}
			}
		}
		if !x.hold(t) {
			closeQuietly(t)
			return nil, errStopped
		}
		resp, err := x.ask(t, r)
		if err == nil {
			x.target = t
			return resp, nil
		}
		closeQuietly(t)
		if !t.stale || !repeatable(r) || x.stopped() {
			return nil, err
		}
		s.lb.spare.drop(b) // the target has closed one of them, perhaps all
	}
}

// repeatable reports whether the request can be sent again if the target closes a spare connection at the same time.
func repeatable(r *http.Request) bool {
	return r.ContentLength == 0 && (r.Method == http.MethodGet || r.Method == http.MethodHead ||
		r.Method == http.MethodOptions || r.Method == http.MethodTrace)
}

// stopFunc ends an attempt to connect.
type stopFunc func()

func (f stopFunc) stop() { f() }

// dial connects to a target. With the PROXY protocol the connection serves only one request.
func (p *httpProxy) dial(x *exchange, b *backend, address string) (*link, error) {
	ctx, cancel := context.WithCancel(p.service.lb.ctx)
	defer cancel()
	if !x.hold(stopFunc(cancel)) {
		return nil, errStopped
	}
	c, err := p.service.dial(ctx, x.conf, b, x.client)
	if err != nil {
		return nil, err
	}
	return newLink(c, address), nil
}

// stuckTo returns the target in the client's cookie, or nil without a valid cookie and healthy target.
func (p *httpProxy) stuckTo(x *exchange, r *http.Request) *backend {
	x.sticky = stickyCookie{}
	if !x.conf.HTTP.StickySessions {
		return nil
	}
	now := p.service.lb.engine.clock.Now()
	for _, cookie := range r.CookiesNamed(x.conf.HTTP.CookieName) {
		c := parseStickyCookie(cookie.Value)
		if !c.valid(now, x.conf.HTTP.CookieLifetime) {
			continue
		}
		for b := range p.service.backends.Load().Scan {
			if b.cookie == c.target && b.healthy() {
				x.sticky = c
				return b.backend
			}
		}
	}
	return nil
}

// stick adds the cookie that sends the client's next request to the same target, unless the client
// already has an equal cookie.
func (p *httpProxy) stick(x *exchange, resp *http.Response) {
	if !x.conf.HTTP.StickySessions {
		return
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
}

// failure returns the status of the answer to a request without an answer from a target. It returns 0 for no answer: the client left in the
// middle of its request.
func (p *httpProxy) failure(x *exchange, err error) int {
	code := http.StatusBadGateway
	switch {
	case x.expired.Load() && x.received.Load():
		code = http.StatusGatewayTimeout
	case x.expired.Load():
		code = http.StatusRequestTimeout
	case x.bodyFailed.Load() && x.client.ended.Load():
		return 0
	case x.bodyFailed.Load():
		code = http.StatusBadRequest
	case errors.Is(err, errNoTarget):
		code = http.StatusServiceUnavailable
	}
	p.logFailure(code, err)
	return code
}

func (p *httpProxy) logFailure(code int, err error) {
	p.service.lb.engine.log.Debug("HTTP request failed", "load_balancer", p.service.lb.id, "listen_port", p.service.port,
		"status", code, "error", err)
}

// redirectToHTTPS returns where a request on port 80 of an https service with RedirectHTTP is sent. The API document does
// not name the status of the redirect. 301 is an inference: browsers cache it.
func redirectToHTTPS(r *http.Request, httpsPort uint16) (string, error) {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
		if strings.Contains(h, ":") {
			host = "[" + h + "]"
		}
	}
	if host == "" {
		return "", fmt.Errorf("%s: a Host header is needed to redirect", statusLine(http.StatusBadRequest))
	}
	if httpsPort != 443 {
		host += ":" + strconv.Itoa(int(httpsPort))
	}
	target := r.URL.RequestURI()
	if !strings.HasPrefix(target, "/") {
		target = "/"
	}
	return "https://" + host + target, nil
}

var past = time.Unix(1, 0) // a deadline that ends a Read
