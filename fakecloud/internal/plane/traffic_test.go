package plane

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

func TestTrafficIsReportedOnceAndItsEndToo(t *testing.T) {
	t.Parallel()
	clk := clocktesting.NewFakeClock(time.Unix(1_790_000_000, 0))
	core := cloud.New(cloud.Options{Clock: clk})
	t.Cleanup(core.Close)
	core.CountServerTraffic()
	p, _ := core.Project(1)
	created, _, err := p.CreateServer(cloud.CreateServer{
		Name: "a", ServerType: "cx23", Image: "debian-13", Location: "fsn1", StartAfterCreate: true,
		IPv4: cloud.ServerPublicIP{Enabled: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	server, traffic := created.Server.ID, &serverTraffic{}
	d := &Balancers{core: core, traffic: map[int64]*serverTraffic{server: traffic}}
	last := core.Now()
	for _, c := range []struct {
		what   string
		bytes  int64
		step   time.Duration
		wantIn float64
	}{
		{"nothing yet", 0, 5 * time.Second, 0},
		{"traffic", 5000, 5 * time.Second, 1000},
		{"over a longer time", 5000, 10 * time.Second, 500},
		{"while the clock stands still", 5000, 0, 500},
		{"all since the last report", 5000, 10 * time.Second, 1000},
		{"the end", 0, 5 * time.Second, 0},
	} {
		traffic.In.Add(c.bytes)
		traffic.Out.Add(2 * c.bytes)
		clk.Step(c.step)
		last = d.reportTraffic(last)
		r, err := cloud.NewMetricRange(core.Now(), core.Now().Add(time.Second), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		got, err := p.ServerMetrics(server, []string{"network"}, r)
		if err != nil {
			t.Fatal(err)
		}
		if in, out := got[2].Values[0], got[3].Values[0]; in != c.wantIn || out != 2*c.wantIn {
			t.Errorf("%s: %v bytes per second in and %v out, want %v and twice that", c.what, in, out, c.wantIn)
		}
	}
}
