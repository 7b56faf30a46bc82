package dataplane

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
)

// threeTargets starts three TCP targets.
func threeTargets(t *testing.T, l *lab) []Target {
	t.Helper()
	var targets []Target
	for _, name := range []string{"a", "b", "c"} {
		targets = append(targets, l.place(name, newTCPTarget(t, name).at()))
	}
	return targets
}

func TestRoundRobinGivesEachHealthyTargetItsShare(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	targets := threeTargets(t, l)
	l.apply(balance([]Service{tcpService(80)}, targets...))
	l.awaitHealth(Healthy, 80, targets...)
	shares := func(n int) map[string]int {
		got := map[string]int{}
		for range n {
			c := l.dial(80)
			got[greeting(t, c)]++
			closeQuietly(c)
		}
		return got
	}
	if got := shares(9); !maps.Equal(got, map[string]int{"a": 3, "b": 3, "c": 3}) {
		t.Errorf("shares %v", got)
	}

	l.place("b", "127.0.0.1:1")
	l.clock.Step(defaultCheckInterval)
	await(t, "a probe failed", func() bool { return l.backend(80, "b").failures() == 1 })
	l.clock.Step(defaultCheckInterval)
	l.awaitHealth(Unhealthy, 80, targets[1])
	if got := shares(8); !maps.Equal(got, map[string]int{"a": 4, "c": 4}) {
		t.Errorf("shares with b unhealthy %v", got)
	}
}

// backend returns the backend with the target's key.
func (l *lab) backend(port uint16, key string) *backend {
	l.t.Helper()
	lb, err := l.balancer(lbID)
	if err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := lb.services[port].byKey[key]
	if !ok {
		l.t.Fatalf("no target %s", key)
	}
	return b.backend
}

func (b *backend) failures() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.failures
}

func TestLeastConnectionsChoosesTheTargetWithTheFewest(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	targets := threeTargets(t, l)
	lb := balance([]Service{tcpService(80)}, targets...)
	lb.Algorithm = LeastConnections
	l.apply(lb)
	l.awaitHealth(Healthy, 80, targets...)
	open := map[string][]net.Conn{}
	dial := func() string {
		c := l.dial(80)
		name := greeting(t, c)
		open[name] = append(open[name], c)
		return name
	}
	for range 6 {
		dial()
	}
	if len(open["a"]) != 2 || len(open["b"]) != 2 || len(open["c"]) != 2 {
		t.Fatalf("not even: a %d, b %d, c %d", len(open["a"]), len(open["b"]), len(open["c"]))
	}
	for _, c := range open["b"] {
		closeQuietly(c)
	}
	await(t, "b is empty", func() bool { return l.backend(80, "b").active.Load() == 0 })
	for i := range 2 {
		if name := dial(); name != "b" {
			t.Errorf("connection %d went to %s, not to b", i, name)
		}
	}
}

func TestWithoutHealthyTargetTCPConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	l.apply(balance([]Service{tcpService(80)}))
	awaitClosed(t, l.dial(80))

	// A target without a successful probe gets no connections either.
	tg := l.place("gone", "127.0.0.1:1")
	l.apply(balance([]Service{tcpService(80)}, tg))
	awaitClosed(t, l.dial(80))
}

func TestAnUnreachableTargetIsSkipped(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	targets := threeTargets(t, l)
	l.apply(balance([]Service{tcpService(80)}, targets...))
	l.awaitHealth(Healthy, 80, targets...)
	l.place("a", "127.0.0.1:1") // still healthy: no probe has run since
	for range 6 {
		c := l.dial(80)
		if name := greeting(t, c); name == "a" {
			t.Error("reached a")
		}
		closeQuietly(c)
	}
}

func TestAConnectionTriesAFewTargetsOnly(t *testing.T) {
	t.Parallel()
	s := newService(nil, 80)
	for i := range uint64(1000) {
		s.backends.Load().Set(placed{&backend{state: healthState{status: Healthy}}, i})
	}
	var tried []*backend
	for b := s.pick(&serviceConf{}, tried); b != nil; b = s.pick(&serviceConf{}, tried) {
		tried = append(tried, b)
	}
	if len(tried) != maxTries {
		t.Errorf("%d targets were tried", len(tried))
	}
}

func TestChangesKeepOtherConnections(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	targets := threeTargets(t, l)
	l.apply(balance([]Service{tcpService(80)}, targets...))
	l.awaitHealth(Healthy, 80, targets...)
	conns := map[string]net.Conn{}
	for range 3 {
		c := l.dial(80)
		conns[greeting(t, c)] = c
	}
	alive := func(what string) {
		t.Helper()
		for _, c := range conns {
			echo(t, c, what)
		}
	}
	alive("at first")

	l.apply(balance([]Service{tcpService(80), tcpService(81)}, targets...))
	alive("service added")
	changed := tcpService(80)
	changed.HealthCheck.Interval = time.Minute
	l.apply(balance([]Service{changed, tcpService(81)}, targets...))
	alive("health check changed")
	l.apply(balance([]Service{changed, tcpService(81)}, targets[:2]...))
	alive("target removed, its connections stay")
	for range 4 {
		c := l.dial(80)
		if name := greeting(t, c); name == "c" {
			t.Error("the removed target got a new connection")
		}
		closeQuietly(c)
	}
	l.apply(balance([]Service{changed}, targets[:2]...))
	alive("service removed")
	lb := balance([]Service{changed}, targets[:2]...)
	lb.Algorithm = LeastConnections
	lb.Addresses = append(lb.Addresses, netip.MustParseAddr("10.0.0.3"))
	l.apply(lb)
	alive("algorithm changed, address added")
	// Established connections stay when the protocol of the port changes and when the port is removed.
	l.apply(balance([]Service{{Protocol: HTTP, ListenPort: 80, DestinationPort: 80}}, targets[:2]...))
	alive("protocol changed")
	l.apply(balance(nil, targets[:2]...))
	alive("all services removed")
	if e := l.Endpoints(lbID); len(e) > 0 {
		t.Errorf("still listening: %v", e)
	}

	l.Remove(lbID)
	for _, c := range conns {
		awaitClosed(t, c)
	}
}

func TestARemovedServiceFreesItsPort(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	l.apply(balance([]Service{tcpService(80)}))
	local, ok := l.locate(lbAddr, 80)
	if !ok {
		t.Fatal("not found")
	}
	l.apply(balance(nil))
	if _, err := net.Dial("tcp", local.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v", err)
	}
	l.apply(balance([]Service{tcpService(80)}))
	if again, _ := l.locate(lbAddr, 80); again != local {
		t.Errorf("moved from %s to %s", local, again)
	}
}

func TestANewDestinationPortAppliesToNewConnections(t *testing.T) {
	t.Parallel()
	one, two := newTCPTarget(t, "one"), newTCPTarget(t, "two")
	l := newLab(t, Options{Resolver: func(_ Target, port uint16) (string, error) {
		return map[uint16]string{31001: one.at(), 31002: two.at()}[port], nil
	}})
	s := tcpService(80)
	s.DestinationPort = 31001
	tg := Target{Key: "node"}
	l.apply(balance([]Service{s}, tg))
	l.awaitHealth(Healthy, 80, tg)
	before := l.dial(80)
	if name := greeting(t, before); name != "one" {
		t.Error(name)
	}
	s.DestinationPort = 31002
	l.apply(balance([]Service{s}, tg))
	if name := greeting(t, l.dial(80)); name != "two" {
		t.Error(name)
	}
	echo(t, before, "still one")
}

func TestEachSideMayCloseFirst(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	// Answers only when the client has finished, then finishes itself.
	digest := newTCPTargetAt(t, "digest", "127.0.0.1:0", func(c net.Conn) {
		all, err := io.ReadAll(c)
		if err == nil && len(all) > 0 {
			_, _ = io.WriteString(c, strconv.Itoa(len(all)))
		}
	})
	tg := l.place("digest", digest.at())
	l.apply(balance([]Service{tcpService(80)}, tg))
	l.awaitHealth(Healthy, 80, tg)
	c := l.dial(80)
	if _, err := c.Write(make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	if err := closeWrite(c); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != strconv.Itoa(3<<20) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestEveryByteArrivesInBothDirectionsAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	mirror := newTCPTargetAt(t, "mirror", "127.0.0.1:0", func(c net.Conn) { _, _ = io.Copy(c, c) })
	tg := l.place("mirror", mirror.at())
	l.apply(balance([]Service{tcpService(80)}, tg))
	l.awaitHealth(Healthy, 80, tg)
	sent := make([]byte, 8<<20)
	_, _ = rand.Read(sent)
	c := l.dial(80)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = c.Write(sent)
		_ = closeWrite(c)
	})
	got, err := io.ReadAll(c)
	wg.Wait()
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d of %d bytes, %v", len(got), len(sent), err)
	}
	await(t, "the connection is over", func() bool { return l.open() == 0 })
	s, _ := l.Stats(lbID)
	if s.BytesIn != 8<<20 || s.BytesOut != 8<<20 || s.Connections != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestResetsAreForwarded(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	gone := make(chan error, 10)
	target := newTCPTargetAt(t, "t", "127.0.0.1:0", func(c net.Conn) {
		_, err := io.Copy(io.Discard, c)
		gone <- err
	})
	tg := l.place("t", target.at())
	l.apply(balance([]Service{tcpService(80)}, tg))
	l.awaitHealth(Healthy, 80, tg)
	<-gone //nolint:errcheck // the result of the probe does not matter here
	c := l.dial(80)
	await(t, "the target is connected", func() bool { return l.backend(80, "t").active.Load() == 1 })
	if _, err := io.WriteString(c, "x"); err != nil {
		t.Fatal(err)
	}
	abort(c)
	if err := <-gone; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the target sees %v", err)
	}
}

func TestIdleTCPConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{TCPIdleTimeout: time.Minute})
	tg := l.place("a", newTCPTarget(t, "a").at())
	l.apply(balance([]Service{tcpService(80)}, tg))
	l.awaitHealth(Healthy, 80, tg)
	busy, idle := l.dial(80), l.dial(80)
	greeting(t, busy)
	greeting(t, idle)
	l.stepUntil(25*time.Second, "the idle one is cut", func() bool {
		echo(t, busy, "alive")
		return l.open() == 1
	})
	awaitClosed(t, idle)
	echo(t, busy, "still alive")
	l.stepUntil(time.Minute, "the other one is idle and cut", func() bool { return l.open() == 0 })
	awaitClosed(t, busy)
}

func TestAnIdleConnectionWithBlockedPeersIsClosed(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	block := make(chan struct{})
	stuck := newTCPTargetAt(t, "stuck", "127.0.0.1:0", func(net.Conn) { <-block })
	t.Cleanup(func() { close(block) }) // before the target's own cleanup waits
	tg := l.place("stuck", stuck.at())
	l.apply(balance([]Service{tcpService(80)}, tg))
	l.awaitHealth(Healthy, 80, tg)
	c := l.dial(80)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = c.Write(make([]byte, 64<<20)) // more than the size of all buffers
	}()
	await(t, "bytes flow", func() bool { s, _ := l.Stats(lbID); return s.BytesIn > 0 })
	l.stepUntil(defaultTCPIdleTimeout, "the connection is cut", func() bool { return l.open() == 0 })
	<-sent // with an error, because the peer did not read
}

func TestThePROXYHeaderNamesTheClientAndTheLoadBalancer(t *testing.T) {
	t.Parallel()
	v6 := netip.MustParseAddr("2001:db8::7")
	for _, version := range []int{0, 1, 2} {
		for _, address := range []netip.Addr{lbAddr, v6} {
			l := newLab(t, Options{ProxyProtocolVersion: version})
			type received struct {
				header *proxyproto.Header
				err    error
				rest   string
			}
			got := make(chan received, 10)
			target := newTCPTargetAt(t, "t", "127.0.0.1:0", func(c net.Conn) {
				in := bufio.NewReader(c)
				h, err := proxyproto.Read(in)
				rest, _ := io.ReadAll(in)
				if h == nil || h.Command.IsProxy() {
					got <- received{h, err, string(rest)}
				}
			})
			tg := l.place("t", target.at())
			s := tcpService(80)
			s.ProxyProtocol = true
			lb := balance([]Service{s}, tg)
			lb.Addresses = []netip.Addr{address}
			l.apply(lb)
			l.awaitHealth(Healthy, 80, tg)
			c, err := l.DialContext(t.Context(), "tcp", netip.AddrPortFrom(address, 80).String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, "hello"); err != nil {
				t.Fatal(err)
			}
			_ = closeWrite(c)
			r := <-got
			if r.err != nil || r.rest != "hello" {
				t.Fatalf("version %d: %v, %q", version, r.err, r.rest)
			}
			if want := byte(max(version, defaultProxyProtocolVersion)); r.header.Version != want {
				t.Errorf("version %d, want %d", r.header.Version, want)
			}
			src, dst, _ := r.header.TCPAddrs()
			if local := c.LocalAddr().(*net.TCPAddr); !src.IP.Equal(local.IP) || src.Port != local.Port {
				t.Errorf("source %s, want %s", src, local)
			}
			if !dst.IP.Equal(address.AsSlice()) || dst.Port != 80 {
				t.Errorf("destination %s, want %s port 80", dst, address)
			}
			closeQuietly(c)
		}
	}
}

func TestConnectionsOverTheLimitWait(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	tg := l.place("a", newTCPTarget(t, "a").at())
	lb := balance([]Service{tcpService(80), tcpService(81)}, tg)
	lb.MaxConnections = 2
	l.apply(lb)
	l.awaitHealth(Healthy, 80, tg)
	l.awaitHealth(Healthy, 81, tg)
	first, second := l.dial(80), l.dial(81)
	greeting(t, first)
	greeting(t, second)
	third, fourth := l.dial(80), l.dial(81)
	served := make(chan string, 2)
	for _, c := range []net.Conn{third, fourth} {
		go func() {
			line, _ := bufio.NewReader(c).ReadString('\n')
			served <- line
		}()
	}
	echo(t, first, "one more round for those over the limit to be served wrongly")
	if s, _ := l.Stats(lbID); s.OpenConnections != 2 {
		t.Errorf("open %d", s.OpenConnections)
	}
	closeQuietly(second)
	if line := <-served; line != "a\n" {
		t.Errorf("%q", line)
	}
	lb.MaxConnections = 0 // a larger type
	l.apply(lb)
	if line := <-served; line != "a\n" {
		t.Errorf("%q", line)
	}
}

// Connections that wait in the queue of a listener are served, although the listener is replaced.
func TestAConnectionSurvivesTheListenerThatItCameBy(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := netip.MustParseAddrPort(other.Addr().String())
	l := newLab(t, Options{})
	tg := l.place("a", newTCPTarget(t, "a").at())
	lb := balance([]Service{tcpService(taken.Port())}, tg)
	lb.Addresses, lb.MaxConnections = []netip.Addr{taken.Addr()}, 1
	l.apply(lb)
	l.awaitHealth(Healthy, taken.Port(), tg)
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Endpoints(lbID)[0].Local.String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(patience))
		t.Cleanup(func() { closeQuietly(c) })
		return c
	}
	conns := []net.Conn{dial(), dial(), dial()}
	greeting(t, conns[0])
	closeQuietly(other)
	await(t, "the port is free", func() bool { return l.Rebind(lbID) })
	for i, c := range conns[1:] {
		closeQuietly(conns[i])
		greeting(t, c)
	}
	closeQuietly(conns[2])
	greeting(t, dial())
	if at := l.Endpoints(lbID)[0].Local; at != taken {
		t.Errorf("it listens on %s, not %s", at, taken)
	}
}

func TestStatsAreRatesOverTheWindow(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	tg := l.place("a", newTCPTarget(t, "a").at())
	l.apply(balance([]Service{tcpService(80)}, tg))
	l.awaitHealth(Healthy, 80, tg)
	c := l.dial(80)
	greeting(t, c) // 2 bytes out
	echo(t, c, "12345678")
	await(t, "bytes are counted", func() bool { s, _ := l.Stats(lbID); return s.BytesOut == 10 })
	l.clock.Step(10 * time.Second)
	s, err := l.Stats(lbID)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Stats{OpenConnections: 1, ConnectionsPerSecond: 0.1, BandwidthIn: 0.8, BandwidthOut: 1, Connections: 1, BytesIn: 8,
		BytesOut: 10}); s != want {
		t.Errorf("%+v, want %+v", s, want)
	}
	lb, _ := l.balancer(lbID)
	samples := func() []sample {
		lb.stats.mu.Lock()
		defer lb.stats.mu.Unlock()
		return slices.Clone(lb.stats.samples)
	}
	await(t, "the sample is taken", func() bool { return len(samples()) == 2 })
	l.clock.Step(10 * time.Second)
	await(t, "the first sample is dropped", func() bool { s := samples(); return l.clock.Since(s[0].at) == 10*time.Second })
	if s, _ := l.Stats(lbID); s.ConnectionsPerSecond != 0 || s.Connections != 1 {
		t.Errorf("after a quiet window %+v", s)
	}
	if _, err := l.Stats(99); !errors.Is(err, ErrUnknownLoadBalancer) {
		t.Error(err)
	}
}
