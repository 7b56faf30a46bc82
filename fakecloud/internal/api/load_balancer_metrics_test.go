package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

func TestMetricsOfALoadBalancer(t *testing.T) {
	t.Parallel()
	w := newBalancerWire(t, fakecloud.Options{})
	created, _, err := w.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
		Name: "lb", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	start := w.clock.Now()
	w.clock.Step(time.Hour)
	m, _, err := w.LoadBalancer.GetMetrics(t.Context(), created.LoadBalancer, hcloud.LoadBalancerGetMetricsOpts{
		Types: []hcloud.LoadBalancerMetricType{
			hcloud.LoadBalancerMetricOpenConnections, hcloud.LoadBalancerMetricConnectionsPerSecond,
			hcloud.LoadBalancerMetricRequestsPerSecond, hcloud.LoadBalancerMetricBandwidth,
		},
		Start: start, End: w.clock.Now(), Step: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, series := range []string{"open_connections", "connections_per_second", "requests_per_second", "bandwidth.in", "bandwidth.out"} {
		values := m.TimeSeries[series]
		if len(values) == 0 || len(values) > 500 || values[0].Value != "0" {
			t.Errorf("%s has %d samples", series, len(values))
		}
	}
	if status, body := w.call(t, http.MethodGet, "/load_balancers/5/metrics?type=cpu", ""); status != http.StatusUnprocessableEntity {
		t.Errorf("%d %v", status, body)
	}
}
