package loadbalancer_test

import (
	"slices"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
)

// HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE is set, or changed, when there are load balancers already.
func TestADefaultSubnetTakesNothingOutOfItsNetwork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "instant", 3)
	_, _, err := w.api.Network.AddSubnet(t.Context(), w.network, hcloud.NetworkAddSubnetOpts{Subnet: hcloud.NetworkSubnet{
		Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: hcloud.NetworkZoneEUCentral, IPRange: cidr("10.1.0.0/16")}})
	w.must(err)
	svc := newService("web", map[string]string{"use-private-ip": "true"}, 80)
	w.ensure(w.provider(), svc)
	before := w.theLoadBalancer()
	later := w.provider(func(c *ccm.Config) { c.LoadBalancerDefaults["private-subnet-ip-range"] = "10.1.0.0/16" })
	w.wire.setObserve(func() {
		if n := len(w.loadBalancers()[0].Targets); n != 3 {
			t.Errorf("%d targets", n)
		}
	})
	w.expectQuiet(later, svc)
	w.wire.setObserve(nil)
	if lb := w.theLoadBalancer(); !lb.PrivateNet[0].IP.Equal(before.PrivateNet[0].IP) {
		t.Errorf("address %s, was %s", lb.PrivateNet[0].IP, before.PrivateNet[0].IP)
	}
	in := func(subnet string) bool {
		return slices.ContainsFunc(w.loadBalancers(),
			func(lb *hcloud.LoadBalancer) bool { return cidr(subnet).Contains(lb.PrivateNet[0].IP) })
	}
	w.ensure(later, newService("new", nil, 81))
	if !in("10.1.0.0/16") || !in("10.0.0.0/16") {
		t.Error("a new load balancer is not in the subnet")
	}

	// One that is in no network yet joins it there; the annotation of a Service moves its load balancer.
	annotate(svc, map[string]string{"private-subnet-ip-range": "10.1.0.0/16"})
	w.ensure(later, svc)
	if in("10.0.0.0/16") {
		t.Error("the annotation has no effect")
	}
}
