// Package plane carries a cloud's packets on this machine: it makes load balancers listen, sets the routes of a network, and answers
// servers that ask for their metadata.
package plane

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// Options are fakecloud.DataPlaneOptions.
type Options struct {
	Resolver             dataplane.Resolver
	Binder               dataplane.Binder
	ProxyProtocolVersion int
	Logger               *slog.Logger
}

// Balancers are the load balancers of a cloud on this machine. They follow the cloud's events, and report the results of
// their health checks to the cloud.
type Balancers struct {
	core   *cloud.Cloud
	engine *dataplane.Engine
	// keeper is the binder, if it gives addresses to an interface; nil otherwise.
	keeper addressKeeper
	log    *slog.Logger
	ended  <-chan struct{} // closed when events are not followed any more
	cancel context.CancelFunc
	done   sync.WaitGroup
	once   sync.Once

	mu        sync.Mutex               // held while events are applied, so that an older state is not applied after a newer one
	states    map[int64]*cloud.State   // by project: the state of the latest event
	limit     int                      // of states: see forgetDropped
	balancers map[int64]*balancer      // by the load balancer's id
	traffic   map[int64]*serverTraffic // by server: what load balancers move at its public address
	seq       uint64                   // of the latest event
	followed  chan struct{}            // closed and replaced after events were applied

	stepping sync.Mutex // held by Step
}

// addressKeeper is a binder that needs all addresses of a load balancer, such as netdev.Binder.
type addressKeeper interface {
	Keep(loadBalancer int64, addresses []netip.Addr) error
}

// StartBalancers applies the load balancers of a cloud on this machine until Close.
func StartBalancers(core *cloud.Cloud, o Options) *Balancers {
	d := &Balancers{
		core: core, log: cmp.Or(o.Logger, slog.Default()), balancers: map[int64]*balancer{}, traffic: map[int64]*serverTraffic{},
		followed: make(chan struct{}),
	}
	d.keeper, _ = o.Binder.(addressKeeper)
	core.SetHealthRule(cloud.HealthReported)
	core.CountServerTraffic()
	d.engine = dataplane.New(dataplane.Options{
		Binder: o.Binder, Resolver: o.Resolver, Filter: d.Refusal, Health: d.report,
		Clock: core.Clock(), Logger: d.log, ProxyProtocolVersion: o.ProxyProtocolVersion,
	})
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel, d.ended = cancel, ctx.Done()
	sub, states := core.Subscribe()
	d.seq = sub.Since
	d.begin(states)
	d.done.Go(func() {
		defer cancel()
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
	ticker := core.Clock().NewTicker(BindInterval)
	d.done.Go(func() { d.retry(ctx, ticker) })
	return d
}

// begin applies all load balancers of some states.
func (d *Balancers) begin(states map[int64]*cloud.State) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.states = states
	for project, st := range states {
		for lb := range st.LoadBalancers.All() {
			d.apply(&rerouted{project: project, id: lb.ID, wholly: true})
		}
	}
}

// Close removes all load balancers from this machine and waits until this is done.
func (d *Balancers) Close() {
	d.once.Do(d.close)
}

func (d *Balancers) close() {
	d.cancel()
	d.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := d.engine.Close(ctx); err != nil {
		d.log.Error("cannot stop the data plane in time; its connections may stay open until this process ends", "error", err)
	}
}

// Endpoints returns where a load balancer listens on this machine.
func (d *Balancers) Endpoints(loadBalancer int64) []dataplane.Endpoint {
	return d.engine.Endpoints(loadBalancer)
}

// DialContext dials like net.Dialer, but the address of a load balancer leads to its listener on this machine. Use it as
// http.Transport.DialContext.
func (d *Balancers) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return d.engine.DialContext(ctx, network, address)
}

// follow applies the load balancers that some events change, in the state of the last event.
func (d *Balancers) follow(events []cloud.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range events {
		d.states[events[i].Project] = events[i].State
	}
	held := d.held(events)
	for _, c := range reroutedBy(events) {
		d.apply(c)
	}
	d.disconnect(held)
	d.forgetTraffic(events)
	d.limit = forgetDropped(d.core, d.states, d.limit)
	d.seq = events[len(events)-1].Seq
	close(d.followed)
	d.followed = make(chan struct{})
}

// Step moves the cloud's clock forward. Each call of step moves it by its argument and does the work that becomes due. Before Step
// returns, the load balancers follow all changes, and the health checks that become due end: see [dataplane.Engine.Step].
func (d *Balancers) Step(by time.Duration, step func(time.Duration) error) error {
	d.stepping.Lock()
	defer d.stepping.Unlock()
	d.awaitEvents()
	return d.engine.Step(by, func(by time.Duration) error {
		err := step(by)
		d.awaitEvents()
		return err
	})
}

// awaitEvents waits until the load balancers have followed all events so far.
func (d *Balancers) awaitEvents() {
	seq, _ := d.core.EventCounts()
	for {
		d.mu.Lock()
		reached, followed := d.seq >= seq, d.followed
		d.mu.Unlock()
		if reached {
			return
		}
		select {
		case <-followed:
		case <-d.ended:
			return
		}
	}
}

// forgetDropped removes the states of projects that were dropped, if there are more states than limit. It returns the next limit: to
// look for them at each event would take too long.
func forgetDropped(core *cloud.Cloud, states map[int64]*cloud.State, limit int) int {
	if len(states) <= limit {
		return limit
	}
	maps.DeleteFunc(states, func(id int64, st *cloud.State) bool {
		_, exists := core.Project(id)
		return !exists && st.LoadBalancers.Len() == 0 // else the events of the drop are yet to come
	})
	return 2*len(states) + 16
}

// apply changes a load balancer on this machine to its form in the cloud.
func (d *Balancers) apply(c *rerouted) {
	st := d.states[c.project]
	lb, exists := st.LoadBalancers.Get(c.id)
	if !exists {
		d.engine.Remove(c.id)
		delete(d.balancers, c.id)
		return
	}
	b := d.balancers[c.id]
	if b != nil && b.failed == nil && !c.wholly {
		d.retarget(b, lb, c.servers)
		return
	}
	if b == nil {
		b = &balancer{project: c.project}
		d.balancers[c.id] = b
	}
	d.applyAll(b, st, lb)
}

// applyAll changes all of a load balancer on this machine to its form in the cloud.
func (d *Balancers) applyAll(b *balancer, st *cloud.State, lb *cloud.LoadBalancer) {
	model := loadBalancerModel(st, lb)
	for _, address := range b.replaceAll(lb) {
		model.Targets = append(model.Targets, d.target(b, address))
	}
	err := d.engine.Apply(model)
	if err == nil && d.keeper != nil {
		err = d.keeper.Keep(lb.ID, model.Addresses)
	}
	if err != nil {
		if b.failed == nil || b.failed.Error() != err.Error() {
			d.log.Error("cannot apply a load balancer, will retry; free its address and port",
				"load_balancer", lb.Name, "id", lb.ID, "every", BindInterval, "error", err)
		}
		b.failed = err
		return
	}
	b.failed = nil
	d.logEndpoints(b, lb)
	d.align(b, lb)
}

// retarget changes the targets of a load balancer that have the addresses of some servers.
func (d *Balancers) retarget(b *balancer, lb *cloud.LoadBalancer, servers []int64) {
	var add []dataplane.Target
	var keys, remove []string
	for _, address := range b.replace(lb, servers) {
		key := address.String()
		keys = append(keys, key)
		if len(b.holders[address]) == 0 {
			remove = append(remove, key)
		} else {
			add = append(add, d.target(b, address))
		}
	}
	if err := d.engine.Retarget(lb.ID, add, remove); err != nil {
		d.log.Error("cannot change the targets of a load balancer", "load_balancer", lb.Name, "id", lb.ID, "error", err)
	}
	if len(keys) > 0 {
		d.align(b, lb, keys...)
	}
}
