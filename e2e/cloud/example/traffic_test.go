package example_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/example"
)

// balanced is a load balancer in front of servers that answer each line with their names.
type balanced struct {
	cloud    *example.Cloud
	listener example.Listener
	address  string
	servers  map[string]*lineServer
}

// lineServer answers each line with its name and the line, and adds one more line when the client stops sending.
type lineServer struct {
	instance example.Instance
	net.Listener
	mu   sync.Mutex
	open []net.Conn
}

// stop closes the server with its connections.
func (s *lineServer) stop() {
	_ = s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		_ = c.Close()
	}
}

func newBalanced(t *testing.T, names ...string) *balanced {
	t.Helper()
	g := NewWithT(t)
	c, _ := newCloud(t, example.Options{Provisioning: 1})
	b := &balanced{cloud: c, servers: map[string]*lineServer{}}
	lb, err := c.CreateLoadBalancer("web", example.Region)
	g.Expect(err).NotTo(HaveOccurred())
	backends, port := []netip.AddrPort{}, uint16(0)
	for _, name := range names {
		i, err := c.CreateInstance(name)
		g.Expect(err).NotTo(HaveOccurred())
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", netip.AddrPortFrom(i.PublicIP, port).String())
		g.Expect(err).NotTo(HaveOccurred())
		port = netip.MustParseAddrPort(l.Addr().String()).Port()
		s := &lineServer{instance: i, Listener: l}
		b.servers[name] = s
		go s.serve()
		t.Cleanup(s.stop)
		backends = append(backends, netip.AddrPortFrom(i.PrivateIP, port))
	}
	if b.listener, err = c.CreateListener("web", 8080, backends); err != nil {
		t.Fatal(err)
	}
	if lb, err = c.LoadBalancer(lb.Name); err != nil {
		t.Fatal(err)
	}
	b.address = net.JoinHostPort(lb.Address, "8080")
	return b
}

func (s *lineServer) serve() {
	for {
		c, err := s.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.open = append(s.open, c)
		s.mu.Unlock()
		go func() {
			defer func() { _ = c.Close() }()
			lines := bufio.NewScanner(c)
			for lines.Scan() {
				_, _ = fmt.Fprintf(c, "%s: %s\n", s.instance.Name, lines.Text())
			}
			_, _ = io.WriteString(c, "bye\n")
		}()
	}
}

// dial connects to the load balancer.
func (b *balanced) dial(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c, bufio.NewReader(c)
}

// ask sends a line and returns who has answered, or the error.
func ask(c net.Conn, r *bufio.Reader) (name string, err error) {
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return "", err
	}
	line, err := r.ReadString('\n')
	return strings.TrimSuffix(line, ": hello\n"), err
}

// answers counts who answers n connections.
func (b *balanced) answers(t *testing.T, n int) map[string]int {
	t.Helper()
	count := map[string]int{}
	for range n {
		name, err := ask(b.dial(t))
		if err != nil {
			name = "none"
		}
		count[name]++
	}
	return count
}

func TestBackendsTakeTurnsAndDeadOnesAreLeftOut(t *testing.T) {
	t.Parallel()
	g, b := NewWithT(t), newBalanced(t, "a", "b", "c")
	g.Expect(b.answers(t, 9)).To(Equal(map[string]int{"a": 3, "b": 3, "c": 3}))

	b.servers["a"].stop() // refuses connections
	g.Expect(b.answers(t, 9)).To(And(HaveLen(2), HaveKey("b"), HaveKey("c")), "a connection was lost with a backend that refuses")
	g.Expect(b.cloud.ChangeInstance(b.servers["b"].instance.ID, "", example.Stopped)).Error().NotTo(HaveOccurred())
	g.Expect(b.answers(t, 9)).To(Equal(map[string]int{"c": 9}), "a connection was lost with an instance that is off")
	g.Expect(b.cloud.DeleteInstance(b.servers["c"].instance.ID)).To(Succeed())
	g.Expect(b.answers(t, 2)).To(Equal(map[string]int{"none": 2}))
	g.Expect(b.cloud.ChangeInstance(b.servers["b"].instance.ID, "", example.Running)).Error().NotTo(HaveOccurred())
	g.Expect(b.answers(t, 3)).To(Equal(map[string]int{"b": 3}))
}

func TestConnectionsOutliveTheirBackendAndEndWithTheirListener(t *testing.T) {
	t.Parallel()
	g, b := NewWithT(t), newBalanced(t, "a", "b")
	var conns []net.Conn
	var readers []*bufio.Reader
	for range 2 {
		c, r := b.dial(t)
		g.Expect(ask(c, r)).To(BeElementOf("a", "b"))
		conns, readers = append(conns, c), append(readers, r)
	}
	_, err := b.cloud.SetBackends(b.listener.ID, b.listener.Backends[:1])
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(b.answers(t, 4)).To(Equal(map[string]int{"a": 4}))
	for i := range conns {
		g.Expect(ask(conns[i], readers[i])).To(BeElementOf("a", "b"), "a connection was cut by a change of backends")
	}

	g.Expect(b.cloud.DeleteListener(b.listener.ID)).To(Succeed())
	_, err = ask(conns[0], readers[0])
	g.Expect(err).To(HaveOccurred(), "a connection outlives its listener")
	_, err = new(net.Dialer).DialContext(t.Context(), "tcp", b.address)
	g.Expect(err).To(HaveOccurred(), "the port is still open")
	_, err = b.cloud.CreateListener("web", 8080, nil)
	g.Expect(err).NotTo(HaveOccurred(), "the port is not free again")
}

// TestEachDirectionEndsByItself shows that a client that closed its sending half still gets the answer.
func TestEachDirectionEndsByItself(t *testing.T) {
	t.Parallel()
	g, b := NewWithT(t), newBalanced(t, "a")
	c, r := b.dial(t)
	g.Expect(ask(c, r)).To(Equal("a"))
	g.Expect(c.(*net.TCPConn).CloseWrite()).To(Succeed())
	g.Expect(io.ReadAll(r)).To(BeEquivalentTo("bye\n"))
}

func TestCloseEndsConnections(t *testing.T) {
	t.Parallel()
	g, b := NewWithT(t), newBalanced(t, "a")
	c, r := b.dial(t)
	g.Expect(ask(c, r)).To(Equal("a"))
	g.Expect(b.cloud.Close()).To(Succeed())
	g.Expect(io.ReadAll(r)).To(BeEmpty())
	_, err := b.cloud.CreateListener("web", 8081, nil)
	g.Expect(err).To(MatchError(ContainSubstring("the cloud has ended")))
}
