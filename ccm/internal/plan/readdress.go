package plan

import (
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// readdress changes targets between public and private addresses in turns. With its new address, a target serves only after the first
// health check of that, one interval later. So one target changes when all that have their planned address are healthy, and the others
// keep the one that they have. Nodes that wait for their routes become targets first, if that takes no longer than others may wait. It
// runs after keepServing.
//
// Three changes are made at once. A load balancer can leave its network only without private targets. One that leaves the public
// interface must not expose the Service any longer. Targets that are not healthy come last, and only if none is missing: before its first
// health check a target may serve, so that it waits for a limited time.
func readdress(plan *LoadBalancer, in Input) {
	lb, lingerOver := in.Current, in.LingerOver
	if hides(plan, lb) {
		return
	}
	now := map[int64]hcloud.LoadBalancerTarget{}
	for _, t := range lb.Targets {
		now[serverOf(t)] = t
	}
	s := look(plan, in, now)
	s.ready = s.ready && (!plan.unrouted || lingerOver)
	// If one is unhealthy, it must not hold up the others without end. But if all are, it may be the address that does not work.
	mayChange := s.ready || lingerOver && s.proven && !s.missing && !s.unknown && !leaves(plan, lb)
	for i, want := range plan.Targets {
		t, is := now[want.ServerID]
		atOnce := len(s.next) == 0 && !s.missing && (!s.unknown || lingerOver) || len(s.next) > 0 && mayChange && want.ServerID == s.next[0]
		if is && t.UsePrivateIP != want.Private && (!atOnce || in.Refused[want.ServerID]) {
			keepAddress(plan, i)
		}
	}
}

// keepPublic keeps the public addresses of targets that shall be private while all private ones of the load balancer leave, and come
// again.
func keepPublic(plan *LoadBalancer, lb *hcloud.LoadBalancer) {
	if hides(plan, lb) {
		return
	}
	now := currentTargets(lb)
	for i, want := range plan.Targets {
		if t, is := now[want.ServerID]; is && want.Private && !t.Private {
			keepAddress(plan, i)
		}
	}
}

// keepAddress has a target wait with the kind of address that it has.
func keepAddress(plan *LoadBalancer, i int) {
	plan.Targets[i].Private = !plan.Targets[i].Private
	plan.Waiting = append(plan.Waiting, plan.Targets[i])
}

// addressChange is how far a change of addresses is.
type addressChange struct {
	next    []int64 // healthy servers whose address changes
	ready   bool    // all that have their planned address are healthy
	missing bool    // a planned target is not there
	unknown bool    // one has not been checked yet
	proven  bool    // one is healthy with its planned address
}

func look(plan *LoadBalancer, in Input, now map[int64]hcloud.LoadBalancerTarget) addressChange {
	s := addressChange{ready: true}
	for _, want := range plan.Targets {
		switch t, is := now[want.ServerID]; {
		case in.Refused[want.ServerID] && (!is || t.UsePrivateIP != want.Private):
			s.ready, s.unknown = s.ready && (!is || !IsUnknown(t)), s.unknown || is && IsUnknown(t) // it has its address again
		case is && t.UsePrivateIP != want.Private:
			if len(healthyPorts(t)) > 0 {
				s.next = append(s.next, want.ServerID)
			}
			s.ready, s.unknown = s.ready && !IsUnknown(t), s.unknown || IsUnknown(t) // it may just have got this one
		case is && IsHealthy(t):
			s.proven = true
		case is && in.Servers[want.ServerID] != nil && in.Servers[want.ServerID].Status == hcloud.ServerStatusOff: // with any address
		default:
			s.ready, s.missing, s.unknown = false, s.missing || !is, s.unknown || IsUnknown(t)
		}
	}
	return s
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

// IsUnknown reports whether a port of the target has not been checked yet.
func IsUnknown(t hcloud.LoadBalancerTarget) bool {
	return slices.ContainsFunc(t.HealthStatus, func(h hcloud.LoadBalancerTargetHealthStatus) bool {
		return h.Status == hcloud.LoadBalancerTargetHealthStatusStatusUnknown
	})
}
