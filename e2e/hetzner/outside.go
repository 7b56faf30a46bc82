package hetzner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// proxyDialer connects through an HTTP proxy with the method CONNECT (RFC 9110, section 9.3.6). The proxy is on the
// network of a kind cluster: its connections come from outside of the cluster, on any host that runs Docker.
type proxyDialer struct {
	proxy string // host:port
}

// DialContext connects to an address as the proxy sees it. The error includes the proxy's message.
func (d proxyDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, d.proxy)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to the proxy outside of the cluster: %w", err)
	}
	// The deadline is for CONNECT; the connection itself has none.
	if deadline, ok := ctx.Deadline(); ok {
		err = conn.SetDeadline(deadline)
	}
	through, connectErr := d.connect(conn, address)
	if err = errors.Join(err, connectErr, conn.SetDeadline(time.Time{})); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return through, nil
}

func (d proxyDialer) connect(conn net.Conn, address string) (net.Conn, error) {
	request := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if err := request.Write(conn); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		said, err := io.ReadAll(io.LimitReader(response.Body, 1000))
		return nil, errors.Join(fmt.Errorf("cannot connect to %s from outside of the cluster: %s: %s", address, response.Status,
			strings.TrimSpace(string(said))), err, response.Body.Close())
	}
	return &bufferedConn{Conn: conn, reader: reader}, nil
}

// bufferedConn first reads the rest of the proxy's answer from the buffer.
type bufferedConn struct {
	net.Conn
	reader *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }
