package loadbalancer_test

import (
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
)

func TestAnUnknownNameIsReportedWithTheValidNames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotations map[string]string
		defaults    map[string]string
		want        string
	}{
		"type": {map[string]string{"type": "lb99"}, map[string]string{"location": "fsn1"},
			`load-balancer.hetzner.cloud/type: "lb99" does not exist: must be one of lb11, lb21, lb31`},
		"location": {map[string]string{"location": "mars1"}, nil,
			`load-balancer.hetzner.cloud/location: "mars1" does not exist: must be one of `},
		"zone": {map[string]string{"network-zone": "mars"}, nil,
			`load-balancer.hetzner.cloud/network-zone: "mars" does not exist: must be one of `},
		"a default": {nil, map[string]string{"location": "mars1"},
			`HCLOUD_LOAD_BALANCERS_LOCATION: "mars1" does not exist: must be one of `},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "instant", 1)
			cloud := w.provider(func(cfg *ccm.Config) { cfg.LoadBalancerDefaults = c.defaults })
			w.expectError(cloud, newService("web", c.annotations, 80), c.want)
			w.expectEvent("Warning InvalidSettings " + c.want)
			w.expectNone()
		})
	}
}
