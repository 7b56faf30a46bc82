package plane

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
)

// align reports to the cloud the health of targets that the engine knows and the cloud does not: after some changes, the
// cloud forgets it and the engine does not. Without keys, these are all targets.
func (d *Balancers) align(b *balancer, lb *cloud.LoadBalancer, keys ...string) {
	known, err := d.engine.Health(lb.ID, keys...)
	p, ok := d.core.Project(b.project)
	if err != nil || !ok {
		return
	}
	var reports []cloud.HealthReport
	for _, r := range known {
		if r.Status == dataplane.Unknown {
			continue
		}
		for _, report := range b.reports(r) {
			if shownOtherwise(lb, report) {
				reports = append(reports, report)
			}
		}
	}
	if len(reports) > 0 {
		p.ReportTargetHealth(lb.ID, reports)
	}
}

// shownOtherwise reports whether the cloud shows a target with another status.
func shownOtherwise(lb *cloud.LoadBalancer, r cloud.HealthReport) bool {
	for t := range lb.TargetsOf(r.Server) {
		if t.IP == r.Addr && slices.ContainsFunc(t.Health, func(h cloud.TargetHealth) bool {
			return h.ListenPort == r.ListenPort && h.Status != r.Status
		}) {
			return true
		}
	}
	return false
}

// reports translates the health of one of the engine's targets: there is one report for each server with its address.
func (b *balancer) reports(r dataplane.HealthReport) (all []cloud.HealthReport) {
	address, err := netip.ParseAddr(r.Target)
	if err != nil {
		return nil
	}
	for _, u := range b.holders[address] {
		all = append(all, cloud.HealthReport{
			Server: u.server, Addr: address, ListenPort: int(r.ListenPort), Status: string(r.Status),
			Detail: string(r.Detail), HTTPStatusCode: r.HTTPStatusCode,
		})
	}
	return all
}

// report passes the result of a health check to the cloud.
func (d *Balancers) report(r dataplane.HealthReport) {
	d.mu.Lock()
	var reports []cloud.HealthReport
	var project int64
	if b := d.balancers[r.LoadBalancer]; b != nil {
		project, reports = b.project, b.reports(r)
	}
	d.mu.Unlock()
	if p, ok := d.core.Project(project); ok && len(reports) > 0 {
		p.ReportTargetHealth(r.LoadBalancer, reports)
	}
}

// Refusal is the engine's filter: why a connection of a load balancer to a target fails, in the cloud's present state. A change of
// a server's power, addresses or firewalls thus decides about the next connection and probe. See [Balancers.disconnect] for
// established ones.
func (d *Balancers) Refusal(loadBalancer int64, t dataplane.Target, port uint16) dataplane.HealthDetail {
	d.mu.Lock()
	var project int64
	var h holder
	held := false // else the target was removed, maybe with its server
	if b := d.balancers[loadBalancer]; b != nil {
		project, h, held = b.project, b.holder(t.Address), len(b.holders[t.Address]) > 0
	}
	d.mu.Unlock()
	p, ok := d.core.Project(project)
	if !ok || !held {
		return dataplane.DetailNoConnection
	}
	st := p.View()
	lb, ok := st.LoadBalancers.Get(loadBalancer)
	if !ok {
		return dataplane.DetailNoConnection
	}
	return dataplane.HealthDetail(st.Refusal(lb, h.target(t.Address), int(port)))
}

// disconnect closes the connections to servers that start, stop, are deleted or leave the network. Connections
// through a firewall continue: Hetzner's firewalls are stateful, and it is not published what becomes of a connection when the rule
// that permitted it is removed. Those to a target that was only removed continue, too.
func (d *Balancers) disconnect(held []heldAddress) {
	for _, a := range held {
		st := d.states[a.project]
		lb, ok := st.LoadBalancers.Get(a.loadBalancer)
		if ok && (a.restarted || st.Refusal(lb, a.holder.target(a.address), 0) == string(dataplane.DetailNoConnection)) {
			d.engine.Disconnect(lb.ID, a.address.String())
		}
	}
}

// heldAddress is a target's address of a server.
type heldAddress struct {
	project, loadBalancer int64
	address               netip.Addr
	holder                holder
	restarted             bool // it is not the run of the server that it was
}

// held returns the addresses that the events' servers had as targets before.
func (d *Balancers) held(events []cloud.Event) (all []heldAddress) {
	for i := range events {
		s, ok := events[i].Old.(*cloud.Server)
		if !ok {
			continue
		}
		now, ok := events[i].New.(*cloud.Server)
		restarted := ok && !now.SameRun(s)
		for _, id := range s.LoadBalancers {
			b := d.balancers[id]
			if b == nil {
				continue
			}
			for _, address := range b.servers[s.ID] {
				for _, h := range b.holders[address] {
					if h.server == s.ID {
						all = append(all, heldAddress{events[i].Project, id, address, h, restarted})
					}
				}
			}
		}
	}
	return all
}

// statsInterval is how often, on the cloud's clock, the cloud gets the load balancers' figures for its metrics.
const statsInterval = 5 * time.Second

func (d *Balancers) recordStats(ctx context.Context) {
	ticker := d.core.Clock().NewTicker(statsInterval)
	defer ticker.Stop()
	var totals map[int64]dataplane.Stats
	at := d.core.Now()
	for {
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return
		}
		totals = d.reportStats(totals)
		at = d.reportTraffic(at)
	}
}

// reportStats reports the figures of all load balancers, and the bytes since the last report. It returns the figures for the
// next report.
func (d *Balancers) reportStats(last map[int64]dataplane.Stats) map[int64]dataplane.Stats {
	totals := make(map[int64]dataplane.Stats, len(last))
	for _, p := range d.core.Projects() {
		for lb := range p.View().LoadBalancers.All() {
			s, err := d.engine.Stats(lb.ID)
			if err != nil {
				continue
			}
			totals[lb.ID] = s
			p.ReportLoadBalancerStats(lb.ID, cloud.LoadBalancerStats{
				OpenConnections: float64(s.OpenConnections), ConnectionsPerSecond: s.ConnectionsPerSecond,
				RequestsPerSecond: s.RequestsPerSecond, BandwidthIn: s.BandwidthIn, BandwidthOut: s.BandwidthOut,
			})
			before := last[lb.ID]
			if s.BytesIn < before.BytesIn || s.BytesOut < before.BytesOut {
				before = dataplane.Stats{} // the engine has begun to count again
			}
			p.AddLoadBalancerTraffic(lb.ID, s.BytesIn-before.BytesIn, s.BytesOut-before.BytesOut)
		}
	}
	return totals
}

// serverTraffic is what all load balancers move at the public address of one server.
type serverTraffic struct {
	dataplane.Traffic
	moved bool // whether the last report had bytes; only reportTraffic uses it
}

// forgetTraffic drops the counters of deleted servers. Load balancers send them nothing any more.
func (d *Balancers) forgetTraffic(events []cloud.Event) {
	for _, e := range events {
		if e.Kind == cloud.KindServer && e.New == nil {
			delete(d.traffic, e.ID)
		}
	}
}

// reportTraffic reports the load balancers' traffic since the last report, for the servers' metrics, and returns the time of this report.
// When a server's traffic ends, one report without bytes follows.
func (d *Balancers) reportTraffic(last time.Time) time.Time {
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

// AllTraffic returns what each load balancer has moved.
func (d *Balancers) AllTraffic() (all []wire.LoadBalancerTraffic) {
	for _, p := range d.core.Projects() {
		for lb := range p.View().LoadBalancers.All() {
			if s, err := d.engine.Stats(lb.ID); err == nil {
				all = append(all, wire.LoadBalancerTraffic{
					Project: p.ID(), ID: lb.ID, Open: s.OpenConnections, Connections: s.Connections, Requests: s.Requests,
					BytesIn: s.BytesIn, BytesOut: s.BytesOut, Targets: d.targetTraffic(lb.ID),
				})
			}
		}
	}
	return all
}

// targetTraffic returns what a load balancer sends to each address.
func (d *Balancers) targetTraffic(loadBalancer int64) []wire.TargetTraffic {
	stats, _ := d.engine.TargetStats(loadBalancer) // the load balancer may just have been deleted
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.balancers[loadBalancer]
	if b == nil {
		return nil
	}
	all := make([]wire.TargetTraffic, 0, len(stats))
	for _, s := range stats {
		address, _ := netip.ParseAddr(s.Target) // the key of each of this package's targets is an address
		t := wire.TargetTraffic{Address: s.Target, Open: s.Open, Taken: s.Taken}
		for _, h := range b.holders[address] {
			t.Server = max(t.Server, h.server) // the server's target wins over one of type ip with its address
		}
		all = append(all, t)
	}
	return all
}
