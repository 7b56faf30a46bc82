package framework

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/kind/whoami"
)

// ClientOptions shape a client outside of the cluster.
type ClientOptions struct {
	// Address is connected to whatever the URL says, as if a DNS entry pointed there; "" takes the
	// URL's.
	Address string
	// Roots are trusted; nil is what the machine trusts.
	Roots *x509.CertPool
	// Cookies makes the client keep cookies.
	Cookies bool
	// From is the client's address, one of 127.0.0.0/8; the zero value lets the system choose. Outside of
	// the embedded cluster, all clients have OutsideAddress.
	From netip.Addr
}

// HTTPClient returns a client outside of the cluster. It reaches the addresses of the cloud's load
// balancers, private ones included; it opens a connection for each request, so that each is
// balanced, and does not follow redirects.
func (e *Env) HTTPClient(o ClientOptions) *http.Client {
	GinkgoHelper()
	client := &http.Client{
		Timeout: 5 * time.Second,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{RootCAs: o.Roots, MinVersion: tls.VersionTLS12},
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				host, port, err := net.SplitHostPort(address)
				if err != nil {
					return nil, err
				}
				return e.dial(ctx, net.JoinHostPort(cmp.Or(o.Address, host), port), o.From)
			},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if o.Cookies {
		jar, err := cookiejar.New(nil)
		Expect(err).NotTo(HaveOccurred())
		client.Jar = jar
	}
	return client
}

// OutsideAddress returns the address of clients outside of the cluster, as a load balancer sees it.
func (e *Env) OutsideAddress() string {
	if e.Cloud != nil {
		return "127.200.3.4"
	}
	if e.site.outside == "" {
		Skip("nobody knows the address by which the cloud sees this host")
	}
	return e.site.outside
}

// dial connects to an address of the cloud from an address of this machine.
func (e *Env) dial(ctx context.Context, address string, from netip.Addr) (net.Conn, error) {
	if !from.IsValid() || e.Cloud == nil {
		return e.dialOutside(ctx, address)
	}
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	return d.DialContext(ctx, "tcp", address)
}

// Closed tells whether nobody listens on a port of a load balancer.
func (e *Env) Closed(ctx context.Context, address string, port int) bool {
	conn, err := e.dial(ctx, net.JoinHostPort(address, strconv.Itoa(port)), netip.Addr{})
	if err != nil {
		return true
	}
	_ = conn.Close()
	return false
}

// AnsweringNodes sends n requests to an address and returns how many each node answered. The spec
// fails with the first that is not.
func (e *Env) AnsweringNodes(ctx context.Context, address string, port, n int) map[string]int {
	GinkgoHelper()
	answered := map[string]int{}
	for range n {
		answer, err := e.Get(ctx, address, port)
		Expect(err).NotTo(HaveOccurred())
		answered[answer.Node]++
	}
	return answered
}

// AwaitAnsweringNodes waits until requests to an address are answered by these nodes, by each of
// them and by nobody else.
func (e *Env) AwaitAnsweringNodes(ctx context.Context, address string, port int, names ...string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		answered := map[string]int{}
		for range 3 * len(names) {
			answer, err := e.Get(ctx, address, port)
			g.Expect(err).NotTo(HaveOccurred())
			answered[answer.Node]++
		}
		g.Expect(slices.Collect(maps.Keys(answered))).To(ConsistOf(names))
	}).WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(Succeed())
}

// Connection is one TCP connection to a load balancer, on which HTTP requests are sent one after
// the other.
type Connection struct {
	conn   net.Conn
	reader *bufio.Reader
}

// Connect opens a connection to a load balancer. It is closed when the spec ends.
func (e *Env) Connect(ctx context.Context, address string, port int) *Connection {
	GinkgoHelper()
	conn, err := e.dial(ctx, net.JoinHostPort(address, strconv.Itoa(port)), netip.Addr{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(conn.Close)
	return &Connection{conn: conn, reader: bufio.NewReader(conn)}
}

// Ask sends a request and returns the answer.
func (c *Connection) Ask(ctx context.Context) (answer whoami.Answer, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.conn.RemoteAddr().String()+"/", nil)
	if err != nil {
		return answer, err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(5 * time.Second)
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return answer, err
	}
	if err := r.Write(c.conn); err != nil {
		return answer, err
	}
	resp, err := http.ReadResponse(c.reader, r)
	if err != nil {
		return answer, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("%s", resp.Status)
	}
	return answer, json.NewDecoder(resp.Body).Decode(&answer)
}

// Stream is a client that keeps sending requests, to see whether something disturbs traffic.
type Stream struct {
	end      func() // has it send one more request, and end
	cancel   context.CancelFunc
	done     chan struct{}
	answered int
	slowest  time.Duration
	failures []error
}

// streamInterval is the pause between two requests of a stream.
const streamInterval = 20 * time.Millisecond

// Stream sends requests to an address, each on a connection of its own, one after the other, until it is stopped or
// the spec ends.
func (e *Env) Stream(ctx context.Context, address string, port int) *Stream {
	s := startStream(context.WithoutCancel(ctx), func(ctx context.Context) error {
		_, err := e.Get(ctx, address, port)
		return err
	})
	DeferCleanup(s.cancel)
	return s
}

func startStream(ctx context.Context, get func(context.Context) error) *Stream {
	ctx, cancel := context.WithCancel(ctx)
	ending := make(chan struct{})
	s := &Stream{end: sync.OnceFunc(func() { close(ending) }), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		ticker := time.NewTicker(streamInterval)
		defer ticker.Stop()
		for last := false; ; {
			start := time.Now()
			err := get(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				s.failures = append(s.failures, fmt.Errorf("%s: %w", time.Now().Format("15:04:05.000"), err))
			default:
				s.answered++
			}
			s.slowest = max(s.slowest, time.Since(start))
			if last {
				return
			}
			select {
			case <-ticker.C:
			case <-ending:
			case <-ctx.Done():
				return
			}
			select {
			case <-ending:
				last = true
			default:
			}
		}
	}()
	return s
}

// finish lets the request that is under way end, and sends a last one.
func (s *Stream) finish() {
	s.end()
	<-s.done
}

// Stop ends the stream at once, whatever became of its requests.
func (s *Stream) Stop() {
	s.cancel()
	<-s.done
}

// ExpectUndisturbed ends the stream with a last request, and fails if one was not answered.
func (s *Stream) ExpectUndisturbed() {
	GinkgoHelper()
	s.finish()
	Expect(s.failures).To(BeEmpty(), "requests that were not answered, beside %d that were", s.answered)
	Expect(s.answered).To(BeNumerically(">", 0))
	AddReportEntry("requests meanwhile", ReportEntryVisibilityFailureOrVerbose, fmt.Sprintf("%d answered, each within %s", s.answered, s.slowest.Round(time.Millisecond)))
}

// URL returns the URL of a port of an address.
func URL(scheme, address string, port int) string {
	return scheme + "://" + net.JoinHostPort(address, strconv.Itoa(port)) + "/"
}
