package cloud

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
)

// firewallModel runs random operations on a few servers and firewalls.
type firewallModel struct {
	*model
	most int // servers and firewalls, each
}

func (m *firewallModel) labels() map[string]string {
	labels := map[string]string{}
	for _, key := range []string{"role", "nr"} {
		if n := m.rnd.IntN(3); n > 0 {
			labels[key] = fmt.Sprint(n)
		}
	}
	return labels
}

// targets returns up to four resources, which may be gone, have the firewall already, or be named twice.
func (m *firewallModel) targets() []FirewallTarget {
	selectors := []string{"role=1", "role in (1,2)", "role", "!role", "role!=1", "role,nr!=1", "nr=2,role", "nr", "none"}
	targets := make([]FirewallTarget, 1+m.rnd.IntN(4))
	for i := range targets {
		if m.coin() {
			targets[i].Selector = selectors[m.rnd.IntN(len(selectors))]
		} else {
			targets[i].Server = m.server()
		}
	}
	return targets
}

func (m *firewallModel) createServer() {
	in := smallServer(m.name())
	in.Labels, in.StartAfterCreate, in.IPv6.Enabled = m.labels(), m.coin(), false
	if m.coin() {
		in.Firewalls = []int64{m.firewall()}
	}
	_, _, _ = m.project().CreateServer(in)
}

func (m *firewallModel) firewall() int64 { st := m.View(); return m.one(idsOf(&st.Firewalls)) }

func (m *firewallModel) createFirewall() {
	in := CreateFirewall{Name: m.name()} // without actions, so that two firewalls can have consecutive ids
	if m.coin() {
		in.Rules, in.ApplyTo = []FirewallRule{anyIn("80")}, m.targets()
	}
	_, _, _, _ = m.project().CreateFirewall(in)
}

func (m *firewallModel) operations() []func() {
	p := m.project
	return []func(){
		func() {
			if m.View().Servers.Len() < m.most {
				m.createServer()
			} else {
				_, _, _ = p().DeleteServer(m.server())
			}
		},
		func() {
			if m.View().Firewalls.Len() < m.most {
				m.createFirewall()
			} else {
				_ = p().DeleteFirewall(m.firewall())
			}
		},
		func() { _, _ = p().UpdateServer(m.server(), UpdateResource{Labels: m.labels()}) },
		func() { _, _ = p().UpdateServer(m.server(), UpdateResource{Labels: m.labels()}) },
		func() { _, _, _ = p().PowerOffServer(m.server()) },
		func() { _, _, _ = p().UnassignPrimaryIP(m.ip()) },
		func() { _, _, _ = p().AssignPrimaryIP(m.ip(), m.server()) },
		func() { _, _, _ = p().ApplyFirewall(m.firewall(), m.targets()) },
		func() { _, _, _ = p().ApplyFirewall(m.firewall(), m.targets()[:1]) },
		func() { _, _, _ = p().RemoveFirewall(m.firewall(), m.targets()[:1]) },
		func() {
			st := m.View()
			if f, ok := st.Firewalls.Get(m.firewall()); ok { // all at once
				_, _, _ = p().RemoveFirewall(f.ID, f.AppliedTo())
			}
		},
		func() { _, _, _ = p().SetFirewallRules(m.firewall(), []FirewallRule{anyIn("81")}) },
		func() { m.clk.Step(time.Duration(m.rnd.IntN(3000)) * time.Millisecond) },
		func() { m.clk.Step(time.Duration(m.rnd.IntN(3000)) * time.Millisecond) },
	}
}

// appliedTo describes what the firewalls of a state are applied to.
func appliedTo(st *State) (text string) {
	for f := range st.Firewalls.All() {
		for _, a := range f.AppliedTo() {
			text += fmt.Sprintln(f.ID, a.Server, a.Selector, a.pending, a.filters, a.Servers())
		}
	}
	return text
}

// Firewalls and servers follow each change of one of them. After any history, they must be what checkFirewalls finds by looking
// at all of them. A state that was read before never changes.
func TestFirewallsAreWhatALookAtAllOfThemFinds(t *testing.T) {
	longtest.SkipRace(t)
	t.Parallel()
	for _, seed := range longtest.Share(t, 8, 1) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			p, clk := serverCloud(t, Options{})
			m := &firewallModel{&model{Project: p, clk: clk, rnd: rand.New(rand.NewPCG(seed, 2))}, 10}
			operations := m.operations()
			full, several := 0, 0
			for i := range 1000 {
				op := m.rnd.IntN(len(operations))
				before := p.View()
				was := appliedTo(before)
				operations[op]()
				st := p.View()
				checkFirewalls(t, st)
				if now := appliedTo(before); now != was {
					t.Errorf("the state before became\n%s; it was\n%s", now, was)
				}
				if t.Failed() {
					t.Fatalf("after step %d, operation %d of seed %d", i, op, seed)
				}
				for s := range st.Servers.All() {
					if len(s.Firewalls) == MaxFirewallsPerServer {
						full++
					}
				}
				for f := range st.Firewalls.All() {
					if slices.ContainsFunc(f.AppliedTo(), func(a FirewallTarget) bool { return len(a.Servers()) > 1 }) {
						several++
					}
				}
			}
			if full < 100 || several < 100 {
				t.Errorf("this tests too little: %d times a server had all possible firewalls, %d times a selector several servers",
					full, several)
			}
		})
	}
}
