package plane

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// balancedByChance is a cloud with a data plane. Its servers, labels, networks and targets change at random.
type balancedByChance struct {
	*testing.T
	rnd     *rand.Rand
	plane   *Balancers
	project cloud.Project
	network int64
	lb      int64
	serial  int
}

// The data plane is told of changes only. After each, it has the targets that it would have after a restart.
func TestTheDataPlaneHasTheTargetsOfTheCloud(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		core, plane := startStill(t)
		b := &balancedByChance{T: t, rnd: rand.New(rand.NewPCG(seed, 1)), plane: plane}
		b.project, _ = core.Project(1)
		n, _, err := b.project.CreateNetwork(cloud.CreateNetwork{
			Name: "n", IPRange: netip.MustParsePrefix("10.0.0.0/16"), Subnets: []cloud.Subnet{{Type: "cloud", NetworkZone: "eu-central"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		tcp, port := "tcp", 8080
		lb, _, _, err := b.project.CreateLoadBalancer(cloud.CreateLoadBalancer{
			Name: "lb", Type: "lb11", Location: "fsn1", Network: n.ID,
			Services: []cloud.ServiceInput{{Protocol: &tcp, ListenPort: &port, DestinationPort: &port}},
		})
		if err != nil {
			t.Fatal(err)
		}
		b.network, b.lb = n.ID, lb.ID
		for range 60 {
			change := b.change()
			b.check(fmt.Sprintf("seed %d: %s", seed, change))
		}
	}
}

// change makes some change. The cloud may refuse it.
func (b *balancedByChance) change() string {
	p := b.project
	b.serial++
	labels := []map[string]string{nil, {"role": "web"}, {"role": "web", "zone": "a"}}[b.rnd.IntN(3)]
	private := b.rnd.IntN(2) == 0
	targets := []cloud.TargetInput{
		{Type: "label_selector", Selector: []string{"role=web", "zone"}[b.rnd.IntN(2)], UsePrivateIP: private},
		{Type: "ip", IP: netip.MustParseAddr("203.0.113.1")},
	}
	servers := slices.Collect(p.View().Servers.All())
	ops := []string{"create", "add target", "remove target", "attach load balancer", "detach load balancer"}
	var server int64
	if len(servers) > 0 {
		s := servers[b.rnd.IntN(len(servers))]
		server = s.ID
		targets = append(targets, cloud.TargetInput{Type: "server", Server: server, UsePrivateIP: private})
		if addr, ok := p.View().PrimaryIPs.Get(s.PublicIPv6); ok {
			targets = append(targets, cloud.TargetInput{Type: "server", Server: server, ServerIP: addr.IP.Addr().Next()})
		}
		ops = append(ops, "create", "label", "label", "delete", "attach", "attach", "detach", "power")
	}
	target := targets[b.rnd.IntN(len(targets))]
	op := ops[b.rnd.IntN(len(ops))]
	var err error
	switch op {
	case "create":
		_, _, err = p.CreateServer(cloud.CreateServer{
			Name: fmt.Sprint("web-", b.serial), ServerType: "cx23", Image: "debian-13", Location: "fsn1", StartAfterCreate: true,
			IPv4: cloud.ServerPublicIP{Enabled: true}, IPv6: cloud.ServerPublicIP{Enabled: true}, Labels: labels,
		})
	case "label":
		_, err = p.UpdateServer(server, cloud.UpdateResource{Labels: labels})
	case "delete":
		_, _, err = p.DeleteServer(server)
	case "attach":
		_, _, err = p.AttachServerToNetwork(server, cloud.AttachServerToNetwork{Network: b.network})
	case "detach":
		_, _, err = p.DetachServerFromNetwork(server, b.network)
	case "power":
		_, _, err = p.PowerOffServer(server)
	case "add target":
		_, _, err = p.AddLoadBalancerTarget(b.lb, target)
	case "remove target":
		_, _, err = p.RemoveLoadBalancerTarget(b.lb, target)
	case "attach load balancer":
		_, _, err = p.AttachLoadBalancerToNetwork(b.lb, cloud.AttachLoadBalancer{Network: b.network})
	case "detach load balancer":
		_, _, err = p.DetachLoadBalancerFromNetwork(b.lb, b.network)
	}
	return fmt.Sprintf("%s (%+v): %v", op, target, err)
}

// check waits until the data plane has followed all events, and compares.
func (b *balancedByChance) check(what string) {
	b.Helper()
	b.plane.awaitEvents()
	b.plane.mu.Lock()
	defer b.plane.mu.Unlock()
	st := b.project.View()
	if b.plane.states[1] != st {
		b.Fatal(what, "the data plane does not follow")
	}
	lb, _ := st.LoadBalancers.Get(b.lb)
	want := &balancer{}
	want.replaceAll(lb)
	have := b.plane.balancers[b.lb]
	sorted := func(holders map[netip.Addr][]holder) map[netip.Addr][]holder {
		for _, h := range holders {
			slices.SortFunc(h, func(a, b holder) int { return int(a.server - b.server) })
		}
		return holders
	}
	if !reflect.DeepEqual(sorted(have.holders), sorted(want.holders)) {
		b.Fatalf("%s: the data plane has the targets %v, want %v", what, have.holders, want.holders)
	}
	for server := range b.plane.traffic {
		if _, ok := st.Servers.Get(server); !ok {
			b.Fatalf("%s: the traffic of server %d is still counted", what, server)
		}
	}
	known, err := b.plane.engine.Health(b.lb)
	if err != nil || len(known) != len(want.holders) {
		b.Fatalf("%s: the engine has %v, want the targets %v (%v)", what, known, want.holders, err)
	}
	for _, r := range known {
		if _, ok := want.holders[netip.MustParseAddr(r.Target)]; !ok {
			b.Fatalf("%s: the engine has the target %s, want %v", what, r.Target, want.holders)
		}
	}
}
