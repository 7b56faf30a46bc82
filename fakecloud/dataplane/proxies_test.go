package dataplane

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The benchmarks compare three proxies, each in its process: HAProxy, and this test program. The program runs one of the others if proxyEnv
// is set.
const proxyEnv = "DATAPLANE_TEST_PROXY"

// proxyConfig is what a proxy of the test program does.
type proxyConfig struct{ kind, protocol, target, pem string }

func (c proxyConfig) String() string {
	return strings.Join([]string{c.kind, c.protocol, c.target, c.pem}, " ")
}

// runProxy is the test program as a proxy. It serves on the listener that is its file 3, until its input ends.
func runProxy(conf string) {
	f := strings.Split(conf, " ")
	c := proxyConfig{kind: f[0], protocol: f[1], target: f[2], pem: f[3]}
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		log.Fatal(err)
	}
	if c.kind == "bare" {
		err = runBare(c, l)
	} else {
		err = runOurs(c, l)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(0)
}

// runBare serves with a bare httputil.ReverseProxy.
func runBare(c proxyConfig, l net.Listener) error {
	s := &http.Server{Handler: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", c.target
			r.SetXForwarded()
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
	}}
	if c.protocol == string(HTTPS) {
		go func() { _ = s.ServeTLS(l, c.pem, c.pem) }()
		return nil
	}
	go func() { _ = s.Serve(l) }()
	return nil
}

// givenBinder listens on a listener that is there already.
type givenBinder struct{ net.Listener }

func (b givenBinder) Listen(context.Context, int64, netip.Addr, uint16) (net.Listener, error) {
	return b.Listener, nil
}
func (givenBinder) Release(int64) {}

// runOurs serves with this package.
func runOurs(c proxyConfig, l net.Listener) error {
	healthy := make(chan struct{}, 1)
	e := New(Options{
		Binder:   givenBinder{l},
		Resolver: func(Target, uint16) (string, error) { return c.target, nil },
		Health: func(r HealthReport) {
			if r.Status == Healthy {
				healthy <- struct{}{}
			}
		},
	})
	s := Service{Protocol: Protocol(c.protocol), ListenPort: 80, DestinationPort: 80}
	if s.Protocol == HTTPS {
		pem, err := os.ReadFile(c.pem)
		if err != nil {
			return err
		}
		s.HTTP.Certificates = []Certificate{{Chain: string(pem), PrivateKey: string(pem)}}
	}
	target := Target{Key: "t", Address: netip.MustParseAddr("10.0.0.2"), Traffic: new(Traffic)}
	if err := e.Apply(balance([]Service{s}, target)); err != nil {
		return err
	}
	<-healthy
	return nil
}

// startProxy starts a proxy of the test program and returns its address and process.
func startProxy(t testing.TB, c proxyConfig) (string, int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$") //nolint:gosec // this program
	cmd.Env = append(os.Environ(), proxyEnv+"="+c.String())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	at, pid := startListening(t, cmd)
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the proxy %q did not start: %v", c, err)
	}
	return at, pid
}

// haproxyProgram returns the path of HAProxy. It skips the test if HAProxy is not installed.
func haproxyProgram(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"haproxy", "/usr/sbin/haproxy"} {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	t.Skip("HAProxy is not installed: install it, such as by apt-get install haproxy, and run this again")
	return ""
}

// startHAProxy starts HAProxy with its default buffers and returns its address and process.
func startHAProxy(t testing.TB, c proxyConfig) (string, int) {
	t.Helper()
	program := haproxyProgram(t)
	mode, bind := "http\n  option forwardfor", "fd@3"
	switch Protocol(c.protocol) {
	case TCP:
		mode = "tcp"
	case HTTPS:
		bind += " ssl crt " + c.pem
	}
	conf := filepath.Join(t.TempDir(), "haproxy.cfg")
	text := fmt.Sprintf("global\n  maxconn 1000\ndefaults\n  timeout connect 30s\n  timeout client 30s\n  timeout server 30s\n"+
		"listen lb\n  bind %s\n  mode %s\n  server t %s\n", bind, mode, c.target)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return startListening(t, exec.Command(program, "-q", "-db", "-f", conf)) //nolint:gosec // see above
}

// startListening starts a program with a listener as its file 3.
func startListening(t testing.TB, cmd *exec.Cmd) (string, int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer closeQuietly(l)
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer closeQuietly(f)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.ExtraFiles, cmd.Stderr = []*os.File{f}, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		closeQuietly(in)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return l.Addr().String(), cmd.Process.Pid
}
