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

// maxHeaderBytes limits the size of the header of a request or an answer. The limit of the real load
// balancer is not published.
const maxHeaderBytes = 64 << 10

// webServer serves HTTP to the clients of one service, with or without TLS. It passes each connection to
// a server of net/http.
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
		// Timeouts use the engine's clock: a client must complete the header of each request within the
		// idle timeout.
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

// innerConn returns the clientConn, which may be inside a TLS connection.
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

// retire stops new connections. Existing connections end after their current request.
func (w *webServer) retire() {
	w.service.lb.engine.tasks.run(func() { _ = w.server.Shutdown(w.service.lb.ctx) })
}

// close closes all connections.
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

// put passes a connection to Accept. It returns false if the listener is closed.
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

// Addr returns a zero address, because the listener has none.
func (h *handoff) Addr() net.Addr { return &net.TCPAddr{} }

// redirectToHTTPS answers a request on port 80 of an https service with RedirectHTTP. The API document
// does not name the status of the redirect. 301 is an inference: browsers cache it.
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
