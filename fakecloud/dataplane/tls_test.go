package dataplane

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func httpsService(certs ...Certificate) Service {
	return Service{Protocol: HTTPS, ListenPort: 443, DestinationPort: 80, HTTP: HTTPConfig{Certificates: certs}}
}

// handshake returns the serial number of the certificate that name gets.
func (l *lab) handshake(name string) (*tls.Conn, int64) {
	l.t.Helper()
	cfg := &tls.Config{ServerName: name, InsecureSkipVerify: name == "", RootCAs: testCA().pool} //nolint:gosec // test
	c := tls.Client(l.dial(443), cfg)
	if err := c.Handshake(); err != nil {
		l.t.Fatal(err)
	}
	return c, c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

func TestCertificatesAreSelectedByNameAndReplacedForNewHandshakes(t *testing.T) {
	t.Parallel()
	one, two := certificate(t, 1, "one.example.com"), certificate(t, 2, "two.example.com", "*.wild.example.com")
	l, targets := httpLab(t, httpsService(one, two), nil)
	for name, want := range map[string]int64{"one.example.com": 1, "two.example.com": 2, "a.wild.example.com": 2, "": 1} {
		if _, serial := l.handshake(name); serial != want {
			t.Errorf("%q gets certificate %d, want %d", name, serial, want)
		}
	}
	old, _ := l.handshake("one.example.com")
	l.apply(balance([]Service{httpsService(certificate(t, 3, "one.example.com"))}, targets...))
	if _, serial := l.handshake("one.example.com"); serial != 3 {
		t.Errorf("new handshakes get certificate %d", serial)
	}
	_, _ = io.WriteString(old, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	if all, err := io.ReadAll(old); err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 200") {
		t.Errorf("the old connection: %q, %v", all, err)
	}
}

func TestHTTPSIsTerminatedWithHTTP2ForClients(t *testing.T) {
	t.Parallel()
	l, _ := httpLab(t, httpsService(certificate(t, 1, "example.com")), func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Proto, r.Header.Get("X-Forwarded-Proto"), r.Header.Get("X-Forwarded-Port"))
	})
	toLB := func(tr *http.Transport) {
		tr.TLSClientConfig.ServerName = "example.com"
	}
	resp, body := get(t, l.client(toLB), "https://203.0.113.7/")
	if resp.ProtoMajor != 2 || body != "HTTP/1.1 https 443" {
		t.Errorf("%s, the target saw %q", resp.Proto, body)
	}
	resp, _ = get(t, l.client(toLB, func(tr *http.Transport) { tr.ForceAttemptHTTP2 = false }), "https://203.0.113.7/")
	if resp.ProtoMajor != 1 {
		t.Errorf("a client that cannot speak HTTP/2 got %s", resp.Proto)
	}
}

func TestIdleHTTP2RequestsAndConnectionsAreEnded(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	arrived := make(chan bool, 1)
	l, _ := httpLab(t, httpsService(certificate(t, 1, "example.com")), func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			arrived <- true
			<-release
		}
	})
	t.Cleanup(func() { close(release) })
	c := l.client(func(tr *http.Transport) { tr.TLSClientConfig.ServerName = "example.com" })
	l.expectTimeout(c, "https://203.0.113.7/slow", arrived)
	get(t, c, "https://203.0.113.7/")
	l.stepUntil(defaultIdleTimeout, "the connection is cut", func() bool { return l.open() == 0 })
}

func TestWithoutCertificateTLSIsPassedThrough(t *testing.T) {
	t.Parallel()
	cert := certificate(t, 9, "inner.example.com")
	pair, err := tls.X509KeyPair([]byte(cert.Chain), []byte(cert.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	target := newTCPTargetAt(t, "inner", "127.0.0.1:0", func(c net.Conn) {
		tc := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}})
		_, _ = io.WriteString(tc, "inner\n")
	})
	l := newLab(t, Options{})
	tg := l.place("inner", target.at())
	l.apply(balance([]Service{httpsService()}, tg))
	l.awaitHealth(Healthy, 443, tg)
	c, serial := l.handshake("inner.example.com")
	if serial != 9 || greeting(t, c) != "inner" {
		t.Errorf("certificate %d", serial)
	}
}

func TestASilentTLSClientIsDisconnected(t *testing.T) {
	t.Parallel()
	l, _ := httpLab(t, httpsService(certificate(t, 1, "example.com")), nil)
	c := l.dial(443)
	await(t, "it is connected", func() bool { return l.open() == 1 })
	l.stepUntil(defaultIdleTimeout, "it is cut", func() bool { return l.open() == 0 })
	awaitClosed(t, c)
}

func TestHTTPIsRedirectedToHTTPS(t *testing.T) {
	t.Parallel()
	s := httpsService(certificate(t, 1, "example.com"))
	s.HTTP.RedirectHTTP = true
	l, targets := httpLab(t, s, nil)
	if e := l.Endpoints(lbID); len(e) != 2 || e[0].Port != 80 || e[0].Protocol != redirect {
		t.Errorf("endpoints %+v", e)
	}
	c := l.client(oneShot)
	location := func(host string) string {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, lbURL+"a/b?c=d%20e", nil)
		req.Host = host
		resp, _ := do(t, c, req)
		if resp.StatusCode != http.StatusMovedPermanently {
			t.Errorf("%d", resp.StatusCode)
		}
		return resp.Header.Get("Location")
	}
	for host, want := range map[string]string{
		"example.com":    "https://example.com/a/b?c=d%20e",
		"example.com:80": "https://example.com/a/b?c=d%20e",
		"[2001:db8::1]":  "https://[2001:db8::1]/a/b?c=d%20e",
	} {
		if got := location(host); got != want {
			t.Errorf("Host %s leads to %s, want %s", host, got, want)
		}
	}
	s.ListenPort = 8443
	l.apply(balance([]Service{s}, targets...))
	if got := location("example.com"); got != "https://example.com:8443/a/b?c=d%20e" {
		t.Error(got)
	}

	// A service on port 80 takes precedence and uses the existing listener.
	before, _ := l.locate(lbAddr, 80)
	l.apply(balance([]Service{s, httpService(80)}, targets...))
	l.awaitHealth(Healthy, 80, targets...)
	if resp, _ := get(t, c, lbURL); resp.StatusCode != http.StatusOK {
		t.Errorf("%d", resp.StatusCode)
	}
	if after, _ := l.locate(lbAddr, 80); after != before {
		t.Errorf("port 80 moved from %s to %s", before, after)
	}
	s.HTTP.RedirectHTTP = false
	l.apply(balance([]Service{s}, targets...))
	if _, ok := l.locate(lbAddr, 80); ok {
		t.Error("port 80 is still open")
	}
}

func TestAPortCanChangeItsProtocolDuringTraffic(t *testing.T) {
	t.Parallel()
	l, targets := httpLab(t, httpService(443), nil)
	plain := l.client()
	get(t, plain, "http://203.0.113.7:443/")
	l.apply(balance([]Service{httpsService(certificate(t, 1, "example.com"))}, targets...))
	secure := l.client(func(tr *http.Transport) { tr.TLSClientConfig.ServerName = "example.com" })
	if resp, _ := get(t, secure, "https://203.0.113.7/"); resp.StatusCode != http.StatusOK {
		t.Errorf("%d", resp.StatusCode)
	}
	l.apply(balance([]Service{httpService(443)}, targets...))
	if resp, _ := get(t, l.client(), "http://203.0.113.7:443/"); resp.StatusCode != http.StatusOK {
		t.Errorf("%d", resp.StatusCode)
	}
	// The status stays known, because target and check are unchanged.
	if h := l.history("a", 443); len(h) != 2 {
		t.Errorf("history %v", h)
	}
}
