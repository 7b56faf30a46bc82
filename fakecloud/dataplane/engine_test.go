package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"
)

func TestTwoLoadBalancersMayListenOnTheSamePort(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	var lbs []LoadBalancer
	for i := range 3 {
		name := fmt.Sprint("t", i)
		lbs = append(lbs, LoadBalancer{
			ID: int64(i), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})},
			Services: []Service{tcpService(443)}, Targets: []Target{l.place(name, newTCPTarget(t, name).at())},
		})
		l.apply(lbs[i])
	}
	for i, lb := range lbs {
		l.awaitHealth(Healthy, 443, lb.Targets[0])
		c, err := l.DialContext(t.Context(), "tcp", netip.AddrPortFrom(lb.Addresses[0], 443).String())
		if err != nil {
			t.Fatal(err)
		}
		if name := greeting(t, c); name != fmt.Sprint("t", i) {
			t.Errorf("load balancer %d leads to %s", i, name)
		}
		closeQuietly(c)
	}
	l.Remove(1)
	l.Remove(1)
	if e := l.Endpoints(0); len(e) != 1 || e[0].Address != lbs[0].Addresses[0] || e[0].Port != 443 || e[0].Protocol != TCP ||
		!e[0].Local.Addr().IsLoopback() {
		t.Errorf("endpoints %+v", e)
	}
	if _, ok := l.locate(lbs[1].Addresses[0], 443); ok {
		t.Error("a removed load balancer is found")
	}
}

// stingyBinder is a Binder that refuses one port.
type stingyBinder struct {
	LoopbackBinder
	refuse uint16
}

var errRefused = errors.New("refused")

func (b *stingyBinder) Listen(ctx context.Context, lb int64, a netip.Addr, port uint16) (net.Listener, error) {
	if port == b.refuse {
		return nil, errRefused
	}
	return b.LoopbackBinder.Listen(ctx, lb, a, port)
}

func TestAFailedApplyChangesNothing(t *testing.T) {
	t.Parallel()
	b := &stingyBinder{refuse: 82}
	l := newLab(t, Options{Binder: b})
	tg := l.place("a", newTCPTarget(t, "a").at())
	if err := l.Apply(balance([]Service{tcpService(81), tcpService(82)}, tg)); !errors.Is(err, errRefused) {
		t.Fatal(err)
	}
	if _, err := l.Stats(lbID); !errors.Is(err, ErrUnknownLoadBalancer) {
		t.Errorf("the load balancer exists: %v", err)
	}
	if len(b.places) != 0 {
		t.Errorf("addresses are kept: %v", b.places)
	}

	l.apply(balance([]Service{tcpService(80)}, tg))
	l.awaitHealth(Healthy, 80, tg)
	before := l.Endpoints(lbID)
	if err := l.Apply(balance([]Service{tcpService(81), tcpService(82)})); !errors.Is(err, errRefused) {
		t.Fatal(err)
	}
	if err := l.Apply(balance([]Service{{}})); err == nil {
		t.Fatal("an invalid service is accepted")
	}
	if after := l.Endpoints(lbID); len(after) != 1 || after[0] != before[0] {
		t.Errorf("endpoints %v, were %v", after, before)
	}
	if name := greeting(t, l.dial(80)); name != "a" {
		t.Error(name)
	}
}

func TestAClosedEngineDoesNothing(t *testing.T) {
	t.Parallel()
	e := New(Options{})
	if err := e.Apply(balance([]Service{tcpService(80)})); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Apply(balance(nil)); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if e.Endpoints(lbID) != nil {
		t.Error("endpoints")
	}
	e.Remove(lbID)
}

func TestCloseReportsATimeout(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	e := New(Options{Health: func(HealthReport) { <-hold }})
	if err := e.Apply(balance([]Service{tcpService(80)}, Target{Key: "a"})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(hold)
	if err := e.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTheDefaultResolverUsesTheTargetsAddress(t *testing.T) {
	t.Parallel()
	target := newTCPTarget(t, "direct")
	at := netip.MustParseAddrPort(target.at())
	healthy := make(chan struct{})
	once := sync.Once{}
	e := New(Options{Health: func(r HealthReport) {
		if r.Status == Healthy {
			once.Do(func() { close(healthy) })
		}
	}})
	t.Cleanup(func() { _ = e.Close(context.Background()) })
	err := e.Apply(balance([]Service{{Protocol: TCP, ListenPort: 80, DestinationPort: at.Port()}}, Target{Key: "a", Address: at.Addr()}))
	if err != nil {
		t.Fatal(err)
	}
	<-healthy
	c, err := e.DialContext(t.Context(), "tcp", "203.0.113.7:80")
	if err != nil {
		t.Fatal(err)
	}
	defer closeQuietly(c)
	if name := greeting(t, c); name != "direct" {
		t.Error(name)
	}
}

// TestManyChangesAtOnce runs changes, traffic, clock steps and reads concurrently, for the race
// detector.
func TestManyChangesAtOnce(t *testing.T) {
	t.Parallel()
	l := newLab(t, Options{})
	var targets []Target
	for i := range 4 {
		name := fmt.Sprint("t", i)
		mirror := newTCPTargetAt(t, name, "127.0.0.1:0", func(c net.Conn) { _, _ = io.Copy(c, c) })
		targets = append(targets, l.place(name, mirror.at()))
	}
	stable := LoadBalancer{ID: 99, Addresses: []netip.Addr{netip.MustParseAddr("198.51.100.99")}, Services: []Service{tcpService(80)},
		Targets: targets[:1]}
	l.apply(stable)
	l.awaitHealth(Healthy, 80, targets[0])
	c, err := l.DialContext(t.Context(), "tcp", "198.51.100.99:80")
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	defer closeQuietly(c)
	echo(t, c, "connected")

	var wg sync.WaitGroup
	protocols := []Protocol{TCP, HTTP, HTTPS}
	cert := certificate(t, 1, "example.com")
	for w := range 4 {
		wg.Go(func() {
			for i := range 30 {
				s := tcpService(uint16(8000 + i%3))
				s.Protocol = protocols[(i+w)%3]
				s.HTTP.Certificates = []Certificate{cert}
				s.HTTP.RedirectHTTP = i%2 == 0
				if err := l.Apply(balance([]Service{s}, targets[i%4:]...)); err != nil {
					t.Error(err)
				}
				if i%10 == 9 {
					l.Remove(lbID)
				}
			}
		})
		wg.Go(func() {
			for i := range 30 {
				if at, ok := l.locate(lbAddr, uint16(8000+i%3)); ok {
					if c, err := net.Dial("tcp", at.String()); err == nil {
						_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
						closeQuietly(c)
					}
				}
				l.clock.Step(time.Second)
				_, _ = l.Stats(lbID)
				_, _ = l.Health(lbID)
				l.Endpoints(lbID)
			}
		})
	}
	wg.Wait()
	echo(t, c, "the other load balancer never noticed")
}
