package plan

import (
	"slices"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
)

// A load balancer has the target 1, which leaves, and others. Whether 1 is needed is a question of each port.
func TestATargetIsNeededForEachPort(t *testing.T) {
	t.Parallel()
	target := func(id int64, healthy ...int) hcloud.LoadBalancerTarget {
		all := hcloud.LoadBalancerTarget{Type: hcloud.LoadBalancerTargetTypeServer,
			Server: &hcloud.LoadBalancerTargetServer{Server: &hcloud.Server{ID: id}}}
		for _, port := range []int{80, 443} {
			status := hcloud.LoadBalancerTargetHealthStatusStatusUnhealthy
			if slices.Contains(healthy, port) {
				status = hcloud.LoadBalancerTargetHealthStatusStatusHealthy
			}
			all.HealthStatus = append(all.HealthStatus, hcloud.LoadBalancerTargetHealthStatus{ListenPort: port, Status: status})
		}
		return all
	}
	type targets = []hcloud.LoadBalancerTarget
	selector := hcloud.LoadBalancerTarget{Type: hcloud.LoadBalancerTargetTypeLabelSelector,
		LabelSelector: &hcloud.LoadBalancerTargetLabelSelector{Selector: "pool=web"},
		Targets:       []hcloud.LoadBalancerTarget{target(9, 80, 443)}}
	for name, tc := range map[string]struct {
		targets targets
		hides   bool
		wanted  int
		doomed  bool
		needed  bool
	}{
		"alone":                                {targets{target(1, 80)}, false, 1, false, true},
		"alone, and public, which must not be": {targets{target(1, 80)}, true, 1, false, false},
		"unhealthy":                            {targets{target(1)}, false, 1, false, false},
		"the other is healthy":                 {targets{target(1, 80, 443), target(2, 80, 443)}, false, 1, false, false},
		"the other is unhealthy":               {targets{target(1, 80, 443), target(2)}, false, 1, false, true},
		"the other serves one port of two":     {targets{target(1, 80, 443), target(2, 80)}, false, 1, false, true},
		"each serves the same port":            {targets{target(1, 80), target(2, 80)}, false, 1, false, false},
		"the other is healthy, two are wanted": {targets{target(1, 80, 443), target(2, 80, 443)}, false, 2, false, true},
		"none is wanted":                       {targets{target(1, 80)}, false, 0, false, true},
		"none is wanted, and it seems to fail": {targets{target(1)}, false, 0, false, true}, // in a list that may be old
		"none is wanted, and its node ends":    {targets{target(1, 80)}, false, 0, true, false},
		"alone, and its node ends":             {targets{target(1, 80)}, false, 1, true, true},
		"a selector serves":                    {targets{target(1, 80, 443), selector}, false, 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := &LoadBalancer{Targets: []Target{{ServerID: 2}}[:min(tc.wanted, 1)], Chosen: make([]int64, tc.wanted), Public: !tc.hides}
			lb := &hcloud.LoadBalancer{Targets: tc.targets, PublicNet: hcloud.LoadBalancerPublicNet{Enabled: true}}
			needed := lingeringTargets(plan, Input{Current: lb, Settings: &Settings{}, Doomed: map[int64]bool{1: tc.doomed},
				Nodes: slices.Repeat([]*corev1.Node{{}}, tc.wanted)})
			if got := len(needed) == 1 && needed[0].ServerID == 1; got != tc.needed || len(needed) > 1 {
				t.Errorf("needed %v, want %t", needed, tc.needed)
			}
		})
	}
}

// One target has its planned address, and the next one is not checked yet with it. Even after a minute, a third one must not change: two
// might be without an answer then.
func TestNoTargetChangesWhileAnotherIsNotChecked(t *testing.T) {
	t.Parallel()
	target := func(id int64, private bool, status hcloud.LoadBalancerTargetHealthStatusStatus) hcloud.LoadBalancerTarget {
		return hcloud.LoadBalancerTarget{Type: hcloud.LoadBalancerTargetTypeServer, UsePrivateIP: private,
			Server:       &hcloud.LoadBalancerTargetServer{Server: &hcloud.Server{ID: id}},
			HealthStatus: []hcloud.LoadBalancerTargetHealthStatus{{ListenPort: 80, Status: status}}}
	}
	const healthy = hcloud.LoadBalancerTargetHealthStatusStatusHealthy
	const unknown, sick = hcloud.LoadBalancerTargetHealthStatusStatusUnknown, hcloud.LoadBalancerTargetHealthStatusStatusUnhealthy
	type now = []hcloud.LoadBalancerTarget
	for name, c := range map[string]struct {
		refused int64
		over    bool // they have waited for long
		now     now
		want    []Target // all shall be private
	}{
		"one is unknown": {0, true, now{target(1, true, healthy), target(2, true, unknown), target(3, false, healthy)},
			[]Target{{1, true}, {2, true}, {3, false}}},
		"one is unhealthy, and must not hold up the others": {0, true, now{target(1, true, healthy), target(2, true, sick),
			target(3, false, healthy)}, []Target{{1, true}, {2, true}, {3, true}}},
		"the first one is refused": {3, false, now{target(1, true, healthy), target(3, false, healthy), target(4, false, healthy)},
			[]Target{{1, true}, {3, false}, {4, true}}},
		"another one is refused": {5, false, now{target(1, true, healthy), target(3, false, healthy), target(4, false, healthy)},
			[]Target{{1, true}, {3, true}, {4, false}}},
		"one is missing": {4, false, now{target(1, true, healthy), target(3, false, healthy)},
			[]Target{{1, true}, {2, true}, {3, false}}},
		"the missing one is refused": {2, false, now{target(1, true, healthy), target(3, false, healthy)},
			[]Target{{1, true}, {2, true}, {3, true}}},
		"one was refused a moment ago, and is a target again": {2, false, now{target(1, true, healthy), target(2, false, unknown),
			target(3, false, healthy)}, []Target{{1, true}, {2, false}, {3, false}}},
	} {
		plan := &LoadBalancer{Public: true}
		for _, t := range c.want {
			plan.Targets = append(plan.Targets, Target{t.ServerID, true})
		}
		readdress(plan, Input{LingerOver: c.over, Refused: map[int64]bool{c.refused: true},
			Current: &hcloud.LoadBalancer{PublicNet: hcloud.LoadBalancerPublicNet{Enabled: true}, Targets: c.now}})
		if !slices.Equal(plan.Targets, c.want) {
			t.Errorf("%s: %v, want %v", name, plan.Targets, c.want)
		}
	}
}
