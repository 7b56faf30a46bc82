package plan

import (
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// readdress changes targets between public and private addresses in turns. With its new address, a target serves only after the first
// health check of that, one interval later. So one target changes when all that have their planned address are healthy, and the others
// keep the one that they have. It runs after linger.
//
// Three changes cannot wait, and are made at once: those of a load balancer that leaves its network or its public interface, which is
// possible only without targets there, and those of targets that are not healthy, which come last and only if none is missing.
func readdress(plan *LoadBalancer, in Input) {
	lb := in.Current
	if lb == nil || plan.Guest || hides(plan, lb) {
		return
	}
	if _, detaches := (&difference{plan: plan, lb: lb}).network(); detaches {
		return
	}
	now := map[int64]hcloud.LoadBalancerTarget{}
	for _, t := range lb.Targets {
		now[serverOf(t)] = t
	}
	var next []int64 // healthy servers whose address changes
	ready, missing, unknown, proven := true, false, false, false
	for _, want := range plan.Targets {
		switch t, is := now[want.ServerID]; {
		case is && t.UsePrivateIP != want.Private:
			if len(healthyPorts(t)) > 0 {
				next = append(next, want.ServerID)
			}
		case is && IsHealthy(t):
			proven = true
		default:
			ready, missing, unknown = false, missing || !is, unknown || isUnknown(t)
		}
	}
	// If one is unhealthy, it must not hold up the others without end. But if all are, it may be the address that does not work.
	mayChange := ready || in.LingerOver && proven && !missing && !unknown && !leaves(plan, lb)
	readdressSelector(plan, lb, now, mayChange)
	for i, want := range plan.Targets {
		t, is := now[want.ServerID]
		atOnce := len(next) == 0 && !missing || len(next) > 0 && mayChange && want.ServerID == next[0]
		if !is || t.UsePrivateIP == want.Private || atOnce {
			continue
		}
		plan.Targets[i].Private = t.UsePrivateIP
		plan.Waiting = append(plan.Waiting, plan.Targets[i])
	}
}

// readdressSelector keeps a selector as it is until the targets of type server that stand for it meanwhile are healthy. The API allows
// each selector once, so that it has to leave before it has the other kind of address.
func readdressSelector(plan *LoadBalancer, lb *hcloud.LoadBalancer, now map[int64]hcloud.LoadBalancerTarget, mayChange bool) {
	i := slices.IndexFunc(ownSelectors(lb), func(s selectorTarget) bool {
		return s.Selector == plan.Selector.Selector && s.Private != plan.Selector.Private
	})
	if i < 0 || mayChange {
		return
	}
	plan.Selector = ownSelectors(lb)[i]
	for _, t := range plan.Targets {
		if has, is := now[t.ServerID]; !is || !IsHealthy(has) {
			plan.Waiting = append(plan.Waiting, t)
		}
	}
}

// hides reports whether the load balancer has to leave the public interface.
func hides(plan *LoadBalancer, lb *hcloud.LoadBalancer) bool {
	return lb.PublicNet.Enabled && !plan.Public
}

// leaves reports whether one of the Service's targets has to leave.
func leaves(plan *LoadBalancer, lb *hcloud.LoadBalancer) bool {
	return slices.ContainsFunc(ServerTargets(lb), func(t Target) bool {
		return !slices.ContainsFunc(plan.Targets, func(want Target) bool { return want.ServerID == t.ServerID })
	})
}

// isUnknown reports whether a port of the target has not been checked yet.
func isUnknown(t hcloud.LoadBalancerTarget) bool {
	return slices.ContainsFunc(t.HealthStatus, func(h hcloud.LoadBalancerTargetHealthStatus) bool {
		return h.Status == hcloud.LoadBalancerTargetHealthStatusStatusUnknown
	})
}
