package cloud

import (
	"slices"
	"testing"
	"time"
)

func TestMetricsOfAServer(t *testing.T) {
	t.Parallel()
	p, clk := serverCloud(t, Options{})
	s := runningServer(t, p, clk, smallServer("a"))
	clk.Step(40 * 24 * time.Hour)
	now := p.cloud.Now()
	metrics := func(start, end time.Time, step time.Duration) (MetricRange, []MetricSeries) {
		t.Helper()
		r, err := NewMetricRange(start, end, step)
		check(t, err)
		out, err := p.ServerMetrics(s.ID, []string{"cpu", "disk", "network"}, r)
		if err != nil || len(out) != 9 {
			t.Fatalf("%d series, %v", len(out), err)
		}
		return r, out
	}
	for name, c := range map[string]struct {
		start, end time.Time
		step       time.Duration
		wantStep   time.Duration
		samples    int
	}{
		"chosen step":           {now.Add(-time.Hour), now, 0, 18 * time.Second, 200},
		"wanted step":           {now.Add(-time.Hour), now, time.Minute, time.Minute, 60},
		"too fine a step":       {now.Add(-time.Hour), now, time.Second, 8 * time.Second, 450},
		"half a second":         {now.Add(-time.Minute), now, 500 * time.Millisecond, time.Second, 60},
		"future":                {now.Add(time.Second), now.Add(time.Hour), time.Minute, time.Minute, 0},
		"more than 30 days":     {now.Add(-40 * 24 * time.Hour), now, 24 * time.Hour, 24 * time.Hour, 30},
		"before the creation":   {testNow.Add(-2 * time.Hour), testNow.Add(-time.Hour), 0, 18 * time.Second, 0},
		"longer than 292 years": {time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Second, 0, 0},
		"one moment":            {now, now, 0, time.Second, 1},
		"one moment, a step":    {now, now, time.Minute, time.Minute, 1},
		"a moment to come":      {now.Add(time.Hour), now.Add(time.Hour), 0, time.Second, 1},
		"an early moment":       {testNow.Add(-time.Hour), testNow.Add(-time.Hour), 0, time.Second, 1},
		"end not on the grid":   {now.Add(-90 * time.Second), now, time.Minute, time.Minute, 2},
		"less than one second":  {now.Add(-1500 * time.Millisecond), now, 0, time.Second, 2},
	} {
		r, series := metrics(c.start, c.end, c.step)
		if n := len(series[0].Times); c.wantStep != 0 && (r.Step != c.wantStep || n != c.samples) || n > MaxMetricSamples {
			t.Errorf("%s: step %s, %d samples; want %s, %d", name, r.Step, n, c.wantStep, c.samples)
		}
	}
	_, one := metrics(now.Add(-time.Hour), now, time.Minute)
	_, two := metrics(now.Add(-time.Hour), now, time.Minute)
	if !slices.Equal(one[0].Values, two[0].Values) {
		t.Error("the same query has two results")
	}
	if slices.Max(one[0].Values) <= 0 || slices.Min(one[0].Values) < 0 {
		t.Errorf("values of a running server: %v", one[0].Values)
	}
	did(p.PowerOffServer(s.ID))(t)
	clk.Step(time.Hour)
	now = p.cloud.Now()
	if _, out := metrics(now.Add(-30*time.Minute), now, time.Minute); slices.Max(out[0].Values) != 0 {
		t.Errorf("values of a server that is off: %v", out[0].Values)
	}
	_, err := NewMetricRange(now, now.Add(-time.Second), 0)
	wantCode(t, "the end before the start", err, "end")
}
