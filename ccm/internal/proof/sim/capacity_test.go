//go:build sim

package sim

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
)

// This file is about capacity: the number of healthy targets, and the targets that the CCM may take away.

// checkRemoval makes sure that a healthy target, whose Node is not wanted any more, leaves for another healthy one: one more may leave
// each minute, and one where the type has no room for both, but never the last one. What was healthy when the sync began counts, and
// what is more than wanted may leave.
func (g *guard) checkRemoval(action string, body []byte, lb *hcloud.LoadBalancer) {
	var target struct{ Server struct{ ID int64 } }
	if action != "remove_target" || lb == nil || g.ownerOf(lb) == nil {
		return
	}
	must(json.Unmarshal(body, &target))
	g.noteHealth(lb)
	s, id := g.ownerOf(lb), target.Server.ID
	want := g.wantedTargets(s, lb, g.world.kube.nodes())
	healthy := g.healthyAt[lb.ID]
	i := slices.IndexFunc(lb.Targets, func(t hcloud.LoadBalancerTarget) bool { return t.Server != nil && t.Server.Server.ID == id })
	if i < 0 || !isHealthy(lb.Targets[i]) || slices.Contains(want, id) || g.mustLeave(s, lb) ||
		!slices.ContainsFunc(lb.Services, func(l hcloud.LoadBalancerService) bool { return !g.isNew(lb, l.ListenPort) }) {
		return
	}
	others, instead := 0, 0
	for other, at := range healthy {
		if other == id || g.long(at) || g.deletedServer[other] {
			continue
		}
		others++
		if slices.Contains(want, other) {
			instead++
		}
	}
	// A sync that began when the Node was wanted may change the address of its target.
	changes := lb.Targets[i].UsePrivateIP != usesPrivateIP(s, lb) && !g.long(g.nodesAt)
	if others == 0 && !changes {
		g.fail("healthy", "server %d, the last healthy target of load balancer %d, is removed; wanted are %v", id, lb.ID, want)
	}
	left := slices.DeleteFunc(g.left[lb.ID], func(at time.Time) bool { return time.Since(at) > 55*time.Second })
	g.left[lb.ID] = append(left, time.Now())
	may := instead + 1
	if len(lb.Targets) >= lb.LoadBalancerType.MaxTargets-1 {
		may++
	}
	if len(left)+1 > may && others < len(want) {
		g.fail("healthy", "%d healthy targets have been removed from load balancer %d within a minute, and %d of %d others are healthy",
			len(left)+1, lb.ID, instead, len(want))
	}
}

// noteHealth remembers which servers are healthy as targets now.
func (g *guard) noteHealth(lb *hcloud.LoadBalancer) {
	if lb == nil {
		return
	}
	if g.healthyAt[lb.ID] == nil {
		g.healthyAt[lb.ID] = map[int64]time.Time{}
	}
	for _, t := range lb.Targets {
		if t.Server != nil && isHealthy(t) {
			g.healthyAt[lb.ID][t.Server.Server.ID] = time.Now()
		}
	}
}

func isHealthy(t hcloud.LoadBalancerTarget) bool {
	return len(t.HealthStatus) > 0 && !slices.ContainsFunc(t.HealthStatus, func(h hcloud.LoadBalancerTargetHealthStatus) bool {
		return h.Status != hcloud.LoadBalancerTargetHealthStatusStatusHealthy
	})
}

// checkCapacity makes sure that of the wanted servers that were healthy on a port the CCM has never taken away more than one, which is
// healthy again before the next one goes: also when all change between public and private addresses. Forgiven is what has to leave
// at once, and one more where the type has no room for both.
func (g *guard) checkCapacity(action string, body []byte, lb *hcloud.LoadBalancer) {
	if action != "remove_target" || lb == nil || g.ownerOf(lb) == nil {
		return
	}
	var removed struct{ Server struct{ ID int64 } }
	must(json.Unmarshal(body, &removed))
	leaves := func(t hcloud.LoadBalancerTarget) bool {
		return t.Server != nil && t.Server.Server.ID == removed.Server.ID
	}
	before, after := healthyServers(lb.Targets), healthyServers(slices.DeleteFunc(slices.Clone(lb.Targets), leaves))
	s := g.ownerOf(lb)
	want := g.wantedTargets(s, lb, g.world.kube.nodes())
	most := 1
	if len(lb.Targets) >= lb.LoadBalancerType.MaxTargets-1 {
		most++
	}
	for _, l := range lb.Services {
		port := l.ListenPort
		if g.isNew(lb, port) {
			continue
		}
		var missing []int64
		for _, id := range want {
			if s := g.servers[id]; s != nil && s.Status != hcloud.ServerStatusRunning {
				continue // it is healthy only until some health checks have failed
			}
			_, taken := g.taken[takenTarget{lb.ID, id, port}]
			if !after[port][id] && (before[port][id] || taken && !g.lost[id]) {
				missing = append(missing, id)
			}
			if before[port][id] && !after[port][id] {
				g.taken[takenTarget{lb.ID, id, port}] = asked
			}
		}
		if len(missing) > most && !g.mustLeave(s, lb) {
			g.fail("capacity", "load balancer %d loses healthy targets on port %d before others that were taken away are healthy again: %v",
				lb.ID, port, missing)
		}
	}
}

// isNew reports whether a port is so new that a sync may still run that has seen no target which serves it.
func (g *guard) isNew(lb *hcloud.LoadBalancer, port int) bool {
	return time.Since(g.portsAt[lbPort{lb.ID, port}]) < time.Minute
}

// takenTarget is a healthy target that the CCM has taken away.
type takenTarget struct {
	lb, server int64
	port       int
}

// lbPort is a port of a load balancer.
type lbPort struct {
	lb   int64
	port int
}

// taking is how far that is. The target counts as missing until it has been away and is healthy again.
type taking int

const (
	asked taking = iota
	away
)

// noteTaken is told of each state of a load balancer. A port that is gone has lost nothing when it comes again.
func (g *guard) noteTaken(lb *hcloud.LoadBalancer) {
	healthy := healthyServers(lb.Targets)
	listens := func(port int) bool {
		return slices.ContainsFunc(lb.Services, func(s hcloud.LoadBalancerService) bool { return s.ListenPort == port })
	}
	maps.DeleteFunc(g.portsAt, func(p lbPort, _ time.Time) bool { return p.lb == lb.ID && !listens(p.port) })
	for _, s := range lb.Services {
		if p := (lbPort{lb.ID, s.ListenPort}); g.portsAt[p].IsZero() {
			g.portsAt[p] = time.Now()
		}
	}
	for t, how := range g.taken {
		switch {
		case t.lb != lb.ID:
		case !listens(t.port):
			delete(g.taken, t)
		case !healthy[t.port][t.server]:
			g.taken[t] = away
		case how == away:
			delete(g.taken, t)
		}
	}
}

// noteStopped is told of each state of a server. One that is not running is not healthy for another reason.
func (g *guard) noteStopped(s *hcloud.Server) {
	if s.Status != hcloud.ServerStatusRunning {
		maps.DeleteFunc(g.taken, func(t takenTarget, _ taking) bool { return t.server == s.ID })
	}
}

// mustLeave reports whether the load balancer must leave the public interface or its network as soon as possible: with all targets that
// use it. A sync that began when that was so may still run.
func (g *guard) mustLeave(s *corev1.Service, lb *hcloud.LoadBalancer) bool {
	uid := string(s.UID)
	if isPrivate(s) && lb.PublicNet.Enabled || g.leavesNetwork(s, lb) {
		g.hidden[uid] = time.Now()
	}
	return !g.hidden[uid].IsZero() && time.Since(g.hidden[uid]) < grace
}

// healthyServers returns the servers that are healthy as targets, by port.
func healthyServers(targets []hcloud.LoadBalancerTarget) map[int]map[int64]bool {
	healthy := map[int]map[int64]bool{}
	for _, t := range targets {
		if t.Server == nil {
			continue
		}
		for _, h := range t.HealthStatus {
			if h.Status != hcloud.LoadBalancerTargetHealthStatusStatusHealthy {
				continue
			}
			if healthy[h.ListenPort] == nil {
				healthy[h.ListenPort] = map[int64]bool{}
			}
			healthy[h.ListenPort][t.Server.Server.ID] = true
		}
	}
	return healthy
}
