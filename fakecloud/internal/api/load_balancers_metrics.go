package api

import (
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// The figures that the API document states for metrics.
const (
	metricSamples    = 200 // without a step
	maxMetricSamples = 500
	metricRetention  = 30 * 24 * time.Hour
)

// metricsRange is the period that a request for metrics asks for.
type metricsRange struct {
	types      []string
	start, end time.Time
	step       int // seconds
}

// parseMetrics reads the query of a metrics operation.
func parseMetrics(q url.Values, allowed ...string) (metricsRange, error) {
	var m metricsRange
	var wrong []cloud.FieldError
	fail := func(name, message string) {
		wrong = append(wrong, cloud.FieldError{Name: name, Messages: []string{message}})
	}
	for _, list := range q["type"] {
		for t := range strings.SplitSeq(list, ",") {
			if !slices.Contains(allowed, t) {
				fail("type", "must be one of "+strings.Join(allowed, ", "))
			} else if !slices.Contains(m.types, t) {
				m.types = append(m.types, t)
			}
		}
	}
	if len(q["type"]) == 0 {
		fail("type", "is required")
	}
	for _, f := range []struct {
		name string
		dst  *time.Time
	}{{"start", &m.start}, {"end", &m.end}} {
		text := q.Get(f.name)
		t, err := time.Parse(time.RFC3339, text)
		switch {
		case text == "":
			fail(f.name, "is required")
		case err != nil:
			fail(f.name, "must be a time as in RFC 3339")
		default:
			*f.dst = t.UTC()
		}
	}
	if len(wrong) == 0 && !m.start.Before(m.end) {
		fail("end", "must be after start")
	}
	m.chooseStep(q.Get("step"), fail)
	if len(wrong) > 0 {
		return m, cloud.ErrInvalidInput(wrong...)
	}
	return m, nil
}

// chooseStep takes the step that is asked for, or one that makes 200 samples, but at least one that
// makes no more than 500.
func (m *metricsRange) chooseStep(text string, fail func(name, message string)) {
	atMost := func(samples int) int {
		return max(1, int(math.Ceil(m.end.Sub(m.start).Seconds()/float64(samples))))
	}
	if text == "" {
		m.step = atMost(metricSamples)
		return
	}
	step, err := strconv.ParseFloat(text, 64)
	if err != nil || !(step > 0) || step > 1<<31 {
		fail("step", "must be a positive number of seconds")
		return
	}
	m.step = max(int(math.Ceil(step)), atMost(maxMetricSamples))
}

// times returns when to sample: the steps of the period that are not in the future and not older
// than what is kept.
func (m *metricsRange) times(now time.Time) []time.Time {
	var out []time.Time
	step := time.Duration(m.step) * time.Second
	for t := m.start; len(out) < maxMetricSamples && !t.After(m.end) && !t.After(now); t = t.Add(step) {
		if now.Sub(t) <= metricRetention {
			out = append(out, t)
		}
	}
	return out
}

type metricsJSON struct {
	Start      timeJSON                  `json:"start"`
	End        timeJSON                  `json:"end"`
	Step       int                       `json:"step"`
	TimeSeries map[string]timeSeriesJSON `json:"time_series"`
}

type timeSeriesJSON struct {
	// Values are pairs of a Unix time and a decimal string.
	Values [][2]any `json:"values"`
}

func timeSeries(times []time.Time, value func(int) float64) timeSeriesJSON {
	s := timeSeriesJSON{Values: make([][2]any, len(times))}
	for i, t := range times {
		s.Values[i] = [2]any{t.Unix(), strconv.FormatFloat(value(i), 'f', -1, 64)}
	}
	return s
}

// minStatsAge is how long a reported figure counts when samples are closer than reports.
const minStatsAge = time.Minute

// loadBalancerMetrics answers GET /load_balancers/{id}/metrics with what a data plane reported, and
// zeros where nothing did.
func loadBalancerMetrics(r *Request) (Response, error) {
	id, err := r.ID(cloud.KindLoadBalancer)
	if err != nil {
		return Response{}, err
	}
	m, err := parseMetrics(r.Query(), "open_connections", "connections_per_second", "requests_per_second", "bandwidth")
	if err != nil {
		return Response{}, err
	}
	if _, err := r.Project.View().LoadBalancers.Find(id); err != nil {
		return Response{}, err
	}
	times := m.times(r.Project.Cloud().Now())
	stats := r.Project.LoadBalancerStatsAt(id, times, max(minStatsAge, time.Duration(m.step)*time.Second))
	out := metricsJSON{Start: timeJSON(m.start), End: timeJSON(m.end), Step: m.step, TimeSeries: map[string]timeSeriesJSON{}}
	add := func(name string, value func(cloud.LoadBalancerStats) float64) {
		out.TimeSeries[name] = timeSeries(times, func(i int) float64 { return value(stats[i]) })
	}
	for _, t := range m.types {
		switch t {
		case "open_connections":
			add(t, func(s cloud.LoadBalancerStats) float64 { return s.OpenConnections })
		case "connections_per_second":
			add(t, func(s cloud.LoadBalancerStats) float64 { return s.ConnectionsPerSecond })
		case "requests_per_second":
			add(t, func(s cloud.LoadBalancerStats) float64 { return s.RequestsPerSecond })
		case "bandwidth":
			add("bandwidth.in", func(s cloud.LoadBalancerStats) float64 { return s.BandwidthIn })
			add("bandwidth.out", func(s cloud.LoadBalancerStats) float64 { return s.BandwidthOut })
		}
	}
	return object(http.StatusOK, Part{"metrics", marshal(out)}), nil
}
