package cloud

import "math"

// LoadBalancerStats are the figures of one load balancer at one time.
type LoadBalancerStats struct {
	OpenConnections      float64
	ConnectionsPerSecond float64
	RequestsPerSecond    float64
	BandwidthIn          float64 // bytes per second
	BandwidthOut         float64 // bytes per second
}

// ReportLoadBalancerStats records a load balancer's figures at the cloud's current time. A data plane calls it
// every few seconds while there is traffic. Without reports, the figures are zero. A figure that is negative or no number
// counts as zero.
func (p Project) ReportLoadBalancerStats(lb int64, s LoadBalancerStats) {
	if _, ok := p.View().LoadBalancers.Get(lb); !ok {
		return
	}
	for _, v := range []*float64{&s.OpenConnections, &s.ConnectionsPerSecond, &s.RequestsPerSecond, &s.BandwidthIn, &s.BandwidthOut} {
		if math.IsNaN(*v) || math.IsInf(*v, 0) || *v < 0 {
			*v = 0
		}
	}
	p.cloud.loadBalancerStats.add(lb, p.cloud.Now(), s)
}

// loadBalancerSeries are the series of each type of metric (API document, get metrics for a load
// balancer).
var loadBalancerSeries = map[string][]struct {
	name  string
	value func(LoadBalancerStats) float64
}{
	"open_connections":       {{"open_connections", func(s LoadBalancerStats) float64 { return s.OpenConnections }}},
	"connections_per_second": {{"connections_per_second", func(s LoadBalancerStats) float64 { return s.ConnectionsPerSecond }}},
	"requests_per_second":    {{"requests_per_second", func(s LoadBalancerStats) float64 { return s.RequestsPerSecond }}},
	"bandwidth": {
		{"bandwidth.in", func(s LoadBalancerStats) float64 { return s.BandwidthIn }},
		{"bandwidth.out", func(s LoadBalancerStats) float64 { return s.BandwidthOut }},
	},
}

// LoadBalancerMetrics returns the metrics of the given types (open_connections, connections_per_second,
// requests_per_second, bandwidth). Each point has the latest figures that were reported before it, or zeros if
// they are older than both a step and a minute. Errors: not_found.
func (p Project) LoadBalancerMetrics(id int64, types []string, r MetricRange) ([]MetricSeries, error) {
	lb, err := Find(&p.View().LoadBalancers, id)
	if err != nil {
		return nil, err
	}
	times := r.Times(p.cloud.Now(), lb.Created)
	stats := p.cloud.loadBalancerStats.at(id, times, r.Step)
	var out []MetricSeries
	for _, t := range types {
		for _, series := range loadBalancerSeries[t] {
			values := make([]float64, len(times))
			for i, s := range stats {
				values[i] = series.value(s)
			}
			out = append(out, MetricSeries{series.name, times, values})
		}
	}
	return out, nil
}
