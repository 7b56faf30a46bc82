package dataplane

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// patience limits how long a test waits for something that must happen. Only failing tests reach it.
const patience = 30 * time.Second

// TestMain fails if goroutines of this package are still running after the tests.
func TestMain(m *testing.M) {
	if conf := os.Getenv(proxyEnv); conf != "" {
		runProxy(conf)
	}
	code := m.Run()
	if code == 0 {
		deadline := time.Now().Add(patience)
		for left := ourGoroutines(); left != ""; left = ourGoroutines() {
			if time.Now().After(deadline) {
				fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
				os.Exit(1)
			}
			time.Sleep(time.Millisecond)
		}
	}
	os.Exit(code)
}

// ourGoroutines returns the stacks of goroutines that run, or were started by, non-test code of this
// package.
func ourGoroutines() string {
	buf := make([]byte, 16<<20)
	var ours []string
	for i, stack := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if i > 0 && (strings.Contains(stack, "dataplane.(*") || strings.Contains(stack, "net/http.(*")) {
			ours = append(ours, stack)
		}
	}
	return strings.Join(ours, "\n\n")
}

// await waits until cond returns true.
func await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("timeout while waiting until %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// stepUntil steps the clock until cond returns true. One step is not always enough: the engine may
// record an activity after the test sees its effect.
func (l *lab) stepUntil(step time.Duration, what string, cond func() bool) {
	l.t.Helper()
	await(l.t, what, func() bool {
		l.clock.Step(step)
		return cond()
	})
}

// open returns the number of open connections.
func (l *lab) open() int64 {
	s, _ := l.Stats(lbID)
	return s.OpenConnections
}

// lab is an engine with targets, a stepped clock and a record of the health reports.
type lab struct {
	*Engine
	t     testing.TB
	clock *clocktesting.FakeClock

	mu      sync.Mutex
	places  map[string]string // target key to host:port
	traffic map[string]*Traffic
	reports []HealthReport
}

func newLab(t testing.TB, opts Options) *lab {
	t.Helper()
	l := &lab{t: t, clock: clocktesting.NewFakeClock(time.Unix(1_790_000_000, 0)), places: map[string]string{},
		traffic: map[string]*Traffic{}}
	opts.Clock = l.clock
	if opts.Resolver == nil {
		opts.Resolver = func(tg Target, _ uint16) (string, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if at, ok := l.places[tg.Key]; ok {
				return at, nil
			}
			return "", fmt.Errorf("target %s has no place", tg.Key)
		}
	}
	if opts.Health == nil {
		opts.Health = l.report
	}
	l.Engine = New(opts)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := l.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *lab) report(r HealthReport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reports = append(l.reports, r)
}

// place makes a target's ports resolve to an address, and returns the target.
func (l *lab) place(key, at string) Target {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.places[key] = at
	if l.traffic[key] == nil {
		l.traffic[key] = new(Traffic) // all tests run with counting
	}
	return Target{Key: key, Address: netip.MustParseAddr("10.0.0.2"), Traffic: l.traffic[key]}
}

func (l *lab) apply(lb LoadBalancer) {
	l.t.Helper()
	if err := l.Apply(lb); err != nil {
		l.t.Fatal(err)
	}
}

// status returns the last report about a target.
func (l *lab) last(target string, port uint16) HealthReport {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, v := range slices.Backward(l.reports) {
		if r := v; r.Target == target && r.ListenPort == port {
			return r
		}
	}
	return HealthReport{}
}

func (l *lab) history(target string, port uint16) []HealthStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []HealthStatus
	for _, r := range l.reports {
		if r.Target == target && r.ListenPort == port {
			out = append(out, r.Status)
		}
	}
	return out
}

func (l *lab) awaitHealth(want HealthStatus, port uint16, targets ...Target) {
	l.t.Helper()
	for _, tg := range targets {
		await(l.t, fmt.Sprintf("%s is %s on %d", tg.Key, want, port), func() bool { return l.last(tg.Key, port).Status == want })
	}
}

const lbID = 7

var lbAddr = netip.MustParseAddr("203.0.113.7")

// balance returns a load balancer with one address.
func balance(services []Service, targets ...Target) LoadBalancer {
	return LoadBalancer{ID: lbID, Name: "lab", Addresses: []netip.Addr{lbAddr}, Services: services, Targets: targets}
}

// dial connects to a port of the load balancer.
func (l *lab) dial(port uint16) net.Conn {
	l.t.Helper()
	c, err := l.DialContext(l.t.Context(), "tcp", netip.AddrPortFrom(lbAddr, port).String())
	if err != nil {
		l.t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	l.t.Cleanup(func() { closeQuietly(c) })
	return c
}

// client returns an HTTP client that reaches the load balancer and trusts its certificates.
func (l *lab) client(change ...func(*http.Transport)) *http.Client {
	tr := &http.Transport{DialContext: l.DialContext, TLSClientConfig: &tls.Config{RootCAs: testCA().pool}, ForceAttemptHTTP2: true}
	for _, f := range change {
		f(tr)
	}
	l.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{
		Transport:     tr,
		Timeout:       patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func oneShot(tr *http.Transport) { tr.DisableKeepAlives = true }

// get returns status, header and body.
func get(t testing.TB, c *http.Client, url string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return do(t, c, req)
}

func do(t testing.TB, c *http.Client, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer closeQuietly(resp.Body)
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// tcpTarget sends its name and a newline, then echoes.
type tcpTarget struct {
	name string
	net.Listener
	conns sync.WaitGroup
}

func newTCPTarget(t testing.TB, name string) *tcpTarget {
	t.Helper()
	return newTCPTargetAt(t, name, "127.0.0.1:0", func(c net.Conn) {
		if _, err := io.WriteString(c, name+"\n"); err == nil {
			_, _ = io.Copy(struct{ io.Writer }{c}, c)
		}
	})
}

func newTCPTargetAt(t testing.TB, name, at string, serve func(net.Conn)) *tcpTarget {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	s := &tcpTarget{name: name, Listener: l}
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	s.conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			s.conns.Go(func() {
				defer closeQuietly(c)
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		closeQuietly(l)
		mu.Lock()
		for c := range open {
			closeQuietly(c)
		}
		mu.Unlock()
		s.conns.Wait()
	})
	return s
}

func (s *tcpTarget) at() string { return s.Addr().String() }

// newHTTPTarget returns a target that answers with its name in a header and the output of handler.
func newHTTPTarget(t testing.TB, name string, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Target", name)
		if handler != nil {
			handler(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func at(s *httptest.Server) string { return s.Listener.Addr().String() }

// greeting reads the line that a tcpTarget sends first.
func greeting(t testing.TB, c net.Conn) string {
	t.Helper()
	line, err := bufio.NewReaderSize(c, 16).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// echo sends text to a target that echoes, and checks the echo.
func echo(t testing.TB, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Fatal(err)
	}
	if string(buf) != text {
		t.Fatalf("echo %q, want %q", buf, text)
	}
}

// awaitClosed waits until the other side has closed c, with or without a reset.
func awaitClosed(t testing.TB, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, c); err != nil {
		if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
			t.Fatal("the connection is still open")
		}
	}
}

type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

var testCA = sync.OnceValue(func() *ca {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &ca{cert: cert, key: key, pool: pool}
})

// certificate issues a certificate for names. serial identifies it.
func certificate(t testing.TB, serial int64, names ...string) Certificate {
	t.Helper()
	c := testCA()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, c.cert, &key.PublicKey, c.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Certificate{
		Chain:      string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		PrivateKey: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})),
	}
}
