package cloud

import (
	"math"
	"time"
)

// The limits of a query for metrics (API document, get metrics for a server).
const (
	MaxMetricSamples     = 500
	DefaultMetricSamples = 200
	MetricRetention      = 30 * 24 * time.Hour
)

// MetricRange is a period and the resolution at which its metrics are asked for.
type MetricRange struct {
	Start, End time.Time
	Step       time.Duration
}

// NewMetricRange checks a period and chooses a resolution: the wanted one, or as much as makes 200
// samples when step is 0, and coarser where it would make more than 500. Everything is in whole seconds.
// Errors: invalid_input on end or step.
func NewMetricRange(start, end time.Time, step time.Duration) (MetricRange, error) {
	start, end = start.Truncate(time.Second), end.Truncate(time.Second)
	// Not end.Sub(start), which is no more than 292 years.
	span := end.Unix() - start.Unix()
	switch {
	case span <= 0:
		return MetricRange{}, ErrField("end", "must be after start")
	case step < 0:
		return MetricRange{}, ErrField("step", "must be a positive number of seconds")
	case step == 0:
		step = coarsest(span, DefaultMetricSamples)
	default:
		step = max((step + time.Second - 1).Truncate(time.Second), coarsest(span, MaxMetricSamples))
	}
	return MetricRange{Start: start, End: end, Step: step}, nil
}

// coarsest returns the least whole number of seconds that divides a span of seconds into at most n
// samples.
func coarsest(span, n int64) time.Duration { return time.Duration((span+n-1)/n) * time.Second }

// Times returns the points in time of the samples that exist at `now` of a resource that was
// created at a time: nothing is known of the future, of before the creation, nor of more than 30
// days ago.
func (r MetricRange) Times(now, created time.Time) []time.Time {
	oldest := max(created.Unix(), now.Add(-MetricRetention).Unix())
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

// serverSeries are the series of each type of metric, with the value around which a running server
// varies, in the document's units.
var serverSeries = map[string][]struct {
	name string
	mean float64
}{
	"cpu": {{"cpu", 12}},
	"disk": {
		{"disk.0.iops.read", 4}, {"disk.0.iops.write", 18},
		{"disk.0.bandwidth.read", 40_000}, {"disk.0.bandwidth.write", 210_000},
	},
	"network": {
		{"network.0.pps.in", 35}, {"network.0.pps.out", 30},
		{"network.0.bandwidth.in", 21_000}, {"network.0.bandwidth.out", 17_000},
	},
}

// ServerMetrics returns the metrics of the given types (cpu, disk, network).
//
// Not modelled: no guest runs, so that the values are made up. They follow from the server, the series
// and the point in time alone, so that the same question has the same answer, and are 0 when
// the server was off as far as that is known: before it was last powered on, and after it was
// powered off. Errors: not_found.
func (p Project) ServerMetrics(id int64, types []string, r MetricRange) ([]MetricSeries, error) {
	s, err := p.View().Servers.Find(id)
	if err != nil {
		return nil, err
	}
	times := r.Times(p.cloud.Now(), s.Created)
	var out []MetricSeries
	for _, t := range types {
		for i, series := range serverSeries[t] {
			values := make([]float64, len(times))
			for k, at := range times {
				if s.ranAt(at) {
					values[k] = wave(series.mean, uint64(id)*31+uint64(i)+uint64(len(t)), at)
				}
			}
			out = append(out, MetricSeries{series.name, times, values})
		}
	}
	return out, nil
}

// ranAt tells whether the server ran at a time, as far as is known.
func (s *Server) ranAt(t time.Time) bool {
	if s.Started.IsZero() || t.Before(s.Started) {
		return false
	}
	return s.Stopped.Before(s.Started) || t.Before(s.Stopped)
}

// wave is a smooth daily rhythm with some noise around a mean; never negative.
func wave(mean float64, seed uint64, at time.Time) float64 {
	day := float64(at.Unix()%86_400) / 86_400
	h := (seed*0x9e3779b97f4a7c15 ^ uint64(at.Unix())) * 0xbf58476d1ce4e5b9
	h ^= h >> 31
	noise := float64(h%1000)/1000 - 0.5
	v := mean * (1 + 0.4*math.Sin(2*math.Pi*day+float64(seed%7)) + 0.3*noise)
	return math.Round(v*1000) / 1000
}
