package example

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// dialTimeout is how long a load balancer waits for a backend before it tries the next one.
const dialTimeout = 500 * time.Millisecond

// traffic forwards connections to the ports of load balancers.
type traffic struct {
	// resolve returns where on this host a backend is; ok is false if it is nowhere.
	resolve func(backend netip.AddrPort) (local netip.AddrPort, ok bool)
	wait    sync.WaitGroup // all that runs
}

// port is an open port of a load balancer.
type port struct {
	traffic  *traffic
	listener net.Listener

	mu       sync.Mutex
	closed   bool
	backends []netip.AddrPort
	turn     int // whose turn it is
	open     map[net.Conn]struct{}
}

// open listens and forwards until the port is closed.
func (t *traffic) open(at netip.AddrPort, backends []netip.AddrPort) (*port, error) {
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	p := &port{traffic: t, listener: l, backends: backends, open: map[net.Conn]struct{}{}}
	t.wait.Go(p.accept)
	return p, nil
}

// set replaces the backends. Connections to removed backends continue until one side closes them.
func (p *port) set(backends []netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backends = backends
}

// close ends the port and its connections.
func (p *port) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for c := range p.open {
		_ = c.Close()
	}
	return p.listener.Close()
}

func (p *port) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			p.mu.Lock()
			closed := p.closed
			p.mu.Unlock()
			if closed {
				return
			}
			continue // one connection, such as one that was reset before it was accepted
		}
		p.traffic.wait.Go(func() { p.forward(client) })
	}
}

// forward connects a client with the first backend that accepts. The client's connection is closed if none does.
func (p *port) forward(client net.Conn) {
	if !p.own(client) {
		return
	}
	defer p.disown(client)
	for _, b := range p.order() {
		local, ok := p.traffic.resolve(b)
		if !ok {
			continue
		}
		dialer := net.Dialer{Timeout: dialTimeout}
		backend, err := dialer.DialContext(context.Background(), "tcp4", local.String())
		if err != nil {
			continue
		}
		if !p.own(backend) {
			return
		}
		defer p.disown(backend)
		p.traffic.wait.Go(func() { pipe(backend, client) })
		pipe(client, backend)
		return
	}
}

// order returns the backends in the order of the attempts for the next connection.
func (p *port) order() []netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.backends) == 0 {
		return nil
	}
	p.turn = (p.turn + 1) % len(p.backends)
	return append(append([]netip.AddrPort{}, p.backends[p.turn:]...), p.backends[:p.turn]...)
}

// own adds a connection to those that the port closes at its end. If the port is closed already, it closes c and returns false.
func (p *port) own(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = c.Close()
		return false
	}
	p.open[c] = struct{}{}
	return true
}

func (p *port) disown(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
	_ = c.Close()
}

// pipe copies from one side to the other until the first one stops sending.
func pipe(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if tcp, ok := to.(*net.TCPConn); ok && err == nil {
		_ = tcp.CloseWrite() // the other direction may continue
		return
	}
	_ = to.Close()
}
