// Package crash finds, for tests, all states of the world that the death of a process can leave.
package crash

import (
	"slices"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
)

// Death is where a process ends: at a request, before the other side gets it or after.
type Death struct {
	Call  int // counted from 1
	After bool
}

// End is a death that was possible during a run, and the state of the world at that time. Equal states must have equal texts:
// identifiers and times are left out.
type End struct {
	Death
	State string
}

// Sweep calls run with each series of deaths that leaves a new state. run lets one process after the
// other die, then one converge, and returns where this one could have died.
//
// To die twice in the same state is the same, so that the number of states bounds the number of runs. With -short, one of share series
// runs.
func Sweep(t *testing.T, share uint64, run func(t *testing.T, deaths []Death) []End) {
	t.Helper()
	states, most, runs := map[string]bool{}, 0, ccmtest.Share(t, share)
	for todo := [][]Death{nil}; len(todo) > 0 && !t.Failed(); todo = todo[1:] {
		if !runs() && len(todo[0]) > 0 {
			continue
		}
		most = max(most, len(todo[0]))
		for _, end := range run(t, todo[0]) {
			if !states[end.State] {
				states[end.State] = true
				todo = append(todo, append(slices.Clip(todo[0]), end.Death))
			}
		}
	}
	t.Logf("%d states, after up to %d deaths", len(states), most)
}
