package plan

import (
	"math"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

// linger adds to the plan the targets that have to wait before they leave. It runs when the plan fits the type's limits, and
// targets that wait take the place of new ones rather than none waits.
func linger(plan *LoadBalancer, in Input, private bool) {
	lb := in.Current
	if lb == nil || plan.Guest || len(plan.Targets) == 0 && plan.Selector.Selector == "" && !slices.ContainsFunc(in.Nodes, nodeinfo.LacksRoute) {
		return
	}
	if _, detaches := (&difference{plan: plan, lb: lb}).network(); detaches {
		return // its private targets have to leave
	}
	plan.Lingering = lingeringTargets(plan, lb, private)
	if len(plan.Lingering) == 0 || in.LingerOver {
		return
	}
	waiting, room := plan.Lingering, math.MaxInt
	if in.Limits != nil {
		room = in.Limits.MaxTargets - foreignTargets(plan, lb)
		waiting = waiting[:min(len(waiting), max(1, room-len(plan.Targets)))]
	}
	if plan.Targets = slices.Concat(plan.Targets, waiting); len(plan.Targets) > room {
		plan.Targets = chooseTargets(plan.Targets, room, ServerTargets(lb), in.Servers)
	}
	slices.SortFunc(plan.Targets, compareTargets)
}

// lingeringTargets returns the Service's targets that the plan lacks, and that are healthy on a port on which no other target is. Those
// with another kind of address are not among them: they have to leave before the public interface or the network can.
func lingeringTargets(plan *LoadBalancer, lb *hcloud.LoadBalancer, private bool) (needed []Target) {
	own := ServerTargets(lb)
	served := map[int]bool{} // ports
	var leaving []hcloud.LoadBalancerTarget
	for _, t := range lb.Targets {
		isServer := func(s Target) bool {
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
			needed = append(needed, Target{t.Server.Server.ID, private})
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
