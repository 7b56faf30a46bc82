package dataplane

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// maxHeaderBytes bounds the header of a request or an answer. The real load balancer's limit is not
// published.
const maxHeaderBytes = 64 << 10

// webServer speaks HTTP with the clients of one service, in clear or over TLS. net/http's server
// does the work; connections are handed to it one by one.
type webServer struct {
	service *service
	in      *handoff
	server  *http.Server
}

type clientConnKey struct{}

func newWebServer(s *service, overTLS bool) *webServer {
	w := &webServer{service: s, in: newHandoff()}
	w.server = &http.Server{
		Handler:        s.proxy,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(s.lb.engine.log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, clientConnKey{}, innerConn(c))
		},
		// Timeouts are ours, on the engine's clock: a client has the idle timeout for each request
		// until its header is complete.
		ConnState: func(c net.Conn, state http.ConnState) {
			cc := innerConn(c)
			switch state {
			case http.StateNew, http.StateActive, http.StateIdle:
				cc.wait()
			case http.StateHijacked:
				cc.touch()
				cc.tunnel.Store(true)
			case http.StateClosed:
				closeQuietly(cc)
			}
		},
	}
	var l net.Listener = w.in
	if overTLS {
		l = tls.NewListener(l, s.listenerTLS())
	}
	s.lb.engine.tasks.run(func() { _ = w.server.Serve(l) })
	return w
}

// innerConn finds our connection below TLS.
func innerConn(c net.Conn) *clientConn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return c.(*clientConn)
}

// take serves a connection.
func (w *webServer) take(c *clientConn) {
	if !w.in.put(c) {
		closeQuietly(c)
	}
}

// retire takes no more connections; those that are served end with the request in progress.
func (w *webServer) retire() {
	w.service.lb.engine.tasks.run(func() { _ = w.server.Shutdown(w.service.lb.ctx) })
}

// close cuts all connections.
func (w *webServer) close() { closeQuietly(w.server) }

// handoff is a net.Listener whose connections were accepted elsewhere.
type handoff struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newHandoff() *handoff {
	return &handoff{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// put gives a connection to whoever accepts; it returns false if nobody does any more.
func (h *handoff) put(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.closed:
		return false
	}
}

// Accept returns the next connection.
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr is of no use to anybody.
func (h *handoff) Addr() net.Addr { return &net.TCPAddr{} }

// redirectToHTTPS answers a request on port 80 of an https service with RedirectHTTP. The document
// does not say which of the redirect statuses the real load balancer sends; 301 is what browsers
// remember, as they should here.
func redirectToHTTPS(w http.ResponseWriter, r *http.Request, httpsPort uint16) {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
		if strings.Contains(h, ":") {
			host = "[" + h + "]"
		}
	}
	if host == "" {
		http.Error(w, statusLine(http.StatusBadRequest)+": a Host header is needed to redirect", http.StatusBadRequest)
		return
	}
	if httpsPort != 443 {
		host += ":" + strconv.Itoa(int(httpsPort))
	}
	target := r.URL.RequestURI()
	if !strings.HasPrefix(target, "/") {
		target = "/"
	}
	w.Header().Set("Location", "https://"+host+target)
	w.WriteHeader(http.StatusMovedPermanently)
}
