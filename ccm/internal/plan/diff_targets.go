package plan

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// ServerTargets returns the load balancer's targets of type server, ordered by server ID, without those that
// were there before an adoption.
func ServerTargets(lb *hcloud.LoadBalancer) (targets []Target) {
	foreign := RecordOf(lb).ForeignServers
	for _, t := range lb.Targets {
		if id := serverOf(t); t.Type == hcloud.LoadBalancerTargetTypeServer && id != 0 && !slices.Contains(foreign, id) {
			targets = append(targets, Target{id, t.UsePrivateIP})
		}
	}
	slices.SortFunc(targets, func(a, b Target) int { return cmp.Compare(a.ServerID, b.ServerID) })
	return targets
}

// limit returns a limit of the load balancer's type. A change to a larger type has been made before.
func (d *difference) limit(of func(*hcloud.LoadBalancerType) int) int {
	kind := d.lb.LoadBalancerType
	if first, _ := d.loadBalancerType(); len(first) > 0 {
		kind = d.plan.Limits
	}
	if kind == nil {
		return math.MaxInt // it is not known
	}
	return of(kind)
}

// targets compares the targets of type server.
//
// If a target changes between public and private address it is removed and added again, one target at a
// time, so that the others continue to serve. If the load balancer is detached from its network, before
// holds what comes first: its private targets leave it, and public ones replace them if all planned ones are
// public. If the public interface will be disabled, hidden holds what can wait until then.
func (d *difference) targets(detaches bool) (before, ops, hidden []Op) {
	current := currentTargets(d.lb)
	var first, then targetChanges
	changes := &then
	public := !hasPrivate(d.plan.Targets)
	if detaches && public {
		changes = &first
	}
	kept := 0
	for _, want := range d.plan.Targets {
		has, exists := current[want.ServerID]
		delete(current, want.ServerID)
		switch {
		case !exists:
			changes.adds = append(changes.adds, d.addTarget(want))
		case has.Private && detaches && !public:
			first.removes = append(first.removes, removeTarget(has))
			then.adds = append(then.adds, d.addTarget(want))
		case has.Private != want.Private || !has.Private && d.plan.Former[want.ServerID].IsValid():
			changes.swaps = append(changes.swaps, d.swapTarget(want, has)...)
			kept++
		default:
			kept++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(current)) {
		when := changes
		if detaches && current[id].Private {
			when = &first
		}
		op := removeTarget(current[id])
		if d.isDead(id) {
			op.Least = -1
		}
		when.removes = append(when.removes, op)
	}
	if hides(d.plan, d.lb) && len(then.removes) == 0 {
		hidden = then.hideFirst()
	}
	before, count := first.interleave(len(d.lb.Targets), d.limit(maxTargets), kept)
	ops, _ = then.interleave(count, d.limit(maxTargets), kept)
	return before, ops, hidden
}

// isDead reports whether a server is a target that fails all its checks: nothing is lost with it.
func (d *difference) isDead(server int64) bool {
	i := slices.IndexFunc(d.lb.Targets, func(t hcloud.LoadBalancerTarget) bool { return serverOf(t) == server })
	health := d.lb.Targets[i].HealthStatus
	return len(health) > 0 && !slices.ContainsFunc(health, func(h hcloud.LoadBalancerTargetHealthStatus) bool {
		return h.Status != hcloud.LoadBalancerTargetHealthStatusStatusUnhealthy
	})
}

func removeTarget(t Target) Op {
	return Op{Kind: OpRemoveTarget, Part: partServer(t.ServerID), Target: t}
}

// swapTarget returns the operations that change a target between its public and its private address, or to another IPv6 address.
func (d *difference) swapTarget(want, old Target) []Op {
	remove, add := removeTarget(old), d.addTarget(want)
	add.Undo = &Op{Kind: OpAddTarget, Part: add.Part, Target: old}
	// A removal without an answer may have taken effect.
	remove.IP, add.Undo.IP = d.plan.Former[want.ServerID], d.plan.Former[want.ServerID]
	remove.Needs, remove.Undo = add.Needs, &Op{Kind: OpAddTarget, Part: add.Part, Target: want, IP: add.IP}
	return []Op{remove, add}
}

// addTarget returns the operation that adds a target, with the parts that it needs.
func (d *difference) addTarget(t Target) Op {
	op := Op{Kind: OpAddTarget, Part: partServer(t.ServerID), Target: t, Needs: d.addressNeeds(t.Private)}
	if !t.Private {
		op.IP = d.plan.IPv6[t.ServerID]
	}
	return op
}

// addressNeeds returns what a target with a private or public address needs.
func (d *difference) addressNeeds(private bool) []Part {
	switch {
	case private && len(d.lb.PrivateNet) == 0:
		return []Part{partNetwork}
	case !private:
		return []Part{partPublic}
	}
	return nil
}

// targetChanges are changes of targets that can be made in any order.
type targetChanges struct{ adds, swaps, removes []Op }

// hideFirst removes and returns the changes that can wait until the public interface is disabled. The API refuses
// that while the load balancer has public targets, and until then the Service is exposed. But all targets except one must
// serve all the time, even after the death of an earlier process.
func (c *targetChanges) hideFirst() (later []Op) {
	if n := len(c.swaps); n > 0 {
		later, c.swaps = c.swaps[n-1:], c.swaps[:n-1]
		return later
	}
	later, c.adds = c.adds, nil
	return later
}

// interleave orders the changes and never lets the number of targets fall below the least of the number before, the number after,
// and one less than the type allows. count is the number of targets now, limit the largest number, and left the number
// afterwards.
//
// Targets are added while there is room, then removed and added in turns. A target is removed only if
// as many targets as removals were added before it: if none can be added, none is lost. One that the API refuses holds up no
// removal, if another planned target is there: kept of them are there now. Targets that only change their address come when there are
// most targets.
func (c targetChanges) interleave(count, limit, kept int) (ops []Op, left int) {
	added := 0
	add := func() {
		ops, added = append(ops, c.adds[0]), added+1
		c.adds, count = c.adds[1:], count+1
	}
	for len(c.adds) > 0 && count < limit {
		add()
	}
	ops = append(ops, c.swaps...)
	for removed := 0; len(c.removes) > 0; removed++ {
		op := c.removes[0]
		c.removes, count = c.removes[1:], count-1
		if op.After = min(removed+1, added); kept == 0 && op.Least == 0 {
			op.Least = min(1, added)
		}
		ops = append(ops, op)
		if len(c.adds) > 0 && count < limit {
			add()
		}
	}
	return append(ops, c.adds...), count // more than fit: the API's answer says so
}
