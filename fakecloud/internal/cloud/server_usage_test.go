package cloud

import (
	"slices"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
)

// usageLab is a running server and queries for its metrics, relative to a start.
type usageLab struct {
	*testing.T
	Project
	server int64
	start  time.Time
}

func newUsageLab(t *testing.T) (*usageLab, func(time.Duration)) {
	t.Helper()
	p, clk := serverCloud(t, Options{})
	s := runningServer(t, p, clk, smallServer("a"))
	return &usageLab{t, p, s.ID, p.cloud.Now()}, clk.Step
}

func (l *usageLab) report(u hypervisor.Usage) {
	l.Helper()
	if err := l.cloud.ReportServerUsage(l.server, u); err != nil {
		l.Fatal(err)
	}
}

// values returns the points of a series from start+from until before start+to.
func (l *usageLab) values(series string, from, to, step time.Duration) []float64 {
	l.Helper()
	r, err := NewMetricRange(l.start.Add(from), l.start.Add(to), step)
	if err != nil {
		l.Fatal(err)
	}
	all, err := l.ServerMetrics(l.server, []string{"cpu", "disk", "network"}, r)
	if err != nil {
		l.Fatal(err)
	}
	i := slices.IndexFunc(all, func(s MetricSeries) bool { return s.Name == series })
	return all[i].Values
}

func (l *usageLab) want(what, series string, from, to, step time.Duration, want ...float64) {
	l.Helper()
	if got := l.values(series, from, to, step); !slices.Equal(got, want) {
		l.Errorf("%s: %s is %v, want %v", what, series, got, want)
	}
}

func TestAReportReplacesMadeUpValues(t *testing.T) {
	t.Parallel()
	l, step := newUsageLab(t)
	step(10 * time.Second)
	l.report(hypervisor.Usage{
		CPU: 230, DiskReadOps: 1, DiskWriteOps: 2, DiskReadBytes: 3, DiskWriteBytes: 4, PacketsIn: 5, PacketsOut: 6, BytesIn: 7,
		BytesOut: 8,
	})
	step(10 * time.Second)
	for series, want := range map[string]float64{
		"cpu":                    230,
		"disk.0.iops.read":       1,
		"disk.0.iops.write":      2,
		"disk.0.bandwidth.read":  3,
		"disk.0.bandwidth.write": 4,
		"network.0.pps.in":       5, "network.0.pps.out": 6, "network.0.bandwidth.in": 7, "network.0.bandwidth.out": 8,
	} {
		got := l.values(series, 0, 20*time.Second, 5*time.Second)
		if len(got) != 4 || got[0] == 0 || got[0] == want || got[1] == 0 || got[2] != want || got[3] != want {
			t.Errorf("%s is %v: want made-up values before the report, and %v from then on", series, got, want)
		}
	}
}

func TestPointsAreZeroWhenTheReportsStop(t *testing.T) {
	t.Parallel()
	l, step := newUsageLab(t)
	for i := range 3 {
		l.report(hypervisor.Usage{CPU: float64(i + 1)})
		step(10 * time.Second)
	}
	step(10 * time.Minute)
	l.want("between reports", "cpu", 0, 30*time.Second, 5*time.Second, 1, 1, 2, 2, 3, 3)
	l.want("a minute after the last one", "cpu", 79*time.Second, 83*time.Second, time.Second, 3, 3, 0, 0)
	l.want("a step after the last one", "cpu", 0, 10*time.Minute, 2*time.Minute, 1, 3, 0, 0, 0)
}

func TestReportsAreForgottenWithTheServerAndTheCloud(t *testing.T) {
	t.Parallel()
	l, step := newUsageLab(t)
	kept := func() int {
		l.View() // does what is due
		usage, traffic := &l.cloud.serverUsage, &l.cloud.serverTraffic
		return len(usage.samples) + len(usage.first) + len(traffic.samples) + len(traffic.first)
	}
	report := func() {
		l.report(hypervisor.Usage{CPU: 1})
		l.cloud.ReportServerTraffic(l.server, 1, 1, time.Second)
	}
	report()
	if kept() != 4 {
		t.Fatalf("%d entries", kept())
	}
	did(l.DeleteServer(l.server))(t)
	step(time.Hour)
	if kept() != 0 {
		t.Errorf("%d entries are kept of a deleted server", kept())
	}
	l.cloud.ReportServerTraffic(l.server, 1, 1, time.Second)
	if kept() != 0 {
		t.Error("the traffic of a deleted server is kept")
	}
	created := did(l.CreateServer(smallServer("b")))(t)
	l.server = created.Server.ID
	report()
	l.cloud.Reset()
	if kept() != 0 {
		t.Errorf("%d entries are kept after a reset", kept())
	}
}

func TestTheMemoryOfReportsIsLimited(t *testing.T) {
	t.Parallel()
	l, step := newUsageLab(t)
	l.report(hypervisor.Usage{CPU: 1})
	for range 2 * maxStats {
		step(time.Millisecond)
		l.report(hypervisor.Usage{CPU: 2})
	}
	if n := len(l.cloud.serverUsage.samples[l.server]); n > maxStats {
		t.Errorf("%d samples are kept", n)
	}
	l.want("of a dropped report, made up no more", "cpu", 0, time.Second, time.Second, 0)
}

func TestTrafficIsTheNetworkOfAServerWithoutReports(t *testing.T) {
	t.Parallel()
	l, step := newUsageLab(t)
	l.cloud.CountServerTraffic()
	step(10 * time.Second)
	l.cloud.ReportServerTraffic(l.server, 14481, 1448, 10*time.Second)
	step(5 * time.Second)
	l.cloud.ReportServerTraffic(l.server, 0, 0, 5*time.Second)
	step(5 * time.Second)
	for series, during := range map[string]float64{
		"network.0.bandwidth.in": 1448.1, "network.0.bandwidth.out": 144.8, "network.0.pps.in": 1.1, "network.0.pps.out": 0.1,
	} {
		l.want("traffic", series, 0, 20*time.Second, 5*time.Second, 0, 0, during, 0)
	}
	for _, series := range []string{"cpu", "disk.0.iops.read"} {
		if got := l.values(series, 0, 20*time.Second, time.Second); slices.Min(got) == 0 {
			t.Errorf("%s is %v, want made-up values", series, got)
		}
	}
	l.report(hypervisor.Usage{BytesIn: 5})
	l.cloud.ReportServerTraffic(l.server, 1000, 1000, time.Second)
	step(5 * time.Second)
	l.want("with a report, which has seen the traffic", "network.0.bandwidth.in", 10*time.Second, 25*time.Second, 5*time.Second, 1448.1, 0,
		5)
}
