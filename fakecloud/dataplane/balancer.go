package dataplane

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// balancer is a running load balancer. The engine's lock guards the maps of listeners and services, the
// balancer's own lock guards the connections.
type balancer struct {
	engine *Engine
	id     int64
	ctx    context.Context
	cancel context.CancelFunc
	stats  stats
	spare  spareLinks

	fronts   map[netip.AddrPort]*front
	services map[uint16]*service
	targets  map[string]*targetStats // by the target's key

	mu        sync.Mutex
	closed    bool
	conns     map[*clientConn]struct{}
	exchanges map[*exchange]struct{}
	links     map[string]map[*targetConn]struct{} // by the target's key
	max       int                                 // limit of open connections; 0 means no limit
	freed     chan struct{}                       // closed and replaced when a connection ends or max changes
}

func newBalancer(e *Engine, id int64) *balancer {
	lb := &balancer{
		engine:    e,
		id:        id,
		fronts:    map[netip.AddrPort]*front{},
		services:  map[uint16]*service{},
		targets:   map[string]*targetStats{},
		conns:     map[*clientConn]struct{}{},
		exchanges: map[*exchange]struct{}{},
		links:     map[string]map[*targetConn]struct{}{},
		spare:     spareLinks{links: map[*backend][]*link{}},
		freed:     make(chan struct{}),
	}
	lb.ctx, lb.cancel = context.WithCancel(e.ctx)
	lb.stats.sample(e.clock.Now())
	return lb
}

// front is a listener for one address and port of the load balancer.
type front struct {
	lb       *balancer
	at       netip.AddrPort // address and port in the cloud
	listener net.Listener
	service  atomic.Pointer[service]
	replaced atomic.Bool
}

// replacedGrace is how long, in the machine's time, a replaced listener waits for one more connection: clients may have looked up
// its address, and connections may wait in its queue.
const replacedGrace = time.Second

// leave ends the listener without a reset for the connections that have begun.
func (f *front) leave() {
	context.AfterFunc(f.lb.ctx, func() { closeQuietly(f.listener) })
	f.replaced.Store(true)
	if !f.await(replacedGrace) {
		closeQuietly(f.listener)
	}
}

// await limits how long Accept waits. It reports whether the listener has such limits.
func (f *front) await(d time.Duration) bool {
	l, ok := f.listener.(interface{ SetDeadline(time.Time) error })
	return ok && l.SetDeadline(time.Now().Add(d)) == nil
}

func (f *front) local() netip.AddrPort {
	ap, _ := netip.ParseAddrPort(f.listener.Addr().String())
	return ap
}

// apply changes the balancer to the state want; confs are the prepared services of want. It binds new
// listeners first, so that a failure changes nothing.
func (lb *balancer) apply(want LoadBalancer, confs []*serviceConf) error {
	desired := map[netip.AddrPort]bool{}
	added := map[netip.AddrPort]*front{}
	var errs []error
	for _, address := range want.Addresses {
		for _, conf := range confs {
			at := netip.AddrPortFrom(address.Unmap(), conf.ListenPort)
			desired[at] = true
			if lb.fronts[at] != nil {
				continue
			}
			l, err := lb.engine.opts.Binder.Listen(lb.ctx, lb.id, address, conf.ListenPort)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			added[at] = &front{lb: lb, at: at, listener: l}
		}
	}
	if err := errors.Join(errs...); err != nil {
		for _, f := range added {
			closeQuietly(f.listener)
		}
		return err
	}

	lb.setMaxConnections(want.MaxConnections)
	lb.applyServices(want.Targets, confs)
	for at, f := range lb.fronts {
		if !desired[at] {
			closeQuietly(f.listener)
			delete(lb.fronts, at)
			continue
		}
		f.service.Store(lb.services[at.Port()])
	}
	for at, f := range added {
		f.service.Store(lb.services[at.Port()])
		lb.fronts[at] = f
		lb.engine.tasks.run(f.accept)
	}
	return nil
}

// rebind replaces the listeners that have another port than in the cloud, if that port is free now.
// Connections of the old listeners continue.
func (lb *balancer) rebind() (changed bool) {
	for at, f := range lb.fronts {
		if f.local().Port() == at.Port() {
			continue
		}
		l, err := lb.engine.opts.Binder.Listen(lb.ctx, lb.id, at.Addr(), at.Port())
		if err != nil {
			continue
		}
		better := &front{lb: lb, at: at, listener: l}
		if better.local().Port() != at.Port() {
			closeQuietly(l)
			continue
		}
		better.service.Store(f.service.Load())
		lb.fronts[at] = better
		lb.engine.tasks.run(better.accept)
		f.leave()
		changed = true
	}
	return changed
}

func (lb *balancer) applyServices(targets []Target, confs []*serviceConf) {
	lb.countTargets(targets)
	gone := maps.Clone(lb.services)
	for _, conf := range confs {
		delete(gone, conf.ListenPort)
		s := lb.services[conf.ListenPort]
		if s == nil {
			s = newService(lb, conf.ListenPort)
			lb.services[conf.ListenPort] = s
		}
		s.apply(conf, targets)
	}
	for port, s := range gone {
		delete(lb.services, port)
		s.retire()
	}
}

// countTargets keeps the counters of some targets, and forgets those of all others.
func (lb *balancer) countTargets(targets []Target) {
	kept := make(map[string]*targetStats, len(targets))
	for _, t := range targets {
		lb.count(t)
		kept[t.Key] = lb.targets[t.Key]
	}
	lb.targets = kept
}

// count makes the counters of a target, unless it has them.
func (lb *balancer) count(t Target) {
	if lb.targets[t.Key] == nil {
		lb.targets[t.Key] = &targetStats{}
	}
}

// close closes all listeners and connections at once.
func (lb *balancer) close() {
	lb.cancel()
	for _, f := range lb.fronts {
		closeQuietly(f.listener)
	}
	for _, s := range lb.services {
		s.close()
	}
	lb.spare.close()
	lb.mu.Lock()
	lb.closed = true
	conns := slices.Collect(maps.Keys(lb.conns))
	lb.mu.Unlock()
	for _, c := range conns {
		closeQuietly(c)
	}
}

func (lb *balancer) endpoints() []Endpoint {
	out := make([]Endpoint, 0, len(lb.fronts))
	for at, f := range lb.fronts {
		out = append(out, Endpoint{
			Address:  at.Addr(),
			Port:     at.Port(),
			Protocol: f.service.Load().conf.Load().Protocol,
			Local:    f.local(),
		})
	}
	sortEndpoints(out)
	return out
}

func (lb *balancer) targetStats() []TargetStats {
	out := make([]TargetStats, 0, len(lb.targets))
	for key, s := range lb.targets {
		out = append(out, TargetStats{Target: key, Open: s.open.Load(), Taken: s.taken.Load()})
	}
	return out
}

// health returns the health of the targets with some keys, or of all for none.
func (lb *balancer) health(keys []string) []HealthReport {
	var out []HealthReport
	for _, s := range lb.services {
		if len(keys) == 0 {
			for _, b := range s.byKey {
				out = append(out, b.report())
			}
		}
		for _, key := range keys {
			if b, ok := s.byKey[key]; ok {
				out = append(out, b.report())
			}
		}
	}
	return out
}

// acceptPause is the delay before the next accept after an error, such as when the process has no file
// descriptor left. It is in real time, because the shortage is real.
const acceptPause = 10 * time.Millisecond

// accept serves the connections of a listener until it is closed.
func (f *front) accept() {
	for {
		if f.replaced.Load() {
			f.await(replacedGrace)
		}
		c, err := f.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			closeQuietly(f.listener)
			return
		case err != nil:
			f.lb.engine.log.Warn("could not accept a connection, trying again", "load_balancer", f.lb.id, "address", f.at.String(), "error",
				err)
			select {
			case <-f.lb.ctx.Done():
				return
			case <-time.After(acceptPause):
			}
			continue
		}
		cc, ok := f.lb.admit(f, c)
		if !ok {
			closeQuietly(c)
			return
		}
		cc.service.serve(cc)
	}
}

// admit registers a connection. It waits while the limit of connections is reached. During the wait the
// listener accepts no other connection: they queue in the kernel, as with HAProxy's maxconn.
func (lb *balancer) admit(f *front, c net.Conn) (*clientConn, bool) {
	for {
		lb.mu.Lock()
		if lb.closed {
			lb.mu.Unlock()
			return nil, false
		}
		if lb.max == 0 || len(lb.conns) < lb.max {
			cc := newClientConn(lb, f, c)
			lb.conns[cc] = struct{}{}
			lb.mu.Unlock()
			lb.stats.open.Add(1)
			lb.stats.connections.Add(1)
			return cc, true
		}
		freed := lb.freed
		lb.mu.Unlock()
		select {
		case <-freed:
		case <-lb.ctx.Done():
			return nil, false
		}
	}
}

// forget removes a connection that admit has registered.
func (lb *balancer) forget(c *clientConn) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	delete(lb.conns, c)
	lb.stats.open.Add(-1)
	lb.wakeLocked()
}

func (lb *balancer) setMaxConnections(n int) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	lb.max = n
	lb.wakeLocked()
}

func (lb *balancer) wakeLocked() {
	close(lb.freed)
	lb.freed = make(chan struct{})
}

// enter registers an exchange until leave.
func (lb *balancer) enter(x *exchange) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	lb.exchanges[x] = struct{}{}
}

func (lb *balancer) leave(x *exchange) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	delete(lb.exchanges, x)
}

// closeWaiting closes the HTTP/1 connections of a server that wait for a request.
func (lb *balancer) closeWaiting(w *webServer) {
	lb.mu.Lock()
	var waiting []*clientConn
	for x := range lb.exchanges {
		if x.web == w && x.client.requests.Load() == 0 {
			waiting = append(waiting, x.client)
		}
	}
	lb.mu.Unlock()
	for _, c := range waiting {
		closeQuietly(c)
	}
}

// sweep ends idle connections and exchanges.
func (lb *balancer) sweep(now time.Time) {
	lb.mu.Lock()
	var conns []*clientConn
	for c := range lb.conns {
		if c.idle(now) {
			conns = append(conns, c)
		}
	}
	var exchanges []*exchange
	for x := range lb.exchanges {
		if x.idle(now) {
			exchanges = append(exchanges, x)
		}
	}
	lb.mu.Unlock()
	lb.spare.sweep(now)
	for _, x := range exchanges {
		x.expire(now)
	}
	for _, c := range conns {
		closeQuietly(c)
	}
}
