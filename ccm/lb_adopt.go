package ccm

import (
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// giveFirst orders the operations on a load balancer that the Service has adopted and that does not
// serve it yet. First comes what adds something: ports, targets, an attachment, room. What takes away or
// changes what a person has set up comes last, and only if everything before has succeeded.
func giveFirst(ops []lbOp, lb *hcloud.LoadBalancer, uid string) []lbOp {
	if isSettled(lb, uid) {
		return ops
	}
	taken := map[lbPart]bool{}
	for _, op := range ops {
		if !gives(op) {
			taken[op.Part] = true
		}
	}
	isTaken := func(p lbPart) bool { return taken[p] }
	var first, last []lbOp
	var added []lbPart
	for _, op := range ops {
		if gives(op) && !isTaken(op.Part) && !slices.ContainsFunc(op.Needs, isTaken) {
			first, added = append(first, op), append(added, op.Part)
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
func gives(op lbOp) bool {
	return slices.Contains([]lbOpKind{opRecord, opAttach, opEnablePublic, opAddTarget, opAddSelector, opAddService}, op.Kind)
}
