package dataplane

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// webServer serves HTTP to the clients of one service, with or without TLS.
type webServer struct {
	service *service
	tls     *tls.Config // nil without TLS
	retired atomic.Bool

	// With TLS, a server of net/http serves the clients that choose HTTP/2.
	in    *handoff
	http2 *http.Server
}

func newWebServer(s *service, overTLS bool) *webServer {
	w := &webServer{service: s}
	if overTLS {
		w.tls, w.http2 = s.listenerTLS(), newHTTP2Server(s)
		w.in = &handoff{conns: make(chan net.Conn), closed: make(chan struct{})}
		s.lb.engine.tasks.run(func() { _ = w.http2.Serve(w.in) })
	}
	return w
}

// take serves a connection.
func (w *webServer) take(c *clientConn) {
	w.service.lb.engine.tasks.run(func() {
		if w.tls == nil {
			w.serveHTTP1(c, c)
			return
		}
		conn := tls.Server(c, w.tls)
		if err := conn.HandshakeContext(c.ctx); err != nil {
			w.service.lb.engine.log.Debug("TLS handshake failed", "load_balancer", w.service.lb.id, "listen_port", w.service.port,
				"error", err)
			closeQuietly(c)
			return
		}
		if conn.ConnectionState().NegotiatedProtocol != "h2" {
			w.serveHTTP1(c, conn)
		} else if !w.in.put(conn) {
			closeQuietly(c)
		}
	})
}

// retire stops new connections. Existing connections end after their current request.
func (w *webServer) retire() {
	w.retired.Store(true)
	w.service.lb.closeWaiting(w)
	if w.http2 != nil {
		w.service.lb.engine.tasks.run(func() { _ = w.http2.Shutdown(w.service.lb.ctx) })
	}
}

// close closes the connections with HTTP/2. The load balancer closes all others.
func (w *webServer) close() {
	w.retired.Store(true)
	if w.http2 != nil {
		closeQuietly(w.http2)
	}
}

// handoff is a net.Listener that hands over connections from another listener.
type handoff struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
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
