package dataplane

import (
	"maps"
	"net"
	"slices"
	"sync/atomic"
)

// Traffic counts the bytes that load balancers forward to a target and back, like the target's network interface. Several targets may share
// one.
//
// The PROXY header and the headers of HTTP count. Health probes and the framing on the wire, such as the headers of TCP, do not: other
// counters have them.
type Traffic struct {
	In  atomic.Int64 // to the target
	Out atomic.Int64 // from the target
}

// connected returns a connection to a target that counts its bytes and that disconnect closes.
func (lb *balancer) connected(t Target, c net.Conn) net.Conn {
	out := &targetConn{c, lb, t}
	lb.mu.Lock()
	defer lb.mu.Unlock()
	if lb.links[t.Key] == nil {
		lb.links[t.Key] = map[*targetConn]struct{}{}
	}
	lb.links[t.Key][out] = struct{}{}
	return out
}

// disconnect closes the connections to the targets with some keys.
func (lb *balancer) disconnect(keys []string) {
	lb.mu.Lock()
	var all []*targetConn
	for _, key := range keys {
		all = slices.AppendSeq(all, maps.Keys(lb.links[key]))
	}
	lb.mu.Unlock()
	for _, c := range all {
		abort(c)
	}
}

// targetConn is a connection to a target. The copying goes through a buffer anyway (see copyBufferSize), so that all that
// counting costs are two additions.
type targetConn struct {
	net.Conn
	lb     *balancer
	target Target
}

// Read reads from the target.
func (c *targetConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.target.Traffic != nil {
		c.target.Traffic.Out.Add(int64(n))
	}
	return n, err
}

// Write writes to the target.
func (c *targetConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 && c.target.Traffic != nil {
		c.target.Traffic.In.Add(int64(n))
	}
	return n, err
}

// Close closes the connection. It may be called several times.
func (c *targetConn) Close() error {
	c.lb.mu.Lock()
	delete(c.lb.links[c.target.Key], c)
	if len(c.lb.links[c.target.Key]) == 0 {
		delete(c.lb.links, c.target.Key)
	}
	c.lb.mu.Unlock()
	return c.Conn.Close()
}

// NetConn returns the connection.
func (c *targetConn) NetConn() net.Conn { return c.Conn }

// CloseWrite tells the target that no more data follow.
func (c *targetConn) CloseWrite() error { return closeWrite(c.Conn) }
