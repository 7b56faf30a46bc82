package dataplane

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// clientConn is a connection from a client. It counts bytes and detects that it is idle.
type clientConn struct {
	net.Conn
	lb      *balancer
	front   *front
	service *service
	ctx     context.Context // done when the connection is closed
	cancel  context.CancelFunc

	// tunnel is set for TCP services and upgraded connections. They are idle if no data arrive or
	// leave. Other connections are idle if no request was completed since waiting.
	tunnel   atomic.Bool
	last     atomic.Int64 // time of the last data, in nanoseconds of the engine's clock
	waiting  atomic.Int64 // start of the wait for a request or for the rest of its header
	requests atomic.Int32 // running requests
	ended    atomic.Bool  // a read failed: the client sends no more

	once sync.Once
	err  error
}

func newClientConn(lb *balancer, f *front, c net.Conn) *clientConn {
	cc := &clientConn{Conn: c, lb: lb, front: f, service: f.service.Load()}
	cc.ctx, cc.cancel = context.WithCancel(lb.ctx)
	cc.touch()
	cc.waiting.Store(cc.last.Load())
	return cc
}

func (c *clientConn) touch() { c.last.Store(c.lb.engine.clock.Now().UnixNano()) }

// wait restarts the client's timeout for its next request.
func (c *clientConn) wait() { c.waiting.Store(c.lb.engine.clock.Now().UnixNano()) }

// Read reads from the client.
func (c *clientConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.lb.stats.in.Add(int64(n))
		c.touch()
	}
	if err != nil {
		c.ended.Store(true)
	}
	return n, err
}

// Write writes to the client.
func (c *clientConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.lb.stats.out.Add(int64(n))
		c.touch()
	}
	return n, err
}

// NetConn returns the connection.
func (c *clientConn) NetConn() net.Conn { return c.Conn }

// CloseWrite tells the client that no more data follow.
func (c *clientConn) CloseWrite() error { return closeWrite(c.Conn) }

// Close closes the connection and lets another one in. It may be called several times.
func (c *clientConn) Close() error {
	c.once.Do(func() {
		c.err = c.Conn.Close()
		c.cancel()
		c.lb.forget(c)
	})
	return c.err
}

// idle reports whether the connection has reached its idle timeout.
func (c *clientConn) idle(now time.Time) bool {
	conf := c.service.conf.Load()
	limit := conf.HTTP.TimeoutIdle
	if limit <= 0 {
		limit = c.lb.engine.opts.TCPIdleTimeout
	}
	since := c.waiting.Load()
	if c.tunnel.Load() {
		since = c.last.Load()
	} else if c.requests.Load() > 0 {
		return false // exchange.idle decides
	}
	return now.Sub(time.Unix(0, since)) >= limit
}

func closeWrite(c net.Conn) error {
	if cw, ok := c.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return nil
}

// abort closes a connection with a reset.
func abort(c net.Conn) {
	if tcp, ok := innermost(c).(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	closeQuietly(c)
}

// innermost returns the connection that c wraps.
func innermost(c net.Conn) net.Conn {
	for {
		outer, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = outer.NetConn()
	}
}

// clientOf returns the client's connection in a TLS connection.
func clientOf(c net.Conn) *clientConn { return c.(*tls.Conn).NetConn().(*clientConn) }

// ip returns the client's address.
func (c *clientConn) ip() string {
	ip, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	return ip
}
