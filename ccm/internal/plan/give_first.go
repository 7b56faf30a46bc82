package plan

import (
	"math"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// GiveFirst orders the operations on an adopted load balancer that does not serve the Service yet. Operations that only add come first:
// ports, targets, an attachment, room. Those that change or remove a person's settings come last, and only if all others have
// succeeded, but for targets that the API refuses. So do additions that the type has no room for yet, and private targets of a load
// balancer that leaves its network for another address: it would lose them.
func GiveFirst(ops []Op, lb *hcloud.LoadBalancer, uid string, refused map[int64]bool) []Op {
	if IsSettled(lb, uid) {
		return ops
	}
	taken := map[Part]bool{}
	for _, op := range ops {
		if !gives(op) {
			taken[op.Part] = true
		}
	}
	targets, services := math.MaxInt, math.MaxInt
	if t := lb.LoadBalancerType; t != nil {
		targets, services = t.MaxTargets-len(lb.Targets), t.MaxServices-len(lb.Services)
	}
	fits := func(op Op) bool {
		switch op.Kind {
		case OpAddTarget:
			targets--
			return targets >= 0
		case OpAddService:
			services--
			return services >= 0
		}
		return true
	}
	isTaken := func(p Part) bool { return taken[p] }
	leaves := slices.ContainsFunc(ops, func(op Op) bool { return op.Kind == OpDetach })
	var first, last []Op
	var added []Part
	for _, op := range ops {
		if gives(op) && !isTaken(op.Part) && (!leaves || !op.Target.Private) && !slices.ContainsFunc(op.Needs, isTaken) && fits(op) {
			if first = append(first, op); op.Kind != OpAttach && !refused[op.Target.ServerID] { // private targets need an attachment
				added = append(added, op.Part)
			}
			continue
		}
		last = append(last, op)
	}
	for i := range last {
		last[i].Needs = slices.Concat(last[i].Needs, added)
	}
	return append(first, last...)
}

// gives reports whether the operation only adds to a load balancer.
func gives(op Op) bool {
	return slices.Contains([]OpKind{OpRecord, OpAttach, OpEnablePublic, OpAddTarget, OpAddService}, op.Kind)
}
