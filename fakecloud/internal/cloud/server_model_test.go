package cloud

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// checkInvariants fails the test if two resources do not agree about a reference, if an address is handed out
// twice, or if a lock has no action.
func checkInvariants(t *testing.T, st *State, c *Cloud) {
	t.Helper()
	held := map[netip.Addr]int64{}
	for ip := range st.PrimaryIPs.All() {
		if other, twice := held[ip.IP.Addr()]; twice {
			t.Errorf("%s belongs to primary IPs %d and %d", ip.IP, other, ip.ID)
		}
		held[ip.IP.Addr()] = ip.ID
		pool := c.ips.v4
		if ip.Type == IPv6 {
			pool = c.ips.v6
		}
		if _, taken := pool.inUse(ip.IP.Addr()); !taken {
			t.Errorf("%s of primary IP %d could be handed out again", ip.IP, ip.ID)
		}
		if !ip.Assigned() {
			continue
		}
		var has int64
		if s, ok := st.Servers.Get(ip.Assignee.ID); ok {
			has = s.primaryIP(ip.Type)
		} else if lb, ok := st.LoadBalancers.Get(ip.Assignee.ID); ok {
			has = map[IPType]int64{IPv4: lb.IPv4.PrimaryIP, IPv6: lb.IPv6.PrimaryIP}[ip.Type]
		}
		if has != ip.ID {
			t.Errorf("primary IP %d is assigned to %v, which has %d", ip.ID, ip.Assignee, has)
		}
	}
	for lb := range st.LoadBalancers.All() {
		for _, a := range []LoadBalancerIP{lb.IPv4, lb.IPv6} {
			base := a.Addr
			if base.Is6() {
				base = netip.PrefixFrom(base, 64).Masked().Addr()
			}
			if other, twice := held[base]; twice != (a.PrimaryIP != 0) || other != a.PrimaryIP {
				t.Errorf("%s of load balancer %d, with primary IP %d, belongs to %d", a.Addr, lb.ID, a.PrimaryIP, other)
			}
			held[base] = a.PrimaryIP
		}
		checkLoadBalancer(t, st, lb)
	}
	checkFloatingIPs(t, st, held)
	checkVolumes(t, st)
	checkFirewalls(t, st)
	if used := c.ips.v4.used.Len() + c.ips.v6.used.Len(); used != len(held) {
		t.Errorf("%d public addresses are taken, %d are held", used, len(held))
	}
	for s := range st.Servers.All() {
		checkServer(t, st, s)
	}
	for g := range st.PlacementGroups.All() {
		if len(g.Servers) > MaxServersPerPlacementGroup || !slices.IsSorted(g.Servers) {
			t.Errorf("placement group %d: %v", g.ID, g.Servers)
		}
		for _, id := range g.Servers {
			if s, ok := st.Servers.Get(id); !ok || s.PlacementGroup != g.ID {
				t.Errorf("placement group %d has server %d, which is not in it", g.ID, id)
			}
		}
	}
	memberships := 0
	for n := range st.Networks.All() {
		checkNetwork(t, st, n)
		memberships += len(n.Members)
	}
	if indexed := st.memberships.Len(); indexed != memberships {
		t.Errorf("%d memberships are indexed, networks have %d", indexed, memberships)
	}
	st.Actions.locks.Scan(func(l lock) bool {
		if a, ok := st.Actions.Get(l.action); !ok || a.Status != ActionRunning {
			t.Errorf("%x is locked by action %d, which does not run", l.resource, l.action)
		}
		return true
	})
}

func checkLoadBalancer(t *testing.T, st *State, lb *LoadBalancer) {
	t.Helper()
	for _, id := range serversOf(lb.Targets) {
		if s, ok := st.Servers.Get(id); !ok || !slices.Contains(s.LoadBalancers, lb.ID) {
			t.Errorf("load balancer %d has the target server %d, which does not show it", lb.ID, id)
		}
	}
	for _, target := range lb.Targets {
		if target.Type != "label_selector" {
			continue
		}
		selector, err := store.ParseSelector(target.Selector)
		check(t, err)
		var want, got []int64
		for s := range st.Servers.All() {
			_, private := s.PrivateNet(lb.network())
			reachable := s.PublicIPv4 != 0
			if target.UsePrivateIP {
				reachable = private
			}
			if reachable && selector.Matches(s.Labels) {
				want = append(want, s.ID)
			}
		}
		for n := range target.Targets.All() {
			got = append(got, n.Server)
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q of load balancer %d selects %v, want %v", target.Selector, lb.ID, got, want)
		}
	}
}

func checkServer(t *testing.T, st *State, s *Server) {
	t.Helper()
	for _, typ := range []IPType{IPv4, IPv6} {
		if id := s.primaryIP(typ); id != 0 {
			if ip, ok := st.PrimaryIPs.Get(id); !ok || ip.Assignee != s.Ref() || ip.Type != typ || ip.Location != s.Location {
				t.Errorf("server %d has primary IP %d, which is not its own", s.ID, id)
			}
		}
	}
	if s.PlacementGroup != 0 {
		if g, ok := st.PlacementGroups.Get(s.PlacementGroup); !ok || !slices.Contains(g.Servers, s.ID) {
			t.Errorf("server %d is in placement group %d, which does not show it", s.ID, s.PlacementGroup)
		}
	}
	for _, id := range s.LoadBalancers {
		if lb, ok := st.LoadBalancers.Get(id); !ok || !lb.hasServer(s.ID) {
			t.Errorf("server %d shows load balancer %d, which does not have it as a target", s.ID, id)
		}
	}
	for _, pn := range s.PrivateNets {
		n, ok := st.Networks.Get(pn.Network)
		if !ok {
			t.Errorf("server %d is in network %d, which does not exist", s.ID, pn.Network)
			continue
		}
		if m, in := n.Member(s.Ref()); !in || m.IP != pn.IP {
			t.Errorf("server %d has %s in network %d, which does not show it", s.ID, pn.IP, n.ID)
		}
	}
	if !st.Actions.Locked(s.Ref()) && !slices.Contains([]ServerStatus{ServerRunning, ServerOff, ServerStopping}, s.Status) {
		t.Errorf("server %d is %s without an action", s.ID, s.Status)
	}
}

func checkNetwork(t *testing.T, st *State, n *Network) {
	t.Helper()
	seen := map[netip.Addr]bool{}
	for _, m := range n.Members {
		if seen[m.IP] {
			t.Errorf("%s is handed out twice in network %d", m.IP, n.ID)
		}
		seen[m.IP] = true
		if !slices.Contains(st.networksOf(m.Ref), n) {
			t.Errorf("network %d has %s %d, whose networks do not name it", n.ID, m.Kind, m.ID)
		}
		if m.Kind == KindLoadBalancer {
			if lb, ok := st.LoadBalancers.Get(m.ID); !ok || m.Status == MemberOK && lb.network() != n.ID {
				t.Errorf("network %d has load balancer %d, which does not show it", n.ID, m.ID)
			}
			continue
		}
		s, ok := st.Servers.Get(m.ID)
		if !ok {
			t.Errorf("network %d has server %d, which does not exist", n.ID, m.ID)
			continue
		}
		if _, in := s.PrivateNet(n.ID); m.Status == MemberOK && !in {
			t.Errorf("network %d has server %d, which does not show it", n.ID, s.ID)
		}
	}
}

// model runs random operations. Some of them are refused, as intended.
type model struct {
	Project
	clk *testclock.FakeClock
	rnd *rand.Rand
	n   int
	// uploads are the certificates that the model uploads. They are only for certificateOperations.
	uploads []UploadCertificate
}

// one returns one of the ids, or at times an unknown id.
func (m *model) one(ids []int64) int64 {
	if len(ids) == 0 || m.rnd.IntN(20) == 0 {
		return 7
	}
	return ids[m.rnd.IntN(len(ids))]
}

func idsOf[T store.Object[T]](t *store.Table[T]) []int64 {
	var ids []int64
	for v := range t.All() {
		ids = append(ids, v.Header().ID)
	}
	return ids
}

func (m *model) server() int64 { st := m.View(); return m.one(idsOf(&st.Servers)) }
func (m *model) ip() int64     { st := m.View(); return m.one(idsOf(&st.PrimaryIPs.Table)) }
func (m *model) group() int64  { st := m.View(); return m.one(idsOf(&st.PlacementGroups)) }
func (m *model) net() int64    { st := m.View(); return m.one(idsOf(&st.Networks)) }
func (m *model) lb() int64     { st := m.View(); return m.one(idsOf(&st.LoadBalancers)) }
func (m *model) coin() bool    { return m.rnd.IntN(2) == 0 }

func (m *model) name() string { m.n++; return fmt.Sprintf("n%d", m.n) }

// project returns the project. At times, the actions that it starts fail.
func (m *model) project() Project {
	if m.rnd.IntN(8) == 0 {
		return m.WithOutcome(&ActionOutcome{Fail: true})
	}
	return m.Project
}

func (m *model) createServer() {
	in := smallServer(m.name())
	in.Labels = m.labels()
	in.StartAfterCreate, in.IPv4.Enabled, in.IPv6.Enabled = m.coin(), m.coin(), m.coin()
	if m.coin() {
		in.IPv4 = ServerPublicIP{Enabled: true, PrimaryIP: m.ip()}
	}
	if m.coin() {
		in.PlacementGroup = m.group()
	}
	if m.coin() {
		in.Networks = []int64{m.net()}
	}
	if m.coin() {
		in.Location = ""
	}
	_, _, _ = m.project().CreateServer(in)
}

func (m *model) labels() map[string]string {
	return map[string]string{"role": []string{"a", "b"}[m.rnd.IntN(2)]}
}

func (m *model) target() TargetInput {
	if m.coin() {
		return TargetInput{Type: "server", Server: m.server(), UsePrivateIP: m.coin()}
	}
	return TargetInput{Type: "label_selector", Selector: []string{"role=a", "role!=a"}[m.rnd.IntN(2)], UsePrivateIP: m.coin()}
}

func (m *model) createLoadBalancer() {
	in := CreateLoadBalancer{Name: m.name(), Type: "lb", Location: "fsn1"}
	if m.coin() {
		in.IPv4 = m.ip()
	}
	if m.coin() {
		in.IPv6 = m.ip()
	}
	if m.coin() {
		in.Network = m.net()
	}
	_, _, _, _ = m.project().CreateLoadBalancer(in)
}

// operations returns the operations of the model. They may fail: the test checks only the state after them.
func (m *model) operations() []func() {
	p := m.project
	return []func(){
		m.createServer, m.createServer,
		func() { _, _, _ = p().DeleteServer(m.server()) },
		func() { _, _, _ = p().PowerOffServer(m.server()) },
		func() { _, _, _ = p().PowerOffServer(m.server()) },
		func() { _, _, _ = p().PowerOnServer(m.server()) },
		func() { _, _, _ = p().ShutdownServer(m.server()) },
		func() { _, _, _ = p().ResetServer(m.server()) },
		func() { _, _, _ = p().ChangeServerType(m.server(), "big", m.coin()) },
		func() { _, _, _, _ = p().RebuildServer(m.server(), RebuildServer{Image: "debian"}) },
		func() { _, _, _ = p().AddServerToPlacementGroup(m.server(), m.group()) },
		func() { _, _, _ = p().RemoveServerFromPlacementGroup(m.server()) },
		func() {
			_, _, _, _ = p().CreatePrimaryIP(CreatePrimaryIP{
				Name: m.name(), Type: []IPType{IPv4, IPv6}[m.rnd.IntN(2)], Location: "fsn1", AutoDelete: m.coin(),
			})
		},
		func() {
			_, _, _, _ = p().CreatePrimaryIP(CreatePrimaryIP{Name: m.name(), Type: IPv4, Assignee: m.server()})
		},
		func() { _, _, _ = p().AssignPrimaryIP(m.ip(), m.server()) },
		func() { _, _, _ = p().UnassignPrimaryIP(m.ip()) },
		func() { _ = p().DeletePrimaryIP(m.ip(), m.coin()) },
		func() {
			// Few groups, so that they fill up.
			if m.rnd.IntN(10) == 0 {
				_, _, _ = p().CreatePlacementGroup(CreatePlacementGroup{Name: m.name(), Type: "spread"})
			}
		},
		func() {
			if m.rnd.IntN(4) == 0 {
				_ = p().DeletePlacementGroup(m.group())
			}
		},
		func() {
			_, _, _ = p().AttachServerToNetwork(m.server(), AttachServerToNetwork{Network: m.net()})
		},
		func() { _, _, _ = p().DetachServerFromNetwork(m.server(), m.net()) },
		func() { _, _ = p().UpdateServer(m.server(), UpdateResource{Labels: m.labels()}) },
		m.createLoadBalancer,
		func() { _, _, _ = p().DeleteLoadBalancer(m.lb(), m.coin()) },
		func() { _, _, _ = p().AddLoadBalancerTarget(m.lb(), m.target()) },
		func() { _, _, _ = p().AddLoadBalancerTarget(m.lb(), m.target()) },
		func() { _, _, _ = p().RemoveLoadBalancerTarget(m.lb(), m.target()) },
		func() { _, _, _ = p().AttachLoadBalancerToNetwork(m.lb(), AttachLoadBalancer{Network: m.net()}) },
		func() { _, _, _ = p().DetachLoadBalancerFromNetwork(m.lb(), m.net()) },
		func() { m.clk.Step(time.Duration(m.rnd.IntN(3000)) * time.Millisecond) },
		func() { m.clk.Step(time.Duration(m.rnd.IntN(3000)) * time.Millisecond) },
	}
}

func TestReferencesAgreeAfterRandomOperations(t *testing.T) {
	longtest.SkipRace(t)
	t.Parallel()
	for _, seed := range longtest.Share(t, 8, 1) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			// The pool is small, so that addresses are reused.
			p, clk := serverCloud(t, Options{PublicIPv4: netip.MustParsePrefix("203.0.113.0/27")})
			testNetwork(t, p, "one", "10.0.0.0/24")
			testNetwork(t, p, "two", "10.1.0.0/24")
			m := &model{Project: p, clk: clk, rnd: rand.New(rand.NewPCG(seed, 1))}
			operations := slices.Concat(m.operations(), m.floatingIPOperations(), m.volumeOperations(), m.firewallOperations())
			for i := range 1500 {
				op := m.rnd.IntN(len(operations))
				operations[op]()
				checkInvariants(t, p.View(), p.cloud)
				if t.Failed() {
					t.Fatalf("after step %d, operation %d of seed %d", i, op, seed)
				}
			}
			if len(idsOf(&p.View().Servers)) == 0 {
				t.Error("no server is left: the model tests nothing")
			}
			clk.Step(time.Hour)
			for a := range p.View().Actions.All() {
				if a.Status == ActionRunning {
					t.Errorf("action %d %s never ends", a.ID, a.Command)
				}
			}
		})
	}
}
