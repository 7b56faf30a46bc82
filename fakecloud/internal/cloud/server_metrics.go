package cloud

import (
	"math"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
)

// The limits of a query for metrics (API document, get metrics for a server).
const (
	MaxMetricSamples     = 500
	DefaultMetricSamples = 200
	MetricRetention      = 30 * 24 * time.Hour
)

// MetricRange is the period and the resolution of a query for metrics.
type MetricRange struct {
	Start, End time.Time
	Step       time.Duration
}

// NewMetricRange checks a period and chooses a resolution. If step is 0, the resolution gives about 200
// samples. Otherwise it is step, or larger if step gives more than 500 samples. All times are whole seconds.
// Errors: invalid_input on end or step.
func NewMetricRange(start, end time.Time, step time.Duration) (MetricRange, error) {
	start, end = start.Truncate(time.Second), end.Truncate(time.Second)
	// Not end.Sub(start): a Duration has at most 292 years.
	span := end.Unix() - start.Unix()
	switch {
	case span < 0:
		return MetricRange{}, ErrField("end", "must not be before start")
	case step == 0:
		step = max(time.Second, minStep(span, DefaultMetricSamples))
	default:
		step = max((step + time.Second - 1).Truncate(time.Second), minStep(span, MaxMetricSamples))
	}
	return MetricRange{Start: start, End: end, Step: step}, nil
}

// minStep returns the smallest step in whole seconds that divides a span of seconds into at most n samples.
func minStep(span, n int64) time.Duration { return time.Duration((span+n-1)/n) * time.Second }

// Times returns the times of a resource's samples. It leaves out the future, the time before the creation, and samples that are more than
// 30 days old. A single moment has the sample that is next to it: exporters ask so at each scrape (promhippie/hcloud_exporter issue 74),
// and their clock need not be the cloud's.
func (r MetricRange) Times(now, created time.Time) []time.Time {
	oldest := max(created.Unix(), now.Add(-MetricRetention).Unix())
	if r.Start.Equal(r.End) {
		return []time.Time{time.Unix(min(max(r.Start.Unix(), oldest), now.Unix()), 0).UTC()}
	}
	step := int64(r.Step / time.Second)
	first := r.Start.Unix()
	if skipped := oldest - first; skipped > 0 {
		first += (skipped + step - 1) / step * step
	}
	var times []time.Time
	for t := first; t < r.End.Unix() && t <= now.Unix(); t += step {
		times = append(times, time.Unix(t, 0).UTC())
	}
	return times
}

// MetricSeries is one named time series: a value for each point in time.
type MetricSeries struct {
	Name   string
	Times  []time.Time
	Values []float64
}

// serverSeries are the series of each type of metric, in the document's units. value is the series' part of a report. mean is the average
// of the invented values for a running server.
var serverSeries = map[string][]struct {
	name  string
	value func(hypervisor.Usage) float64
	mean  float64
}{
	"cpu": {{"cpu", func(u hypervisor.Usage) float64 { return u.CPU }, 12}},
	"disk": {
		{"disk.0.iops.read", func(u hypervisor.Usage) float64 { return u.DiskReadOps }, 4},
		{"disk.0.iops.write", func(u hypervisor.Usage) float64 { return u.DiskWriteOps }, 18},
		{"disk.0.bandwidth.read", func(u hypervisor.Usage) float64 { return u.DiskReadBytes }, 40_000},
		{"disk.0.bandwidth.write", func(u hypervisor.Usage) float64 { return u.DiskWriteBytes }, 210_000},
	},
	"network": {
		{"network.0.pps.in", func(u hypervisor.Usage) float64 { return u.PacketsIn }, 35},
		{"network.0.pps.out", func(u hypervisor.Usage) float64 { return u.PacketsOut }, 30},
		{"network.0.bandwidth.in", func(u hypervisor.Usage) float64 { return u.BytesIn }, 21_000},
		{"network.0.bandwidth.out", func(u hypervisor.Usage) float64 { return u.BytesOut }, 17_000},
	},
}

// ServerMetrics returns the metrics of the given types (cpu, disk, network). The first of these that is there decides
// about a point:
//
//   - Reports, from the server's first one on: the point has the latest report before it, or zeros if that is older than
//     both a step and a minute.
//   - For the network: the traffic of load balancers, if a data plane counts it.
//   - Not modelled: no guest runs, so what no one reports is made up. Such values depend only on the server, the series and the
//
// time, so that
//
//	the same query has the same answer. They are 0 before the server was last powered on, and after it was powered off.
//
// Errors: not_found.
func (p Project) ServerMetrics(id int64, types []string, r MetricRange) ([]MetricSeries, error) {
	s, err := Find(&p.View().Servers, id)
	if err != nil {
		return nil, err
	}
	times := r.Times(p.cloud.Now(), s.Created)
	first, ever := p.cloud.serverUsage.since(id)
	reports := p.cloud.serverUsage.at(id, times, r.Step)
	traffic := p.cloud.serverTraffic.at(id, times, r.Step)
	var out []MetricSeries
	for _, t := range types {
		counted := t == "network" && p.cloud.countsTraffic.Load()
		for i, series := range serverSeries[t] {
			values := make([]float64, len(times))
			for k, at := range times {
				switch {
				case ever && !at.Before(first):
					values[k] = series.value(reports[k])
				case counted:
					values[k] = series.value(traffic[k])
				case s.ranAt(at):
					values[k] = wave(series.mean, uint64(id)*31+uint64(i)+uint64(len(t)), at)
				}
			}
			out = append(out, MetricSeries{series.name, times, values})
		}
	}
	return out, nil
}

// ranAt reports whether the server ran at a time. It knows only the last time of powering on and off.
func (s *Server) ranAt(t time.Time) bool {
	if s.Started.IsZero() || t.Before(s.Started) {
		return false
	}
	return s.Stopped.Before(s.Started) || t.Before(s.Stopped)
}

// wave returns the value of a daily rhythm around a mean, with some noise. It is never negative.
func wave(mean float64, seed uint64, at time.Time) float64 {
	day := float64(at.Unix()%86_400) / 86_400
	h := (seed*0x9e3779b97f4a7c15 ^ uint64(at.Unix())) * 0xbf58476d1ce4e5b9
	h ^= h >> 31
	noise := float64(h%1000)/1000 - 0.5
	v := mean * (1 + 0.4*math.Sin(2*math.Pi*day+float64(seed%7)) + 0.3*noise)
	return math.Round(v*1000) / 1000
}
