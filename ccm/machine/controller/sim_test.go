package controller

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// The simulation tests the machine controller in random histories, as package ccm/internal/proof/sim tests the CCM. One seed is one
// history: what people do to pools, Machines and servers, how the cloud misbehaves, when the process dies. It runs in a bubble of
// testing/synctest on the world of the other tests, whose controllers look at everything one after the other, so that a seed gives
// the same history each time.
//
//	sim_test.go        makes histories, runs seeds, and shrinks the history of a seed that fails
//	sim_steps_test.go  the steps of people, and the troubles
//	sim_guard_test.go  what must hold at every call, and when all is quiet
//
// Not modelled: controllers that work at the same time, and a Kubernetes API that fails: TestAnyCallMayFail and
// TestAStaleCacheDoesNoHarm are about those.
var (
	seedFlag  = flag.Uint64("seed", 0, "run only this seed, and print what happens")
	keepFlag  = flag.String("keep", "", "make only these steps of the seed, such as 0,3,4")
	seedsFlag = flag.Uint64("seeds", 8, "run so many seeds")
	firstFlag = flag.Uint64("first", 1, "the first seed")
	untilFlag = flag.Bool("until", false, "run no more seeds once one has failed")
)

// step is one step of a history. It says the same when earlier steps are left out.
type step struct {
	passes int // before the step
	kind   string
	n      int // chooses what it acts on, and how
}

func (s step) String() string { return fmt.Sprintf("after %d passes: %s %d", s.passes, s.kind, s.n) }

// newHistory returns the steps of a seed. It uses only some kinds of steps, so that these meet each other more often.
func newHistory(seed uint64) (steps []step) {
	r := rand.New(rand.NewPCG(seed, 0))
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(stepKinds)) {
		if r.IntN(5) < 2 {
			kinds = append(kinds, kind)
		}
	}
	kinds = append(kinds, "pool", "scale", "incident")
	for range 1 + r.IntN(2) {
		steps = append(steps, step{kind: "pool", n: r.IntN(60)})
	}
	for range 4 + r.IntN(10) {
		s := step{kind: kinds[r.IntN(len(kinds))], n: r.IntN(60), passes: r.IntN(4)}
		if r.IntN(3) == 0 {
			s.passes = r.IntN(30)
		}
		steps = append(steps, s)
	}
	return steps
}

// sim is a world in which a history happens.
type sim struct {
	*world
	log    []string
	failed string // the promise that was broken first, and how

	tokens       []string // of the cluster's project
	other        string   // a token of another project
	inOther      *hcloud.Client
	incident     func(after bool, what string) error // nil: none
	incidentEnds time.Time
	deathIn      int // calls until the process dies; 0: it does not
	dead         bool
	types        int                         // the changes of templates
	unlabelled   map[int64]map[string]string // the labels that a person has removed
}

// play makes the steps in a bubble of its own.
func play(t *testing.T, seed uint64, steps []step) (s *sim) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// Actions end at odd times, so that no look comes at the same instant.
		s = &sim{unlabelled: map[int64]map[string]string{}, world: newWorldWith(t, fakecloud.Options{Clock: clock.RealClock{},
			Actions: fmt.Sprintf("%dms", 1137+1000*(seed%15)), RandomSeed: seed})}
		s.bubble, s.tokens = true, []string{s.token}
		s.other, s.inOther = s.otherProject()
		s.protected = s.budgetIsUsedUp
		s.setHook(s.call)
		if seed%2 == 0 {
			s.makeControlPlane()
		}
		for _, step := range steps {
			s.passes(step.passes)
			if s.failed != "" {
				break
			}
			s.say("%v", step)
			stepKinds[step.kind](s, step.n)
			s.changed()
			s.check(step.kind)
		}
		s.end()
		s.world.end()
	})
	return s
}

func (s *sim) say(format string, args ...any) {
	s.log = append(s.log, time.Now().Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// passes lets the controllers look so many times at everything.
func (s *sim) passes(n int) {
	for range n {
		if s.failed != "" {
			return
		}
		if s.incident != nil && time.Now().After(s.incidentEnds) {
			s.endIncident()
		}
		if len(s.nodes()) == 0 && s.token == s.other {
			s.token = s.tokens[len(s.tokens)-1] // nothing is known that could show that it is wrong
		}
		s.pods()
		s.pass()
		if s.dead {
			s.say("another process starts")
			s.dead, s.deathIn = false, 0
			s.start()
		}
	}
}

// call is the hook of the world.
func (s *sim) call(after bool, what string) error {
	if s.deathIn > 0 && !after {
		s.deathIn--
		s.dead = s.deathIn == 0
	}
	if s.dead {
		return errDead
	}
	if !strings.HasPrefix(what, "cloud: GET") {
		if after {
			s.say("  %s", what)
			s.check(what)
			s.checkCount(what)
		} else {
			s.checkRequest(what)
		}
	}
	if s.incident != nil {
		return s.incident(after, what)
	}
	return nil
}

// TestSim runs the histories of many seeds: make sim-machine SEEDS=10000. SEED=5 KEEP=0,3 replays one.
func TestSim(t *testing.T) {
	if *seedFlag != 0 {
		steps := newHistory(*seedFlag)
		if *keepFlag != "" {
			var keep []step
			for text := range strings.SplitSeq(*keepFlag, ",") {
				i, err := strconv.Atoi(text)
				if err != nil || i < 0 || i >= len(steps) {
					t.Fatalf("-keep %s: must be numbers of steps, from 0 to %d", *keepFlag, len(steps)-1)
				}
				keep = append(keep, steps[i])
			}
			steps = keep
		}
		s := play(t, *seedFlag, steps)
		t.Log(strings.Join(s.log, "\n"))
		if s.failed != "" {
			t.Errorf("seed %d: %s", *seedFlag, s.failed)
		}
		return
	}
	var failures atomic.Int64
	runs := ccmtest.Share(t, 5)
	for seed := *firstFlag; seed < *firstFlag+*seedsFlag; seed++ {
		if !runs() {
			continue
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			if *untilFlag && failures.Load() > 0 {
				return
			}
			steps := newHistory(seed)
			s := play(t, seed, steps)
			if s.failed == "" {
				return
			}
			if failures.Add(1) > 3 {
				t.Fatalf("seed %d: %s (not shrunk: make sim-machine SEED=%d)", seed, s.failed, seed)
			}
			report(t, seed, steps, s)
		})
	}
}

// report prints a seed that has failed, and its shortest history: steps are left out as long as the same promise is broken.
func report(t *testing.T, seed uint64, steps []step, s *sim) {
	t.Helper()
	rule, _, _ := strings.Cut(s.failed, ":")
	var numbers []string
	for i := range steps {
		numbers = append(numbers, strconv.Itoa(i))
	}
	for i := 0; i < len(steps); {
		fewer := slices.Delete(slices.Clone(steps), i, i+1)
		if short := play(t, seed, fewer); strings.HasPrefix(short.failed, rule+":") {
			steps, numbers, s = fewer, slices.Delete(numbers, i, i+1), short
			continue
		}
		i++
	}
	t.Errorf("seed %d: %s\nthese steps (make sim-machine SEED=%d KEEP=%s):\n    %v\nthe end of what happened:\n%s", seed, s.failed, seed,
		strings.Join(numbers, ","), steps, strings.Join(s.log[max(0, len(s.log)-60):], "\n"))
}

func TestTheSameSeedGivesTheSameHistory(t *testing.T) {
	t.Parallel()
	first, second := play(t, 1, newHistory(1)).log, play(t, 1, newHistory(1)).log
	for i, line := range first {
		if i >= len(second) || second[i] != line {
			t.Fatalf("line %d: %s, and then %s", i, line, second[min(i, len(second)-1)])
		}
	}
}
