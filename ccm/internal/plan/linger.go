package plan

import (
	"math"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// linger keeps targets in the plan that have to wait before they leave or change: see keepServing and readdress. A load balancer that
// leaves its network loses its private targets: it waits for those that wait, unless others are private there, too.
func linger(plan *LoadBalancer, in Input) {
	lb := in.Current
	if lb == nil || plan.Guest {
		return
	}
	_, detaches := (&difference{plan: plan, lb: lb}).network()
	loses := detaches && hasPrivate(ServerTargets(lb))
	if loses && hasPrivate(plan.Targets) {
		keepPublic(plan, lb)
		return
	}
	keepServing(plan, in)
	readdress(plan, in)
	if loses && hasPrivate(plan.Targets) { // those that wait
		plan.NetworkID, plan.PrivateIPv4, plan.PrivateSubnet = lb.PrivateNet[0].Network.ID, netip.Addr{}, netip.Prefix{}
	}
}

// hasPrivate reports whether one of the targets is private.
func hasPrivate(targets []Target) bool {
	return slices.ContainsFunc(targets, func(t Target) bool { return t.Private })
}

// keepServing keeps targets in the plan that have to wait before they leave: one healthy target leaves for each planned one that
// becomes healthy. It runs when the plan fits the type's limits. There, targets that wait have a place before new ones.
func keepServing(plan *LoadBalancer, in Input) {
	lb := in.Current
	plan.Lingering = lingeringTargets(plan, in)
	if len(plan.Lingering) == 0 {
		return
	}
	waiting, room := plan.Lingering, math.MaxInt
	if in.Limits != nil {
		next, healthy := nextTargets(plan, lb)
		room = in.Limits.MaxTargets - foreignTargets(lb)
		most := room - next
		if healthy == 0 {
			most = max(most, 1) // rather than that none serves, the next one waits for room
		}
		waiting = waiting[:min(len(waiting), max(most, 0))]
	}
	if plan.Targets = slices.Concat(plan.Targets, waiting); len(plan.Targets) > room {
		plan.Targets = chooseTargets(plan.Targets, room, ServerTargets(lb), in)
	}
	slices.SortFunc(plan.Targets, compareTargets)
}

// awaited returns how many of the chosen nodes should serve a port, also those that are not targets yet, for whatever reason. Nothing waits
// for one that the API refuses, nor for one that is sick, has no endpoint or finds no server: it was chosen before a target had to leave,
// and does not serve.
func (in Input) awaited(plan *LoadBalancer) func(port int) int {
	targets := map[int64]hcloud.LoadBalancerTarget{}
	for _, t := range in.Current.Targets {
		targets[serverOf(t)] = t
	}
	counts := map[int]int{}
	return func(port int) int {
		if n := counts[port]; n > 0 {
			return n
		}
		n := max(plan.Fresh-in.Fresh, 0)
		for _, id := range plan.Chosen {
			_, known := slices.BinarySearch(in.Known, id)
			target, has := targets[id]
			sick := known && (!has || slices.ContainsFunc(target.HealthStatus, func(h hcloud.LoadBalancerTargetHealthStatus) bool {
				return h.ListenPort == port && h.Status == hcloud.LoadBalancerTargetHealthStatusStatusUnhealthy
			}))
			if !sick && !in.Refused[id] {
				n++
			}
		}
		counts[port] = max(n, 1) // also if none is chosen, perhaps by a mistake
		return counts[port]
	}
}

// nextTargets returns how many planned targets a load balancer without room has next: those that it has, and another one when all
// of them are healthy. It also returns how many are healthy.
func nextTargets(plan *LoadBalancer, lb *hcloud.LoadBalancer) (next, healthy int) {
	for _, t := range lb.Targets {
		if !slices.ContainsFunc(plan.Targets, isServer(t)) {
			continue
		}
		next++
		if IsHealthy(t) {
			healthy++
		}
	}
	if healthy == next {
		next++
	}
	return next, healthy
}

// lingeringTargets returns targets that the plan lacks but a port needs: they are healthy there, and without them fewer than the awaited
// number would be. When they have waited long enough, one of them is left out, unless it is the last one on a port. Public ones are not
// among them if they have to leave before the public interface can, and neither are those that end if no node follows them. While no
// target is planned, all that are not healthy are needed, too: the list may be old, and one of them the last that serves.
func lingeringTargets(plan *LoadBalancer, in Input) (needed []Target) {
	lb, own := in.Current, ServerTargets(in.Current)
	served := map[int]map[int64]bool{} // healthy servers by port; not by an address that a person has added
	serve := func(t hcloud.LoadBalancerTarget) {
		for _, port := range healthyPorts(t) {
			if served[port] == nil {
				served[port] = map[int64]bool{}
			}
			served[port][serverOf(t)] = true
		}
	}
	var leaving []hcloud.LoadBalancerTarget
	for _, t := range lb.Targets {
		switch {
		case serverOf(t) == 0:
			for _, selected := range t.Targets {
				serve(selected)
			}
		case !slices.ContainsFunc(own, isServer(t)), slices.ContainsFunc(plan.Targets, isServer(t)):
			serve(t)
		case in.Doomed[serverOf(t)] && len(plan.Chosen) == 0:
		case t.UsePrivateIP || !hides(plan, lb):
			leaving = append(leaving, t)
		}
	}
	if len(leaving) == 0 {
		return nil // as in almost each sync
	}
	awaited := in.awaited(plan)
	for _, t := range leaving {
		id := serverOf(t)
		lacks := func(port int) bool { return len(served[port]) < awaited(port) && !served[port][id] }
		if len(plan.Targets) == 0 && len(healthyPorts(t)) == 0 {
			needed = append(needed, Target{id, t.UsePrivateIP})
		} else if slices.ContainsFunc(healthyPorts(t), lacks) {
			serve(t)
			needed = append(needed, Target{id, t.UsePrivateIP})
		}
	}
	for _, t := range leaving {
		if !in.LingerOver || !slices.ContainsFunc(needed, isServer(t)) {
			continue
		}
		if !slices.ContainsFunc(healthyPorts(t), func(port int) bool { return len(served[port]) == 1 }) {
			return slices.DeleteFunc(needed, isServer(t))
		}
	}
	return needed
}

// isServer returns a function that reports whether a target is the server of t.
func isServer(t hcloud.LoadBalancerTarget) func(Target) bool {
	return func(s Target) bool { return s.ServerID == serverOf(t) }
}

// serverOf returns the id of a target's server, or 0 if it is a selector or an address.
func serverOf(t hcloud.LoadBalancerTarget) int64 {
	if t.Server == nil || t.Server.Server == nil {
		return 0
	}
	return t.Server.Server.ID
}

// IsHealthy reports whether a target is healthy on all ports.
func IsHealthy(t hcloud.LoadBalancerTarget) bool {
	return !slices.ContainsFunc(t.HealthStatus, func(h hcloud.LoadBalancerTargetHealthStatus) bool {
		return h.Status != hcloud.LoadBalancerTargetHealthStatusStatusHealthy
	})
}

// healthyPorts returns the ports with a successful check of the target.
func healthyPorts(t hcloud.LoadBalancerTarget) (ports []int) {
	for _, h := range t.HealthStatus {
		if h.Status == hcloud.LoadBalancerTargetHealthStatusStatusHealthy {
			ports = append(ports, h.ListenPort)
		}
	}
	return ports
}
