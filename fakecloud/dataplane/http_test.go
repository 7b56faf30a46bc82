package dataplane

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// httpService returns an HTTP service on port.
func httpService(port uint16) Service {
	return Service{Protocol: HTTP, ListenPort: port, DestinationPort: 80}
}

// httpLab is a lab with one HTTP service on port 80 and healthy targets a, b, …
func httpLab(t *testing.T, s Service, handlers ...http.HandlerFunc) (*lab, []Target) {
	t.Helper()
	l := newLab(t, Options{})
	var targets []Target
	for i, h := range handlers {
		name := string(rune('a' + i))
		targets = append(targets, l.place(name, at(newHTTPTarget(t, name, h))))
	}
	l.apply(balance([]Service{s}, targets...))
	l.awaitHealth(Healthy, s.ListenPort, targets...)
	return l, targets
}

const lbURL = "http://203.0.113.7/"

func TestRequestsAreForwardedUnchanged(t *testing.T) {
	t.Parallel()
	seen := make(chan *http.Request, 1)
	l, _ := httpLab(t, httpService(80), func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		w.Header().Set("Trailer", "Sum")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
		w.Header().Set("Sum", "42")
		seen <- r
	})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, lbURL+"a%2Fb//c?x=1;y=%zz&x=2", strings.NewReader("hello"))
	req.Host = "shop.example.com:8080"
	req.Header.Set("X-Forwarded-For", "192.0.2.1")
	req.Header.Set("X-Forwarded-Proto", "gopher")
	req.Header.Set("X-Forwarded-Host", "outer.example.com")
	req.Header.Set("Cookie", "a=b")
	resp, body := do(t, l.client(), req)
	if resp.StatusCode != http.StatusCreated || body != "hello" || resp.Trailer.Get("Sum") != "42" {
		t.Errorf("answer %d %q, trailer %v", resp.StatusCode, body, resp.Trailer)
	}
	r := <-seen
	if r.Method != http.MethodPut || r.RequestURI != "/a%2Fb//c?x=1;y=%zz&x=2" || r.Host != "shop.example.com:8080" {
		t.Errorf("%s %s, Host %s", r.Method, r.RequestURI, r.Host)
	}
	for name, want := range map[string]string{
		"X-Forwarded-For":   "192.0.2.1, 127.0.0.1",
		"X-Forwarded-Proto": "http",
		"X-Forwarded-Port":  "80",
		"X-Forwarded-Host":  "outer.example.com",
		"Cookie":            "a=b",
		"User-Agent":        "Go-http-client/1.1",
	} {
		if got := strings.Join(r.Header.Values(name), "+"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestForwardedHostIsNotAdded(t *testing.T) {
	t.Parallel()
	l, _ := httpLab(t, httpService(80), func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.Header["X-Forwarded-Host"], r.Header["X-Forwarded-For"], r.Header["User-Agent"])
	})
	c := l.dial(80)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if got, _ := io.ReadAll(c); !strings.HasSuffix(string(got), "[] [127.0.0.1] []") {
		t.Errorf("%q", got)
	}
}

// HAProxy does not add one either: a target may answer another site for a Host that is empty.
func TestARequestWithoutHostIsPassedOnWithoutOne(t *testing.T) {
	t.Parallel()
	heads := make(chan string, 1)
	l := newLab(t, Options{})
	tg := l.place("t", newTCPTargetAt(t, "t", "127.0.0.1:0", func(c net.Conn) {
		var head strings.Builder
		in := bufio.NewScanner(c)
		for in.Scan() && in.Text() != "" {
			head.WriteString(in.Text() + "|")
		}
		if strings.Contains(head.String(), "User-Agent: test") { // else it is a health check
			heads <- head.String()
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	}).at())
	l.apply(balance([]Service{httpService(80)}, tg))
	l.awaitHealth(Healthy, 80, tg)
	for request, want := range map[string]bool{
		"GET / HTTP/1.0\r\n": false, "GET / HTTP/1.1\r\n": false,
		"GET / HTTP/1.1\r\nHost:\r\n": true, "GET / HTTP/1.0\r\nHost: a\r\n": true,
	} {
		c := l.dial(80)
		ask(t, c, bufio.NewReader(c), request+"User-Agent: test\r\n\r\n")
		if head := <-heads; strings.Contains(head, "Host:") != want {
			t.Errorf("%q became %q", request, head)
		}
	}
}

func TestEachRequestOfAConnectionIsBalanced(t *testing.T) {
	t.Parallel()
	l, targets := httpLab(t, httpService(80), nil, nil, nil)
	c := l.client()
	got := map[string]int{}
	for range 9 {
		resp, _ := get(t, c, lbURL)
		got[resp.Header.Get("Target")]++
	}
	if !maps.Equal(got, map[string]int{"a": 3, "b": 3, "c": 3}) {
		t.Errorf("shares %v", got)
	}
	if s, _ := l.Stats(lbID); s.Requests != 9 || s.Connections != 1 {
		t.Errorf("stats %+v", s)
	}
	// A target that is removed gets no more requests, and the connection to the client stays.
	l.apply(balance([]Service{httpService(80)}, targets[1:]...))
	for range 4 {
		if resp, _ := get(t, c, lbURL); resp.Header.Get("Target") == "a" {
			t.Error("the removed target got a request")
		}
	}
	if s, _ := l.Stats(lbID); s.Connections != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestLeastConnectionsCountsRequestsInProgress(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	slow := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			w.(http.Flusher).Flush()
			<-release
		}
	}
	l, targets := httpLab(t, httpService(80), slow, slow)
	lb := balance([]Service{httpService(80)}, targets...)
	lb.Algorithm = LeastConnections
	l.apply(lb)
	c := l.client()
	resp, err := c.Get(lbURL + "slow")
	if err != nil {
		t.Fatal(err)
	}
	busy := resp.Header.Get("Target")
	for range 4 {
		if r, _ := get(t, c, lbURL); r.Header.Get("Target") == busy {
			t.Errorf("%s is busy and got a request", busy)
		}
	}
	close(release)
	_, _ = io.Copy(io.Discard, resp.Body)
	closeQuietly(resp.Body)
	await(t, "the request is over", func() bool { return l.backend(80, busy).active.Load() == 0 })
}

func TestWithoutHealthyTargetRequestsGet503(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	l.apply(balance([]Service{httpService(80)}, l.place("gone", "127.0.0.1:1")))
	resp, body := get(t, l.client(), lbURL)
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "No server is available") {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
}

func TestARequestGoesToAnotherTargetIfOneIsUnreachable(t *testing.T) {
	t.Parallel()
	echoBody := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }
	l, _ := httpLab(t, httpService(80), echoBody, echoBody)
	l.place("a", "127.0.0.1:1")
	c := l.client()
	for range 4 {
		resp, err := c.Post(lbURL, "text/plain", strings.NewReader("the body is sent once"))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		closeQuietly(resp.Body)
		if resp.Header.Get("Target") != "b" || string(body) != "the body is sent once" {
			t.Errorf("%s %q", resp.Header.Get("Target"), body)
		}
	}
	l.place("b", "127.0.0.1:1")
	if resp, _ := get(t, c, lbURL); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("without a reachable target: status %d", resp.StatusCode)
	}
}

func TestStickySessionsStayWithTheirTarget(t *testing.T) {
	t.Parallel()
	s := httpService(80)
	s.HTTP = HTTPConfig{StickySessions: true, CookieName: "SESSION", CookieLifetime: time.Minute}
	l, targets := httpLab(t, s, nil, nil, nil)
	c := l.client()
	resp, _ := get(t, c, lbURL)
	first := resp.Header.Get("Target")
	cookie := resp.Cookies()[0]
	if cookie.Name != "SESSION" || cookie.Path != "/" || cookie.MaxAge != 0 || len(cookie.Value) != 32+2*6 {
		t.Errorf("cookie %v", cookie)
	}
	value := parseStickyCookie(cookie.Value)
	if !value.valid(l.clock.Now(), time.Minute) || value.first != value.last {
		t.Errorf("cookie %+v", value)
	}
	send := func(value string) *http.Response {
		resp, _ := get(t, c, lbURL, "Cookie", "other=1; SESSION="+value)
		return resp
	}
	for range 5 {
		resp := send(cookie.Value)
		if got := resp.Header.Get("Target"); got != first {
			t.Errorf("went to %s, not %s", got, first)
		}
		if len(resp.Cookies()) > 0 {
			t.Errorf("an unchanged cookie is sent again: %v", resp.Cookies())
		}
	}

	l.clock.Step(40 * time.Second)
	refreshed := parseStickyCookie(send(cookie.Value).Cookies()[0].Value)
	if refreshed.target != value.target || refreshed.first != value.first || refreshed.last.Sub(value.last) != 40*time.Second {
		t.Errorf("refreshed %+v, was %+v", refreshed, value)
	}
	l.clock.Step(20 * time.Second)
	spread := map[string]bool{}
	for range 3 {
		resp := send(refreshed.String())
		spread[resp.Header.Get("Target")] = true
		if renewed := parseStickyCookie(resp.Cookies()[0].Value); l.clock.Since(renewed.first) >= 2*cookieDateUnit*time.Second {
			t.Errorf("after its lifetime: %+v", renewed)
		}
	}
	if len(spread) != 3 {
		t.Errorf("after the cookie's lifetime only %v", spread)
	}

	// A request with the cookie of a removed target goes to another target, and the cookie is replaced.
	cookie = send("").Cookies()[0]
	stuck := parseStickyCookie(cookie.Value).target
	var rest []Target
	for _, tg := range targets {
		if l.backend(80, tg.Key).cookie != stuck {
			rest = append(rest, tg)
		}
	}
	l.apply(balance([]Service{s}, rest...))
	if resp := send(cookie.Value); resp.StatusCode != http.StatusOK || parseStickyCookie(resp.Cookies()[0].Value).target == stuck {
		t.Errorf("%d %v", resp.StatusCode, resp.Cookies())
	}
	s.HTTP.StickySessions = false
	l.apply(balance([]Service{s}, rest...))
	if resp := send(cookie.Value); len(resp.Cookies()) > 0 {
		t.Errorf("cookies without sticky sessions: %v", resp.Cookies())
	}
}

func TestASlowTargetCauses504AfterTheIdleTimeout(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	arrived := make(chan bool, 1)
	l, _ := httpLab(t, httpService(80), func(http.ResponseWriter, *http.Request) {
		arrived <- true
		<-release
	})
	t.Cleanup(func() { close(release) })
	l.expectTimeout(l.client(), lbURL, arrived)
}

// expectTimeout sends a request that arrives and gets no answer.
func (l *lab) expectTimeout(c *http.Client, url string, arrived <-chan bool) {
	l.t.Helper()
	codes := make(chan int, 1)
	go func() {
		resp, err := c.Get(url)
		if err != nil {
			codes <- 0
			return
		}
		closeQuietly(resp.Body)
		codes <- resp.StatusCode
	}()
	<-arrived
	l.clock.Step(defaultIdleTimeout)
	if code := <-codes; code != http.StatusGatewayTimeout {
		l.t.Errorf("%d", code)
	}
}

func TestASlowBodyCauses408AfterTheIdleTimeout(t *testing.T) {
	t.Parallel()
	arrived := make(chan bool, 1)
	l, _ := httpLab(t, httpService(80), func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadFull(r.Body, make([]byte, 4))
		arrived <- true
		_, _ = io.Copy(io.Discard, r.Body)
	})
	c := l.dial(80)
	_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf")
	<-arrived
	l.clock.Step(defaultIdleTimeout)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("%v, %v", resp, err)
	}
	awaitClosed(t, c)
}

func TestSilentAndSlowClientsAreDisconnected(t *testing.T) {
	t.Parallel()
	s := httpService(80)
	s.HTTP.TimeoutIdle = 30 * time.Second
	l, _ := httpLab(t, s, nil)
	silent, slow, kept := l.dial(80), l.dial(80), l.dial(80)
	_, _ = io.WriteString(kept, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	in := bufio.NewReader(kept)
	if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	await(t, "all are connected", func() bool { return l.open() == 3 })
	_, _ = io.WriteString(slow, "GET / HTTP/1.1\r\n")
	l.stepUntil(9*time.Second, "all are cut", func() bool {
		_, _ = fmt.Fprint(slow, "X: y\r\n") // single header lines are not a complete request
		return l.open() == 0
	})
	awaitClosed(t, silent)
	awaitClosed(t, slow)
	awaitClosed(t, kept)
}

func TestAnAnswerThatStallsIsCutOff(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	l, _ := httpLab(t, httpService(80), func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first")
		w.(http.Flusher).Flush()
		<-release
	})
	t.Cleanup(func() { close(release) })
	resp, err := l.client().Get(lbURL)
	if err != nil {
		t.Fatal(err)
	}
	defer closeQuietly(resp.Body)
	if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	l.stepUntil(defaultIdleTimeout, "the connection is cut", func() bool { return l.open() == 0 })
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the rest: %v", err)
	}
}

func TestAClientThatDoesNotReadIsDisconnected(t *testing.T) {
	t.Parallel()
	l, _ := httpLab(t, httpService(80), func(w http.ResponseWriter, _ *http.Request) {
		buf := make([]byte, 1<<20)
		for {
			if _, err := w.Write(buf); err != nil {
				return
			}
		}
	})
	c := l.dial(80)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	await(t, "the answer begins", func() bool { s, _ := l.Stats(lbID); return s.BytesOut > 0 })
	l.stepUntil(defaultIdleTimeout, "the connection is cut", func() bool { return l.open() == 0 })
}

func TestAWebSocketIsATunnel(t *testing.T) {
	t.Parallel()
	upgrade := func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			return
		}
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		w.WriteHeader(http.StatusSwitchingProtocols)
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer closeQuietly(c)
		_, _ = io.Copy(struct{ io.Writer }{c}, rw)
	}
	l, targets := httpLab(t, httpService(80), upgrade)
	open := func() net.Conn {
		c := l.dial(80)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(resp, err)
		}
		echo(t, c, "ping")
		return c
	}
	c := open()
	for range 3 {
		l.clock.Step(30 * time.Second)
		echo(t, c, "still there")
	}
	// A tunnel continues when its service or target is removed. It ends with the load balancer.
	l.apply(balance([]Service{httpService(80)}))
	l.apply(balance(nil))
	echo(t, c, "tunnels stay")
	l.stepUntil(defaultIdleTimeout, "the idle tunnel is cut", func() bool { return l.open() == 0 })
	awaitClosed(t, c)

	l.apply(balance([]Service{httpService(80)}, targets...))
	await(t, "healthy again", func() bool { h, _ := l.Health(lbID); return len(h) == 1 && h[0].Status == Healthy })
	c = open()
	l.Remove(lbID)
	awaitClosed(t, c)
}

func TestRemovingAServiceLetsItsRequestsFinish(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan bool), make(chan bool)
	l, _ := httpLab(t, httpService(80), func(w http.ResponseWriter, _ *http.Request) {
		arrived <- true
		<-release
		_, _ = io.WriteString(w, "finished")
	})
	c := l.dial(80)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-arrived
	l.apply(balance(nil))
	release <- true
	all, err := io.ReadAll(c) // until the connection is closed
	if err != nil || !strings.HasSuffix(string(all), "finished") {
		t.Errorf("%q, %v", all, err)
	}
}

func TestLargeBodiesAreForwardedInBothDirections(t *testing.T) {
	t.Parallel()
	l, _ := httpLab(t, httpService(80), func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(w, r.Body)
	})
	sent := make([]byte, 5<<20)
	_, _ = rand.Read(sent)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, lbURL, struct{ io.Reader }{bytes.NewReader(sent)})
	if _, got := do(t, l.client(), req); got != string(sent) {
		t.Errorf("%d of %d bytes", len(got), len(sent))
	}
}

func TestHTTPServicesSendThePROXYHeader(t *testing.T) {
	t.Parallel()
	lines := make(chan string, 10)
	target := newTCPTargetAt(t, "t", "127.0.0.1:0", func(c net.Conn) {
		in := bufio.NewReader(c)
		line, err := in.ReadString('\n')
		if err != nil || strings.Contains(line, "UNKNOWN") {
			return // a probe
		}
		if _, err := http.ReadRequest(in); err == nil {
			lines <- line
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
		_, _ = io.Copy(io.Discard, in)
	})
	l := newLab(t, Options{})
	s := httpService(80)
	s.ProxyProtocol = true
	tg := l.place("t", target.at())
	l.apply(balance([]Service{s}, tg))
	l.awaitHealth(Healthy, 80, tg)
	var local string
	c := l.client(func(tr *http.Transport) {
		dial := tr.DialContext
		tr.DialContext = nil
		tr.Dial = func(network, address string) (net.Conn, error) { //nolint:staticcheck // no context needed
			c, err := dial(t.Context(), network, address)
			if err == nil {
				local = fmt.Sprint(c.LocalAddr().(*net.TCPAddr).Port)
			}
			return c, err
		}
	})
	for range 2 { // each request has its own connection, with the same client
		get(t, c, lbURL)
		if line, want := <-lines, "PROXY TCP4 127.0.0.1 203.0.113.7 "+local+" 80\r\n"; line != want {
			t.Errorf("%q, want %q", line, want)
		}
	}
}

func TestInvalidRequestsAreAnsweredAndLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	l, _ := httpLab(t, httpService(80), nil)
	for _, request := range []string{
		"",
		"\x00\x01\x02\r\n\r\n",
		"GET / HTTP/9.9\r\n\r\n",
		"GET / HTTP/1.1\r\n\r\n",
		"GET http://[::1 HTTP/1.1\r\nHost: a\r\n\r\n",
		"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nCookie: HCLBSTICKY=" + strings.Repeat("|", 5000) + "\r\n\r\n",
		"GET /" + strings.Repeat("a", 2*maxHeaderBytes) + " HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		c := l.dial(80)
		_, _ = io.WriteString(c, request)
		_ = closeWrite(c)
		awaitClosed(t, c)
	}
	await(t, "all are forgotten", func() bool { return l.open() == 0 })
	if resp, _ := get(t, l.client(), lbURL); resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards %d", resp.StatusCode)
	}
}
