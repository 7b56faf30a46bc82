package plane

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/simclock"
)

const (
	trafficPort = 30080
	checkPort   = 30081
)

// serving is a cloud with a program on each server that answers on all ports, if packets reach it.
type serving struct {
	*testing.T
	core    *cloud.Cloud
	p       cloud.Project
	step    func(time.Duration)
	network int64
	cases   []servedCase
}

// servedCase is a load balancer with one target.
type servedCase struct {
	name, path string
	passes     bool // whether connections pass the firewall
	lb, server int64
}

func startServing(t *testing.T) *serving {
	t.Helper()
	core := cloud.New(cloud.Options{
		Clock: simclock.NewAt(time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC), 0), LoadBalancerIPv4: netip.MustParsePrefix("127.66.0.0/16"),
	})
	t.Cleanup(core.Close)
	s := &serving{T: t, core: core}
	s.p, _ = core.Project(1)
	s.step = func(d time.Duration) { s.ok(s.move(d)) }
	n, _, err := s.p.CreateNetwork(cloud.CreateNetwork{
		Name: "n", IPRange: netip.MustParsePrefix("10.0.0.0/16"), Subnets: []cloud.Subnet{{Type: "cloud", NetworkZone: "eu-central"}},
	})
	s.ok(err)
	s.network = n.ID
	return s
}

func (s *serving) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *serving) move(d time.Duration) error {
	err := s.core.Clock().(*simclock.Clock).Step(d)
	s.core.Settle()
	return err
}

// startPackets gives the cloud a data plane.
func (s *serving) startPackets() *Balancers {
	program := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	s.Cleanup(program.Close)
	plane := StartBalancers(s.core, Options{
		Logger:   slog.New(slog.DiscardHandler),
		Resolver: func(dataplane.Target, uint16) (string, error) { return program.Listener.Addr().String(), nil },
	})
	s.Cleanup(plane.Close)
	s.step = func(d time.Duration) { s.ok(plane.Step(d, s.move)) }
	return plane
}

// all are the rules of a firewall that permits some ports to all.
func all(ports ...string) (rules []cloud.FirewallRule) {
	for _, p := range ports {
		rules = append(rules, cloud.FirewallRule{Direction: "in", Protocol: "tcp", Port: p,
			SourceIPs: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}})
	}
	return rules
}

var guards = []struct {
	name    string
	none    bool // no firewall
	rules   []cloud.FirewallRule
	traffic bool // whether connections pass
}{
	{name: "no firewall", none: true, traffic: true},
	{name: "all ports", rules: all("any"), traffic: true},
	{name: "the check's port", rules: all(strconv.Itoa(checkPort))},
	{name: "the traffic's port", rules: all(strconv.Itoa(trafficPort)), traffic: true},
	{name: "no rule"},
}

// populate creates a server for each firewall, path and health check, each with its load balancer.
func (s *serving) populate() {
	for _, guard := range guards {
		for _, path := range []string{"IPv4", "IPv6", "private", "ip"} {
			for _, check := range []string{"tcp", "http"} {
				c := servedCase{name: guard.name + ", " + path + ", " + check, path: path}
				c.passes = guard.traffic || path == "private" || path == "ip"
				s.add(c, check, guard.none, guard.rules)
			}
		}
	}
}

func (s *serving) add(c servedCase, check string, open bool, rules []cloud.FirewallRule) {
	name := "s" + fmt.Sprint(len(s.cases))
	created, _, err := s.p.CreateServer(cloud.CreateServer{
		Name: name, ServerType: "cx23", Image: "debian-13", Location: "fsn1", StartAfterCreate: true,
		IPv4: cloud.ServerPublicIP{Enabled: true}, IPv6: cloud.ServerPublicIP{Enabled: true}, Networks: []int64{s.network},
	})
	s.ok(err)
	server := created.Server
	if !open {
		_, _, _, err = s.p.CreateFirewall(cloud.CreateFirewall{
			Name: name, Rules: rules, ApplyTo: []cloud.FirewallTarget{{Server: server.ID}},
		})
		s.ok(err)
	}
	target := cloud.TargetInput{Type: "server", Server: server.ID}
	switch c.path {
	case "IPv6":
		ip, _ := s.p.View().PrimaryIPs.Get(server.PublicIPv6)
		target.ServerIP = ip.IP.Addr().Next()
	case "private":
		target.UsePrivateIP = true
	case "ip":
		target = cloud.TargetInput{Type: "ip", IP: netip.MustParseAddr("203.0.113.1")}
	}
	tcp, listen, to, probed := "tcp", 8080, trafficPort, checkPort
	lb, _, _, err := s.p.CreateLoadBalancer(cloud.CreateLoadBalancer{
		Name: name, Type: "lb11", Location: "fsn1", Network: s.network, Targets: []cloud.TargetInput{target},
		Services: []cloud.ServiceInput{{
			Protocol: &tcp, ListenPort: &listen, DestinationPort: &to,
			HealthCheck: &cloud.HealthCheckInput{Protocol: &check, Port: &probed},
		}},
	})
	s.ok(err)
	c.lb, c.server = lb.ID, server.ID
	s.cases = append(s.cases, c)
}

// health returns the health of a load balancer's target, or "" if the target is gone.
func (s *serving) health(lb int64) string {
	l, _ := s.p.View().LoadBalancers.Get(lb)
	for t := range l.Backends() {
		return t.Health[0].Status + " " + t.Health[0].Detail
	}
	return ""
}

// dial connects to a load balancer. It returns nil if the load balancer, without a healthy target, closes the connection meanwhile.
func (s *serving) dial(plane *Balancers, lb int64) net.Conn {
	s.Helper()
	l, _ := s.p.View().LoadBalancers.Get(lb)
	c, err := plane.DialContext(s.Context(), "tcp", netip.AddrPortFrom(l.IPv4.Addr, 8080).String())
	if errors.Is(err, syscall.ECONNRESET) {
		return nil
	}
	s.ok(err)
	s.Cleanup(func() { _ = c.Close() })
	return c
}

// answers reports whether a program answers over a connection.
func answers(c net.Conn) bool {
	if c == nil {
		return false
	}
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	return string(body) == "hello"
}

// One rule decides whether a target serves, with and without packets: in all states of its server, its firewalls, the network and
// the health check, both clouds show the same health, and clients get an answer only from a target that is healthy in both.
func TestATargetServesWithPacketsAsWithout(t *testing.T) {
	t.Parallel()
	for _, state := range serverStates {
		t.Run(state.name, func(t *testing.T) {
			t.Parallel()
			still, moves := startServing(t), startServing(t)
			plane := moves.startPackets()
			still.populate()
			moves.populate()
			settle := 100 * time.Second // for health checks with the default settings
			still.step(settle)
			moves.step(settle)
			open := map[int64]net.Conn{}
			for i, c := range moves.cases {
				if c.passes && moves.health(c.lb) == "healthy " {
					if open[c.lb] = moves.dial(plane, c.lb); !answers(open[c.lb]) {
						t.Errorf("%s: no answer from a running server", c.name)
					}
				}
				for _, s := range []*serving{still, moves} {
					s.ok(state.change(s, s.p, s.cases[i].server, func() { s.core.SetProfile(cloud.ProfileFixed(time.Hour)) }))
					s.core.SetProfile(cloud.ProfileInstant)
				}
			}
			still.step(settle)
			moves.step(settle)
			for i, c := range moves.cases {
				want := still.health(still.cases[i].lb)
				if got := moves.health(c.lb); got != want {
					t.Errorf("%s: the target is %q with packets, %q without", c.name, got, want)
				}
				keeps := c.path == "ip" || state.keeps != nil && state.keeps(c.path)
				if old := open[c.lb]; old != nil && answers(old) != keeps {
					t.Errorf("%s: an established connection has an answer: %t, want %t", c.name, !keeps, keeps)
				}
				healthy := want == "healthy "
				if healthy && !c.passes {
					continue // a connection times out
				}
				if got := answers(moves.dial(plane, c.lb)); got != healthy {
					t.Errorf("%s: a new connection has an answer: %t, want %t", c.name, got, healthy)
				}
			}
		})
	}
}

// serverStates are what can become of a server that runs. slow makes all later actions last.
var serverStates = []struct {
	name   string
	change func(s *serving, p cloud.Project, server int64, slow func()) error
	keeps  func(path string) bool // whether its connections continue; nil for no
}{
	{"running", func(*serving, cloud.Project, int64, func()) error { return nil }, func(string) bool { return true }},
	{"behind one more firewall, without rules", func(_ *serving, p cloud.Project, server int64, _ func()) error {
		_, _, _, err := p.CreateFirewall(cloud.CreateFirewall{
			Name: fmt.Sprint("more-", server), ApplyTo: []cloud.FirewallTarget{{Server: server}},
		})
		return err
	}, func(string) bool { return true }},
	{"off", powerOff, nil},
	{"off and on again", func(s *serving, p cloud.Project, server int64, _ func()) error {
		s.ok(powerOff(s, p, server, nil))
		_, _, err := p.PowerOnServer(server)
		return err
	}, nil},
	{"reset", func(_ *serving, p cloud.Project, server int64, _ func()) error {
		_, _, err := p.ResetServer(server)
		return err
	}, nil},
	{"rescue system", func(s *serving, p cloud.Project, server int64, _ func()) error {
		_, _, _, err := p.EnableServerRescue(server, nil)
		s.ok(err)
		_, _, err = p.RebootServer(server)
		return err
	}, nil},
	{"stopping", func(s *serving, p cloud.Project, server int64, slow func()) error {
		slow()
		return powerOff(s, p, server, nil)
	}, nil},
	{"shut down", func(_ *serving, p cloud.Project, server int64, _ func()) error {
		_, _, err := p.ShutdownServer(server)
		return err
	}, nil},
	{"starting", func(s *serving, p cloud.Project, server int64, slow func()) error {
		s.ok(powerOff(s, p, server, nil))
		slow()
		_, _, err := p.PowerOnServer(server)
		return err
	}, nil},
	{"rebuilding", func(_ *serving, p cloud.Project, server int64, slow func()) error {
		slow()
		_, _, _, err := p.RebuildServer(server, cloud.RebuildServer{Image: "debian-13"})
		return err
	}, nil},
	{"migrating", func(s *serving, p cloud.Project, server int64, slow func()) error {
		s.ok(powerOff(s, p, server, nil))
		slow()
		_, _, err := p.ChangeServerType(server, "cx33", false)
		return err
	}, nil},
	{"deleting", func(_ *serving, p cloud.Project, server int64, slow func()) error {
		slow()
		_, _, err := p.DeleteServer(server)
		return err
	}, nil},
	{"deleted", func(_ *serving, p cloud.Project, server int64, _ func()) error {
		_, _, err := p.DeleteServer(server)
		return err
	}, nil},
	{"out of the network", func(s *serving, p cloud.Project, server int64, _ func()) error {
		_, _, err := p.DetachServerFromNetwork(server, s.network)
		return err
	}, func(path string) bool { return path != "private" }},
}

func powerOff(_ *serving, p cloud.Project, server int64, _ func()) error {
	_, _, err := p.PowerOffServer(server)
	return err
}
