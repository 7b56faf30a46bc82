package plane

import (
	"net/netip"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

func TestTheDataPlaneAppliesOnlyWhatChangesTraffic(t *testing.T) {
	t.Parallel()
	core := cloud.New(cloud.Options{TargetHealth: cloud.HealthReported})
	t.Cleanup(core.Close)
	p, _ := core.Project(1)
	address := netip.MustParseAddr("203.0.113.7")
	tcp, port, other := "tcp", 80, 81
	service := func(port *int) cloud.ServiceInput {
		return cloud.ServiceInput{Protocol: &tcp, ListenPort: port, DestinationPort: port}
	}
	lb, _, _, err := p.CreateLoadBalancer(cloud.CreateLoadBalancer{
		Name: "lb", Type: "lb11", Location: "fsn1", Services: []cloud.ServiceInput{service(&port)},
		Targets: []cloud.TargetInput{{Type: "ip", IP: address}},
	})
	if err != nil {
		t.Fatal(err)
	}
	sub, _ := core.Subscribe()
	defer sub.Close()
	name := "renamed"
	must := func(errs ...error) {
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tc := range []struct {
		what   string
		change func()
		want   int // load balancers to apply
	}{
		{"a health report", func() {
			p.ReportTargetHealth(lb.ID, []cloud.HealthReport{{Addr: address, ListenPort: port, Status: cloud.HealthHealthy}})
		}, 0},
		{"labels", func() {
			_, err := p.UpdateLoadBalancer(lb.ID, cloud.UpdateResource{Labels: map[string]string{"a": "b"}})
			must(err)
		}, 0},
		{"a name", func() {
			_, err := p.UpdateLoadBalancer(lb.ID, cloud.UpdateResource{Name: &name})
			must(err)
		}, 1},
		{"two changes of one", func() {
			_, _, err := p.AddLoadBalancerService(lb.ID, service(&other))
			_, _, err2 := p.DeleteLoadBalancerService(lb.ID, port)
			must(err, err2)
		}, 1},
		{"a deletion", func() {
			_, _, err := p.DeleteLoadBalancer(lb.ID, true)
			must(err)
		}, 1},
	} {
		tc.change()
		events, err := sub.NextAll(t.Context())
		must(err)
		got := reroutedBy(events)
		if len(got) != tc.want {
			t.Errorf("%s: %d load balancers are applied, want %d", tc.what, len(got), tc.want)
		}
		for _, c := range got {
			if c.id != lb.ID || c.project != 1 {
				t.Errorf("%s: %+v, want load balancer %d", tc.what, c, lb.ID)
			}
		}
	}
}
