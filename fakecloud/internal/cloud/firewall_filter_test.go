package cloud

import (
	"net/netip"
	"testing"
	"time"
)

// inFrom permits TCP from a network to a port or range.
func inFrom(network, port string) FirewallRule {
	return FirewallRule{Direction: "in", Protocol: "tcp", Port: port, SourceIPs: []netip.Prefix{netip.MustParsePrefix(network)}}
}

// filterCase is a pair of firewalls of a server, and whether a load balancer reaches port 80 of its addresses.
type filterCase struct {
	name       string
	first, two []FirewallRule
	v4, v6     bool
}

func filterCases(lb *LoadBalancer) []filterCase {
	outbound := inFrom("0.0.0.0/0", "80")
	outbound.Direction, outbound.SourceIPs, outbound.DestinationIPs = "out", nil, outbound.SourceIPs
	udp := inFrom("0.0.0.0/0", "80")
	udp.Protocol = "udp"
	return []filterCase{
		{"no rule", nil, nil, false, false},
		{"the port", []FirewallRule{inFrom("0.0.0.0/0", "80")}, nil, true, false},
		{"another port", []FirewallRule{inFrom("0.0.0.0/0", "81")}, nil, false, false},
		{"the first port of a range", []FirewallRule{inFrom("0.0.0.0/0", "80-90")}, nil, true, false},
		{"the last port of a range", []FirewallRule{inFrom("0.0.0.0/0", "70-80")}, nil, true, false},
		{"a range that ends before the port", []FirewallRule{inFrom("0.0.0.0/0", "70-79")}, nil, false, false},
		{"a range that starts after the port", []FirewallRule{inFrom("0.0.0.0/0", "81-90")}, nil, false, false},
		{"any port", []FirewallRule{inFrom("0.0.0.0/0", "any")}, nil, true, false},
		{"all IPv6 sources", []FirewallRule{inFrom("::/0", "80")}, nil, false, true},
		{"the load balancer's IPv4 address", []FirewallRule{inFrom(lb.IPv4.Addr.String()+"/32", "80")}, nil, true, false},
		{"the load balancer's IPv6 address", []FirewallRule{inFrom(lb.IPv6.Addr.String()+"/128", "80")}, nil, false, true},
		{"another address", []FirewallRule{inFrom("192.0.2.1/32", "80")}, nil, false, false},
		{"the load balancer's private network", []FirewallRule{inFrom("10.0.0.0/8", "80")}, nil, false, false},
		{"outbound traffic", []FirewallRule{outbound}, nil, false, false},
		{"UDP", []FirewallRule{udp}, nil, false, false},
		{"the second rule permits it", []FirewallRule{inFrom("0.0.0.0/0", "22"), inFrom("0.0.0.0/0", "80")}, nil, true, false},
		{"the second firewall permits it", []FirewallRule{inFrom("0.0.0.0/0", "22")}, []FirewallRule{inFrom("0.0.0.0/0", "80")}, true,
			false},
		{"both together permit both families", []FirewallRule{inFrom("::/0", "80")}, []FirewallRule{inFrom("0.0.0.0/0", "80")}, true, true},
	}
}

func TestTheRulesOfFirewallsDecideWhatALoadBalancerReaches(t *testing.T) {
	t.Parallel()
	p, n, clk := lbCloud(t)
	s := lbServer(t, p, "s", nil, n)
	v6 := serverTarget(s)
	ip, _ := p.View().PrimaryIPs.Get(s.PublicIPv6)
	v6.ServerIP = ip.IP.Addr().Next()
	lb := newLB(t, p, clk, CreateLoadBalancer{Network: n.ID, Services: []ServiceInput{tcp(80, 80)},
		Targets: []TargetInput{serverTarget(s), v6}})
	for _, tc := range filterCases(lb) {
		var ids []int64
		for _, rules := range [][]FirewallRule{tc.first, tc.two} {
			f, _, _, err := p.CreateFirewall(CreateFirewall{Name: "f" + itoa(int64(len(ids))), Rules: rules,
				ApplyTo: []FirewallTarget{{Server: s.ID}}})
			check(t, err)
			ids = append(ids, f.ID)
		}
		clk.Step(time.Second)
		st := p.View()
		for i, want := range []bool{tc.v4, tc.v6} {
			if got := st.Refusal(lb, &lb.Targets[i], 80) == ""; got != want {
				t.Errorf("%s: the load balancer reaches %s: %t, want %t", tc.name, lb.Targets[i].IP, got, want)
			}
		}
		if st.Refusal(lb, &LoadBalancerTarget{Type: "server", Server: s.ID, IP: s.PrivateNets[0].IP, UsePrivateIP: true}, 80) != "" {
			t.Errorf("%s: the firewalls filter the private network", tc.name)
		}
		if st.Refusal(lb, &LoadBalancerTarget{Type: "ip", IP: netip.MustParseAddr("203.0.113.7")}, 80) != "" {
			t.Errorf("%s: the firewalls filter an address outside of the cloud", tc.name)
		}
		for _, id := range ids {
			did(p.RemoveFirewall(id, []FirewallTarget{{Server: s.ID}}))(t)
			clk.Step(time.Second)
			check(t, p.DeleteFirewall(id))
		}
		if st := p.View(); st.Refusal(lb, &lb.Targets[0], 80) != "" || st.Refusal(lb, &lb.Targets[1], 80) != "" {
			t.Fatalf("%s: the removed firewalls still filter", tc.name)
		}
	}
}

func TestAFirewallFiltersFromTheEndOfItsAction(t *testing.T) {
	t.Parallel()
	p, _, clk := lbCloud(t)
	s := lbServer(t, p, "s", map[string]string{"role": "web"})
	lb := newLB(t, p, clk, CreateLoadBalancer{Services: []ServiceInput{tcp(80, 80)}, Targets: []TargetInput{serverTarget(s)}})
	f, _, _, err := p.CreateFirewall(CreateFirewall{Name: "f"})
	check(t, err)
	open := []FirewallRule{anyIn("80")}
	change := func(what string, before, after bool, start func() error) {
		t.Helper()
		if err := start(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		for _, want := range []bool{before, after} {
			if got := p.View().Refusal(lb, &lb.Targets[0], 80) == ""; got != want {
				t.Errorf("%s: reaches %t, want %t; during the action %t", what, got, want, before)
			}
			checkFirewalls(t, p.View())
			clk.Step(time.Second)
		}
	}
	apply := func(to FirewallTarget) func() error {
		return func() error { _, _, err := p.ApplyFirewall(f.ID, []FirewallTarget{to}); return err }
	}
	remove := func(from FirewallTarget) func() error {
		return func() error { _, _, err := p.RemoveFirewall(f.ID, []FirewallTarget{from}); return err }
	}
	rules := func(p Project, rules []FirewallRule) func() error {
		return func() error { _, _, err := p.SetFirewallRules(f.ID, rules); return err }
	}
	labels := func(role string) func() error {
		return func() error {
			_, err := p.UpdateServer(s.ID, UpdateResource{Labels: map[string]string{"role": role}})
			return err
		}
	}
	direct, byLabel := FirewallTarget{Server: s.ID}, FirewallTarget{Selector: "role=web"}
	failing := p.WithOutcome(&ActionOutcome{Fail: true})
	change("fail to apply to the server", true, true, func() error {
		_, _, err := failing.ApplyFirewall(f.ID, []FirewallTarget{direct})
		return err
	})
	change("apply to the server", true, false, apply(direct))
	change("set rules that permit", false, true, rules(p, open))
	change("fail to set no rules", true, true, rules(failing, nil))
	change("set no rules", true, false, rules(p, nil))
	change("fail to remove from the server", false, false, func() error {
		_, _, err := failing.RemoveFirewall(f.ID, []FirewallTarget{direct})
		return err
	})
	change("remove from the server", false, true, remove(direct))
	change("apply by label", true, false, apply(byLabel))
	change("apply to the server, too", false, false, apply(direct))
	change("remove from the server, not by label", false, false, remove(direct))
	change("take the label away", true, true, labels("db"))
	change("give the label back", true, false, labels("web"))
	change("remove by label", false, true, remove(byLabel))
}

func TestHealthFollowsFirewallsWithoutADataPlane(t *testing.T) {
	t.Parallel()
	p, n, clk := lbCloud(t)
	s := lbServer(t, p, "s", map[string]string{"role": "web"}, n)
	private := lbServer(t, p, "private", map[string]string{"role": "web"}, n)
	quick := tcp(80, 80)
	quick.HealthCheck = &HealthCheckInput{Interval: new(3), Retries: new(2)}
	checked := tcp(81, 81)
	checked.HealthCheck = &HealthCheckInput{Interval: new(3), Retries: new(2), Port: new(80)}
	lb := newLB(t, p, clk, CreateLoadBalancer{Network: n.ID, Services: []ServiceInput{quick, checked},
		Targets: []TargetInput{serverTarget(s), privateTarget(private)}})
	clk.Step(3 * time.Second)
	f, _, _, err := p.CreateFirewall(CreateFirewall{Name: "f", ApplyTo: []FirewallTarget{{Selector: "role=web"}}})
	check(t, err)
	expect := func(after time.Duration, want string) {
		t.Helper()
		clk.Step(after)
		if got, want := healthOf(getLB(t, p, lb.ID)), want+" | healthy/healthy"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	const up, dropped = "healthy/healthy", "unhealthy(layer4_timeout)/unhealthy(layer4_timeout)"
	clk.Step(time.Second) // the firewall is applied
	expect(5*time.Second, up)
	expect(time.Second, dropped)
	ruled := func(rules ...FirewallRule) {
		t.Helper()
		did(p.SetFirewallRules(f.ID, rules))(t)
		clk.Step(time.Second)
	}
	ruled(anyIn("81")) // not the port of the health checks
	expect(time.Minute, dropped)
	ruled(anyIn("80"))
	expect(5*time.Second, dropped)
	expect(time.Second, up)
	ruled()
	expect(6*time.Second, dropped)
	if _, err := p.UpdateServer(s.ID, UpdateResource{Labels: map[string]string{}}); err != nil {
		t.Fatal(err)
	}
	expect(5*time.Second, dropped)
	expect(time.Second, up)
	if _, err := p.UpdateServer(s.ID, UpdateResource{Labels: map[string]string{"role": "web"}}); err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Second) // the firewall is applied
	expect(5*time.Second, up)
	expect(time.Second, dropped)
	must(t, p, func(tx *Tx) { tx.setServerStatus(s.ID, ServerOff) })
	expect(6*time.Second, "unhealthy(layer4_no_connection)/unhealthy(layer4_no_connection)")
	must(t, p, func(tx *Tx) { tx.setServerStatus(s.ID, ServerRunning) })
	expect(6*time.Second, dropped)
}
