package cloud

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cputime"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
)

// The tests of this file measure the whole process, so that none of them is parallel. They count allocated bytes, and the CPU
// time, because a walk allocates nothing. Of several measurements, the smallest counts.

// cost is what some work takes.
type cost struct {
	cpu   time.Duration // user and system time of the process
	bytes uint64        // allocated
}

func (c cost) String() string {
	return fmt.Sprintf("%v, %d kB", c.cpu.Round(time.Microsecond), c.bytes>>10)
}

func costOf(t *testing.T, work func()) cost {
	t.Helper()
	var before, after runtime.MemStats
	runtime.GC()
	// A collection costs by what lives, not by the work.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.ReadMemStats(&before)
	start := cputime.Used()
	work()
	used := cputime.Used() - start
	runtime.ReadMemStats(&after)
	return cost{used, after.TotalAlloc - before.TotalAlloc}
}

// cheapest returns the smallest costs of three runs. prepare returns the work to measure.
func cheapest(t *testing.T, prepare func() func()) cost {
	t.Helper()
	best := costOf(t, prepare())
	for range 2 {
		best = best.least(costOf(t, prepare()))
	}
	return best
}

func (c cost) least(o cost) cost { return cost{min(c.cpu, o.cpu), min(c.bytes, o.bytes)} }

// linear fails if the cost of work on n things grows by more than 2.5 per doubling, from n to 8n. A linear cost doubles. The CPU
// time may grow threefold: it also depends on the caches, which others use, too.
func linear(t *testing.T, what string, n int, prepare func(n int) func()) {
	t.Helper()
	compare(t, what, n, 8*n, prepare, func(few, many cost) bool {
		return float64(many.cpu) > 3*3*3*float64(few.cpu) || float64(many.bytes) > 2.5*2.5*2.5*float64(few.bytes)
	})
}

// constant fails if the cost of the same work with the most of other things is more than twice the one with the fewest.
func constant(t *testing.T, what string, fewest, most int, prepare func(others int) func()) {
	t.Helper()
	compare(t, what, fewest, most, prepare, func(few, many cost) bool {
		return many.cpu > 2*few.cpu || many.bytes > few.bytes+few.bytes/2
	})
}

// compare fails if the cost grows with a number, each time it is measured again: a busy neighbour of the core alone doubles CPU time.
func compare(t *testing.T, what string, fewest, most int, prepare func(int) func(), grows func(few, many cost) bool) {
	t.Helper()
	few, many := cheapest(t, func() func() { return prepare(fewest) }), cheapest(t, func() func() { return prepare(most) })
	for i := 0; i < 20 && grows(few, many); i++ {
		few = few.least(cheapest(t, func() func() { return prepare(fewest) }))
		many = many.least(cheapest(t, func() func() { return prepare(most) }))
	}
	t.Logf("%s: %v with %d, %v with %d", what, few, fewest, many, most)
	if grows(few, many) {
		t.Errorf("%s: %v with %d and %v with %d: the cost grows too fast", what, few, fewest, many, most)
	}
}

// costCloud returns a project whose actions end at once.
func costCloud(t *testing.T) Project {
	t.Helper()
	p, _ := serverCloud(t, Options{Profile: ProfileInstant})
	return p
}

// labelledServers creates n servers with a label and returns their ids.
func labelledServers(t *testing.T, p Project, n int, label, value string) []int64 {
	t.Helper()
	ids := make([]int64, n)
	for i := range ids {
		in := smallServer(fmt.Sprintf("%s-%s-%d", label, value, i))
		in.Labels, in.IPv6.Enabled = map[string]string{label: value}, false
		ids[i] = mustCreate(t, p, in).Server.ID
	}
	return ids
}

func selectorTargets(n int, format string) []FirewallTarget {
	targets := make([]FirewallTarget, n)
	for i := range targets {
		targets[i].Selector = fmt.Sprintf(format, i)
	}
	return targets
}

func serverTargets(ids []int64) []FirewallTarget {
	targets := make([]FirewallTarget, len(ids))
	for i, id := range ids {
		targets[i].Server = id
	}
	return targets
}

func mustFirewall(t *testing.T, p Project, name string, to ...FirewallTarget) int64 {
	t.Helper()
	f, _, _, err := p.CreateFirewall(CreateFirewall{Name: name, Rules: []FirewallRule{anyIn("80")}, ApplyTo: to})
	check(t, err)
	return f.ID
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestTheCostOfAServerDoesNotGrowWithFirewalls creates, labels and deletes servers.
//
//nolint:paralleltest // it measures the process
func TestTheCostOfAServerDoesNotGrowWithFirewalls(t *testing.T) {
	longtest.SkipRace(t)
	constant(t, "100 servers", 1, 1000, func(others int) func() {
		p := costCloud(t)
		other := labelledServers(t, p, 1, "role", "other")
		for i := range others {
			mustFirewall(t, p, fmt.Sprint("f", i), FirewallTarget{Selector: fmt.Sprintf("role=other,nr=%d", i)})
		}
		mustFirewall(t, p, "direct", serverTargets(other)...)
		return func() {
			for i, id := range labelledServers(t, p, 100, "role", "web") {
				_, err := p.UpdateServer(id, UpdateResource{Labels: map[string]string{"role": "web", "nr": fmt.Sprint(i)}})
				check(t, err)
				_, _, err = p.DeleteServer(id)
				check(t, err)
			}
		}
	})
}

// TestTheCostOfAFirewallDoesNotGrowWithServers creates firewalls of five servers, changes and deletes them.
//
//nolint:paralleltest // it measures the process
func TestTheCostOfAFirewallDoesNotGrowWithServers(t *testing.T) {
	longtest.SkipRace(t)
	constant(t, "30 firewalls", 10, 3000, func(others int) func() {
		p := costCloud(t)
		labelledServers(t, p, others, "role", "other")
		web, direct := labelledServers(t, p, 5, "role", "web"), labelledServers(t, p, 5, "role", "direct")
		mustFirewall(t, p, "unrelated", FirewallTarget{Selector: "role=other"})
		return func() {
			for i := range 30 {
				to := append(serverTargets(direct), FirewallTarget{Selector: "role=web"})
				id := mustFirewall(t, p, fmt.Sprint(i), to...)
				_, _, err := p.SetFirewallRules(id, []FirewallRule{anyIn("81")})
				check(t, err)
				if s := server(t, p, web[0]); len(s.Firewalls) != 1 {
					t.Fatalf("%+v", s.Firewalls)
				}
				_, _, err = p.RemoveFirewall(id, to)
				check(t, err)
				check(t, p.DeleteFirewall(id))
			}
		}
	})
}

//nolint:paralleltest // it measures the process
func TestARequestOfManyServersIsLinear(t *testing.T) {
	longtest.SkipRace(t)
	linear(t, "servers of one firewall", 100, func(n int) func() {
		p := costCloud(t)
		targets := serverTargets(labelledServers(t, p, n, "role", "web"))
		return func() {
			id := mustFirewall(t, p, "f", targets...)
			_, _, err := p.SetFirewallRules(id, []FirewallRule{anyIn("81")})
			check(t, err)
			_, _, err = p.RemoveFirewall(id, targets)
			check(t, err)
			_, _, err = p.ApplyFirewall(id, targets)
			check(t, err)
		}
	})
	linear(t, "servers with the same label", 100, func(n int) func() {
		p := costCloud(t)
		labelledServers(t, p, n, "role", "web")
		return func() {
			id := mustFirewall(t, p, "f", FirewallTarget{Selector: "role=web"})
			_, _, err := p.RemoveFirewall(id, []FirewallTarget{{Selector: "role=web"}})
			check(t, err)
		}
	})
	linear(t, "new servers with one firewall", 100, func(n int) func() {
		p := costCloud(t)
		f := mustFirewall(t, p, "f")
		return func() {
			for i := range n {
				in := smallServer(fmt.Sprint(i))
				in.Firewalls = []int64{f}
				mustCreate(t, p, in)
			}
		}
	})
}

//nolint:paralleltest // it measures the process
func TestARequestOfManySelectorsIsLinear(t *testing.T) {
	longtest.SkipRace(t)
	linear(t, "selectors of one firewall, 5 servers", 6, func(n int) func() {
		p := costCloud(t)
		labelledServers(t, p, 5, "role", "web")
		return func() {
			for _, format := range []string{"role,nr!=%d", "role=web,nr=%d"} {
				targets := selectorTargets(n, format)
				id := mustFirewall(t, p, format, targets...)
				_, _, err := p.SetFirewallRules(id, []FirewallRule{anyIn("81")})
				check(t, err)
				_, _, err = p.RemoveFirewall(id, targets)
				check(t, err)
			}
		}
	})
	linear(t, "too many selectors", 1000, func(n int) func() {
		p := costCloud(t)
		return func() {
			if _, _, _, err := p.CreateFirewall(CreateFirewall{Name: "f", ApplyTo: selectorTargets(n, "nr=%d")}); err == nil {
				t.Errorf("%d selectors are accepted", n)
			}
		}
	})
}

//nolint:paralleltest // it measures the process
func TestFirewallsOfTheSameServersAreLinear(t *testing.T) {
	longtest.SkipRace(t)
	// A server has five of them: the others must not be looked at.
	linear(t, "firewalls that select the same servers", 125, func(n int) func() {
		p := costCloud(t)
		return func() {
			for i := range n {
				mustFirewall(t, p, fmt.Sprint("f", i), FirewallTarget{Selector: "role=web"})
			}
			labelledServers(t, p, n, "role", "web")
		}
	})
}
