package ccm

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// A new target serves only when its health check has succeeded, 15 s later by default. If all healthy targets left earlier, no
// client would be served: when another pool of nodes or another node-selector is chosen, or when a node is drained as soon as the
// next one is ready. So they leave when others are healthy on the same ports. They leave after leaveAfter in any case, since to
// exclude a node is a person's right.
//
// Not kept: a selector that targets of their own replace leaves before they are healthy.

const (
	// leaveAfter is how long targets that have to leave wait until another one is healthy. The default health check needs
	// 15 s, a pod on a new node some more. The machine controller waits two minutes until a server is no target any more.
	leaveAfter = time.Minute
	// leavePoll is the time until the next look at the health of the others. One list answers for all load balancers.
	leavePoll = 4 * time.Second
)

// keepLeaving keeps targets in the plan that have to wait before they leave. It runs when the plan fits the type's limits, and
// targets that wait take the place of new ones rather than none waits.
func keepLeaving(plan *lbPlan, in lbPlanInput, private bool) {
	lb := in.Current
	if lb == nil || plan.Guest || len(plan.Targets) == 0 && plan.Selector.Selector == "" && !slices.ContainsFunc(in.Nodes, lacksRoute) {
		return
	}
	if _, detaches := (&lbDiff{plan: plan, lb: lb}).network(); detaches {
		return // its private targets have to leave
	}
	plan.Leaving = neededTargets(plan, lb, private)
	if len(plan.Leaving) == 0 || in.LeaveNow {
		return
	}
	waiting, room := plan.Leaving, math.MaxInt
	if in.Limits != nil {
		room = in.Limits.MaxTargets - foreignTargets(plan, lb)
		waiting = waiting[:min(len(waiting), max(1, room-len(plan.Targets)))]
	}
	if plan.Targets = slices.Concat(plan.Targets, waiting); len(plan.Targets) > room {
		plan.Targets = chooseTargets(plan.Targets, room, serverTargets(lb), in.Servers)
	}
	slices.SortFunc(plan.Targets, compareTargets)
}

// neededTargets returns the Service's targets that the plan lacks, and that are healthy on a port on which no other target is. Those
// with another kind of address are not among them: they have to leave before the public interface or the network can.
func neededTargets(plan *lbPlan, lb *hcloud.LoadBalancer, private bool) (needed []lbTarget) {
	own := serverTargets(lb)
	served := map[int]bool{} // ports
	var leaving []hcloud.LoadBalancerTarget
	for _, t := range lb.Targets {
		isServer := func(s lbTarget) bool {
			return t.Server != nil && t.Server.Server != nil && s.ServerID == t.Server.Server.ID
		}
		switch {
		case !slices.ContainsFunc(own, isServer), slices.ContainsFunc(plan.Targets, isServer):
			for _, port := range healthyPorts(t) {
				served[port] = true
			}
		case t.UsePrivateIP == private:
			leaving = append(leaving, t)
		}
	}
	for _, t := range leaving {
		if slices.ContainsFunc(healthyPorts(t), func(port int) bool { return !served[port] }) {
			needed = append(needed, lbTarget{t.Server.Server.ID, private})
		}
	}
	return needed
}

// healthyPorts returns the ports on which a target, or a server that it selects, is healthy.
func healthyPorts(t hcloud.LoadBalancerTarget) (ports []int) {
	for _, h := range t.HealthStatus {
		if h.Status == hcloud.LoadBalancerTargetHealthStatusStatusHealthy {
			ports = append(ports, h.ListenPort)
		}
	}
	for _, selected := range t.Targets {
		ports = append(ports, healthyPorts(selected)...)
	}
	return ports
}

// leaveNow reports whether the Service's targets have waited long enough.
func (l *loadBalancers) leaveNow(uid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, waits := l.leaving[uid]
	return waits && l.waiter.clock.Since(since) >= leaveAfter
}

// noteLeaving remembers since when targets wait, and has the comparison look again.
func (s *lbSync) noteLeaving(plan *lbPlan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, waits := s.leaving[plan.UID]
	switch {
	case len(plan.Leaving) == 0:
		delete(s.leaving, plan.UID)
		return
	case s.in.LeaveNow:
		return
	case !waits:
		s.leaving[plan.UID] = s.waiter.clock.Now()
		var servers []string
		for _, t := range plan.Leaving {
			servers = append(servers, strconv.FormatInt(t.ServerID, 10))
		}
		s.events.normal(s.svc, EventPending, "Targets leave when another one is healthy, at the latest after %v: servers %s", leaveAfter, abbreviate(servers))
	}
	select {
	case s.waits <- struct{}{}:
	default: // a look is due already
	}
}
