//go:build sim

package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// step is one step of a history. It names what it acts on, so that it means the same when earlier steps are
// left out.
type step struct {
	// wait passes before the step, but if requests is not 0, at most until the CCM has sent so many requests.
	wait     time.Duration
	requests int

	kind, who string
	n, m      int
}

// String describes the step for people, and for regression tests.
func (s step) String() string {
	after := s.wait.String()
	if s.requests > 0 {
		after = fmt.Sprintf("%d requests, at most %v", s.requests, s.wait)
	}
	return strings.TrimSpace(fmt.Sprintf("after %s: %s %s %d %d", after, s.kind, s.who, s.n, s.m))
}

// history is everything that happens in one run.
type history struct {
	seed  uint64
	nodes int // at the start
	steps []step
}

const settle = "settle"

// weights say how often a kind of step is chosen; the default is 2.
var weights = map[string]int{"service": 14, "fault": 8, "crash": 4, "network anew": 1, "handmade": 0, "pool split": 0, "other cluster": 0,
	"other delete": 0, "pool switch": 4, "lb fill": 3,
	"service class": 4, "cluster id": 2, "lists empty": 2, "two clusters": 1, "service force": 1, "service flap": 1,
	"pool full": 1, "others hang": 1, "rate limited": 1}

// newHistory returns the history of a seed. It uses only some kinds of steps, so that these meet each other more
// often.
func newHistory(seed uint64) history {
	r := rand.New(rand.NewPCG(seed, 0))
	h := history{seed: seed, nodes: 2 + r.IntN(5)}
	if r.IntN(24) == 0 {
		h.nodes = 26 + r.IntN(3) // lb11 has room for 25
	}
	kinds, few := chooseKinds(r), chooseVariants(r)
	if r.IntN(16) == 0 {
		h.steps = append(h.steps, step{kind: "other cluster", n: 52})
		kinds = append(kinds, slices.Repeat([]string{"other delete"}, len(kinds)/3)...)
	}
	if r.IntN(4) == 0 {
		h.steps = append(h.steps, step{kind: "handmade"})
	}
	if r.IntN(3) == 0 {
		h.steps = append(h.steps, step{kind: "pool split"})
	}
	for _, name := range []string{"a", "b", "c"}[:1+r.IntN(3)] {
		h.steps = append(h.steps, step{kind: "service", who: name, n: few[r.IntN(len(few))], m: r.IntN(20)})
	}
	for range 2 + r.IntN(3) {
		if r.IntN(4) > 0 {
			h.steps = append(h.steps, step{kind: settle})
		}
		for range 2 + r.IntN(6) {
			h.steps = append(h.steps, newStep(r, kinds[r.IntN(len(kinds))], few))
		}
	}
	h.steps = append(h.steps, step{kind: settle})
	return h
}

// chooseKinds returns about half of the kinds of steps, each as often as its weight says.
func chooseKinds(r *rand.Rand) (kinds []string) {
	all := slices.Concat(slices.Collect(maps.Keys(people)), slices.Collect(maps.Keys(troubles)))
	slices.Sort(all)
	for _, kind := range all {
		weight, set := weights[kind]
		if !set {
			weight = 2
		}
		if r.IntN(2) == 0 || kind == "service" {
			kinds = append(kinds, slices.Repeat([]string{kind}, weight)...)
		}
	}
	return kinds
}

// chooseVariants returns some variants of Services, so that Services with the same ones meet more often. Sometimes they are
// those that share a load balancer.
func chooseVariants(r *rand.Rand) []int {
	all := r.Perm(len(variants))
	if r.IntN(6) == 0 {
		return slices.DeleteFunc(all, func(i int) bool { return variants[i]["shared"] == "" })
	}
	return all[:8]
}

func newStep(r *rand.Rand, kind string, few []int) (s step) {
	s = step{kind: kind, n: r.IntN(60), m: r.IntN(60)}
	if kind == "service" {
		s.n = few[r.IntN(len(few))]
	}
	switch strings.Fields(kind)[0] {
	case "service", "lb":
		s.who = []string{"a", "b", "c"}[r.IntN(3)]
	case "node", "server":
		s.who = fmt.Sprintf("n%d", 1+r.IntN(8))
	}
	// The odd microseconds keep steps apart from the timers of the CCM.
	defer func() { s.wait += time.Duration(100+r.IntN(800)) * time.Microsecond }()
	switch r.IntN(10) {
	case 0:
		s.wait = time.Duration(r.IntN(90)) * time.Minute
	case 1, 2, 3:
		s.wait, s.requests = time.Minute, 1+r.IntN(15)
	case 4, 5, 6:
		s.wait = time.Duration(r.IntN(90)) * time.Second
	default:
		s.wait = time.Duration(r.IntN(4000)) * time.Millisecond
	}
	return s
}

// run makes the steps in the bubble of the caller. It returns the world at its end.
func (h history) run(folder string) *world {
	time.Sleep(time.Until(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)))
	time.Sleep(5713 * time.Microsecond) // no timer of the CCM fires at the times of this one's
	w := newWorld(h.seed, h.nodes, folder)
	defer w.close()
	w.current = w.startProcess(false)
	w.pass(time.Minute, 0)
	for _, s := range h.steps {
		w.pass(s.wait, s.requests)
		if !w.guard.ok() {
			break
		}
		w.say("%v", s)
		w.guard.note()
		switch do, isPerson := people[s.kind]; {
		case s.kind == settle:
			w.settle()
		case isPerson:
			do(w, s.who, s.n, s.m)
		default:
			troubles[s.kind](w, s.who, s.n, s.m)
		}
		w.guard.note()
	}
	return w
}
