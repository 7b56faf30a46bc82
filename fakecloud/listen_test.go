package fakecloud

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// slow connects to a URL and sends the header of a POST and a part of its body.
func slow(t *testing.T, url, path string) net.Conn {
	t.Helper()
	address, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", path, DefaultToken)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestASlowBodyEndsItsConnection(t *testing.T) {
	t.Parallel()
	c := New(Options{})
	t.Cleanup(c.Close)
	c.readTimeout = time.Millisecond
	endpoint, err := c.Start(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	control, err := c.StartControl(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for name, conn := range map[string]net.Conn{
		"API": slow(t, endpoint, "/v1/servers"), "unknown route": slow(t, endpoint, "/v1/none"),
		"control API": slow(t, control, "/faults"), "a route that reads no body": slow(t, control, "/actions/resume"),
	} {
		// The test ends when the server closes the connection, and not before.
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What takes long after the body has arrived is not cut off.
func TestALongAnswerOutlivesTheTimeoutOfTheRequest(t *testing.T) {
	t.Parallel()
	arrived, answer := make(chan struct{}), make(chan struct{})
	c := New(Options{})
	t.Cleanup(c.Close)
	c.readTimeout = 20 * time.Millisecond
	url, err := c.listen(t.Context(), "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.ReadAll(r.Body)
		}
		ctx, cancel := context.WithTimeout(r.Context(), 5*c.readTimeout)
		defer cancel()
		close(arrived)
		<-ctx.Done()
		if r.Context().Err() != nil {
			t.Error("the request's context has ended")
		}
		<-answer
		_, _ = io.WriteString(w, "done\n")
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{"", "{}"} {
		method := http.MethodPost
		if body == "" {
			method = http.MethodGet
		}
		arrived, answer = make(chan struct{}), make(chan struct{})
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		go func() { <-arrived; close(answer) }()
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "done\n" {
			t.Errorf("%s: %q, %v", method, line, err)
		}
		_ = resp.Body.Close()
	}
}
