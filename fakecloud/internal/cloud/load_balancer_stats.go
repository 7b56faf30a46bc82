package cloud

import (
	"math"
	"slices"
	"sync"
	"time"
)

// LoadBalancerStats are the figures of one load balancer at one time.
type LoadBalancerStats struct {
	OpenConnections      float64
	ConnectionsPerSecond float64
	RequestsPerSecond    float64
	BandwidthIn          float64 // bytes per second
	BandwidthOut         float64 // bytes per second
}

// ReportLoadBalancerStats records a load balancer's figures at the cloud's current time. A data plane calls it
// every few seconds while there is traffic. Without reports, the figures are zero.
func (p Project) ReportLoadBalancerStats(lb int64, s LoadBalancerStats) {
	if _, ok := p.View().LoadBalancers.Get(lb); !ok {
		return
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

// minStatsAge is the minimum time for which a reported figure counts. It counts longer if the step is longer.
const minStatsAge = time.Minute

// LoadBalancerMetrics returns the metrics of the given types (open_connections, connections_per_second,
// requests_per_second, bandwidth). Each point has the latest figures that were reported before it, or zeros if
// they are older than both a step and a minute. Errors: not_found.
func (p Project) LoadBalancerMetrics(id int64, types []string, r MetricRange) ([]MetricSeries, error) {
	lb, err := p.View().LoadBalancers.Find(id)
	if err != nil {
		return nil, err
	}
	times := r.Times(p.cloud.Now(), lb.Created)
	stats := p.cloud.loadBalancerStats.at(id, times, max(minStatsAge, r.Step))
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

// maxStatsPerLoadBalancer limits the memory to one hour of a report per second.
const maxStatsPerLoadBalancer = 3600

// statsHistory keeps the reports. They are not in the state because they change all the time and do not
// change the resource.
type statsHistory struct {
	mu      sync.Mutex
	samples map[int64][]statsSample // by load balancer, by time
}

type statsSample struct {
	at time.Time
	LoadBalancerStats
}

func (h *statsHistory) add(lb int64, at time.Time, s LoadBalancerStats) {
	for _, v := range []*float64{&s.OpenConnections, &s.ConnectionsPerSecond, &s.RequestsPerSecond, &s.BandwidthIn, &s.BandwidthOut} {
		if math.IsNaN(*v) || math.IsInf(*v, 0) || *v < 0 {
			*v = 0
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.samples == nil {
		h.samples = map[int64][]statsSample{}
	}
	all := h.samples[lb]
	if n := len(all); n > 0 && !all[n-1].at.Before(at) {
		all = all[:n-1] // of several reports at one time, the last one counts
	}
	if len(all) >= maxStatsPerLoadBalancer {
		all = slices.Delete(all, 0, len(all)/2)
	}
	h.samples[lb] = append(all, statsSample{at, s})
}

func (h *statsHistory) at(lb int64, times []time.Time, age time.Duration) []LoadBalancerStats {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.samples[lb]
	out := make([]LoadBalancerStats, len(times))
	for i, t := range times {
		after, _ := slices.BinarySearchFunc(all, t, func(s statsSample, t time.Time) int {
			if s.at.After(t) {
				return 1
			}
			return -1
		})
		if after > 0 && t.Sub(all[after-1].at) <= age {
			out[i] = all[after-1].LoadBalancerStats
		}
	}
	return out
}

func (h *statsHistory) forget(lb int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.samples, lb)
}

func (h *statsHistory) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.samples)
}
