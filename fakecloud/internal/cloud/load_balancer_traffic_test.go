package cloud

import (
	"testing"
	"time"
)

func TestTrafficIsAddedUpInEachMonth(t *testing.T) {
	t.Parallel()
	p, _, clk := lbCloud(t)
	lb := newLB(t, p, clk, CreateLoadBalancer{})
	traffic := func() *LoadBalancerTraffic {
		got, _ := p.View().LoadBalancers.Get(lb.ID)
		return got.Traffic
	}
	state := p.View()
	p.AddLoadBalancerTraffic(lb.ID, 0, 0)
	p.AddLoadBalancerTraffic(5, 1, 1) // does not exist
	if traffic() != nil || p.View() != state {
		t.Errorf("without traffic: %+v", traffic())
	}
	p.AddLoadBalancerTraffic(lb.ID, 10, 200)
	first := traffic()
	p.AddLoadBalancerTraffic(lb.ID, 5, 0)
	if got := traffic(); got.In != 15 || got.Out != 200 || first.In != 10 {
		t.Errorf("two reports: %+v, and the first version is %+v", got, first)
	}
	if got, _ := p.View().LoadBalancers.Get(lb.ID); got.Revision != lb.Revision {
		t.Error("traffic changes the routing")
	}
	clk.Step(31 * 24 * time.Hour)
	p.AddLoadBalancerTraffic(lb.ID, 0, 0)
	if got := traffic(); got.In != 0 || got.Out != 0 {
		t.Errorf("in the next month: %+v", got)
	}
	state = p.View()
	p.AddLoadBalancerTraffic(lb.ID, 0, 0)
	if p.View() != state {
		t.Error("a report without traffic wrote")
	}
	p.AddLoadBalancerTraffic(lb.ID, 0, 7)
	if got := traffic(); got.In != 0 || got.Out != 7 {
		t.Errorf("traffic of the next month: %+v", got)
	}
}
