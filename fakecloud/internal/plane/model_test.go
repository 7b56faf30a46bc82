package plane

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

func TestALoadBalancerListensOnItsPublicAddressesOnlyWithItsPublicInterface(t *testing.T) {
	t.Parallel()
	v4, v6, private := netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("10.0.1.2")
	lb := &cloud.LoadBalancer{LoadBalancerSettings: &cloud.LoadBalancerSettings{
		Type: new(cloud.LoadBalancerType), PrivateNets: []cloud.LoadBalancerPrivateNet{{IP: private}},
	}}
	lb.IPv4.Addr, lb.IPv6.Addr = v4, v6
	for enabled, want := range map[bool][]netip.Addr{true: {v4, v6, private}, false: {private}} {
		lb.PublicEnabled = enabled
		if got := loadBalancerModel(&cloud.State{}, lb).Addresses; !slices.Equal(got, want) {
			t.Errorf("enabled %v: %v, want %v", enabled, got, want)
		}
	}
}
