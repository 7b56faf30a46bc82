package dataplane

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
)

// tcpService returns a service on port with a TCP health check and two retries.
func tcpService(port uint16) Service {
	return Service{Protocol: TCP, ListenPort: port, DestinationPort: port, HealthCheck: HealthCheck{Retries: 2}}
}

// httpChecked returns a TCP service with an HTTP health check and one retry.
func httpChecked(check HTTPCheck) Service {
	return Service{Protocol: TCP, ListenPort: 80, DestinationPort: 80, HealthCheck: HealthCheck{Protocol: HTTP, Retries: 1, HTTP: check}}
}

func TestHealthFollowsTheTarget(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	web := newTCPTarget(t, "web")
	tg := l.place("web", web.at())
	l.apply(balance([]Service{tcpService(80)}, tg))
	l.awaitHealth(Healthy, 80, tg)

	l.place("web", "127.0.0.1:1") // a closed port
	// Two probes must fail; each step of the clock starts one.
	l.clock.Step(defaultCheckInterval)
	await(t, "a probe failed", func() bool { return failures(l, 80) == 1 })
	if s := l.last("web", 80); s.Status != Healthy {
		t.Errorf("after one failure of two: %+v", s)
	}
	l.clock.Step(defaultCheckInterval)
	l.awaitHealth(Unhealthy, 80, tg)
	if r := l.last("web", 80); r != (HealthReport{LoadBalancer: lbID, Target: "web", ListenPort: 80, Status: Unhealthy,
		Detail: DetailNoConnection}) {
		t.Errorf("report %+v", r)
	}

	l.place("web", web.at())
	l.clock.Step(defaultCheckInterval)
	await(t, "a probe succeeded", func() bool { return failures(l, 80) == 0 })
	if s := l.last("web", 80); s.Status != Unhealthy {
		t.Errorf("after one success of two: %+v", s)
	}
	l.clock.Step(defaultCheckInterval)
	l.awaitHealth(Healthy, 80, tg)
	if h := l.history("web", 80); !slices.Equal(h, []HealthStatus{Unknown, Healthy, Unhealthy, Healthy}) {
		t.Errorf("history %v", h)
	}
	if h, err := l.Health(lbID); err != nil || len(h) != 1 || h[0].Status != Healthy {
		t.Errorf("health %v, %v", h, err)
	}
}

// failures returns the number of consecutive failed probes of the first target.
func failures(l *lab, port uint16) int {
	lb, err := l.balancer(lbID)
	if err != nil {
		return -1
	}
	b, _ := lb.services[port].backends.Load().GetAt(0)
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.failures
}

func TestHTTPProbesCheckTheAnswer(t *testing.T) {
	t.Parallel()
	answer := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	raw := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, text)
		}
	}
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		raw     func(net.Conn)
		check   HTTPCheck
		want    HealthReport
	}{
		{name: "200 is healthy", handler: answer(200, ""), want: HealthReport{Status: Healthy}},
		{name: "a redirect is healthy and not followed", handler: answer(302, ""), want: HealthReport{Status: Healthy}},
		{name: "404 is unhealthy", handler: answer(404, ""), want: HealthReport{Status: Unhealthy, Detail: DetailHTTPStatus,
			HTTPStatusCode: 404}},
		{name: "404 is healthy if configured", handler: answer(404, ""), check: HTTPCheck{StatusCodes: []string{"40?"}},
			want: HealthReport{Status: Healthy}},
		{name: "200 is unhealthy if not configured", handler: answer(200, ""), check: HTTPCheck{StatusCodes: []string{"40?"}},
			want: HealthReport{Status: Unhealthy, Detail: DetailHTTPStatus, HTTPStatusCode: 200}},
		{name: "with the expected text", handler: answer(200, "all is ok here"), check: HTTPCheck{Response: "is ok"},
			want: HealthReport{Status: Healthy}},
		{name: "without the expected text", handler: answer(200, "all is bad here"), check: HTTPCheck{Response: "is ok"},
			want: HealthReport{Status: Unhealthy, Detail: DetailHTTPContent}},
		{name: "the text comes too late", handler: answer(200, strings.Repeat(" ", maxProbeBody)+"ok"), check: HTTPCheck{Response: "ok"},
			want: HealthReport{Status: Unhealthy, Detail: DetailHTTPContent}},
		{name: "not HTTP", raw: raw("SSH-2.0\r\n"), want: HealthReport{Status: Unhealthy, Detail: DetailUnspecified}},
		{name: "no answer", raw: raw(""), want: HealthReport{Status: Unhealthy, Detail: DetailUnspecified}},
		{name: "an endless header", raw: func(c net.Conn) {
			raw("HTTP/1.1 200 OK\r\n")(c)
			for {
				if _, err := io.WriteString(c, "a: b\r\n"); err != nil {
					return
				}
			}
		}, want: HealthReport{Status: Unhealthy, Detail: DetailUnspecified}},
		{name: "no TLS", handler: answer(200, ""), check: HTTPCheck{TLS: true},
			want: HealthReport{Status: Unhealthy, Detail: DetailUnspecified}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, Options{})
			var where string
			if tt.raw != nil {
				where = newTCPTargetAt(t, "raw", "127.0.0.1:0", tt.raw).at()
			} else {
				where = at(newHTTPTarget(t, "web", tt.handler))
			}
			tg := l.place("web", where)
			l.apply(balance([]Service{httpChecked(tt.check)}, tg))
			l.awaitHealth(tt.want.Status, 80, tg)
			tt.want.LoadBalancer, tt.want.Target, tt.want.ListenPort = lbID, "web", 80
			if r := l.last("web", 80); r != tt.want {
				t.Errorf("%+v, want %+v", r, tt.want)
			}
		})
	}
}

func TestHTTPProbesSendTheConfiguredRequest(t *testing.T) {
	t.Parallel()
	type seen struct{ proto, host, uri, method string }
	for _, tt := range []struct {
		name  string
		tls   bool
		check HTTPCheck
		want  seen
	}{
		{"without domain there is no Host header", false, HTTPCheck{Path: "/up?a=b%20c"}, seen{"HTTP/1.0", "", "/up?a=b%20c", "GET"}},
		{"a domain is the Host header", false, HTTPCheck{Domain: "example.com"}, seen{"HTTP/1.1", "example.com", "/", "GET"}},
		{"TLS with an unknown certificate", true, HTTPCheck{Domain: "example.com", TLS: true}, seen{"HTTP/1.1", "example.com", "/", "GET"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := make(chan seen, 10)
			h := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.TLS != nil && r.TLS.ServerName != r.Host {
					t.Errorf("server name %q", r.TLS.ServerName)
				}
				got <- seen{r.Proto, r.Host, r.RequestURI, r.Method}
			})
			server := httptest.NewUnstartedServer(h)
			if tt.tls {
				server.StartTLS()
			} else {
				server.Start()
			}
			t.Cleanup(server.Close)
			l := newLab(t, Options{})
			tg := l.place("web", at(server))
			l.apply(balance([]Service{httpChecked(tt.check)}, tg))
			l.awaitHealth(Healthy, 80, tg)
			if g := <-got; g != tt.want {
				t.Errorf("%+v, want %+v", g, tt.want)
			}
		})
	}
}

func TestAProbeWithoutAnswerTimesOutOnTheEnginesClock(t *testing.T) {
	t.Parallel()
	for _, overTLS := range []bool{false, true} {
		l := newLab(t, Options{})
		var asked atomic.Bool
		silent := newTCPTargetAt(t, "silent", "127.0.0.1:0", func(c net.Conn) {
			_, _ = c.Read(make([]byte, 1))
			asked.Store(true)
			_, _ = io.Copy(io.Discard, c)
		})
		tg := l.place("silent", silent.at())
		l.apply(balance([]Service{httpChecked(HTTPCheck{TLS: overTLS})}, tg))
		await(t, "the probe is sent", asked.Load)
		l.clock.Step(defaultCheckTimeout)
		l.awaitHealth(Unhealthy, 80, tg)
		if r := l.last("silent", 80); r.Detail != DetailResponseTimeout {
			t.Errorf("TLS %t: %+v", overTLS, r)
		}
	}
}

func TestProbesUseTheirOwnPort(t *testing.T) {
	t.Parallel()
	probed := make(chan uint16, 10)
	l := newLab(t, Options{Resolver: func(_ Target, port uint16) (string, error) {
		select {
		case probed <- port:
		default:
		}
		return "", io.EOF
	}})
	s := tcpService(80)
	s.HealthCheck.Port = 10256
	l.apply(balance([]Service{s}, Target{Key: "a"}))
	if p := <-probed; p != 10256 {
		t.Errorf("probed %d", p)
	}
}

func TestProbesSendThePROXYHeaderOnlyToTheTrafficPort(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		version   int
		checkPort uint16
		want      string
	}{
		{"version 1", 1, 0, "PROXY UNKNOWN\r\n"},
		{"version 2", 2, 0, "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"},
		{"another port", 1, 10256, "GET / HTTP/1.0\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := make(chan string, 10)
			target := newTCPTargetAt(t, "t", "127.0.0.1:0", func(c net.Conn) {
				in := bufio.NewReader(c)
				start, _ := in.Peek(len(tt.want))
				got <- string(start)
				_, _ = proxyproto.Read(in)
				if _, err := http.ReadRequest(in); err == nil {
					_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n")
				}
			})
			l := newLab(t, Options{ProxyProtocolVersion: tt.version})
			s := httpChecked(HTTPCheck{})
			s.ProxyProtocol = true
			s.HealthCheck.Port = tt.checkPort
			tg := l.place("t", target.at())
			l.apply(balance([]Service{s}, tg))
			if g := <-got; g != tt.want {
				t.Errorf("the target got %q, want %q", g, tt.want)
			}
			l.awaitHealth(Healthy, 80, tg)
		})
	}
}

func TestAChangedHealthCheckKeepsTheStatusAndProbesAtOnce(t *testing.T) {
	t.Parallel()
	var path atomic.Value
	web := newHTTPTarget(t, "web", func(w http.ResponseWriter, r *http.Request) {
		path.Store(r.URL.Path)
		if r.URL.Path == "/bad" {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	l := newLab(t, Options{})
	tg := l.place("web", at(web))
	l.apply(balance([]Service{httpChecked(HTTPCheck{Path: "/a"})}, tg))
	l.awaitHealth(Healthy, 80, tg)
	l.apply(balance([]Service{httpChecked(HTTPCheck{Path: "/b"})}, tg))
	await(t, "the new path is probed", func() bool { return path.Load() == "/b" })
	if h := l.history("web", 80); !slices.Equal(h, []HealthStatus{Unknown, Healthy}) {
		t.Errorf("history %v", h)
	}
	l.apply(balance([]Service{httpChecked(HTTPCheck{Path: "/bad"})}, tg))
	l.awaitHealth(Unhealthy, 80, tg)
	if r := l.last("web", 80); r.HTTPStatusCode != http.StatusTeapot {
		t.Errorf("%+v", r)
	}
}

func TestASinkMayCallTheEngine(t *testing.T) {
	t.Parallel()
	web := newTCPTarget(t, "web")
	var l *lab
	done := make(chan error, 1)
	once := sync.Once{}
	ready := make(chan struct{})
	l = newLab(t, Options{Health: func(r HealthReport) {
		<-ready
		if r.Status == Healthy {
			once.Do(func() {
				// This sink removes the reported load balancer while Apply and Close run concurrently.
				err := l.Apply(balance([]Service{tcpService(81)}))
				l.Remove(lbID)
				done <- err
			})
		}
	}})
	tg := l.place("web", web.at())
	close(ready)
	l.apply(balance([]Service{tcpService(80)}, tg))
	if err := <-done; err != nil {
		t.Error(err)
	}
	if e := l.Endpoints(lbID); e != nil {
		t.Error(e)
	}
}

func TestProbesOfOneTargetDoNotWaitForAnother(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	hung := newTCPTargetAt(t, "hung", "127.0.0.1:0", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	targets := []Target{l.place("hung", hung.at())}
	for i := range 5 {
		web := newHTTPTarget(t, "web", nil)
		targets = append(targets, l.place(fmt.Sprint("web", i), at(web)))
	}
	l.apply(balance([]Service{httpChecked(HTTPCheck{})}, targets...))
	l.awaitHealth(Healthy, 80, targets[1:]...) // the clock does not move
	l.awaitHealth(Unknown, 80, targets[0])
	if h := l.history("hung", 80); len(h) != 1 {
		t.Errorf("history %v", h)
	}
}

func FuzzProbeAnswers(f *testing.F) {
	f.Add("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	f.Add("HTTP/1.0 200\r\n\r\n")
	f.Add("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n")
	f.Fuzz(func(t *testing.T, answer string) {
		ours, theirs := net.Pipe()
		defer closeQuietly(ours)
		go func() {
			defer closeQuietly(theirs)
			_, _ = theirs.Read(make([]byte, 1024))
			_, _ = io.WriteString(theirs, answer)
		}()
		_ = ours.SetDeadline(time.Now().Add(patience))
		r := probeHTTP(ours, HTTPCheck{Path: "/", Response: "ok", StatusCodes: []string{"200"}})
		if r.ok() && !strings.Contains(answer, "ok") && !strings.Contains(answer, "chunked") {
			t.Fatalf("%q is healthy", answer)
		}
		if (r.code != 0) != (r.detail == DetailHTTPStatus) {
			t.Fatalf("%q: %+v", answer, r)
		}
	})
}
