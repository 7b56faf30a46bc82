package fakecloud

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// slow connects to a URL and sends the header of a POST and a part of its body.
func slow(t *testing.T, url, path, host string) net.Conn {
	t.Helper()
	address, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	check(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: "+
		"application/json\r\nContent-Length: 100\r\n\r\n{", path, host, DefaultToken)
	check(t, err)
	return conn
}

// listening returns the URLs of a cloud that listens, with the control API at an address.
func listening(t *testing.T, o Options, readTimeout time.Duration, at string) (endpoint, control string) {
	t.Helper()
	c := New(o)
	t.Cleanup(c.Close)
	c.readTimeout = readTimeout
	var errs [2]error
	endpoint, errs[0] = c.Start(t.Context(), "")
	control, errs[1] = c.StartControl(t.Context(), at)
	check(t, errors.Join(errs[:]...))
	return endpoint, control
}

func TestASlowBodyEndsItsConnection(t *testing.T) {
	t.Parallel()
	endpoint, control := listening(t, Options{}, time.Millisecond, "")
	for name, conn := range map[string]net.Conn{
		"API": slow(t, endpoint, "/v1/servers", "localhost"), "unknown route": slow(t, endpoint, "/v1/none", "localhost"),
		"control API":                slow(t, control, "/faults", "localhost"),
		"a route that reads no body": slow(t, control, "/actions/resume", "localhost"),
	} {
		// Copy returns when the server closes the connection.
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A zone in an address is for this machine only, and net/http's client takes it away.
func TestAnAddressWithAZoneIsRefused(t *testing.T) {
	t.Parallel()
	endpoint, control := listening(t, Options{}, time.Minute, "0.0.0.0:0")
	for _, url := range []string{endpoint, control} {
		conn := slow(t, url, "/v1/servers", "[::1%25lo]")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %v, %v", url, resp, err)
		}
		_ = resp.Body.Close()
	}
}

// A web page whose name resolves to a loopback address sends that name as the Host.
func TestReboundNamesAreRefused(t *testing.T) {
	t.Parallel()
	endpoint, control := listening(t, Options{AllowedHosts: []string{"fakecloud", "cloud.test"}}, time.Minute, "")
	for host, want := range map[string]int{
		"": 200, "localhost": 200, "LOCALHOST:4242": 200, "localhost.": 200, "127.0.0.1": 200, "127.66.0.1:80": 200, "[::1]:4242": 200,
		"fakecloud": 200, "Cloud.Test:4242": 200,
		"evil.example": 403, "evil.example:4242": 403, "localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "192.0.2.1": 403,
		"fakecloud.evil.example": 403,
	} {
		for _, url := range []string{endpoint + "/servers", endpoint + "/none", control + "/state"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
			check(t, err)
			r.Host = host
			r.Header.Set("Authorization", "Bearer "+DefaultToken)
			resp, err := http.DefaultClient.Do(r)
			check(t, err)
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			expected := want
			if want == 200 && strings.HasSuffix(url, "/none") {
				expected = 404
			}
			if resp.StatusCode != expected || want == 403 && !strings.Contains(string(body), "--allowed-hosts") {
				t.Errorf("%s with host %q: %d %s", url, host, resp.StatusCode, body)
			}
		}
	}
}

func TestTheControlAPIAcceptsAddressesAndAllowedNamesOnOtherAddresses(t *testing.T) {
	t.Parallel()
	c := New(Options{AllowedHosts: []string{"fakecloud"}})
	t.Cleanup(c.Close)
	local := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 4243}
	for host, want := range map[string][2]int{ // API, control API
		"192.0.2.7:4243": {200, 200}, "203.0.113.1": {200, 200}, "[2001:db8::1]:4243": {200, 200}, "localhost": {200, 200},
		"fakecloud:4243": {200, 200}, "evil.example": {200, 403},
	} {
		ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(local))
		for i, h := range []http.Handler{c.Handler(), c.ControlHandler()} {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, []string{"/v1/servers", "/state"}[i], nil)
			r.Host = host
			r.Header.Set("Authorization", "Bearer "+DefaultToken)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != want[i] {
				t.Errorf("host %q: %d, want %d: %s", host, w.Code, want[i], w.Body)
			}
		}
	}
}

// The read timeout must not cut an answer that takes long after the body has arrived.
func TestALongAnswerOutlivesTheReadTimeout(t *testing.T) {
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
	check(t, err)
	for _, body := range []string{"", "{}"} {
		method := http.MethodPost
		if body == "" {
			method = http.MethodGet
		}
		arrived, answer = make(chan struct{}), make(chan struct{})
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		check(t, err)
		go func() { <-arrived; close(answer) }()
		resp, err := http.DefaultClient.Do(r)
		check(t, err)
		if line, err := bufio.NewReader(resp.Body).ReadString('\n'); line != "done\n" {
			t.Errorf("%s: %q, %v", method, line, err)
		}
		_ = resp.Body.Close()
	}
}

func TestStartExplainsWhyItCannotListen(t *testing.T) {
	t.Parallel()
	c := New(Options{})
	t.Cleanup(c.Close)
	endpoint, err := c.Start(t.Context(), "")
	check(t, err)
	taken := strings.TrimSuffix(strings.TrimPrefix(endpoint, "http://"), "/v1")
	if _, err := c.StartControl(t.Context(), taken); err == nil || !strings.Contains(err.Error(), "another program uses that port") {
		t.Errorf("%v", err)
	}
	if _, err := c.Start(t.Context(), "8080"); err == nil || !strings.Contains(err.Error(), "must be host:port") {
		t.Errorf("%v", err)
	}
	if _, err := c.Start(t.Context(), "192.0.2.1:0"); err == nil || !strings.Contains(err.Error(), "does not have that address") {
		t.Errorf("%v", err)
	}
}

// logged is a writer of a log that tells each line.
type logged chan string

func (l logged) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// net/http would write its own lines to standard error, between the lines of the program's log.
func TestTheListenersReportToTheLog(t *testing.T) {
	t.Parallel()
	lines := make(logged, 1)
	c := New(Options{Logger: slog.New(slog.NewJSONHandler(lines, nil))})
	t.Cleanup(c.Close)
	endpoint, err := c.StartTLS(t.Context(), "", &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{}}})
	check(t, err)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimSuffix(strings.TrimPrefix(endpoint, "https://"), "/v1"))
	check(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "this is not a TLS handshake\r\n\r\n")
	check(t, err)
	var line struct{ Level, Msg string }
	text := <-lines
	if err := json.Unmarshal([]byte(text), &line); err != nil || line.Level != "WARN" ||
		!strings.Contains(line.Msg, "TLS handshake error") {
		t.Errorf("%s: %v", text, err)
	}
}
