package ccm

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// A new target serves only when its health check has succeeded, 15 s later by default. If all healthy targets left earlier, no
// client would be served: when another pool of nodes or another node-selector is chosen, or when a node is drained as soon as the
// next one is ready. So they leave when another target is healthy, at the latest after leaveAfter: to exclude a node is a
// person's right.
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
func keepLeaving(plan *lbPlan, in lbPlanInput, private bool) (notes []lbNote) {
	lb := in.Current
	if lb == nil || plan.Guest || len(plan.Targets) == 0 && plan.Selector.Selector == "" && !slices.ContainsFunc(in.Nodes, lacksRoute) {
		return nil
	}
	if _, detaches := (&lbDiff{plan: plan, lb: lb}).network(); detaches {
		return nil // its private targets have to leave
	}
	has := serverTargets(lb)
	for _, t := range lb.Targets {
		isServer := func(s lbTarget) bool {
			return t.Server != nil && t.Server.Server != nil && s.ServerID == t.Server.Server.ID
		}
		switch {
		case !serves(t):
		case !slices.ContainsFunc(has, isServer), slices.ContainsFunc(plan.Targets, isServer):
			plan.Leaving = nil
			return nil
		case t.UsePrivateIP == private: // others have to leave before the public interface or the network can
			plan.Leaving = append(plan.Leaving, lbTarget{t.Server.Server.ID, private})
		}
	}
	if len(plan.Leaving) == 0 || in.LeaveNow {
		return nil
	}
	waiting, room := plan.Leaving, math.MaxInt
	if in.Limits != nil {
		room = in.Limits.MaxTargets - foreignTargets(plan, lb)
		waiting = waiting[:min(len(waiting), max(1, room-len(plan.Targets)))]
	}
	if plan.Targets = slices.Concat(plan.Targets, waiting); len(plan.Targets) > room {
		plan.Targets = chooseTargets(plan.Targets, room, has, in.Servers)
	}
	slices.SortFunc(plan.Targets, compareTargets)
	var servers []string
	for _, t := range waiting {
		servers = append(servers, fmt.Sprint(t.ServerID))
	}
	return []lbNote{{EventPending, fmt.Sprintf("No other target is healthy yet: servers %s leave when one is, at the latest after %v", abbreviate(servers, 5), leaveAfter)}}
}

// serves reports whether a target, or a server that it selects, is healthy on all ports.
func serves(t hcloud.LoadBalancerTarget) bool {
	return len(t.HealthStatus) > 0 && isHealthy(t) || slices.ContainsFunc(t.Targets, serves)
}

// leaveNow reports whether the Service's targets have waited long enough.
func (l *loadBalancers) leaveNow(uid string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, waits := l.leaving[uid]
	return waits && l.waiter.clock.Since(since) >= leaveAfter
}

// noteLeaving remembers since when targets wait, and has the comparison look again.
func (l *loadBalancers) noteLeaving(plan *lbPlan) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(plan.Leaving) == 0 {
		delete(l.leaving, plan.UID)
		return
	}
	if _, waits := l.leaving[plan.UID]; !waits {
		l.leaving[plan.UID] = l.waiter.clock.Now()
	}
	select {
	case l.waits <- struct{}{}:
	default: // a look is due already
	}
}
