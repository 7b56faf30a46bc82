package controller

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

func TestRollout(t *testing.T) {
	type g = generation
	for name, c := range map[string]struct {
		rollout
		current int
		old     []int
	}{
		"nothing is there":                {rollout{3, 1, 0, g{}, nil}, 3, nil},
		"all is done":                     {rollout{3, 1, 0, g{3, 3}, []g{{}}}, 3, []int{0}},
		"the surge begins":                {rollout{3, 1, 0, g{}, []g{{3, 3}}}, 1, []int{3}},
		"the new one does not work yet":   {rollout{3, 1, 0, g{1, 0}, []g{{3, 3}}}, 1, []int{3}},
		"the new one works":               {rollout{3, 1, 0, g{1, 1}, []g{{3, 3}}}, 1, []int{2}},
		"without a surge":                 {rollout{3, 0, 1, g{}, []g{{3, 3}}}, 0, []int{2}},
		"old ones that do not work":       {rollout{3, 1, 0, g{1, 1}, []g{{3, 0}}}, 1, []int{2}},
		"all old ones seem not to work":   {rollout{3, 1, 0, g{1, 0}, []g{{3, 0}}}, 1, []int{3}},
		"two changes at once":             {rollout{4, 2, 1, g{2, 1}, []g{{1, 1}, {3, 3}}}, 2, []int{0, 2}},
		"fewer are wanted":                {rollout{1, 1, 0, g{3, 3}, nil}, 1, nil},
		"fewer are wanted in the middle":  {rollout{1, 1, 0, g{2, 0}, []g{{3, 3}}}, 1, []int{1}},
		"none is wanted":                  {rollout{0, 1, 0, g{2, 2}, []g{{1, 1}}}, 0, []int{0}},
		"more than wanted were available": {rollout{2, 1, 0, g{1, 4}, []g{{2, 5}}}, 1, []int{1}},
	} {
		if current, old := c.next(); current != c.current || !reflect.DeepEqual(old, c.old) {
			t.Errorf("%s: %d and %v, want %d and %v", name, current, old, c.current, c.old)
		}
	}
}

// TestRolloutKeepsItsLimits plays rollouts in which Machines begin and cease to work by chance.
func TestRolloutKeepsItsLimits(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		n := 1 + r.IntN(8)
		s := rollout{replicas: n, maxSurge: r.IntN(4), maxUnavailable: r.IntN(n + 1), old: []generation{{n, n}, {r.IntN(2), 0}}}
		if s.maxSurge == 0 && s.maxUnavailable == 0 {
			s.maxSurge = 1
		}
		done := false
		for step := range 200 {
			current, old := s.next()
			total, available := current, min(s.current.available, current)
			before, had := s.current.replicas, s.current.working()
			for i, wanted := range old {
				before, had = before+s.old[i].replicas, had+s.old[i].working()
				total, available = total+wanted, available+min(s.old[i].available, wanted)
				s.old[i].replicas = wanted
			}
			if total > max(before, n+s.maxSurge) || available < min(had, n-s.maxUnavailable) {
				t.Fatalf("seed %d: %d in all, %d available: %+v", seed, total, available, s)
			}
			s.current.replicas = current
			// At first Machines may cease to work; later they only begin to.
			for _, g := range append([]*generation{&s.current}, pointers(s.old)...) {
				g.available = min(g.available, g.replicas)
				if r.IntN(2) == 0 && g.available < g.replicas {
					g.available++
				} else if step < 50 && r.IntN(8) == 0 && g.available > 0 {
					g.available--
				}
			}
			if done = s.current == (generation{n, n}) && s.old[0].replicas+s.old[1].replicas == 0; done && step > 60 {
				break
			}
		}
		if !done {
			t.Errorf("seed %d does not end: %+v", seed, s)
		}
	}
}

func pointers(all []generation) (p []*generation) {
	for i := range all {
		p = append(p, &all[i])
	}
	return p
}
