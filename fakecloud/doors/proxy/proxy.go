// Package proxy is a way to a simulated cloud for programs that know only api.hetzner.cloud. It is an HTTP proxy on a loopback address:
//
//	p, err := proxy.Start(ctx, proxy.Options{API: cloud.Handler(), Token: cloud.Token()})
//	cmd.Env = p.Access().Environ(os.Environ())
//
// It answers for api.hetzner.cloud with a certificate of an authority that lives as long as the proxy, and refuses every other host.
// The authority's key is never on a disk: it signs one certificate and is forgotten. DOORS.md lists the runtimes for which it works,
// and says what others can do with the listener. Package doorstest has it in one line for a test.
package proxy

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// APIHost is the only server that the API document names.
const APIHost = "api.hetzner.cloud"

// Options configure a proxy.
type Options struct {
	// API answers the requests to APIHost: Cloud.Handler of package fakecloud, or [To] for a cloud of another process.
	API http.Handler
	// Token is the API token that programs get.
	Token string
	// Address is where the proxy listens. It must be a loopback address. If empty, it is a free port of 127.0.0.1.
	Address string
	// Allow are hosts that connections reach untouched. A host without a port is allowed on the ports 80 and 443.
	Allow []string
	// Refused gets a sentence about each connection or request that the proxy refuses. If nil, nobody gets it.
	Refused func(message string)
}

// Proxy is a running proxy. Close it after use.
type Proxy struct {
	options Options
	address string
	dir     string // with the files
	ca      *x509.Certificate
	outer   *http.Server // the proxy
	inner   *http.Server // api.hetzner.cloud
	tunnels *handover    // connections for inner; its end is that of all others, too
	wg      sync.WaitGroup
}

// Start starts a proxy. It writes the files that programs have to trust to a new folder for this user. [Proxy.Close] removes it.
func Start(ctx context.Context, o Options) (*Proxy, error) {
	o.Address = cmp.Or(o.Address, "127.0.0.1:0")
	if o.Refused == nil {
		o.Refused = func(string) {}
	}
	for _, host := range o.Allow {
		if err := checkAllowed(host); err != nil {
			return nil, err
		}
	}
	at, err := net.ResolveTCPAddr("tcp", o.Address)
	if err != nil || !at.IP.IsLoopback() {
		return nil, fmt.Errorf("proxy address %q: must be host:port of a loopback address, such as 127.0.0.1:4245", o.Address)
	}
	cert, ca, err := newAuthority(time.Now())
	if err != nil {
		return nil, err
	}
	socket, err := new(net.ListenConfig).Listen(ctx, "tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("proxy address %s: %w; choose another port (0 is any free one)", o.Address, err)
	}
	dir, err := writeFiles(ca)
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	p := &Proxy{options: o, address: socket.Addr().String(), dir: dir, ca: ca,
		tunnels: &handover{Listener: socket, conns: make(chan net.Conn)}}
	p.tunnels.closed, p.tunnels.close = context.WithCancel(context.WithoutCancel(ctx))
	p.outer = newServer(p)
	p.inner = newServer(http.HandlerFunc(p.serveAPI))
	p.inner.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	p.wg.Go(func() { _ = p.outer.Serve(socket) })
	p.wg.Go(func() { _ = p.inner.ServeTLS(p.tunnels, "", "") })
	return p, nil
}

// newServer returns a server that waits 30 seconds for a header or a TLS handshake. It logs nothing: what a client that does not trust the
// authority says is in the client's own error.
func newServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: timeout, IdleTimeout: 10 * timeout, MaxHeaderBytes: 64 << 10, ErrorLog: nobody}
}

const timeout = 30 * time.Second

// Close ends all connections, waits for them, and removes the files.
func (p *Proxy) Close() error {
	err := errors.Join(p.outer.Close(), p.inner.Close())
	p.tunnels.close()
	p.wg.Wait()
	return errors.Join(err, os.RemoveAll(p.dir))
}

// Access returns what a program needs to use the proxy.
func (p *Proxy) Access() Access {
	return Access{Proxy: "http://" + p.address, Dir: p.dir, Token: p.options.Token}
}

// Client returns a client that reaches the simulated cloud as https://api.hetzner.cloud, for code that takes an http.Client and no
// endpoint.
func (p *Proxy) Client() *http.Client {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	roots.AddCert(p.ca)
	return &http.Client{Transport: &http.Transport{
		Proxy:             http.ProxyURL(&url.URL{Scheme: "http", Host: p.address}),
		TLSClientConfig:   &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true,
	}}
}

// ServeHTTP implements http.Handler: it is the proxy itself.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect:
		p.connect(w, r)
	case r.URL.Host == "":
		p.refuse(w, r, http.StatusForbidden, "this is a proxy and answers no requests of its own; set it as HTTPS_PROXY")
	case isAPI(r.URL.Hostname()):
		r.Header.Del("Proxy-Authorization")
		r.Header.Del("Proxy-Connection")
		p.serveAPI(w, r)
	case r.URL.Scheme == "http" && p.allowed(r.URL.Hostname(), r.URL.Port(), "80"):
		forward := httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, ErrorLog: nobody, Transport: direct}
		forward.ServeHTTP(w, r)
	default:
		p.refuse(w, r, http.StatusForbidden, refusal(r.URL.Host))
	}
}

// direct reaches the allowed hosts. It knows no other proxy, because that might be this one.
var direct = &http.Transport{IdleConnTimeout: time.Minute}

// connect opens a tunnel to the API or to an allowed host.
func (p *Proxy) connect(w http.ResponseWriter, r *http.Request) {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		p.refuse(w, r, http.StatusForbidden, printable("CONNECT "+r.Host+" must name host:port"))
		return
	}
	if isAPI(host) && port == "443" {
		if conn, err := established(w); err == nil {
			p.tunnels.give(conn)
		}
		return
	}
	if !p.allowed(host, port, "443", "80") {
		p.refuse(w, r, http.StatusForbidden, refusal(r.Host))
		return
	}
	to, err := (&net.Dialer{Timeout: timeout}).DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		p.refuse(w, r, http.StatusBadGateway, printable(r.Host+" is allowed, and cannot be reached: "+err.Error()))
		return
	}
	defer func() { _ = to.Close() }()
	if from, err := established(w); err == nil {
		p.splice(from, to)
	}
}

// splice copies in both directions until both end, or the proxy is closed.
func (p *Proxy) splice(a, b net.Conn) {
	stop := context.AfterFunc(p.tunnels.closed, func() { _, _ = a.Close(), b.Close() })
	defer stop()
	defer func() { _ = a.Close() }()
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}
	var both sync.WaitGroup
	both.Go(func() { pass(a, b) })
	pass(b, a)
	both.Wait()
}

// established answers a CONNECT with 200 and returns its connection.
func established(w http.ResponseWriter) (net.Conn, error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_ = conn.Close()
		return nil, err
	}
	if rw.Reader.Buffered() > 0 { // the client did not wait for the answer
		return &buffered{conn, rw.Reader}, nil
	}
	return conn, nil
}

// buffered is a connection with bytes that were read already.
type buffered struct {
	net.Conn
	r *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

// serveAPI answers a request to the API. The handler does not see the address of the connection: it would take the name
// api.hetzner.cloud on a loopback address for that of a web page.
func (p *Proxy) serveAPI(w http.ResponseWriter, r *http.Request) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if !isAPI(host) {
		http.Error(w, "fakecloud: the request is for another host than the connection, "+APIHost, http.StatusMisdirectedRequest)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, nil))
	at := *r.URL
	at.Scheme, at.Host = "", ""
	r.URL, r.RequestURI = &at, at.RequestURI()
	p.options.API.ServeHTTP(w, r)
}

// refuse answers with a status and a sentence. The status line has the sentence, too: of an answer to CONNECT, most clients show only
// that.
func (p *Proxy) refuse(w http.ResponseWriter, r *http.Request, status int, sentence string) {
	p.options.Refused(sentence)
	sentence = "fakecloud: " + sentence
	if r.Method != http.MethodConnect {
		http.Error(w, sentence, status)
		return
	}
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%[2]s\n",
			status, sentence, len(sentence)+1)
		_ = conn.Close()
	}
}

// refusal says why a host is refused, and how it is allowed.
func refusal(host string) string {
	return fmt.Sprintf("%s is refused, because only %s on port 443 leads to the simulated cloud; --allow %[1]s lets it pass",
		printable(host), APIHost)
}

var unprintable = regexp.MustCompile(`[^ -~]`)

// printable returns a short text without what does not belong in a status line.
func printable(s string) string { return unprintable.ReplaceAllString(s[:min(len(s), 200)], "?") }

func isAPI(host string) bool { return strings.EqualFold(strings.TrimSuffix(host, "."), APIHost) }

// allowed reports whether connections to a port of a host pass. standard are the ports of a host that was allowed without one.
func (p *Proxy) allowed(host, port string, standard ...string) bool {
	host, port = strings.TrimSuffix(host, "."), cmp.Or(port, standard[0])
	return slices.ContainsFunc(p.options.Allow, func(allowed string) bool {
		return strings.EqualFold(allowed, net.JoinHostPort(host, port)) ||
			strings.EqualFold(allowed, host) && slices.Contains(standard, port)
	})
}

var hostPort = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?$`)

// checkAllowed returns an error if a text is not a host, with or without a port.
func checkAllowed(host string) error {
	m := hostPort.FindStringSubmatch(host)
	if m == nil {
		return fmt.Errorf("allowed host %q: must be a host or host:port, such as registry.terraform.io", host)
	}
	if isAPI(m[1]) {
		return fmt.Errorf("allowed host %q: it is the simulated cloud's; leave it out", host)
	}
	return nil
}

// handover is a listener for connections that the proxy has accepted. Its address is the proxy's.
type handover struct {
	net.Listener
	conns  chan net.Conn
	closed context.Context
	close  context.CancelFunc
}

func (h *handover) give(conn net.Conn) {
	select {
	case h.conns <- conn:
	case <-h.closed.Done():
		_ = conn.Close()
	}
}

// Accept implements net.Listener.
func (h *handover) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.closed.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (h *handover) Close() error {
	h.close()
	return nil
}
