package fakecloud

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// DataPlaneOptions switch the load balancers' data plane on. The zero value works.
type DataPlaneOptions struct {
	// Resolver translates a port of a target to an address on this machine. If nil, load balancers dial the target's
	// address as it is.
	Resolver dataplane.Resolver
	// Binder decides where on this machine a load balancer listens. If nil, it is a dataplane.LoopbackBinder, and the
	// default ranges of addresses change (see Options.DataPlane). A netdev.Binder gives the addresses to a network
	// interface; Options.LoadBalancerIPv4 must then be a part of that interface's network. Close the binder after the
	// cloud.
	Binder dataplane.Binder
	// ProxyProtocolVersion is 1 or 2. 0 means the data plane's default.
	ProxyProtocolVersion int
	// Logger gets the errors, such as an address that cannot be bound. If nil, it is slog's default.
	Logger *slog.Logger
}

// On Linux, a program can listen on every address of 127.0.0.0/8 without preparation. With a data plane, these are
// therefore the default ranges: a program that listens on a server's address is that server, and clients on this
// machine can connect to a load balancer's address.
var (
	loopbackServers       = netip.MustParsePrefix("127.65.0.0/16")
	loopbackLoadBalancers = netip.MustParsePrefix("127.66.0.0/16")
)

func (o *Options) useLoopback() {
	if o.DataPlane == nil || o.DataPlane.Binder != nil || runtime.GOOS != "linux" {
		return
	}
	if !o.PublicIPv4.IsValid() {
		o.PublicIPv4 = loopbackServers
	}
	if !o.LoadBalancerIPv4.IsValid() {
		o.LoadBalancerIPv4 = loopbackLoadBalancers
	}
}

// DataPlane is the running data plane of a cloud. It applies the load balancers of the cloud's events, and reports the
// results of its health checks to the cloud.
type DataPlane struct {
	core   *cloud.Cloud
	engine *dataplane.Engine
	// keeper is the binder, if it gives addresses to an interface; nil otherwise.
	keeper addressKeeper
	log    *slog.Logger
	cancel context.CancelFunc
	done   sync.WaitGroup
	once   sync.Once

	mu      sync.Mutex
	states  map[int64]*cloud.State   // by project: the state of the latest event
	behind  map[int64]publicTargets  // by load balancer: its targets that firewalls may protect
	traffic map[int64]*serverTraffic // by server: what load balancers move at its public address

	applying sync.Mutex                     // held while load balancers are applied, so that an older state is not applied after a newer one
	failed   map[int64]error                // by load balancer: the error of the latest attempt to apply it
	shown    map[int64][]dataplane.Endpoint // by load balancer: the endpoints in the log
}

// addressKeeper is a binder that needs all addresses of a load balancer, such as netdev.Binder.
type addressKeeper interface {
	Keep(loadBalancer int64, addresses []netip.Addr) error
}

// statsInterval is how often, on the cloud's clock, the cloud gets the load balancers' figures for its metrics.
const statsInterval = 5 * time.Second

func startDataPlane(core *cloud.Cloud, o DataPlaneOptions) *DataPlane {
	d := &DataPlane{core: core, log: o.Logger, failed: map[int64]error{}, shown: map[int64][]dataplane.Endpoint{}, behind: map[int64]publicTargets{}, traffic: map[int64]*serverTraffic{}}
	if d.log == nil {
		d.log = slog.Default()
	}
	d.keeper, _ = o.Binder.(addressKeeper)
	core.SetHealthRule(cloud.HealthReported)
	core.CountServerTraffic()
	d.engine = dataplane.New(dataplane.Options{
		Binder: o.Binder, Resolver: o.Resolver, Filter: d.passes, Health: dataplane.HealthSinkFunc(d.report),
		Clock: core.Clock(), Logger: d.log, ProxyProtocolVersion: o.ProxyProtocolVersion,
	})
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel = cancel
	sub, states := core.Subscribe()
	d.states = states
	for project, st := range states {
		for lb := range st.LoadBalancers.All() {
			d.apply(project, st, lb)
		}
	}
	d.done.Go(func() {
		defer sub.Close()
		for {
			events, err := sub.NextAll(ctx)
			if err != nil {
				return
			}
			d.follow(events)
		}
	})
	d.done.Go(func() { d.recordStats(ctx) })
	ticker := core.Clock().NewTicker(bindInterval)
	d.done.Go(func() { d.retry(ctx, ticker) })
	return d
}

// Close removes all load balancers from this machine and waits until this is done. [Cloud.Close] calls it.
func (d *DataPlane) Close() {
	if d == nil {
		return
	}
	d.once.Do(d.close)
}

func (d *DataPlane) close() {
	d.cancel()
	d.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := d.engine.Close(ctx); err != nil {
		d.log.Error("cannot stop the data plane in time; its connections may stay open until this process ends", "error", err)
	}
}

// Endpoints returns where a load balancer listens on this machine.
func (d *DataPlane) Endpoints(loadBalancer int64) []dataplane.Endpoint {
	return d.engine.Endpoints(loadBalancer)
}

// DialContext dials like net.Dialer, but the address of a load balancer leads to its listener on this machine. Use it as
// http.Transport.DialContext.
func (d *DataPlane) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.engine.DialContext(ctx, network, address)
}

// follow applies the load balancers that some events change, in the state of the last event.
func (d *DataPlane) follow(events []cloud.Event) {
	d.applying.Lock()
	defer d.applying.Unlock()
	d.mu.Lock()
	for _, e := range events {
		d.states[e.Project] = e.State
	}
	d.mu.Unlock()
	for _, c := range rerouted(events) {
		if lb, ok := c.State.LoadBalancers.Get(c.ID); ok {
			d.apply(c.Project, c.State, lb)
		} else {
			d.engine.Remove(c.ID)
			delete(d.failed, c.ID)
			delete(d.shown, c.ID)
			d.forgetPublic(c.ID)
		}
	}
	d.forgetTraffic(events)
}

// rerouted returns an event with the ID and the last state of the project for each load balancer whose traffic changes,
// in the order of the changes. A change of health, labels or protection does not change traffic.
func rerouted(events []cloud.Event) []cloud.Event {
	last := map[int64]*cloud.State{}
	var out []cloud.Event
	seen := map[int64]bool{}
	add := func(project, id int64) {
		if !seen[id] {
			seen[id] = true
			out = append(out, cloud.Event{Project: project, Kind: cloud.KindLoadBalancer, ID: id})
		}
	}
	for _, e := range events {
		last[e.Project] = e.State
		switch e.Kind {
		case cloud.KindLoadBalancer:
			before, _ := e.Old.(*cloud.LoadBalancer)
			after, _ := e.New.(*cloud.LoadBalancer)
			if before == nil || after == nil || before.Revision != after.Revision || before.Name != after.Name {
				add(e.Project, e.ID)
			}
		case cloud.KindCertificate:
			before, _ := e.Old.(*cloud.Certificate)
			after, _ := e.New.(*cloud.Certificate)
			if after == nil || before != nil && before.Certificate == after.Certificate {
				continue
			}
			for _, user := range after.UsedBy {
				add(e.Project, user.ID)
			}
		}
	}
	for i := range out {
		out[i].State = last[out[i].Project]
	}
	return out
}

// apply changes a load balancer on this machine to its form in the cloud.
func (d *DataPlane) apply(project int64, st *cloud.State, lb *cloud.LoadBalancer) {
	p, ok := d.core.Project(project)
	if !ok {
		return
	}
	model := loadBalancerModel(st, lb)
	d.setPublic(project, lb)
	d.meter(&model)
	err := d.engine.Apply(model)
	if err == nil && d.keeper != nil {
		err = d.keeper.Keep(lb.ID, model.Addresses)
	}
	if err != nil {
		if before := d.failed[lb.ID]; before == nil || before.Error() != err.Error() {
			d.log.Error("cannot apply a load balancer, will retry; free its address and port", "load_balancer", lb.Name, "id", lb.ID, "every", bindInterval, "error", err)
		}
		d.failed[lb.ID] = err
		return
	}
	delete(d.failed, lb.ID)
	d.logEndpoints(lb)
	d.align(p, lb)
}

// align reports to the cloud the health of targets that the engine knows and the cloud does not: after some changes, the
// cloud forgets it and the engine does not.
func (d *DataPlane) align(p cloud.Project, lb *cloud.LoadBalancer) {
	known, err := d.engine.Health(lb.ID)
	if err != nil {
		return
	}
	type place struct {
		target string
		port   int
	}
	differs := map[place]bool{}
	status := map[place]string{}
	for t := range lb.Backends() {
		for _, h := range t.Health {
			at := place{t.IP.String(), h.ListenPort}
			if s, ok := status[at]; ok && s != h.Status {
				differs[at] = true
			}
			status[at] = h.Status
		}
	}
	var reports []cloud.HealthReport
	for _, r := range known {
		at := place{r.Target, int(r.ListenPort)}
		shown, ok := status[at]
		if r.Status == dataplane.Unknown || !ok || shown == string(r.Status) && !differs[at] {
			continue
		}
		if report, ok := healthReport(r); ok {
			reports = append(reports, report)
		}
	}
	if len(reports) > 0 {
		p.ReportTargetHealth(lb.ID, reports)
	}
}

func healthReport(r dataplane.HealthReport) (cloud.HealthReport, bool) {
	addr, err := netip.ParseAddr(r.Target)
	return cloud.HealthReport{
		Addr: addr, ListenPort: int(r.ListenPort), Status: string(r.Status),
		Detail: string(r.Detail), HTTPStatusCode: r.HTTPStatusCode,
	}, err == nil
}

// report passes the result of a health check to the cloud.
func (d *DataPlane) report(r dataplane.HealthReport) {
	report, valid := healthReport(r)
	if !valid {
		return
	}
	d.mu.Lock()
	states := maps.Clone(d.states)
	d.mu.Unlock()
	for project, st := range states {
		if _, ok := st.LoadBalancers.Get(r.LoadBalancer); !ok {
			continue
		}
		if p, ok := d.core.Project(project); ok {
			p.ReportTargetHealth(r.LoadBalancer, []cloud.HealthReport{report})
		}
	}
}

func (d *DataPlane) recordStats(ctx context.Context) {
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
func (d *DataPlane) reportStats(last map[int64]dataplane.Stats) map[int64]dataplane.Stats {
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

// loadBalancerModel translates a load balancer for the engine. A target's key is its address: targets with the same
// address are one target.
func loadBalancerModel(st *cloud.State, lb *cloud.LoadBalancer) dataplane.LoadBalancer {
	out := dataplane.LoadBalancer{
		ID: lb.ID, Name: lb.Name, Algorithm: dataplane.Algorithm(lb.Algorithm), MaxConnections: lb.Type.MaxConnections,
	}
	if lb.PublicEnabled {
		for _, ip := range []netip.Addr{lb.IPv4.Addr, lb.IPv6.Addr} {
			if ip.IsValid() {
				out.Addresses = append(out.Addresses, ip)
			}
		}
	}
	for _, n := range lb.PrivateNets {
		out.Addresses = append(out.Addresses, n.IP)
	}
	for _, s := range lb.Services {
		out.Services = append(out.Services, serviceModel(st, s))
	}
	seen := map[netip.Addr]bool{}
	for t := range lb.Backends() {
		if t.IP.IsValid() && !seen[t.IP] {
			seen[t.IP] = true
			out.Targets = append(out.Targets, dataplane.Target{Key: t.IP.String(), Address: t.IP})
		}
	}
	return out
}

func serviceModel(st *cloud.State, s cloud.LoadBalancerService) dataplane.Service {
	out := dataplane.Service{
		Protocol:        dataplane.Protocol(s.Protocol),
		ListenPort:      uint16(s.ListenPort),
		DestinationPort: uint16(s.DestinationPort),
		ProxyProtocol:   s.ProxyProtocol,
		HealthCheck: dataplane.HealthCheck{
			Protocol: dataplane.Protocol(s.HealthCheck.Protocol), Port: uint16(s.HealthCheck.Port),
			Interval: s.HealthCheck.Interval, Timeout: s.HealthCheck.Timeout, Retries: s.HealthCheck.Retries,
		},
	}
	if h := s.HealthCheck.HTTP; h != nil {
		out.HealthCheck.HTTP = dataplane.HTTPCheck{
			Domain: h.Domain, Path: h.Path, Response: h.Response, StatusCodes: h.StatusCodes, TLS: h.TLS,
		}
	}
	if h := s.HTTP; h != nil {
		out.HTTP = dataplane.HTTPConfig{
			StickySessions: h.StickySessions, CookieName: h.CookieName, CookieLifetime: h.CookieLifetime,
			TimeoutIdle: h.TimeoutIdle, RedirectHTTP: h.RedirectHTTP,
		}
		for _, id := range h.Certificates {
			if c, ok := st.Certificates.Get(id); ok && c.Certificate != "" {
				out.HTTP.Certificates = append(out.HTTP.Certificates, dataplane.Certificate{
					Chain: c.Certificate, PrivateKey: c.PrivateKey,
				})
			}
		}
	}
	return out
}
