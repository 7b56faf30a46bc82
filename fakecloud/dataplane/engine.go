package dataplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Errors of the engine's methods.
var (
	// ErrClosed means that the engine is closed.
	ErrClosed = errors.New("dataplane: the engine is closed")
	// ErrUnknownLoadBalancer means that no load balancer with that ID was applied.
	ErrUnknownLoadBalancer = errors.New("dataplane: unknown load balancer")
)

// Resolver returns the address of a target's port on this machine, as "host:port". It is called for each
// connection and each probe, so that it can follow a server that moves. It must not block for long. An
// error counts as a refused connection.
type Resolver func(t Target, port uint16) (string, error)

// Filter returns "" if a load balancer can connect to a port of a target. If it returns DetailNoConnection, such as for a
// server that is off, the connection is refused. With another detail the packets are dropped, such as by a firewall, so that it
// times out. It is called at the start of each connection and each probe. Established connections continue: see
// [Engine.Disconnect]. It must not block for long.
type Filter func(loadBalancer int64, t Target, port uint16) HealthDetail

// Defaults of Options.
const (
	defaultConnectTimeout = 5 * time.Second
	defaultTCPIdleTimeout = time.Hour
)

// Options configure an Engine. The zero value works.
type Options struct {
	// Binder opens the listeners. If nil, the engine makes a LoopbackBinder.
	Binder Binder
	// Resolver locates targets. If nil, the target's address is used unchanged.
	Resolver Resolver
	// Filter decides whether a target's port can be reached. If nil, all can.
	Filter Filter
	// Health receives a report when a target is new (Unknown) and when its status, detail or code changes. The reports of one
	// target and service are in order. The probing goroutine calls it without a lock of the engine, so that it may call the
	// engine. A report may arrive shortly after its target or service was removed. If nil, reports are discarded.
	Health func(HealthReport)
	// Clock drives probes, timeouts, cookies and rates. If nil, it is the real clock.
	Clock clock.WithTicker
	// Logger receives debug messages about single connections. If nil, they are discarded.
	Logger *slog.Logger

	// ProxyProtocolVersion is 1 or 2. If zero, it is 1.
	ProxyProtocolVersion int
	// ConnectTimeout limits a connection attempt to a target. If zero, it is 5 seconds. The
	// value of the real load balancer is not published.
	ConnectTimeout time.Duration
	// TCPIdleTimeout closes a TCP connection without data for that time. If zero, it is
	// an hour. The API has such a setting only for HTTP, and the real value for TCP is not
	// published.
	TCPIdleTimeout time.Duration
}

// Engine runs load balancers. Its methods may be called from several goroutines.
type Engine struct {
	opts   Options
	clock  clock.WithTicker
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	tasks  tasks

	mu     sync.Mutex // serialises changes and guards the fields below
	closed bool
	lbs    map[int64]*balancer
}

// New starts an engine without load balancers. The caller must call Close.
func New(opts Options) *Engine {
	opts.Binder = cmp.Or[Binder](opts.Binder, &LoopbackBinder{})
	if opts.Resolver == nil {
		opts.Resolver = func(t Target, port uint16) (string, error) {
			if !t.Address.IsValid() {
				return "", fmt.Errorf("target %s has no address", t.Key)
			}
			return netip.AddrPortFrom(t.Address, port).String(), nil
		}
	}
	if opts.Health == nil {
		opts.Health = func(HealthReport) {}
	}
	opts.Clock = cmp.Or[clock.WithTicker](opts.Clock, clock.RealClock{})
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	opts.ProxyProtocolVersion = cmp.Or(opts.ProxyProtocolVersion, defaultProxyProtocolVersion)
	opts.ConnectTimeout = cmp.Or(opts.ConnectTimeout, defaultConnectTimeout)
	opts.TCPIdleTimeout = cmp.Or(opts.TCPIdleTimeout, defaultTCPIdleTimeout)

	e := &Engine{opts: opts, clock: opts.Clock, log: opts.Logger, lbs: map[int64]*balancer{}}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	ticker := e.clock.NewTicker(housekeepingInterval)
	e.tasks.run(func() { e.keepHouse(ticker) })
	return e
}

// housekeepingInterval is the interval between two checks for idle connections and two samples of the counters. An idle connection is
// closed at most that much after its timeout.
const housekeepingInterval = time.Second

// keepHouse closes idle connections and samples the counters until the engine is closed. One sweep over
// all connections replaces a timer per connection.
func (e *Engine) keepHouse(ticker clock.Ticker) {
	defer ticker.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-ticker.C():
		}
		now := e.clock.Now()
		for _, lb := range e.snapshot() {
			lb.sweep(now)
			lb.stats.sample(now)
		}
	}
}

func (e *Engine) snapshot() []*balancer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Values(e.lbs))
}

// Apply creates or changes the load balancer want.ID so that it has the state want. Connections of
// unchanged services continue. If want is invalid or an address cannot be bound, nothing changes and the
// error lists all mistakes. Apply does not wait for probes and may be called from Options.Health.
func (e *Engine) Apply(want LoadBalancer) error {
	confs, err := want.validate()
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	lb, ok := e.lbs[want.ID]
	if !ok {
		lb = newBalancer(e, want.ID)
	}
	if err := lb.apply(want, confs); err != nil {
		if !ok {
			e.opts.Binder.Release(want.ID)
		}
		return err
	}
	e.lbs[want.ID] = lb
	return nil
}

// Retarget changes some targets of a load balancer that was applied. It removes those with some keys, and adds others, at the
// end of the turns. An added one replaces the one with its key. Its cost does not depend on how many targets there are. The error
// wraps ErrUnknownLoadBalancer or tells of a target without a key: then nothing changes.
func (e *Engine) Retarget(id int64, add []Target, remove []string) error {
	if slices.ContainsFunc(add, func(t Target) bool { return t.Key == "" }) {
		return fmt.Errorf("load balancer %d: the key of a target must not be empty", id)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	lb, ok := e.lbs[id]
	if !ok {
		return fmt.Errorf("%w: %d", ErrUnknownLoadBalancer, id)
	}
	for _, key := range remove {
		delete(lb.targets, key)
	}
	for _, t := range add {
		lb.count(t)
	}
	for _, s := range lb.services {
		if conf := s.conf.Load(); conf.Protocol != redirect {
			s.retarget(conf, add, remove)
		}
	}
	return nil
}

// Disconnect closes a load balancer's connections to the targets with some keys, even removed ones. Call it when a target
// is off: a connection that begins meanwhile is closed, too, if the filter refuses it by then.
func (e *Engine) Disconnect(id int64, keys ...string) {
	if lb, err := e.balancer(id); err == nil {
		lb.disconnect(keys)
	}
}

// Rebind tries again to listen on the ports that a load balancer has in the cloud, where its listeners got
// others. It reports whether a listener changed.
func (e *Engine) Rebind(id int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	lb, ok := e.lbs[id]
	return ok && lb.rebind()
}

// Remove deletes a load balancer. It closes its listeners and all its connections before it returns. If
// the load balancer does not exist, Remove does nothing.
func (e *Engine) Remove(id int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if lb, ok := e.lbs[id]; ok {
		delete(e.lbs, id)
		lb.close()
		e.opts.Binder.Release(id)
	}
}

// Close removes all load balancers. It waits until all goroutines of the engine end or ctx is done. The engine cannot be used afterwards.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	e.closed = true
	for id, lb := range e.lbs {
		delete(e.lbs, id)
		lb.close()
		e.opts.Binder.Release(id)
	}
	e.mu.Unlock()
	e.cancel()
	select {
	case <-e.tasks.drained():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("dataplane: close: %d connections or probes are still running: %w", e.tasks.running(), context.Cause(ctx))
	}
}

func (e *Engine) balancer(id int64) (*balancer, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if lb, ok := e.lbs[id]; ok {
		return lb, nil
	}
	return nil, fmt.Errorf("%w: %d", ErrUnknownLoadBalancer, id)
}

// Endpoints returns where clients on this machine reach the load balancer, sorted by its address and
// port. It returns nil if the load balancer does not exist.
func (e *Engine) Endpoints(id int64) []Endpoint {
	e.mu.Lock()
	defer e.mu.Unlock()
	if lb, ok := e.lbs[id]; ok {
		return lb.endpoints()
	}
	return nil
}

// locate returns where clients on this machine reach address:port of a load balancer. If load balancers
// in several networks have the same private address, it finds any of them.
func (e *Engine) locate(address netip.Addr, port uint16) (netip.AddrPort, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, lb := range e.lbs {
		if f, ok := lb.fronts[netip.AddrPortFrom(address.Unmap(), port)]; ok {
			return f.local(), true
		}
	}
	return netip.AddrPort{}, false
}

// DialContext dials like net.Dialer, but connects an address of a load balancer to its listener on this
// machine. It fits http.Transport, so that a client can use the addresses of the cloud.
func (e *Engine) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if ap, err := netip.ParseAddrPort(address); err == nil {
		if local, ok := e.locate(ap.Addr(), ap.Port()); ok {
			network, address = "tcp", local.String()
		}
	}
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}

// Stats returns the load balancer's figures. The error wraps ErrUnknownLoadBalancer.
func (e *Engine) Stats(id int64) (Stats, error) {
	lb, err := e.balancer(id)
	if err != nil {
		return Stats{}, err
	}
	return lb.stats.read(e.clock.Now()), nil
}

// TargetStats returns the traffic of each target of a load balancer, in no particular order. The error wraps ErrUnknownLoadBalancer.
func (e *Engine) TargetStats(id int64) ([]TargetStats, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	lb, ok := e.lbs[id]
	if !ok {
		return nil, fmt.Errorf("%w: %d", ErrUnknownLoadBalancer, id)
	}
	return lb.targetStats(), nil
}

// Health returns the health of the targets of a load balancer that have some keys, or of all if no key is given, in no
// particular order. The error wraps ErrUnknownLoadBalancer.
func (e *Engine) Health(id int64, keys ...string) ([]HealthReport, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	lb, ok := e.lbs[id]
	if !ok {
		return nil, fmt.Errorf("%w: %d", ErrUnknownLoadBalancer, id)
	}
	return lb.health(keys), nil
}

// withTimeout is context.WithTimeout on clock c.
func withTimeout(ctx context.Context, c clock.Clock, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := c.NewTimer(d)
	go func() {
		select {
		case <-timer.C():
			cancel(context.DeadlineExceeded)
		case <-ctx.Done():
			timer.Stop()
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// tasks counts goroutines. Unlike with a sync.WaitGroup, new goroutines may start during the wait: a
// connection may start the goroutine of its second direction.
type tasks struct {
	mu   sync.Mutex
	n    int
	idle []chan struct{}
}

func (t *tasks) run(f func()) {
	t.start()
	go func() {
		defer t.done()
		f()
	}()
}

func (t *tasks) start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
}

func (t *tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n--
	if t.n == 0 {
		for _, c := range t.idle {
			close(c)
		}
		t.idle = nil
	}
}

func (t *tasks) running() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// drained returns a channel that is closed when no task runs.
func (t *tasks) drained() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := make(chan struct{})
	if t.n == 0 {
		close(c)
	} else {
		t.idle = append(t.idle, c)
	}
	return c
}

// closeQuietly closes c and ignores the error, such as that of a second Close.
func closeQuietly(c io.Closer) { _ = c.Close() }
