package resync

import (
	"slices"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

func TestComparisonsBecomeRareWhileNothingHappens(t *testing.T) {
	t.Parallel()
	var p pace
	var unrest int64
	compared := func(ticks, most int) (at []int) {
		for i := range ticks {
			if p.due(unrest, most) {
				at = append(at, i)
			}
		}
		return at
	}
	for _, c := range []struct {
		name        string
		unrest      int64
		ticks, most int
		want        []int
	}{
		{"at the start, each delay is twice the last one, up to the maximum", 0, 40, 10, []int{0, 1, 3, 7, 15, 25, 35}},
		{"the maximum lasts", 0, 20, 10, []int{5, 15}},
		{"after a change, it starts anew", 1, 8, 10, []int{0, 1, 3, 7}},
		{"without a larger maximum, each tick is for a comparison", 2, 5, 1, []int{0, 1, 2, 3, 4}},
		{"and without any", 3, 5, 0, []int{0, 1, 2, 3, 4}},
	} {
		unrest = c.unrest
		if got := compared(c.ticks, c.most); !slices.Equal(got, c.want) {
			t.Errorf("%s: compared at the ticks %v, want %v", c.name, got, c.want)
		}
	}
}

func TestWhichChangesOfNodesNeedARoute(t *testing.T) {
	t.Parallel()
	node := func(cidr, providerID string, conditions ...corev1.NodeCondition) *corev1.Node {
		n := ccmtest.Node("n", providerID)
		if cidr != "" {
			n.Spec.PodCIDRs = []string{cidr}
		}
		n.Status.Conditions = conditions
		return n
	}
	condition := func(status corev1.ConditionStatus, reason string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: status, Reason: reason}
	}
	lacks, routed, other := condition(corev1.ConditionTrue, nodeinfo.ReasonNoRoute),
		condition(corev1.ConditionFalse, nodeinfo.ReasonRouteCreated), condition(corev1.ConditionTrue, "CiliumIsDown")
	const cidr, id = "10.244.1.0/24", "hcloud://1"
	labelled := node(cidr, id, routed)
	labelled.Labels = map[string]string{"pool": "web"}
	for name, tc := range map[string]struct {
		was, is *corev1.Node // was nil: the Node is seen for the first time
		route   bool
		targets bool // the load balancers are compared
		unrest  bool // the next comparison comes soon
	}{
		"a new node":                             {nil, node(cidr, ""), true, false, false},
		"a new node without a pod range":         {nil, node("", ""), false, false, false},
		"a node that waits for its route":        {nil, node(cidr, id, lacks), true, false, false},
		"a node that has its route":              {nil, node(cidr, id, routed), false, false, false},
		"a node whose network another one makes": {nil, node(cidr, id, other), false, false, false},
		"a node gets a pod range":                {node("", id), node(cidr, id), true, false, false},
		"a node gets its provider ID":            {node(cidr, "", lacks), node(cidr, id, lacks), true, false, false},
		"a node gets its route":                  {node(cidr, id, lacks), node(cidr, id, routed), false, true, false},
		"a node changes in another way":          {node(cidr, id, lacks), node(cidr, id, lacks), false, false, false},
		"a node gets another label":              {node(cidr, id, routed), labelled, false, false, true},
		"a node with a route changes":            {node(cidr, id, routed), node(cidr, id, routed), false, false, false},
	} {
		r := &Comparison{toRoute: workqueue.NewTyped[string](), routed: make(chan struct{}, 1), unrest: new(atomic.Int64)}
		for range 2 { // the second signal is the same
			if tc.was == nil {
				r.nodeSeen(tc.is)
			} else {
				r.nodeChanged(tc.was, tc.is)
			}
		}
		if route, targets, unrest := r.toRoute.Len() == 1, len(r.routed) == 1, r.unrest.Load() > 0; route != tc.route ||
			targets != tc.targets || unrest != tc.unrest {
			t.Errorf("%s: route %t, targets %t, unrest %t; want %t, %t, %t", name, route, targets, unrest, tc.route, tc.targets, tc.unrest)
		}
	}
}
