package cloudtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// polling is the time between two looks at something that is awaited.
const polling = 20 * time.Millisecond

func routed(t *testing.T, s *suite) {
	g, c := NewWithT(t), s.start(t)
	router := optional[cloud.Router](t, c)
	ctx := t.Context()
	g.Expect(router.Routes(ctx)).To(BeEmpty(), "a new cloud has routes")
	one, two := server(t, c, "node-1"), server(t, c, "node-2")
	a := cloud.Route{Destination: netip.MustParsePrefix("10.244.1.0/24"), Server: one.ID}
	b := cloud.Route{Destination: netip.MustParsePrefix("10.244.2.0/24"), Server: two.ID}
	g.Expect(router.AddRoute(ctx, a)).To(Succeed())
	g.Expect(router.AddRoute(ctx, b)).To(Succeed())
	g.Expect(routesOf(ctx, router)).To(ConsistOf(a, b))
	g.Expect(router.DeleteRoute(ctx, a)).To(Succeed())
	g.Expect(routesOf(ctx, router)).To(ConsistOf(b))
	g.Expect(router.DeleteRoute(ctx, a)).To(isNotFound())
}

// routesOf returns the routes in one form: a route to a server may say its address, too.
func routesOf(ctx context.Context, router cloud.Router) ([]cloud.Route, error) {
	all, err := router.Routes(ctx)
	for i := range all {
		if all[i].Server != "" {
			all[i].Address = ""
		}
	}
	return all, err
}

// otherRoute shows that a route stays if the one to be deleted leads elsewhere.
func otherRoute(t *testing.T, s *suite) {
	g, c := NewWithT(t), s.start(t)
	router := optional[cloud.Router](t, c)
	ctx := t.Context()
	one, two := server(t, c, "node-1"), server(t, c, "node-2")
	there := cloud.Route{Destination: netip.MustParsePrefix("10.244.1.0/24"), Server: one.ID}
	g.Expect(router.AddRoute(ctx, there)).To(Succeed())
	g.Expect(router.DeleteRoute(ctx, cloud.Route{Destination: there.Destination, Server: two.ID})).To(isNotFound())
	g.Expect(routesOf(ctx, router)).To(ConsistOf(there))
}

func balanced(t *testing.T, s *suite) {
	g, o := NewWithT(t), Options(t)
	c := s.startWith(t, o)
	ctx := t.Context()
	g.Expect(c.LoadBalancers(ctx)).To(BeEmpty(), "a new cloud has load balancers")
	if s.config.CreateLoadBalancer == nil {
		t.Skip("Config.CreateLoadBalancer is nil: no load balancer can be created")
	}
	one, two := server(t, c, "node-1"), server(t, c, "node-2")
	nodePort := answering(t, one, two)
	port := freePort(t)
	g.Expect(s.config.CreateLoadBalancer(ctx, c, "web", port, nodePort, one, two)).To(Succeed())
	var lb cloud.LoadBalancer
	g.Eventually(func(g Gomega) {
		all, err := c.LoadBalancers(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(all).To(HaveLen(1))
		lb = all[0]
		g.Expect(lb.Addresses).NotTo(BeEmpty())
	}, s.config.Slow, polling).Should(Succeed())
	g.Expect(lb.ID).NotTo(BeEmpty())
	g.Expect(lb.Ports).To(HaveLen(1))
	g.Expect(lb.Ports[0]).To(And(HaveField("Port", int32(port)), HaveField("NodePort", int32(nodePort))))
	expectTargets(g, lb.Ports[0].Targets, one, two)

	if one.Local.IsValid() {
		answers := map[string]bool{}
		g.Eventually(func(g Gomega) {
			name, err := read(ctx, c, lb.Addresses[0], port)
			g.Expect(err).NotTo(HaveOccurred())
			answers[name] = true
			g.Expect(answers).To(HaveLen(2), "one server gets all connections")
		}, s.config.Slow, polling).Should(Succeed())
	}
	g.Expect(c.DeleteLoadBalancer(ctx, lb.ID)).To(Succeed())
	g.Expect(c.LoadBalancers(ctx)).To(BeEmpty())
	g.Expect(c.DeleteLoadBalancer(ctx, lb.ID)).To(isNotFound())
}

// expectTargets checks that the targets are the servers, by their IDs or addresses.
func expectTargets(g *WithT, targets []cloud.Target, servers ...cloud.Server) {
	g.THelper()
	g.Expect(targets).To(HaveLen(len(servers)))
	for _, one := range servers {
		g.Expect(slices.ContainsFunc(targets, func(target cloud.Target) bool { return target.Is(one) })).To(BeTrue(),
			"%s is not among %v", one.Name, targets)
	}
	for _, target := range targets {
		g.Expect(target.Health).To(BeElementOf(cloud.Healthy, cloud.Unhealthy, cloud.Unknown))
	}
}

// answering makes each server answer with its name. It returns the port, the same on all servers.
func answering(t *testing.T, servers ...cloud.Server) (port uint16) {
	t.Helper()
	for _, s := range servers {
		if !s.Local.IsValid() {
			return 30080
		}
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", netip.AddrPortFrom(s.Local, port).String())
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		t.Cleanup(func() { _ = l.Close() })
		port = netip.MustParseAddrPort(l.Addr().String()).Port()
		go func() {
			for {
				client, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(client, s.Name)
				_ = client.Close()
			}
		}()
	}
	return port
}

// freePort returns a port that is free on this host now.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer func() { _ = l.Close() }()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

// read returns the answer of a server behind a load balancer.
func read(ctx context.Context, c cloud.Cloud, address string, port uint16) (string, error) {
	dial := func(ctx context.Context, to string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", to)
	}
	if dialer, ok := cloud.As[cloud.Dialer](c); ok {
		dial = dialer.Dial
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := dial(ctx, net.JoinHostPort(address, strconv.Itoa(int(port))))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	text, err := io.ReadAll(conn)
	if err == nil && len(text) == 0 {
		err = fmt.Errorf("%s:%d closed the connection without an answer", address, port)
	}
	return string(text), err
}

func limited(t *testing.T, s *suite) {
	g, c := NewWithT(t), s.start(t)
	limiter := optional[cloud.Limiter](t, c)
	if s.config.CreateLoadBalancer == nil {
		t.Skip("Config.CreateLoadBalancer is nil: no load balancer can be created")
	}
	ctx, one := t.Context(), server(t, c, "node-1")
	create := func(name string) error { return s.config.CreateLoadBalancer(ctx, c, name, freePort(t), 30080, one) }
	g.Expect(limiter.LimitLoadBalancers(ctx, 1)).To(Succeed())
	g.Expect(create("first")).To(Succeed())
	g.Expect(create("second")).NotTo(Succeed(), "the limit has no effect")
	g.Expect(c.LoadBalancers(ctx)).To(HaveLen(1))
	g.Expect(limiter.LimitLoadBalancers(ctx, -1)).To(Succeed())
	g.Expect(create("second")).To(Succeed(), "the limit has not ended")
}
