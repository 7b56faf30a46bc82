package dataplane

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// copyBufferSize is per direction of a connection. Copying through a buffer is as fast as splice(2)
// on loopback (measured: 2.1 against 2.1 GB/s) and lets idle times and byte counts be exact.
const copyBufferSize = 64 << 10

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, copyBufferSize); return &b }}

// serveTCP connects a client with a target until both are done.
func (s *service) serveTCP(client *clientConn, conf *serviceConf) {
	defer closeQuietly(client)
	target, b, err := s.connect(client.ctx, conf, client)
	if err != nil {
		s.lb.engine.log.Debug("tcp", "load_balancer", s.lb.id, "listen_port", s.port, "error", err)
		return // closed at once, as HAProxy does without a server
	}
	defer b.active.Add(-1)
	defer closeQuietly(target)
	// What ends a connection early (idle, load balancer deleted) closes the client's side. Both copies
	// may be stuck in writing to a target that does not read, so close that as well.
	defer context.AfterFunc(client.ctx, func() { abort(target) })()
	done := make(chan struct{})
	s.lb.engine.tasks.run(func() {
		defer close(done)
		relay(target, client)
	})
	relay(client, target)
	<-done
}

// relay copies from src to dst until src ends, then ends dst. If one side breaks, both do.
func relay(dst, src net.Conn) {
	buf := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buf)
	// Hide the interfaces that make io.CopyBuffer ignore the buffer.
	_, err := io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, *buf)
	if err == nil {
		err = closeWrite(dst)
	}
	if err != nil {
		abort(dst)
		abort(src)
	}
}

// connect opens a connection to a target of the algorithm's choice. A target that cannot be reached
// is passed over for the next one, each at most once (HAProxy: option redispatch; inferred). The
// backend counts the connection as active.
func (s *service) connect(ctx context.Context, conf *serviceConf, client *clientConn) (net.Conn, *backend, error) {
	var tried []*backend
	errs := []error{errNoTarget}
	for {
		b := s.pick(conf, tried)
		if b == nil {
			return nil, nil, errors.Join(errs...)
		}
		b.active.Add(1)
		c, err := s.dial(ctx, conf, b, client)
		if err == nil {
			return c, b, nil
		}
		b.active.Add(-1)
		errs = append(errs, err)
		tried = append(tried, b)
	}
}

// dial opens a connection to b's destination port and sends the PROXY header if conf wants one.
func (s *service) dial(ctx context.Context, conf *serviceConf, b *backend, client *clientConn) (net.Conn, error) {
	e := s.lb.engine
	address, err := e.opts.Resolver(b.target, conf.DestinationPort)
	if err != nil {
		return nil, err
	}
	c, err := e.dialTarget(ctx, address)
	if err != nil {
		return nil, err
	}
	if conf.ProxyProtocol {
		if err := writeHeader(c, e.opts.ProxyProtocolVersion, client.RemoteAddr(), client.front); err != nil {
			closeQuietly(c)
			return nil, err
		}
	}
	return c, nil
}

// dialTarget connects within the connect timeout.
func (e *Engine) dialTarget(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := withTimeout(ctx, e.clock, e.opts.ConnectTimeout)
	defer cancel()
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}
