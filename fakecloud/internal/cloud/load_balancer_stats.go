package cloud

import (
	"math"
	"slices"
	"sync"
	"time"
)

// LoadBalancerStats are the figures of one load balancer at one time, as in its metrics.
type LoadBalancerStats struct {
	OpenConnections      float64
	ConnectionsPerSecond float64
	RequestsPerSecond    float64
	BandwidthIn          float64 // bytes per second
	BandwidthOut         float64 // bytes per second
}

// ReportLoadBalancerStats records a load balancer's figures at the cloud's current time. A data plane calls it
// every few seconds while there is traffic; what nobody reports is zero.
func (p Project) ReportLoadBalancerStats(lb int64, s LoadBalancerStats) {
	if _, ok := p.View().LoadBalancers.Get(lb); !ok {
		return
	}
	p.cloud.loadBalancerStats.add(lb, p.cloud.Now(), s)
}

// LoadBalancerStatsAt returns the figures of a load balancer at each of some times: the latest report at or
// before the time that is not older than the given age, or zeros.
func (p Project) LoadBalancerStatsAt(lb int64, times []time.Time, age time.Duration) []LoadBalancerStats {
	return p.cloud.loadBalancerStats.at(lb, times, age)
}

// maxStatsPerLoadBalancer bounds the memory: an hour of a report every second.
const maxStatsPerLoadBalancer = 3600

// statsHistory keeps what was reported. It is apart from the state because figures change all the time
// and are no change of the resource.
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
		all = all[:n-1] // several at one time: the last one counts
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
