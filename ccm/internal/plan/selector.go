package plan

import (
	"fmt"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

// One target of type label_selector stands for all servers with matching labels (the annotation
// server-selector): it counts once towards the limit of the load balancer's type, and a new node costs no
// call. It is used only as far as the promises about targets hold:
//
//   - A node whose server has no matching label is a target of its own.
//   - A server target, or an earlier selector, is removed only once the selector serves its servers.
//   - A selector that also matches a node which the Service excludes (node-selector, or the label
//     node.kubernetes.io/exclude-from-external-load-balancers) is not used.
//
// Not kept: a server is a target as soon as it has the label, even before its Node exists or has a route, and
// a node that the cluster autoscaler is about to delete stays one. The health check decides there.

// selectorTarget is a label selector as the target of a load balancer.
type selectorTarget struct {
	Selector string // "": none
	Private  bool
}

func (s selectorTarget) part() Part { return Part("selector " + s.Selector) }

func (s selectorTarget) String() string {
	return fmt.Sprintf("selector %s (private %t)", s.Selector, s.Private)
}

// selectorsOf returns the load balancer's targets of type label_selector.
func selectorsOf(lb *hcloud.LoadBalancer) (targets []hcloud.LoadBalancerTarget) {
	if lb == nil {
		return nil
	}
	for _, t := range lb.Targets {
		if t.Type == hcloud.LoadBalancerTargetTypeLabelSelector && t.LabelSelector != nil {
			targets = append(targets, t)
		}
	}
	return targets
}

// ownSelectors returns those that belong to the Service.
func ownSelectors(lb *hcloud.LoadBalancer) (own []selectorTarget) {
	recorded := RecordOf(lb).Selectors
	for _, t := range selectorsOf(lb) {
		if slices.Contains(recorded, t.LabelSelector.Selector) {
			own = append(own, selectorTarget{t.LabelSelector.Selector, t.UsePrivateIP})
		}
	}
	return own
}

// planSelector sets the plan's selector, and removes from its targets those that the selector serves.
func planSelector(plan *LoadBalancer, in Input, private bool) (notes []Note) {
	plan.SelectorsStay = in.unsure()
	text := in.Settings.ServerSelector
	now := ownSelectors(in.Current)
	if in.Wrong["server-selector"] && len(now) > 0 {
		text = now[0].Selector
	}
	selector, err := labels.Parse(text)
	if text == "" || err != nil {
		return nil
	}
	isTarget := slices.ContainsFunc(now, func(s selectorTarget) bool { return s.Selector == text })
	matches := func(id int64) bool {
		server := in.Servers[id]
		return server != nil && selector.Matches(labels.Set(server.Labels))
	}
	if excluded := excludedNodes(in, matches); len(excluded) > 0 {
		fits := in.Limits == nil || len(plan.Targets) <= in.Limits.MaxTargets
		effect := "each node is a target of its own"
		if !fits && isTarget {
			effect = "these nodes are targets, because the load balancer's type has no room for a target per node"
		}
		notes = append(notes, Note{Reason: event.IgnoredSetting, Text: fmt.Sprintf(
			"%sserver-selector %q also matches the servers of nodes that the Service excludes (%s): remove the label from "+
				"these servers; until then %s",
			AnnotationPrefix, text, Abbreviate(excluded), effect)})
		if fits || !isTarget {
			return notes
		}
	}
	if in.unsure() && !isTarget {
		return notes // it is not certain that it matches what it should
	}
	plan.Selector = selectorTarget{text, private}
	covers := func(t Target) bool { // a server without the right address is reached in another way
		return matches(t.ServerID) && t.Private == private && !plan.IPv6[t.ServerID].IsValid()
	}
	served := servedBySelector(in.Current, plan.Selector)
	plan.SelectorsStay = plan.SelectorsStay || slices.ContainsFunc(plan.Targets, func(t Target) bool {
		return in.Current != nil && covers(t) && !served[t.ServerID]
	})
	plan.Targets = targetsOutside(plan, in, covers, served)
	return notes
}

// excludedNodes returns the names of initialized nodes that match although the Service excludes them.
func excludedNodes(in Input, matches func(int64) bool) (names []string) {
	for _, node := range slices.Concat(in.Nodes, in.Excluded) {
		id, err := nodeinfo.ParseProviderID(node.Spec.ProviderID)
		selected := in.Settings.NodeSelector == nil || in.Settings.NodeSelector.Matches(labels.Set(node.Labels))
		if err == nil && matches(id) && (!selected || slices.Contains(in.Excluded, node)) {
			names = append(names, node.Name)
		}
	}
	return names
}

// targetsOutside returns the targets of type server that the load balancer needs in addition to the plan's
// selector: servers that do not match, and targets that the selector does not serve yet.
func targetsOutside(plan *LoadBalancer, in Input, covers func(Target) bool, served map[int64]bool) (targets []Target) {
	has := currentTargets(in.Current)
	// A change between public and private addresses takes the selector off for a moment.
	swaps := slices.Contains(ownSelectors(in.Current), selectorTarget{plan.Selector.Selector, !plan.Selector.Private})
	var leaving []Target // the selector will serve them
	for _, t := range plan.Targets {
		switch {
		case !covers(t):
			targets = append(targets, t)
		case in.Current == nil || served[t.ServerID]:
		case swaps || has[t.ServerID].ServerID != 0:
			leaving = append(leaving, t)
		}
	}
	if in.Limits != nil && len(leaving) > 0 { // the selector itself needs room
		foreign := len(in.Current.Targets) - len(has) - len(ownSelectors(in.Current))
		room := in.Limits.MaxTargets - foreign - 1 - len(targets)
		leaving = leaving[:max(0, min(len(leaving), room))]
	}
	targets = append(targets, leaving...)
	slices.SortFunc(targets, compareTargets)
	return targets
}

// servedBySelector returns the servers that the load balancer's selector serves at least as well as other targets do. It looks at each
// target once: there may be many.
func servedBySelector(lb *hcloud.LoadBalancer, want selectorTarget) map[int64]bool {
	type standing struct{ selected, healthy, other, otherHealthy bool }
	servers := map[int64]standing{}
	note := func(t hcloud.LoadBalancerTarget, own bool) {
		s := servers[serverOf(t)]
		switch {
		case !own:
			s.other, s.otherHealthy = true, s.otherHealthy || IsHealthy(t)
		case !s.selected:
			s.selected, s.healthy = true, IsHealthy(t)
		}
		servers[serverOf(t)] = s
	}
	if lb != nil {
		for _, t := range lb.Targets {
			own := t.LabelSelector != nil && t.LabelSelector.Selector == want.Selector && t.UsePrivateIP == want.Private
			note(t, own)
			for _, selected := range t.Targets {
				note(selected, own)
			}
		}
	}
	served := map[int64]bool{}
	for id, s := range servers {
		served[id] = s.selected && (s.healthy || s.other && !s.otherHealthy)
	}
	return served
}

// IsHealthy reports whether a target is healthy on all ports.
func IsHealthy(t hcloud.LoadBalancerTarget) bool {
	return !slices.ContainsFunc(t.HealthStatus, func(h hcloud.LoadBalancerTargetHealthStatus) bool {
		return h.Status != hcloud.LoadBalancerTargetHealthStatusStatusHealthy
	})
}

// selectors compares the targets of type label_selector that belong to the Service. The removals come after the
// operations of the server targets, which serve meanwhile: a selector is removed only if added, the parts of the
// added ones, are there. A change between public and private addresses needs a removal, because the API
// allows each selector once.
func (d *difference) selectors(added []Part) (removes, adds []Op) {
	want := d.plan.Selector
	exists := false
	for _, t := range selectorsOf(d.lb) {
		have := selectorTarget{t.LabelSelector.Selector, t.UsePrivateIP}
		switch {
		case have == want:
			exists = true
		case have.Selector == want.Selector, slices.Contains(d.obsoleteSelectors(), have):
			removes = append(removes, Op{Kind: OpRemoveSelector, Part: have.part(), Needs: added, Selector: have})
		}
	}
	if want.Selector == "" || exists {
		return removes, nil
	}
	op := Op{Kind: OpAddSelector, Part: want.part(), Selector: want, Needs: append([]Part{partLabels}, d.addressNeeds(want.Private)...)}
	for _, r := range removes {
		if r.Selector.Selector == want.Selector {
			op.Undo = &Op{Kind: OpAddSelector, Part: op.Part, Selector: r.Selector}
		}
	}
	return removes, append(adds, op)
}

// obsoleteSelectors returns the Service's selectors that the plan lacks.
func (d *difference) obsoleteSelectors() []selectorTarget {
	if d.plan.SelectorsStay || d.plan.Guest { // a guest's plan has none, and the owner's stays
		return nil
	}
	return slices.DeleteFunc(ownSelectors(d.lb), func(s selectorTarget) bool { return s.Selector == d.plan.Selector.Selector })
}
