package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"time"
)

// dialTimeout is how long a connection may take to be made.
const dialTimeout = 3 * time.Second

// connect is the method CONNECT (RFC 9110, section 9.3.6): it connects to the address and copies the data of both sides. If it cannot
// connect, it answers 502 with the error.
func connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "this proxy knows the method CONNECT only", http.StatusMethodNotAllowed)
		return
	}
	to, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = to.Close() }()
	// Sent before the connection is taken over, so that the client gets an answer if that fails.
	w.WriteHeader(http.StatusOK)
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = client.Close() }()
	if err := buffered.Flush(); err != nil {
		return
	}
	pass(client, buffered.Reader, to)
}

// pass copies both ways until both sides end. When one side closes its half, the other side learns it.
func pass(client net.Conn, said *bufio.Reader, to net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(to, said)
		closeWrite(to)
	}()
	_, _ = io.Copy(client, to)
	closeWrite(client)
	<-done
}

func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
		return
	}
	_ = c.Close()
}
