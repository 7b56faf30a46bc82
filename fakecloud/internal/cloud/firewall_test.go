package cloud

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// checkFirewalls checks that firewalls and servers agree, and that both are what a look at all of them finds: the indexes and
// what follows changes of single servers must lead to the same.
func checkFirewalls(t *testing.T, st *State) {
	t.Helper()
	selected := map[[2]any][]int64{} // the servers by firewall and selector
	for s := range st.Servers.All() {
		want := wantFirewalls(st, s)
		if !slices.Equal(s.Firewalls, want) || len(want) > MaxFirewallsPerServer {
			t.Errorf("server %d, %v, shows the firewalls %v, which are %v", s.ID, s.Labels, s.Firewalls, want)
		}
		for _, shown := range want {
			f, _ := st.Firewalls.Get(shown.ID)
			for _, a := range f.AppliedTo() {
				if a.Server == 0 && !isDirect(f, s) && a.selector.Matches(s.Labels) {
					key := [2]any{f.ID, a.Selector}
					selected[key] = append(selected[key], s.ID)
				}
			}
		}
	}
	terms := map[selectorTerm]bool{}
	for f := range st.Firewalls.All() {
		for i, a := range f.AppliedTo() {
			if i > 0 && f.AppliedTo()[i-1].order >= a.order {
				t.Errorf("firewall %d: %+v is not in the order of applying", f.ID, a)
			}
			if a.Server != 0 {
				if _, ok := st.Servers.Get(a.Server); !ok {
					t.Errorf("firewall %d is applied to server %d, which is gone", f.ID, a.Server)
				}
				continue
			}
			if want := selected[[2]any{f.ID, a.Selector}]; !slices.Equal(a.Servers(), want) {
				t.Errorf("firewall %d selects %v by %q, want %v", f.ID, a.Servers(), a.Selector, want)
			}
			for _, term := range a.selector.Terms() {
				terms[selectorTerm{KindFirewall, term, f.ID, a.Selector}] = true
			}
		}
	}
	st.selectors.Scan(func(e selectorTerm) bool {
		if e.kind == KindFirewall && !terms[e] {
			t.Errorf("the index has %+v, which no firewall has", e)
		}
		delete(terms, e)
		return true
	})
	if len(terms) > 0 {
		t.Errorf("the index lacks %v", terms)
	}
}

func isDirect(f *Firewall, s *Server) bool {
	return slices.ContainsFunc(f.AppliedTo(), func(a FirewallTarget) bool { return a.Server == s.ID })
}

// wantFirewalls returns the firewalls that a server must show: those that are applied to it directly, and as many of the oldest
// ones that a label selector selects as it has room for.
func wantFirewalls(st *State, s *Server) (want []ServerFirewall) {
	for _, direct := range []bool{true, false} {
		for f := range st.Firewalls.All() {
			shown := ServerFirewall{ID: f.ID, Pending: true}
			found := false
			for _, a := range f.AppliedTo() {
				matches := a.Server == 0 && a.selector.Matches(s.Labels)
				coming := a.coming.Has(s.ID)
				shown.Filters = shown.Filters || a.filters && (a.Server == s.ID || matches && !coming)
				if direct && a.Server == s.ID || !direct && matches && !isDirect(f, s) {
					found = true
					shown.Pending = shown.Pending && (a.pending || coming)
				}
			}
			shown.Pending = shown.Pending || f.setting
			if found && (direct || len(want) < MaxFirewallsPerServer && s.hasPublicInterface()) {
				want = append(want, shown)
			}
		}
	}
	slices.SortFunc(want, func(a, b ServerFirewall) int { return cmp.Compare(a.ID, b.ID) })
	return want
}

// firewallOperations are the operations of the model on firewalls.
func (m *model) firewallOperations() []func() {
	id := func() int64 { st := m.View(); return m.one(idsOf(&st.Firewalls)) }
	target := func() FirewallTarget {
		if m.coin() {
			return FirewallTarget{Selector: []string{"role=a", "role", "!role"}[m.rnd.IntN(3)]}
		}
		return FirewallTarget{Server: m.server()}
	}
	return []func(){
		func() {
			in := CreateFirewall{Name: fmt.Sprintf("f%d", m.rnd.IntN(8)), Rules: []FirewallRule{anyIn("80")}}
			if m.coin() {
				in.ApplyTo = []FirewallTarget{target()}
			}
			_, _, _, _ = m.CreateFirewall(in)
		},
		func() { _, _, _ = m.ApplyFirewall(id(), []FirewallTarget{target()}) },
		func() { _, _, _ = m.RemoveFirewall(id(), []FirewallTarget{target()}) },
		func() { _, _, _ = m.SetFirewallRules(id(), nil) },
		func() { _ = m.DeleteFirewall(id()) },
	}
}

// anyIn permits everything that comes in on a TCP port.
func anyIn(port string) FirewallRule {
	return FirewallRule{Direction: "in", Protocol: "tcp", Port: port, SourceIPs: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}
}

func TestServersGetTheSameFirewallAtTheSameTime(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	s := runningServer(t, p, clk, smallServer("old")).ID
	f, _, _, err := p.CreateFirewall(CreateFirewall{Name: "f"})
	check(t, err)
	for _, name := range []string{"a", "b", "c"} {
		in := smallServer(name)
		in.Firewalls = []int64{f.ID}
		if _, _, err := p.CreateServer(in); err != nil {
			t.Errorf("create %s: %v", name, err)
		}
	}
	if _, _, err := p.ApplyFirewall(f.ID, []FirewallTarget{{Server: s}}); err != nil {
		t.Errorf("apply to a server: %v", err)
	}
	_, _, err = p.PowerOffServer(s)
	wantCode(t, "power off a server while a firewall is applied to it", err, "locked")
	_, _, err = p.RemoveFirewall(f.ID, []FirewallTarget{{Server: s}})
	wantCode(t, "remove the firewall from that server", err, "conflict")
	clk.Step(time.Minute)
	checkFirewalls(t, p.View())
	for s := range p.View().Servers.All() {
		if want := []ServerFirewall{{f.ID, false, true}}; !slices.Equal(s.Firewalls, want) {
			t.Errorf("%s shows the firewalls %v, want %v", s.Name, s.Firewalls, want)
		}
		if p.View().Actions.Locked(s.Ref()) {
			t.Errorf("%s is still locked", s.Name)
		}
	}
}

// The action of a server that a label selector begins to select is the server's (packer-plugin-hcloud pull request 209). That of
// a new server runs while the server is created.
func TestALabelSelectorAppliesAFirewallByAnActionOfTheServer(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	f, _, _, err := p.CreateFirewall(CreateFirewall{Name: "f", ApplyTo: []FirewallTarget{{Selector: "role=web"}}})
	check(t, err)
	clk.Step(time.Second)
	in := smallServer("new")
	in.Labels, in.StartAfterCreate = map[string]string{"role": "web"}, false
	created := did(p.CreateServer(in))(t)
	server := created.Server.Ref()
	pending, applied := []ServerFirewall{{f.ID, true, false}}, []ServerFirewall{{f.ID, false, true}}
	wantShown := func(when string, want []ServerFirewall) {
		t.Helper()
		if s, _ := p.View().Servers.Get(server.ID); !slices.Equal(s.Firewalls, want) {
			t.Errorf("%s, the server shows the firewalls %v, want %v", when, s.Firewalls, want)
		}
	}
	wantApplying := func(when string, actions int) {
		t.Helper()
		n := 0
		for e := range p.View().Actions.Of(server) {
			if a := e.Value; a.Command == "apply_firewall" && slices.Equal(a.Resources, []Ref{server, f.Ref()}) {
				n++
			}
		}
		if n != actions {
			t.Errorf("%s, the server has had %d actions that apply the firewall, want %d", when, n, actions)
		}
	}
	wantShown("during its creation", pending)
	wantApplying("during its creation", 1)
	clk.Step(time.Second)
	wantShown("after its creation", applied)
	if p.View().Actions.Locked(server) {
		t.Error("a new server is still locked although its creation has ended")
	}
	for _, labels := range []map[string]string{{}, {"role": "web"}} {
		if _, err := p.UpdateServer(server.ID, UpdateResource{Labels: labels}); err != nil {
			t.Fatal(err)
		}
	}
	wantShown("after it got the label again", pending)
	wantApplying("after it got the label again", 2)
	_, _, err = p.PowerOnServer(server.ID)
	wantCode(t, "power on a server that has got the label", err, "locked")
	clk.Step(time.Minute)
	wantShown("in the end", applied)

	// Neither a second selector nor the direct application leaves the server unprotected for a moment.
	did(p.ApplyFirewall(f.ID, []FirewallTarget{{Server: server.ID}}))(t)
	clk.Step(time.Second)
	did(p.RemoveFirewall(f.ID, []FirewallTarget{{Server: server.ID}}))(t)
	clk.Step(time.Second)
	if s, _ := p.View().Servers.Get(server.ID); !slices.Equal(s.Firewalls, applied) {
		t.Errorf("when only the selector is left, the server shows the firewalls %v", s.Firewalls)
	}
}

func TestNewRulesAreAppliedToEachServerByAnAction(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	direct := runningServer(t, p, clk, smallServer("direct")).Ref()
	in := smallServer("selected")
	in.Labels = map[string]string{"role": "web"}
	selected := runningServer(t, p, clk, in).Ref()
	runningServer(t, p, clk, smallServer("other"))
	f, _, _, err := p.CreateFirewall(CreateFirewall{Name: "f", ApplyTo: []FirewallTarget{{Server: direct.ID}, {Selector: "role=web"}}})
	check(t, err)
	clk.Step(time.Second)
	ids, st, err := p.SetFirewallRules(f.ID, []FirewallRule{anyIn("80")})
	check(t, err)
	var got []string
	for _, id := range ids {
		a, _ := st.Actions.Get(id)
		got = append(got, fmt.Sprint(a.Command, a.Resources))
	}
	want := []string{
		fmt.Sprint("set_firewall_rules", []Ref{f.Ref()}),
		fmt.Sprint("apply_firewall", []Ref{f.Ref(), direct}), fmt.Sprint("apply_firewall", []Ref{f.Ref(), selected}),
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAServerHasAtMostFiveFirewalls(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	in := smallServer("web")
	in.Labels = map[string]string{"role": "web"}
	s := runningServer(t, p, clk, in).ID
	for i := range MaxFirewallsPerServer {
		if _, _, _, err := p.CreateFirewall(CreateFirewall{Name: fmt.Sprint(i), ApplyTo: []FirewallTarget{{Server: s}}}); err != nil {
			t.Fatal(err)
		}
	}
	_, _, _, err := p.CreateFirewall(CreateFirewall{Name: "sixth", ApplyTo: []FirewallTarget{{Server: s}}})
	wantCode(t, "directly", err, "resource_limit_exceeded")
	f, _, _, err := p.CreateFirewall(CreateFirewall{Name: "by label", ApplyTo: []FirewallTarget{{Selector: "role=web"}}})
	if err != nil || len(f.AppliedTo()[0].Servers()) != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	checkFirewalls(t, p.View())
}

func TestAFirewallHasFewAndShortSelectors(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	value := strings.Repeat("v", 63) + ","
	longest := "key in (" + strings.Repeat(value, (MaxFirewallSelector-9)/len(value)-1) + "v)"
	longest += strings.Repeat(" ", MaxFirewallSelector-len(longest))
	f, _, _, err := p.CreateFirewall(CreateFirewall{Name: "f", ApplyTo: []FirewallTarget{{Selector: longest}}})
	if err != nil {
		t.Fatal("the longest selector:", err)
	}
	clk.Step(time.Second)
	_, _, err = p.ApplyFirewall(f.ID, []FirewallTarget{{Selector: longest + " "}})
	wantCode(t, "a selector that is too long", err, "apply_to.0.label_selector.selector")
	_, _, err = p.ApplyFirewall(f.ID, selectorTargets(MaxSelectorsPerFirewall, "nr=%d"))
	wantCode(t, "one selector too many", err, "resource_limit_exceeded")
	if _, _, err = p.ApplyFirewall(f.ID, selectorTargets(MaxSelectorsPerFirewall-1, "nr=%d")); err != nil {
		t.Error("as many selectors as possible:", err)
	}
	_, _, _, err = p.CreateFirewall(CreateFirewall{Name: "g", ApplyTo: selectorTargets(MaxSelectorsPerFirewall+1, "nr=%d")})
	wantCode(t, "a new firewall with one selector too many", err, "resource_limit_exceeded")
	checkFirewalls(t, p.View())
}
