package cloud

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// savedWork is a value of one of the types of effects and timers, in a form that can be stored. Nothing but this test stores it yet.
type savedWork struct {
	Type string          `json:"type"`
	Args json.RawMessage `json:"args"`
}

// workTypes are all types of effects and timers, by name.
var workTypes = sync.OnceValue(func() map[string]reflect.Type {
	types := map[string]reflect.Type{}
	for name, t := range timers {
		types[name] = reflect.TypeOf(t)
	}
	for _, c := range commands {
		for _, e := range c.effects {
			types[workName(e)] = reflect.TypeOf(e)
		}
	}
	return types
})

// workName is the name of the type of an effect or timer. The type of an effect of a load balancer's action has that of the change.
func workName(work any) string {
	if name, ok := timerNames()[reflect.TypeOf(work)]; ok {
		return name
	}
	name := strings.TrimSuffix(reflect.TypeOf(work).Name(), "]")
	return name[strings.LastIndexByte(name, '.')+1:]
}

// saveWork returns an effect or a timer as data.
func saveWork(work any) (*savedWork, error) {
	name := workName(work)
	if workTypes()[name] != reflect.TypeOf(work) {
		return nil, fmt.Errorf("%T: the type is in none of the tables commands and timers", work)
	}
	args, err := json.Marshal(work)
	return &savedWork{name, args}, err
}

// load is the opposite of saveWork.
func (s *savedWork) load() (any, error) {
	t, ok := workTypes()[s.Type]
	if !ok {
		return nil, fmt.Errorf("work of the unknown type %q", s.Type)
	}
	v := reflect.New(t)
	if err := json.Unmarshal(s.Args, v.Interface()); err != nil {
		return nil, fmt.Errorf("work of type %s: %w", s.Type, err)
	}
	return v.Elem().Interface(), nil
}

// saved stores a value and reads it again.
func saved[T any](t *testing.T, work T) T {
	t.Helper()
	s, err := saveWork(work)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var read *savedWork
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	again, err := read.load()
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if !reflect.DeepEqual(again, any(work)) {
		t.Fatalf("%s: %#v was %#v", text, again, work)
	}
	return again.(T)
}

// forkSaved forks a cloud, and puts what the copy has yet to do through its stored form.
func forkSaved(t *testing.T, c *Cloud, clk *testclock.FakeClock) *Cloud {
	t.Helper()
	f := c.Fork(clk)
	t.Cleanup(f.Close)
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.queue {
		f.queue[i].timer = saved(t, f.queue[i].timer)
	}
	for _, p := range f.Projects() {
		_ = f.write(p.data, f.writeTime(f.Now()), nil, func(tx *Tx) error { // the function returns no error
			for a := range tx.Actions.All() {
				if a.plan != nil && a.plan.Does != nil {
					tx.Actions.Update(a.ID, func(a *Action) {
						plan := *a.plan
						plan.Does, a.plan = saved(t, plan.Does), &plan
					})
				}
			}
			return nil
		})
	}
	return f
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

// TestAForkWithAStoredFutureDoesTheSame runs random operations, forks the cloud while all kinds of actions run, stores and reads
// what the fork has yet to do, and runs the same operations on both. Both must have the same at every third step.
func TestAForkWithAStoredFutureDoesTheSame(t *testing.T) {
	t.Parallel()
	kinds := map[string]bool{}
	var mu sync.Mutex
	t.Cleanup(func() {
		for name := range workTypes() {
			if !kinds[name] && name != "hypervisor_grace_ends" && name != "task_deadline" {
				t.Errorf("no history had %s to do", name)
			}
		}
	})
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			p, clk := serverCloud(t, Options{PublicIPv4: netip.MustParsePrefix("203.0.113.0/26"), Seed: 1})
			testNetwork(t, p, "one", "10.0.0.0/24")
			testNetwork(t, p, "two", "10.1.0.0/24")
			m := &model{Project: p, clk: clk, rnd: rand.New(rand.NewPCG(seed, 1))}
			for range 50 {
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
				fork, _ := forkSaved(t, p.cloud, forkClock).Project(p.ID())
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
