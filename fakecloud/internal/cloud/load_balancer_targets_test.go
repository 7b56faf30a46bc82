package cloud

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// describe returns the targets of a load balancer: servers by name, the servers of a selector in brackets.
func describe(p Project, targets []LoadBalancerTarget) string {
	var parts []string
	for _, t := range targets {
		switch t.Type {
		case "server":
			s, _ := p.View().Servers.Get(t.Server)
			kind := ""
			if t.UsePrivateIP {
				kind = "/private"
			}
			if t.IP.Is6() {
				kind = "/ipv6"
			}
			parts = append(parts, s.Name+kind)
		case "ip":
			parts = append(parts, t.IP.String())
		default:
			parts = append(parts, t.Selector+"["+describe(p, selectedBy(t))+"]")
		}
	}
	return strings.Join(parts, " ")
}

// selectedBy returns the servers that a target selects.
func selectedBy(t LoadBalancerTarget) (all []LoadBalancerTarget) {
	for n := range t.Targets.All() {
		all = append(all, *n)
	}
	return all
}

func firstSelected(t LoadBalancerTarget) LoadBalancerTarget { return selectedBy(t)[0] }

func TestInvalidTargetsAreRefused(t *testing.T) {
	t.Parallel()
	p, n, clk := lbCloud(t)
	inside := lbServer(t, p, "inside", nil, n)
	outside := lbServer(t, p, "outside", nil)
	private := lbServer(t, p, "private", nil, n)
	must(t, p, func(tx *Tx) { tx.Servers.Update(private.ID, func(s *Server) { s.PublicIPv4 = 0 }) })
	v6, _ := p.View().PrimaryIPs.Get(inside.PublicIPv6)

	alone := newLB(t, p, clk, CreateLoadBalancer{Name: "alone"})
	joined := newLB(t, p, clk, CreateLoadBalancer{Name: "joined", Network: n.ID})
	hidden := newLB(t, p, clk, CreateLoadBalancer{Name: "hidden", Network: n.ID, PublicInterface: new(false)})
	withIP := func(in TargetInput, ip netip.Addr) TargetInput { in.ServerIP = ip; return in }
	asPrivate := func(in TargetInput) TargetInput { in.UsePrivateIP = true; return in }
	for name, tc := range map[string]struct {
		lb   *LoadBalancer
		in   TargetInput
		want string
	}{
		"no server":                    {alone, TargetInput{Type: "server"}, "server"},
		"unknown server":               {alone, TargetInput{Type: "server", Server: 7}, "server.id"},
		"public server":                {alone, serverTarget(outside), ""},
		"private":                      {joined, privateTarget(inside), ""},
		"private without IPv4":         {joined, privateTarget(private), ""},
		"selector, interface disabled": {hidden, selectorTarget("a"), "load_balancer_public_interface_disabled"},
		"private selector":             {hidden, asPrivate(selectorTarget("a")), ""},
		"empty selector":               {alone, selectorTarget(" "), "label_selector.selector"},
		"bad selector":                 {alone, selectorTarget("a in b"), "label_selector.selector"},
		"the server's IPv4":            {alone, withIP(serverTarget(inside), publicIPv4(p, inside)), ""},
		"an IPv6 of the server":        {alone, withIP(serverTarget(inside), v6.IP.Addr().Next().Next()), ""},
		"another IPv6": {alone, withIP(serverTarget(inside), netip.MustParseAddr("2001:db8:ffff::1")),
			"ip_not_assigned_to_server"},
		"an IPv4 of a server without":        {alone, withIP(serverTarget(private), publicIPv4(p, inside)), "ip_not_assigned_to_server"},
		"an IP of a private target":          {joined, withIP(privateTarget(inside), publicIPv4(p, inside)), "server.ip"},
		"no IP":                              {alone, TargetInput{Type: "ip"}, "ip.ip"},
		"an IP":                              {alone, ipTarget("203.0.113.9"), ""},
		"a private IP target by use_private": {joined, asPrivate(ipTarget("203.0.113.9")), "use_private_ip"},
		"a server's IPv6":                    {alone, ipTarget(v6.IP.Addr().Next().String()), "ip_not_owned"},
		"a load balancer's IP":               {alone, ipTarget(joined.IPv4.Addr.String()), "ip_not_owned"},
		"a multicast IP":                     {alone, ipTarget("224.0.0.1"), "ip_not_owned"},
		"a public IP, interface disabled":    {hidden, ipTarget("203.0.113.9"), "load_balancer_public_interface_disabled"},
		"a private IP without network":       {alone, ipTarget("10.0.9.1"), "load_balancer_not_attached_to_network"},
	} {
		err := tc.lb.Clone().addTarget(p.View(), p.cloud, tc.in, "")
		if got := codeOf(err); got != tc.want {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestOnlyOwnedDedicatedServersCanBeTargets(t *testing.T) {
	t.Parallel()
	p, n, clk := lbCloud(t, func(o *Options) { o.DedicatedServers = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/28")} })
	did(p.AddSubnet(n.ID, Subnet{
		Type: SubnetVSwitch, IPRange: netip.MustParsePrefix("10.0.9.0/24"), NetworkZone: "eu-central", VSwitchID: 5000,
	}))(t)
	clk.Step(time.Second)
	lb := newLB(t, p, clk, CreateLoadBalancer{Network: n.ID})
	for ip, want := range map[string]string{
		"203.0.113.15": "", "203.0.113.16": "ip_not_owned", "10.0.9.7": "", "10.0.1.7": "ip_not_in_vswitch_subnet",
	} {
		if err := lb.Clone().addTarget(p.View(), p.cloud, ipTarget(ip), ""); codeOf(err) != want {
			t.Errorf("%s: %v, want %q", ip, err, want)
		}
	}
}

func TestTargetsAreAddedOnceAndRemoved(t *testing.T) {
	t.Parallel()
	p, n, clk := lbCloud(t)
	s := lbServer(t, p, "s", map[string]string{"a": "1"}, n)
	v6, _ := p.View().PrimaryIPs.Get(s.PublicIPv6)
	byIPv6 := serverTarget(s)
	byIPv6.ServerIP = v6.IP.Addr().Next()
	lb := newLB(t, p, clk, CreateLoadBalancer{Network: n.ID})
	do := func(call func(int64, TargetInput) (int64, *State, error), in TargetInput, want string) {
		t.Helper()
		action, _, err := call(lb.ID, in)
		if codeOf(err) != want {
			t.Fatalf("%v, want %q", err, want)
		}
		if err == nil {
			ended(t, p, clk, action, "")
		}
	}
	add, remove := p.AddLoadBalancerTarget, p.RemoveLoadBalancerTarget
	do(add, serverTarget(s), "")
	do(add, serverTarget(s), "target_already_defined")
	do(add, privateTarget(s), "target_already_defined")
	do(add, byIPv6, "")
	do(add, byIPv6, "target_already_defined")
	do(add, selectorTarget("a=1"), "")
	do(add, selectorTarget("a=1"), "target_already_defined")
	do(add, ipTarget("203.0.113.9"), "")
	do(add, ipTarget("203.0.113.9"), "target_already_defined")
	if got := describe(p, getLB(t, p, lb.ID).Targets); got != "s s/ipv6 a=1[s] 203.0.113.9" {
		t.Errorf("targets %s", got)
	}
	do(remove, serverTarget(s), "")
	do(remove, serverTarget(s), fmt.Sprintf("server with ID %d not found", s.ID)) // the other target needs the IPv6 address
	do(remove, ipTarget("203.0.113.8"), "not_found")
	do(remove, selectorTarget("a"), "not_found")
	do(remove, byIPv6, "")
	do(remove, ipTarget("203.0.113.9"), "")
	if got := server(t, p, s.ID).LoadBalancers; len(got) != 1 {
		t.Errorf("the server is still selected, but has the load balancers %v", got)
	}
	do(remove, selectorTarget("a=1"), "")
	if got := server(t, p, s.ID).LoadBalancers; len(got) != 0 {
		t.Errorf("load balancers of the server: %v", got)
	}
	do(add, privateTarget(s), "")
	if got := getLB(t, p, lb.ID).Targets; len(got) != 1 || got[0].IP != s.PrivateNets[0].IP {
		t.Errorf("%+v", got)
	}
	do(remove, serverTarget(s), "")
	if got := getLB(t, p, lb.ID).Targets; len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestTargetsAreLimitedByTheType(t *testing.T) {
	t.Parallel()
	p, _, clk := lbCloud(t)
	for i := range 5 {
		lbServer(t, p, fmt.Sprint("s", i), map[string]string{"a": "1"})
	}
	lb := newLB(t, p, clk, CreateLoadBalancer{Type: "small", Targets: []TargetInput{selectorTarget("a"), selectorTarget("b")}})
	if got := lb.Targets[0].Targets.Len(); got != 5 {
		t.Errorf("the selector selects %d servers", got)
	}
	if _, _, err := p.AddLoadBalancerTarget(lb.ID, selectorTarget("c")); codeOf(err) != "resource_limit_exceeded" {
		t.Errorf("one too many: %v", err)
	}
}

func TestLabelSelectorTargetsFollowTheLabels(t *testing.T) {
	t.Parallel()
	p, n, clk := lbCloud(t)
	web := map[string]string{"role": "web"}
	a := lbServer(t, p, "a", web, n)
	b := lbServer(t, p, "b", nil)
	public := newLB(t, p, clk, CreateLoadBalancer{Name: "public", Targets: []TargetInput{selectorTarget("role=web")},
		Services: []ServiceInput{tcp(80, 80)}})
	in := selectorTarget("role=web")
	in.UsePrivateIP = true
	private := newLB(t, p, clk, CreateLoadBalancer{Name: "private", Network: n.ID, Targets: []TargetInput{in}})
	expect := func(step, wantPublic, wantPrivate string) {
		t.Helper()
		for lb, want := range map[*LoadBalancer]string{public: wantPublic, private: wantPrivate} {
			if got := describe(p, getLB(t, p, lb.ID).Targets); got != "role=web["+want+"]" {
				t.Errorf("%s: %s has %s, want %s", step, lb.Name, got, want)
			}
		}
		for _, s := range []*Server{a, b} {
			now, ok := p.View().Servers.Get(s.ID)
			if !ok {
				continue
			}
			var want []int64
			for _, lb := range []*LoadBalancer{public, private} {
				if getLB(t, p, lb.ID).hasServer(s.ID) {
					want = append(want, lb.ID)
				}
			}
			if !slices.Equal(now.LoadBalancers, want) {
				t.Errorf("%s: %s knows the load balancers %v, want %v", step, s.Name, now.LoadBalancers, want)
			}
		}
	}
	label := func(s *Server, labels map[string]string) {
		must(t, p, func(tx *Tx) {
			tx.Servers.Update(s.ID, func(s *Server) { s.Labels = labels })
			tx.refreshTargets(s.ID)
		})
	}
	expect("at first", "a", "a/private")
	if nested := firstSelected(getLB(t, p, public.ID).Targets[0]); nested.IP != publicIPv4(p, a) || len(nested.Health) != 1 {
		t.Errorf("nested target %+v", nested)
	}
	label(b, web)
	expect("b is labelled", "a b", "a/private")
	must(t, p, func(tx *Tx) {
		check(t, tx.joinNetwork(Join{Member: b.Ref(), Zone: "eu-central", Network: n.ID}))
		tx.joined(b.Ref(), n.ID)
	})
	expect("b joins the network", "a b", "a/private b/private")
	lbServer(t, p, "c", web)
	expect("c is created", "a b c", "a/private b/private")
	label(a, map[string]string{"role": "db"})
	expect("a is labelled otherwise", "b c", "b/private")
	must(t, p, func(tx *Tx) { tx.leaveNetwork(b.Ref(), n.ID) })
	expect("b leaves the network", "b c", "")
	must(t, p, func(tx *Tx) { tx.removeServer(b.ID) })
	expect("b is deleted", "c", "")
}

func TestPrivateTargetsAreRemovedWithTheNetwork(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, p Project, lb *LoadBalancer, s *Server, n *Network) error{
		"the load balancer is detached": func(t *testing.T, p Project, lb *LoadBalancer, _ *Server, n *Network) error {
			action, _, err := p.DetachLoadBalancerFromNetwork(lb.ID, n.ID)
			if m, _ := p.View().Networks.Get(n.ID); err == nil {
				if member, _ := m.Member(lb.Ref()); member.Status != MemberDetaching {
					t.Errorf("status while it is detached: %s", member.Status)
				}
			}
			_ = action
			return err
		},
		"the server is detached": func(_ *testing.T, p Project, _ *LoadBalancer, s *Server, n *Network) error {
			_, _, err := p.DetachServerFromNetwork(s.ID, n.ID)
			return err
		},
		"the network is deleted": func(_ *testing.T, p Project, _ *LoadBalancer, _ *Server, n *Network) error {
			return p.DeleteNetwork(n.ID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, n, clk := lbCloud(t)
			s, other := lbServer(t, p, "s", nil, n), lbServer(t, p, "other", nil)
			selector := selectorTarget("!x")
			selector.UsePrivateIP = true
			lb := newLB(t, p, clk, CreateLoadBalancer{Network: n.ID, Targets: []TargetInput{privateTarget(s), serverTarget(other),
				selector}})
			if got := describe(p, lb.Targets); got != "s/private other !x[s/private]" {
				t.Fatalf("targets %s", got)
			}
			check(t, leave(t, p, lb, s, n))
			clk.Step(time.Second)
			if got := describe(p, getLB(t, p, lb.ID).Targets); got != "other !x[]" {
				t.Errorf("targets %s", got)
			}
			if got := server(t, p, s.ID).LoadBalancers; len(got) != 0 {
				t.Errorf("the server's load balancers: %v", got)
			}
		})
	}
}

func TestALoadBalancerThatCannotBeDetachedStaysInItsNetwork(t *testing.T) {
	t.Parallel()
	p, n, clk := lbCloud(t)
	lb := newLB(t, p, clk, CreateLoadBalancer{Network: n.ID})
	detach := did(p.WithOutcome(&ActionOutcome{Fail: true}).DetachLoadBalancerFromNetwork(lb.ID, n.ID))(t)
	ended(t, p, clk, detach, ActionFailedCode)
	if m, _ := p.View().Networks.Get(n.ID); len(m.Members) != 1 || m.Members[0].Status != MemberOK {
		t.Errorf("members after a failed detach: %+v", m.Members)
	}
}
