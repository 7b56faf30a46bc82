package plan

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
)

// pretendSelector is pretend for targets of type label_selector. The API resolves them by itself: see resolve.
func pretendSelector(lb *hcloud.LoadBalancer, op Op) error {
	i := slices.IndexFunc(lb.Targets, func(t hcloud.LoadBalancerTarget) bool {
		return t.LabelSelector != nil && t.LabelSelector.Selector == op.Selector.Selector
	})
	switch {
	case op.Kind == OpAddSelector && i >= 0:
		return errors.New("target_already_defined")
	case op.Kind == OpAddSelector && len(lb.Targets) >= lb.LoadBalancerType.MaxTargets:
		return errors.New("resource_limit_exceeded")
	case op.Kind == OpAddSelector:
		lb.Targets = append(lb.Targets, bySelector(op.Selector.Selector, op.Selector.Private))
	case i < 0:
		return errors.New("no such target")
	default:
		lb.Targets = slices.Delete(lb.Targets, i, i+1)
	}
	return nil
}

func bySelector(selector string, private bool, selected ...hcloud.LoadBalancerTarget) hcloud.LoadBalancerTarget {
	return hcloud.LoadBalancerTarget{Type: "label_selector", LabelSelector: &hcloud.LoadBalancerTargetLabelSelector{Selector: selector},
		UsePrivateIP: private, Targets: selected}
}

// resolve makes the selectors of the load balancer select servers, like the API.
func resolve(lb *hcloud.LoadBalancer, servers map[int64]*hcloud.Server) {
	for i := range lb.Targets {
		t := &lb.Targets[i]
		if t.LabelSelector == nil {
			continue
		}
		t.Targets = nil
		for _, id := range slices.Sorted(maps.Keys(servers)) {
			if s, _ := labels.Parse(t.LabelSelector.Selector); s.Matches(labels.Set(servers[id].Labels)) {
				t.Targets = append(t.Targets, serverTarget(id, t.UsePrivateIP))
			}
		}
	}
}

// served returns the servers that get traffic.
func served(lb *hcloud.LoadBalancer) (ids []int64) {
	for _, t := range lb.Targets {
		for _, s := range append([]hcloud.LoadBalancerTarget{t}, t.Targets...) {
			if s.Server != nil {
				ids = append(ids, s.Server.Server.ID)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// withPools returns a plan input with one node per server; pools are their labels in the cloud.
func withPools(annotations map[string]string, pools ...string) Input {
	in := Input{Service: testService(annotations, [2]int32{80, 30080}), NetworkID: 5, Servers: map[int64]*hcloud.Server{}}
	for i, pool := range pools {
		id := int64(i + 1)
		s := server(id, fmt.Sprintf("203.0.113.%d", id), fmt.Sprintf("10.0.0.%d", id))
		s.Labels = map[string]string{"pool": pool}
		in.Servers[id] = s
		in.Nodes = append(in.Nodes, ccmtest.Node(fmt.Sprintf("node-%d", id), ccmtest.ProviderID(id)))
	}
	return in
}

func health(t hcloud.LoadBalancerTarget, status hcloud.LoadBalancerTargetHealthStatusStatus) hcloud.LoadBalancerTarget {
	t.HealthStatus = []hcloud.LoadBalancerTargetHealthStatus{{ListenPort: 80, Status: status}}
	return t
}

func TestPlanSelector(t *testing.T) {
	t.Parallel()
	const web = "pool=web"
	use := map[string]string{"server-selector": web}
	// there is a load balancer with these targets, on which the selector is ours.
	there := func(targets ...hcloud.LoadBalancerTarget) *hcloud.LoadBalancer {
		lb := built(simple(nil, 80))
		lb.Targets, lb.Labels = targets, recorded(lb.Labels, selects(web))
		return lb
	}
	for name, tc := range map[string]struct {
		annotations map[string]string
		change      func(*Input)
		current     *hcloud.LoadBalancer
		selector    string
		targets     []int64
		note        string
	}{
		"new": {annotations: use, selector: web, targets: []int64{3}},
		"not yet": {annotations: use, current: there(serverTarget(1, false), serverTarget(2, false), serverTarget(3, false)), selector: web,
			targets: []int64{1, 2, 3}},
		"it serves": {annotations: use, current: there(serverTarget(1, false), serverTarget(2, false),
			bySelector(web, false, serverTarget(1, false), serverTarget(2, false))),
			selector: web, targets: []int64{3}},
		"it does not serve all yet": {annotations: use, selector: web, targets: []int64{2, 3},
			current: there(health(serverTarget(1, false), "healthy"), health(serverTarget(2, false), "healthy"),
				bySelector(web, false, health(serverTarget(1, false), "healthy"), health(serverTarget(2, false), "unknown")))},
		"the server is unhealthy anyway": {annotations: use, selector: web, targets: []int64{3},
			current: there(health(serverTarget(2, false), "unhealthy"), bySelector(web, false, serverTarget(1, false),
				health(serverTarget(2, false), "unhealthy")))},
		"a server that was never a target": {annotations: use,
			current: there(serverTarget(1, false), bySelector(web, false, serverTarget(1, false))), selector: web, targets: []int64{3}},
		"public instead of private": {annotations: use, current: there(bySelector(web, true, serverTarget(1, true), serverTarget(2, true))),
			selector: web, targets: []int64{3}},
		"not any more": {current: there(bySelector(web, false)), targets: []int64{1, 2, 3}},
		"no room for it": {annotations: use, current: there(serverTarget(1, false), serverTarget(2, false)), selector: web,
			targets: []int64{3},
			change:  func(in *Input) { in.Limits = &hcloud.LoadBalancerType{MaxTargets: 2, MaxServices: 5} }},
		"node selector": {annotations: map[string]string{"server-selector": web, "node-selector": "zone=a"}, targets: []int64{1},
			note:   "node-2",
			change: func(in *Input) { in.Nodes[0].Labels = map[string]string{"zone": "a"} }},
		"excluded node": {annotations: use, targets: []int64{2, 3},
			note:   "(node-1): remove the label from these servers; until then each node is a target of its own",
			change: func(in *Input) { in.Excluded, in.Nodes = in.Nodes[:1], in.Nodes[1:] }},
		"excluded node without room": {annotations: use, selector: web, targets: []int64{3}, note: "has no room for a target per node",
			current: there(bySelector(web, false)),
			change: func(in *Input) {
				in.Excluded, in.Nodes, in.Limits = in.Nodes[:1], in.Nodes[1:], &hcloud.LoadBalancerType{MaxTargets: 2, MaxServices: 5}
				in.Nodes = append(in.Nodes, ccmtest.Node("node-4", ccmtest.ProviderID(4)))
				in.Servers[4] = server(4, "203.0.113.4", "")
				in.Servers[4].Labels = map[string]string{"pool": "web"}
			}},
		"excluded node without room, new": {annotations: use, targets: []int64{2}, note: "each node is a target of its own",
			change: func(in *Input) {
				in.Excluded, in.Nodes, in.Limits = in.Nodes[:1], in.Nodes[1:], &hcloud.LoadBalancerType{MaxTargets: 1, MaxServices: 5}
			}},
		"servers that cannot be read": {annotations: use, targets: []int64{1, 2, 3}, change: func(in *Input) { in.Unread = true }},
		"mistyped": {annotations: map[string]string{}, selector: web, targets: []int64{3},
			current: there(bySelector(web, false, serverTarget(1, false), serverTarget(2, false))),
			change:  func(in *Input) { in.Wrong = map[string]bool{"server-selector": true} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := withPools(tc.annotations, "web", "web", "db")
			in.Current = tc.current
			if tc.change != nil {
				tc.change(&in)
			}
			stays := name == "public instead of private"
			if stays { // until each node is a target of its own
				tc.targets = []int64{1, 2, 3}
			}
			plan, notes := planFor(t, in)
			if got := plan.Selector; got.Selector != tc.selector || got.Private != stays {
				t.Errorf("selector %v, want %q", got, tc.selector)
			}
			if !slices.Equal(plan.Targets, public(tc.targets...)) {
				t.Errorf("targets %v, want %v", plan.Targets, tc.targets)
			}
			if text := strings.Join(notes, "; "); (tc.note == "") != (len(notes) == 0) && plan.Excess == nil ||
				!strings.Contains(text, tc.note) {
				t.Errorf("notes %q, want %q", text, tc.note)
			}
		})
	}
}

// After a change of the node pool, the selector serves all nodes and no target is planned.
func TestASelectorComesBeforeTheTargetsThatItReplaces(t *testing.T) {
	t.Parallel()
	in := withPools(map[string]string{"server-selector": "pool=web"}, "web", "web", "db")
	in.Nodes, in.Current = in.Nodes[:2], built(simple(public(3), 80))
	plan, _ := planFor(t, in)
	ops := Diff(plan, in.Current)
	index := func(kind OpKind) int { return slices.IndexFunc(ops, func(op Op) bool { return op.Kind == kind }) }
	add, remove := index(OpAddSelector), index(OpRemoveTarget)
	if add < 0 || remove < add || !slices.Contains(ops[remove].Needs, ops[add].Part) {
		t.Errorf("operations %v: want the selector before the target is removed", ops)
	}
}

func TestAnEarlierSelectorStaysUntilTheNewOneServes(t *testing.T) {
	t.Parallel()
	in := withPools(map[string]string{"server-selector": "pool=web"}, "web", "web")
	earlier := bySelector("role=web", false, health(serverTarget(1, false), "healthy"), health(serverTarget(2, false), "healthy"))
	by := func(status hcloud.LoadBalancerTargetHealthStatusStatus) hcloud.LoadBalancerTarget {
		return bySelector("pool=web", false, health(serverTarget(1, false), "healthy"), health(serverTarget(2, false), status))
	}
	for name, tc := range map[string]struct {
		targets []hcloud.LoadBalancerTarget
		removed bool
	}{
		"it is not there":       {[]hcloud.LoadBalancerTarget{earlier}, false},
		"its health is unknown": {[]hcloud.LoadBalancerTarget{earlier, by("unknown")}, false},
		"it serves":             {[]hcloud.LoadBalancerTarget{earlier, by("healthy")}, true},
	} {
		in.Current = built(simple(nil, 80))
		in.Current.Targets = tc.targets
		in.Current.Labels = recorded(in.Current.Labels, selects("role=web", "pool=web"))
		plan, _ := planFor(t, in)
		ops := Diff(plan, in.Current)
		if removed := slices.ContainsFunc(ops, func(op Op) bool { return op.Kind == OpRemoveSelector }); removed != tc.removed {
			t.Errorf("%s: %s", name, DescribeOps(ops, 9))
		}
	}
}

// It is not known what replaces it: the servers cannot be read, or all nodes seem to be another provider's.
func TestASelectorStaysWhileItsReplacementIsUnknown(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Input){
		"servers that cannot be read": func(in *Input) { in.Unread, in.Servers = true, nil },
		"nodes of another provider": func(in *Input) {
			for _, n := range in.Nodes {
				n.Spec.ProviderID = "robot://" + n.Name
			}
		},
	} {
		for i, selector := range []string{"", "pool=db", "pool=db"} {
			there := i == 2
			in := withPools(map[string]string{"server-selector": selector}, "web", "web", "web", "db")
			in.Current = built(simple(public(4), 80))
			in.Current.Targets = append(in.Current.Targets, bySelector("pool=web", false, serverTarget(1, false), serverTarget(2, false),
				serverTarget(3, false)))
			if there {
				in.Current.Targets = append(in.Current.Targets, bySelector(selector, false, serverTarget(4, false)))
			}
			in.Current.Labels = recorded(in.Current.Labels, selects("pool=web", selector))
			change(&in)
			plan, _ := planFor(t, in)
			if ops := Diff(plan, in.Current); slices.ContainsFunc(ops, func(op Op) bool {
				return op.Kind == OpRemoveSelector || op.Kind == OpRemoveTarget && !there // else the selector serves it, too
			}) {
				t.Errorf("%s, server-selector %q, there: %t: operations %v; want no target removed", name, selector, there,
					DescribeOps(ops, 9))
			}
		}
	}
}

func TestSelectorsOfOthersStay(t *testing.T) {
	t.Parallel()
	plan := simple(public(1), 80)
	lb := built(plan)
	lb.Targets = append(lb.Targets, bySelector("role=spare", false))
	if ops := Diff(plan, lb); len(ops) != 0 {
		t.Errorf("got %v", ops)
	}
	plan.Selector = selectorTarget{"pool=web", false}
	ops := Diff(plan, lb)
	if got := DescribeOps(ops, 9); got != "update (ports 80); add_target selector pool=web (private false)" ||
		!slices.Equal(ops[1].Needs, []Part{partLabels, partPublic}) {
		t.Errorf("got %s, needs %v", got, ops[1].Needs)
	}
	for _, op := range ops {
		if err := pretend(lb, op); err != nil {
			t.Fatal(err)
		}
	}
	plan.SelectorsStay, plan.Services, plan.Selector = true, nil, selectorTarget{"pool=db", false}
	for _, op := range Diff(plan, lb) {
		if err := pretend(lb, op); err != nil {
			t.Fatal(err)
		}
	}
	if got := ownSelectors(lb); len(got) != 2 { // the record of both stays
		t.Errorf("got %v", got)
	}
	lb.Targets = lb.Targets[:len(lb.Targets)-1]
	plan = simple(public(1), 80)
	lb.Services, lb.Labels = plan.Services, recorded(lb.Labels, owns(testUID, 80), selects("pool=web"))
	plan.Targets = public(1, 2) // what replaces the selector comes first
	ops = Diff(plan, lb)
	if i := slices.IndexFunc(ops, func(op Op) bool { return op.Kind == OpRemoveSelector }); i < 1 ||
		!slices.Equal(ops[i].Needs, []Part{partServer(2)}) {
		t.Errorf("got %v", ops)
	}
	plan.Targets = public(1)
	if got := DescribeOps(Diff(plan, lb), 9); got != "remove_target selector pool=web (private false); update (ports 80)" {
		t.Errorf("got %s", got)
	}
}

// Servers, selectors and addresses change at random. After each operation as many servers are served as before,
// afterwards, or fit as targets, less one; and after some syncs exactly those that should be.
func TestTargetsMoveToASelectorAndBack(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(5, 6))
	selectors := []string{"", "pool=a", "pool=b", "pool in (a,b)"}
	for round := range 2000 {
		limit := 2 + rnd.IntN(7)
		draw := func() Input {
			annotations := map[string]string{}
			if s := selectors[rnd.IntN(len(selectors))]; s != "" {
				annotations["server-selector"] = s
			}
			if rnd.IntN(2) == 0 {
				annotations["use-private-ip"] = "true"
			}
			var pools []string
			for range rnd.IntN(limit) { // all fit, next to a selector
				pools = append(pools, []string{"a", "b", "c"}[rnd.IntN(3)])
			}
			return withPools(annotations, pools...)
		}
		lb := built(simple(nil, 80))
		lb.LoadBalancerType.MaxTargets = limit
		lb.PrivateNet = []hcloud.LoadBalancerPrivateNet{{Network: &hcloud.Network{ID: 5}}}
		var before []int64
		for step := range 2 {
			in := draw()
			resolve(lb, in.Servers) // other servers than before
			lb.Targets = slices.DeleteFunc(lb.Targets, func(t hcloud.LoadBalancerTarget) bool {
				return t.Server != nil && in.Servers[t.Server.Server.ID] == nil
			})
			before = served(lb)
			in.Limits = lb.LoadBalancerType
			floor := min(len(before), len(in.Nodes), limit-1) - 1
			syncs := 0
			for ; syncs < 5; syncs++ {
				in.Current = lb
				plan, _ := planFor(t, in)
				ops := Diff(plan, lb)
				if len(ops) == 0 {
					break
				}
				for _, op := range ops {
					if err := pretend(lb, op); err != nil {
						t.Fatalf("round %d.%d: %v is refused: %v (limit %d, %+v)", round, step, op, err, limit, lb.Targets)
					}
					if resolve(lb, in.Servers); len(served(lb)) < floor {
						t.Fatalf("round %d.%d: %v are served after %v, %v before", round, step, served(lb), op, before)
					}
				}
			}
			if got := served(lb); syncs == 5 || !slices.Equal(got, slices.Sorted(maps.Keys(in.Servers))) {
				t.Fatalf("round %d.%d: %v are served after %d syncs, want all of %v (limit %d)", round, step, got, syncs, len(in.Nodes),
					limit)
			}
		}
	}
}
