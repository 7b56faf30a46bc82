package cloud

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// reloaded saves a cloud, and loads the snapshot into a new one with the same options.
func reloaded(t *testing.T, c *Cloud, o Options) *Cloud {
	t.Helper()
	var text bytes.Buffer
	check(t, c.Save(&text))
	f := New(o)
	t.Cleanup(f.Close)
	s, err := f.ReadSnapshot(bytes.NewReader(text.Bytes()))
	check(t, err)
	f.Restore(s)
	var again bytes.Buffer
	check(t, f.Save(&again))
	sameLines(t, text.String(), again.String())
	return f
}

// sameLines compares two snapshots.
func sameLines(t *testing.T, want, got string) {
	t.Helper()
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i, line := range wants {
		if i >= len(gots) || gots[i] != line {
			t.Fatalf("line %d of the snapshot differs when it is saved again:\n%s\n%s", i+1, line, gots[min(i, len(gots)-1)])
		}
	}
}

// contents is what a state has, for a comparison.
func contents(st *State) (lines []string) {
	add := func(kind store.Kind, v any, more ...any) {
		text, err := json.Marshal(v)
		lines = append(lines, fmt.Sprint(kind, " ", string(text), more, err))
	}
	addAll(add, &st.Networks)
	addAll(add, &st.Certificates)
	addAll(add, &st.PrimaryIPs.Table)
	addAll(add, &st.FloatingIPs)
	addAll(add, &st.Volumes)
	addAll(add, &st.PlacementGroups)
	addAll(add, &st.SSHKeys.Table)
	addAll(add, &st.Images)
	for s := range st.Servers.All() {
		add(KindServer, s, s.powered, s.filtered, s.epoch)
	}
	for lb := range st.LoadBalancers.All() {
		add(KindLoadBalancer, lb, serversOf(lb.Targets))
		for b := range lb.Backends() {
			add(KindLoadBalancer, b)
		}
	}
	for f := range st.Firewalls.All() {
		add(KindFirewall, f, f.inForce, f.setting, f.servers())
	}
	for z := range st.Zones.All() {
		add(KindZone, z, z.publishing, z.failed)
		for _, set := range z.RRSets() {
			add(KindZone, set)
		}
	}
	for a := range st.Actions.All() {
		add(KindAction, a, a.waited, a.takes, st.Actions.Locked(a.Resources[0]))
	}
	return lines
}

// addAll adds resources that have nothing hidden.
func addAll[T store.Object[T]](add func(store.Kind, any, ...any), t *store.Table[T]) {
	for v := range t.All() {
		add(t.Kind(), v)
	}
}

// allOperations are all operations of the model.
func (m *model) allOperations() []func() {
	return slices.Concat(m.operations(), m.floatingIPOperations(), m.volumeOperations(), m.firewallOperations(), m.otherOperations(),
		m.smallOperations())
}

// smallOperations change a setting of one resource.
func (m *model) smallOperations() []func() {
	p := m.project
	return []func(){
		func() { _, _, _ = p().RebootServer(m.server()) },
		func() { _, _, _ = p().EnableServerBackup(m.server()) },
		func() { _, _, _ = p().DisableServerBackup(m.server()) },
		func() { _, _, _, _ = p().EnableServerRescue(m.server(), nil) },
		func() { _, _, _, _ = p().ResetServerPassword(m.server()) },
		func() { _, _, _ = p().DisableServerRescue(m.server()) },
		func() { _, _, _ = p().AttachServerISO(m.server(), "any.iso") },
		func() { _, _, _ = p().DetachServerISO(m.server()) },
		func() { _, _, _ = p().ChangeServerProtection(m.server(), new(false), new(false)) },
		func() {
			for s := range m.View().Servers.All() {
				if len(s.PrivateNets) > 0 && m.coin() {
					in := s.PrivateNets[0]
					alias := in.IP.As4()
					alias[3] = byte(100 + m.rnd.IntN(100))
					_, _, _ = p().ChangeAliasIPs(s.ID, in.Network, []netip.Addr{netip.AddrFrom4(alias)})
				}
			}
		},
		func() {
			if s, ok := m.View().Servers.Get(m.server()); ok && len(s.PrivateNets) > 0 {
				_, _, _ = p().DetachServerFromNetwork(s.ID, s.PrivateNets[0].Network)
			}
		},
		func() {
			for s := range m.View().Servers.All() {
				if s.Status == ServerRunning && m.coin() {
					_, _, _ = p().ShutdownServer(s.ID)
				}
			}
		},
		func() {
			ip, ok := m.View().PrimaryIPs.Get(m.ip())
			if ok {
				_, _, _ = p().ChangePrimaryIPDNSPtr(ip.ID, ChangeDNSPtr{IP: ip.IP.Addr(), Ptr: new(m.name() + ".example")})
			}
		},
		func() {
			if n, ok := m.View().Networks.Get(m.net()); ok {
				_, _, _ = p().ChangeIPRange(n.ID, netip.PrefixFrom(n.IPRange.Addr(), n.IPRange.Bits()-m.rnd.IntN(3)).Masked())
			}
		},
		func() {
			_, _, _ = p().CreatePlacementGroup(CreatePlacementGroup{Name: m.name(), Type: "spread"})
			for s := range m.View().Servers.All() {
				if s.Status == ServerOff && m.coin() {
					_, _, _ = p().AddServerToPlacementGroup(s.ID, m.group())
				}
			}
		},
		func() {
			_, _, _ = p().ChangeLoadBalancerAlgorithm(m.lb(), []string{"round_robin", "least_connections"}[m.rnd.IntN(2)])
		},
		func() { _, _, _ = p().ChangeLoadBalancerType(m.lb(), "lb") },
		func() { _, _, _ = p().DisableLoadBalancerPublicInterface(m.lb()) },
		func() { _, _, _ = p().EnableLoadBalancerPublicInterface(m.lb()) },
		func() { _, _, _ = p().DeleteLoadBalancerService(m.lb(), 80) },
		func() {
			if lb, ok := m.View().LoadBalancers.Get(m.lb()); ok && len(lb.Services) > 0 {
				port := lb.Services[0].ListenPort
				_, _, _ = p().UpdateLoadBalancerService(lb.ID, ServiceInput{ListenPort: &port, DestinationPort: new(30000 + m.rnd.IntN(2))})
			}
		},
		func() {
			if lb, ok := m.View().LoadBalancers.Get(m.lb()); ok && len(lb.Targets) > 0 {
				t := lb.Targets[0]
				_, _, _ = p().RemoveLoadBalancerTarget(lb.ID, TargetInput{Type: t.Type, Server: t.Server, Selector: t.Selector})
			}
		},
		func() {
			_, _, _ = p().AddLoadBalancerService(m.lb(),
				ServiceInput{Protocol: new("tcp"), ListenPort: new(80 + m.rnd.IntN(3)), DestinationPort: new(30000)})
		},
	}
}

// TestASnapshotDoesTheSame runs random operations, saves the cloud while all kinds of actions run, loads it into another one, and
// runs the same operations on both. Both must have the same at every third step.
func TestASnapshotDoesTheSame(t *testing.T) {
	longtest.SkipRace(t)
	t.Parallel()
	kinds := map[string]bool{}
	var mu sync.Mutex
	t.Cleanup(func() {
		for name := range workTypes() {
			if !testing.Short() && !kinds[name] && name != "hypervisor_grace_ends" && name != "scenario_step" && name != "task_deadline" {
				t.Errorf("no history had %s to do", name)
			}
		}
	})
	for _, seed := range longtest.Share(t, 12, 1) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			options := Options{PublicIPv4: netip.MustParsePrefix("203.0.113.0/26"), Seed: 1}
			p, clk := serverCloud(t, options)
			testNetwork(t, p, "one", "10.0.0.0/24")
			testNetwork(t, p, "two", "10.1.0.0/24")
			m := &model{Project: p, clk: clk, rnd: rand.New(rand.NewPCG(seed, 1))}
			for range 45 {
				run(m, m.rnd.Uint64(), 25, nil)
				p.View()
				mu.Lock()
				for _, j := range p.cloud.queue {
					kinds[workName(j.timer)] = true
				}
				for a := range p.View().Actions.All() {
					if a.plan != nil && a.plan.Does != nil {
						kinds[workName(a.plan.Does)] = true
					}
				}
				mu.Unlock()
				forkClock := testclock.NewFakeClock(clk.Now())
				options := options
				options.Clock, options.Catalogue, options.Profile = forkClock, p.cloud.catalogue, ProfileFixed(time.Second)
				fork, _ := reloaded(t, p.cloud, options).Project(p.ID())
				other := &model{Project: fork, clk: forkClock, n: m.n}
				seed := m.rnd.Uint64()
				var want [][]string
				run(m, seed, 12, func() { want = append(want, contents(p.View())) })
				run(other, seed, 12, func() {
					got := contents(fork.View())
					for i, line := range got {
						if i >= len(want[0]) || line != want[0][i] {
							t.Fatalf("the fork differs:\n%s\n%s", line, want[0][min(i, len(want[0])-1)])
						}
					}
					if len(got) < len(want[0]) {
						t.Fatalf("the fork lacks %s", want[0][len(got)])
					}
					want = want[1:]
					checkInvariants(t, fork.View(), fork.cloud)
					checkCommands(t, fork.View())
				})
			}
		})
	}
}

// run runs some operations, and calls a function after every third.
func run(m *model, seed uint64, n int, after func()) {
	rnd := m.rnd
	m.rnd = rand.New(rand.NewPCG(seed, 2))
	operations := m.allOperations()
	for i := range n {
		operations[m.rnd.IntN(len(operations))]()
		if after != nil && i%3 == 0 {
			after()
		}
	}
	days := []time.Duration{0, 1, 70}[m.rnd.IntN(3)] // until certificates are renewed
	if m.clk.Step(24 * time.Hour * days); after != nil {
		after()
	}
	m.rnd = rnd
}
