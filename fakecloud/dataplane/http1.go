package dataplane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strconv"
	"time"
)

// http1Conn is a client's connection with HTTP/1, and its requests.
type http1Conn struct {
	exchange
	proxy *httpProxy
	conn  net.Conn // the client's connection, or the TLS connection in it
	out   *bufio.Writer
}

// serveHTTP1 answers the requests of a connection until one side ends it.
func (w *webServer) serveHTTP1(client *clientConn, conn net.Conn) {
	c := &http1Conn{proxy: w.service.proxy, conn: conn}
	c.exchange = exchange{
		client: client, ip: client.ip(), last: &client.last, web: w, in: bufio.NewReader(conn),
		inform: c.inform, cut: func() { closeQuietly(client) },
	}
	c.out = bufio.NewWriter(answerWriter{c})
	defer closeQuietly(conn)
	defer context.AfterFunc(client.ctx, c.stop)()
	w.service.lb.enter(&c.exchange)
	defer w.service.lb.leave(&c.exchange)
	for first := true; !w.retired.Load(); first = false {
		r, err := c.readRequest(first)
		if errors.Is(err, errNoRequest) {
			return
		}
		c.begin(w.service.conf.Load())
		again := c.serve(r, err)
		c.end()
		if !again {
			return
		}
	}
}

// answerWriter records the beginning of an answer.
type answerWriter struct{ c *http1Conn }

func (w answerWriter) Write(p []byte) (int, error) {
	w.c.answered.Store(true)
	return w.c.conn.Write(p)
}

var errNoRequest = errors.New("the client sends no further request")

// readRequest waits for a request. It returns errNoRequest if the connection ends instead.
func (c *http1Conn) readRequest(first bool) (*http.Request, error) {
	for { // HAProxy ignores empty lines before a request
		b, err := c.in.Peek(1)
		if err != nil {
			if first && errors.Is(err, io.EOF) {
				return nil, err // HAProxy answers 400
			}
			return nil, errNoRequest
		}
		if b[0] != '\r' && b[0] != '\n' {
			break
		}
		_, _ = c.in.Discard(1)
	}
	in, head, err := peekHead(c.in, c.conn)
	c.in = in
	if err != nil {
		return nil, err
	}
	r, err := http.ReadRequest(c.in)
	if err != nil {
		return nil, err
	}
	if err := invalid(r); err != nil {
		return nil, err
	}
	return r, c.checkHidden(r, head)
}

// checkHidden checks the fields that http.ReadRequest takes out of the header.
func (c *http1Conn) checkHidden(r *http.Request, head []byte) error {
	if r.ContentLength >= 0 && r.ProtoAtLeast(1, 1) && r.URL.Host == "" && r.Host != "" {
		return nil
	}
	in := textproto.NewReader(bufio.NewReader(bytes.NewReader(head)))
	_, _ = in.ReadLine()
	h, _ := in.ReadMIMEHeader()
	if host, ok := h["Host"]; ok && r.URL.Host != "" && host[0] != r.URL.Host {
		return fmt.Errorf("the host is %q in the URI and %q in its field", r.URL.Host, host[0])
	} else if ok && r.Host == "" {
		r.Header["Host"] = []string{""} // an empty field is passed on, a missing one is not
	}
	// RFC 9112, section 6.1: the connection must end after a request with two lengths, and after chunks with HTTP/1.0.
	if h["Transfer-Encoding"] != nil && (h["Content-Length"] != nil || !r.ProtoAtLeast(1, 1)) {
		r.Close = true
	}
	return nil
}

// serve answers one request, or the error of one that is invalid. It returns whether another request can follow.
func (c *http1Conn) serve(r *http.Request, err error) bool {
	p := c.proxy
	if err != nil {
		p.logFailure(http.StatusBadRequest, err)
		return c.refuse(nil, http.StatusBadRequest)
	}
	p.service.lb.stats.requests.Add(1)
	switch {
	case c.conf.Protocol == redirect:
		return c.redirect(r)
	case r.Method == http.MethodConnect:
		p.logFailure(http.StatusMethodNotAllowed, errUnsupported)
		return c.refuse(r, http.StatusMethodNotAllowed)
	}
	keep := !r.Close
	resp, err := p.forward(&c.exchange, r) //nolint:bodyclose // finish or tunnel ends it
	if err != nil {
		code := p.failure(&c.exchange, err)
		return code != 0 && c.refuse(r, code) && keep
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		c.tunnel(resp)
		return false
	}
	delimited := resp.ContentLength >= 0 || resp.TransferEncoding != nil || resp.Body == http.NoBody
	keep = keep && delimited && !c.web.retired.Load()
	complete, broken := c.answer(r, resp, keep)
	if !complete && c.sent != nil {
		_ = c.conn.SetReadDeadline(past) // ends the goroutine that sends the body
	}
	again := c.finish(resp, complete) && keep
	if broken {
		c.out.Reset(answerWriter{c})
		return c.refuse(r, http.StatusBadGateway) && keep
	}
	return again
}

// answer passes the target's answer on. It returns whether the client got it completely. If not, broken means that the
// client got nothing because the target's answer is invalid.
func (c *http1Conn) answer(r *http.Request, resp *http.Response, keep bool) (complete, broken bool) {
	c.writeHead(r, resp, keep)
	if resp.Body == http.NoBody {
		return c.out.Flush() == nil, false
	}
	readErr, writeErr := pass(c.out, resp.Body, c.target.in, resp.TransferEncoding != nil, &resp.Trailer)
	return readErr == nil && writeErr == nil, readErr != nil && !c.answered.Load()
}

func (c *http1Conn) writeHead(r *http.Request, resp *http.Response, keep bool) {
	endToEnd(resp.Header)
	_, _ = c.out.WriteString("HTTP/1.1 ")
	_, _ = c.out.WriteString(resp.Status)
	_, _ = c.out.WriteString("\r\n")
	switch {
	case !keep:
		_, _ = c.out.WriteString("Connection: close\r\n")
	case !r.ProtoAtLeast(1, 1):
		_, _ = c.out.WriteString("Connection: keep-alive\r\n")
	}
	writeFields(c.out, resp.Header, resp.TransferEncoding != nil, resp.Trailer)
}

// inform passes an informational answer on.
func (c *http1Conn) inform(resp *http.Response) {
	_, _ = c.out.WriteString("HTTP/1.1 " + resp.Status + "\r\n")
	writeFields(c.out, resp.Header, false, nil)
	_ = c.out.Flush()
	c.answered.Store(false)
}

// refuse sends an error answer. r is nil if the request was invalid. It returns whether the client can send a further
// request: with HAProxy that is so if its request was complete.
func (c *http1Conn) refuse(r *http.Request, code int) bool {
	keep := r != nil && c.received.Load() && code != http.StatusMethodNotAllowed && !c.web.retired.Load() && !r.Close
	c.reply(r, code, "Cache-Control: no-cache\r\nContent-Type: text/html\r\n", errorPage(code), keep)
	return keep
}

// reply sends an answer of the load balancer itself.
func (c *http1Conn) reply(r *http.Request, code int, header, body string, keep bool) {
	_, _ = c.out.WriteString("HTTP/1.1 " + statusLine(code) + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n" + header)
	if !keep {
		_, _ = c.out.WriteString("Connection: close\r\n")
	}
	_, _ = c.out.WriteString("\r\n")
	if r == nil || r.Method != http.MethodHead {
		_, _ = c.out.WriteString(body)
	}
	_ = c.out.Flush()
	if !keep {
		c.linger()
	}
}

// linger reads the rest of the client's data, until the client closes the connection or the idle timeout is reached. Closing a connection
// with unread data is a reset. That could overtake the answer.
func (c *http1Conn) linger() {
	if c.sent != nil { // the goroutine that sends the body reads the connection
		_ = c.conn.SetReadDeadline(past)
		c.awaitBody()
		_ = c.conn.SetReadDeadline(time.Time{})
	}
	if closeWrite(c.conn) == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(c.conn, maxLinger))
	}
}

// maxLinger is the number of bytes that linger takes.
const maxLinger = 256 << 10

func (c *http1Conn) redirect(r *http.Request) bool {
	to, err := redirectToHTTPS(r, c.conf.DestinationPort)
	if err != nil {
		return c.refuse(nil, http.StatusBadRequest)
	}
	keep := !r.Close && r.ContentLength == 0
	c.reply(r, http.StatusMovedPermanently, "Location: "+to+"\r\n", "", keep)
	return keep
}

// tunnel connects the client with the target after an upgrade.
func (c *http1Conn) tunnel(resp *http.Response) {
	_, _ = c.out.WriteString("HTTP/1.1 " + resp.Status + "\r\n")
	writeFields(c.out, resp.Header, false, nil)
	if c.out.Flush() == nil {
		c.client.touch()
		c.client.tunnel.Store(true)
		client := &bufferedConn{c.conn, c.in}
		done := make(chan struct{})
		c.client.lb.engine.tasks.run(func() {
			defer close(done)
			relay(c.target, client)
		})
		relay(client, c.target)
		<-done
	}
	c.finish(resp, false)
}

// bufferedConn is a connection with a buffered reader. The buffer may hold data of the connection.
type bufferedConn struct {
	net.Conn
	in *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.in.Read(p) }

// NetConn returns the connection.
func (c *bufferedConn) NetConn() net.Conn { return c.Conn }

// CloseWrite tells the other side that no more data follow.
func (c *bufferedConn) CloseWrite() error { return closeWrite(c.Conn) }
