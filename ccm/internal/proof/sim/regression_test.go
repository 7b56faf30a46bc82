//go:build sim

package sim

import (
	"strings"
	"testing"
	"time"
)

// TestRegressions plays the shortest histories of what the simulation has found in the CCM. Each ends when all is settled.
func TestRegressions(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]history{
		// Each private load balancer had 0 targets after one sync.
		"a network without servers takes no targets away": {1, 3, []step{
			{kind: "service", who: "a", n: 3, m: 1},
			{kind: settle},
			{kind: "network other", n: 5},
		}},
		// The service controller of the next process does not know that it had one.
		"a Service that gets a class while its CCM dies leaves no load balancer behind": {1, 3, []step{
			{kind: "service", who: "a", n: 1, m: 1},
			{kind: settle},
			{kind: "token away"},
			{kind: "service class", who: "a"},
			{wait: time.Second, kind: "crash", n: 0},
			{wait: 2 * time.Minute, kind: "token back"},
		}},
		// Its other label showed a load balancer that was not found, forever.
		"a Service whose load balancer a person has released can be deleted": {1, 3, []step{
			{kind: "service", who: "a", n: 1, m: 1},
			{kind: settle},
			{kind: "lb label remove", who: "a", n: 0},
			{wait: time.Minute, kind: "service delete", who: "a"},
		}},
		// Targets that do not serve do not wait for others, but they must not all be gone before others are there.
		"a load balancer without room changes targets in turns, although none is healthy": {1, 6, []step{
			{kind: "service", who: "a", n: 0, m: 1},
			{kind: settle},
			{kind: "server off", who: "n1"},
			{kind: "server off", who: "n2"},
			{kind: "server off", who: "n3"},
			{kind: "server off", who: "n4"},
			{kind: "server off", who: "n5"},
			{kind: "server off", who: "n6"},
			{kind: "pool full"},
		}},
		"a cluster and its copy in one project leave each other alone": {1, 3, []step{
			{kind: "service", who: "a", n: 1, m: 1},
			{kind: settle},
			{kind: "two clusters", n: 7, m: 3},
		}},
		// The targets of the owner were private, and the heir had no such annotation.
		"a load balancer that is inherited keeps its settings": {1, 3, []step{
			{kind: "service", who: "a", n: 33, m: 0},
			{kind: settle},
			{kind: "service", who: "b", n: 29, m: 2},
			{kind: settle},
			{kind: "service delete", who: "a"},
		}},
		// All targets changed their address in one sync, and none of them was healthy before its first health check.
		"a Service that chooses private addresses keeps its capacity": {1, 6, []step{
			{kind: "service", who: "a", n: 0, m: 1},
			{kind: settle},
			{kind: "service", who: "a", n: 2, m: 1},
			{kind: settle},
			{kind: "service", who: "a", n: 0, m: 1},
		}},
		// Those that leave had the address that nothing else was to have any more.
		"new Nodes and private addresses at the same time keep the capacity": {1, 6, []step{
			{kind: "pool split"},
			{kind: "service", who: "a", n: 0, m: 1},
			{kind: settle},
			{kind: "pool switch"},
			{kind: "service", who: "a", n: 2, m: 1},
		}},
		// The sync went on to remove targets whose Nodes were chosen again.
		"Nodes that are chosen again while their targets are removed keep the capacity": {1, 6, []step{
			{kind: "service", who: "a", n: 0, m: 1},
			{kind: settle},
			{kind: "pool switch"},
			{wait: time.Second, kind: "pool switch"},
		}},
		// It left its network with all private targets, although public ones were to replace them.
		"another private address and public targets at the same time keep the capacity": {1, 6, []step{
			{kind: "service", who: "a", n: 11, m: 1},
			{kind: settle},
			{kind: "service", who: "a", n: 8, m: 1},
		}},
		// One target had just got its private address, and another one was the next to get a public one.
		"a Service that changes its mind while targets change keeps its capacity": {1, 6, []step{
			{kind: "service", who: "a", n: 0, m: 1},
			{kind: settle},
			{kind: "service", who: "a", n: 2, m: 1},
			{wait: 30 * time.Second, kind: "service", who: "a", n: 0, m: 1},
			{wait: 30 * time.Second, kind: "service", who: "a", n: 2, m: 1},
		}},
		// Its targets were public, so that it could leave its network; but all of them became private at once.
		"another private address and private targets at the same time keep the capacity": {1, 6, []step{
			{kind: "service", who: "a", n: 0, m: 1},
			{kind: settle},
			{kind: "service", who: "a", n: 11, m: 1},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h.steps = append(h.steps, step{kind: settle})
			if w := play(t, h); w.guard.failed != nil {
				t.Errorf("%v\n%s", w.guard.failed, strings.Join(w.log, "\n"))
			}
		})
	}
}
