package dataplane

import (
	"net"
	"sync/atomic"
)

// Traffic counts the bytes that load balancers forward to a target and back, like the target's network interface. Several
// targets may share one.
//
// The PROXY header and the headers of HTTP count. Left to other counters: health probes, and what frames the bytes on the
// wire, such as the headers of TCP.
type Traffic struct {
	In  atomic.Int64 // to the target
	Out atomic.Int64 // from the target
}

// counted returns a connection to the target that counts its bytes, or c itself if they are not to be counted.
func (t Target) counted(c net.Conn) net.Conn {
	if t.Traffic == nil {
		return c
	}
	return &targetConn{c, t.Traffic}
}

// targetConn is a connection to a target. The copying goes through a buffer anyway (see copyBufferSize), so that all that
// it costs are two additions.
type targetConn struct {
	net.Conn
	traffic *Traffic
}

// Read reads from the target.
func (c *targetConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.traffic.Out.Add(int64(n))
	}
	return n, err
}

// Write writes to the target.
func (c *targetConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.traffic.In.Add(int64(n))
	}
	return n, err
}

// NetConn returns the connection.
func (c *targetConn) NetConn() net.Conn { return c.Conn }

// CloseWrite tells the target that no more data follow.
func (c *targetConn) CloseWrite() error { return closeWrite(c.Conn) }
