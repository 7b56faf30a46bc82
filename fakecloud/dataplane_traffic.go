package fakecloud

import (
	"maps"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// serverTraffic is what all load balancers move at the public address of one server.
type serverTraffic struct {
	dataplane.Traffic
	moved bool // whether the last report had bytes; only reportTraffic uses it
}

// meter has the engine count the traffic of a load balancer's public targets. What goes to a private address is not on the
// interface whose metrics the API shows.
func (d *DataPlane) meter(lb *dataplane.LoadBalancer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	public := d.behind[lb.ID].targets
	for i := range lb.Targets {
		target, ok := public[lb.Targets[i].Address]
		if !ok {
			continue
		}
		if d.traffic[target.Server] == nil {
			d.traffic[target.Server] = &serverTraffic{}
		}
		lb.Targets[i].Traffic = &d.traffic[target.Server].Traffic
	}
}

// forgetTraffic drops the counters of deleted servers, which are no targets any more.
func (d *DataPlane) forgetTraffic(events []cloud.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range events {
		if e.Kind == cloud.KindServer && e.New == nil {
			delete(d.traffic, e.ID)
		}
	}
}

// reportTraffic reports what load balancers have moved since the last report, for the servers' metrics, and returns the
// time of this report. A server whose traffic has ended gets one report without bytes.
func (d *DataPlane) reportTraffic(last time.Time) time.Time {
	now := d.core.Now()
	if !now.After(last) {
		return last // the clock stands still, and the bytes wait for the next report
	}
	d.mu.Lock()
	all := maps.Clone(d.traffic)
	d.mu.Unlock()
	for server, t := range all {
		in, out := t.In.Swap(0), t.Out.Swap(0)
		if moves := in > 0 || out > 0; moves || t.moved {
			t.moved = moves
			d.core.ReportServerTraffic(server, in, out, now.Sub(last))
		}
	}
	return now
}
