package ccm

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// serverTargets returns the load balancer's targets of type server, ordered by server ID.
func serverTargets(lb *hcloud.LoadBalancer) (targets []lbTarget) {
	for _, t := range lb.Targets {
		if t.Type == hcloud.LoadBalancerTargetTypeServer && t.Server != nil && t.Server.Server != nil {
			targets = append(targets, lbTarget{t.Server.Server.ID, t.UsePrivateIP})
		}
	}
	slices.SortFunc(targets, func(a, b lbTarget) int { return cmp.Compare(a.ServerID, b.ServerID) })
	return targets
}

// limit returns a limit of the load balancer's type. A change to a larger type has been made before.
func (d *lbDiff) limit(of func(*hcloud.LoadBalancerType) int) int {
	limit := math.MaxInt
	if d.lb.LoadBalancerType != nil {
		limit = of(d.lb.LoadBalancerType)
	}
	if first, _ := d.loadBalancerType(); len(first) > 0 {
		limit = math.MaxInt
		if d.plan.Limits != nil {
			limit = of(d.plan.Limits)
		}
	}
	return limit
}

// targets compares the targets of type server.
//
// If a target changes between public and private address it is removed and added again, one target at a
// time, so that the others continue to serve. If the load balancer is detached from its network, before
// holds the removal of its private targets.
func (d *lbDiff) targets(detaches bool) (before, ops []lbOp) {
	current := map[int64]bool{}
	for _, t := range serverTargets(d.lb) {
		if detaches && t.Private {
			before = append(before, lbOp{Kind: opRemoveTarget, Part: partServer(t.ServerID), Target: t})
			continue
		}
		current[t.ServerID] = t.Private
	}
	var adds, swaps, removes []lbOp
	for _, want := range d.plan.Targets {
		private, exists := current[want.ServerID]
		delete(current, want.ServerID)
		add := d.addTarget(want)
		switch {
		case !exists:
			adds = append(adds, add)
		case private != want.Private:
			old := lbTarget{want.ServerID, private}
			add.Undo = &lbOp{Kind: opAddTarget, Part: add.Part, Target: old}
			// A removal whose answer is lost may have had its effect.
			remove := lbOp{Kind: opRemoveTarget, Part: add.Part, Needs: add.Needs, Target: old, Undo: &lbOp{Kind: opAddTarget, Part: add.Part, Target: want}}
			swaps = append(swaps, remove, add)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(current)) {
		removes = append(removes, lbOp{Kind: opRemoveTarget, Part: partServer(id), Target: lbTarget{id, current[id]}})
	}
	return before, interleave(adds, swaps, removes, len(d.lb.Targets)-len(before), d.limit(maxTargets))
}

// addTarget returns the operation that adds a target, with what it needs.
func (d *lbDiff) addTarget(t lbTarget) lbOp {
	op := lbOp{Kind: opAddTarget, Part: partServer(t.ServerID), Target: t}
	switch {
	case t.Private && len(d.lb.PrivateNet) == 0:
		op.Needs = []lbPart{partNetwork}
	case !t.Private:
		op.Needs = []lbPart{partPublic}
	}
	return op
}

// interleave orders changes of targets so that there are never fewer targets than before, than after, or
// than the type allows, less one. count is the number of targets now, limit the largest number.
//
// Targets are added while there is room, then removed and added in turns. A target is removed only if
// the targets that were added before it, one for each removal, are there: if none can be added, none is
// lost. Targets that only change their address come when there are most targets.
func interleave(adds, swaps, removes []lbOp, count, limit int) (ops []lbOp) {
	var added []lbPart
	add := func() {
		op := adds[0]
		adds, count = adds[1:], count+1
		ops, added = append(ops, op), append(added, op.Part)
	}
	for len(adds) > 0 && count < limit {
		add()
	}
	ops = append(ops, swaps...)
	for removed := 0; len(removes) > 0; removed++ {
		op := removes[0]
		removes, count = removes[1:], count-1
		if i := min(removed, len(added)-1); i >= 0 {
			op.Needs = append(op.Needs, added[i])
		}
		ops = append(ops, op)
		if len(adds) > 0 && count < limit {
			add()
		}
	}
	return append(ops, adds...) // more than fit: the API's answer says so
}
