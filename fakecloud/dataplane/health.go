package dataplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// HealthStatus is the health of a target for one service.
type HealthStatus string

// The statuses of the API document.
const (
	Unknown   HealthStatus = "unknown"
	Healthy   HealthStatus = "healthy"
	Unhealthy HealthStatus = "unhealthy"
)

// HealthDetail is the reason why a target is unhealthy.
type HealthDetail string

// The details of the API document of October 2026.
const (
	// DetailUnspecified covers all other reasons: a failed TLS handshake, a connection that ends early,
	// an answer that is not HTTP.
	DetailUnspecified HealthDetail = "unspecified"
	// DetailNoConnection means that the connection was refused or impossible.
	DetailNoConnection HealthDetail = "layer4_no_connection"
	// DetailConnectTimeout means that the connection attempt timed out.
	DetailConnectTimeout HealthDetail = "layer4_timeout"
	// DetailResponseTimeout means that the TLS handshake or the answer timed out.
	DetailResponseTimeout HealthDetail = "layer7_timeout"
	// DetailHTTPStatus means that the answer has a status that is not accepted. The report contains it.
	DetailHTTPStatus HealthDetail = "unexpected_http_status"
	// DetailHTTPContent means that the answer lacks the expected text.
	DetailHTTPContent HealthDetail = "unexpected_http_content"
)

// HealthReport is the health of one target for one service.
type HealthReport struct {
	LoadBalancer int64
	// Target is the target's key.
	Target     string
	ListenPort uint16
	Status     HealthStatus
	// Detail is empty unless Status is Unhealthy.
	Detail HealthDetail
	// HTTPStatusCode is zero unless Detail is DetailHTTPStatus.
	HTTPStatusCode int
}

// backend is a target of one service.
type backend struct {
	service *service
	target  Target
	// cookie is the target's name in sticky sessions: 32 hexadecimal digits, as in the cookies of the
	// real load balancer. It stays the same after a restart.
	cookie string
	active atomic.Int64 // connections or requests in progress
	stats  *targetStats // shared by the backends of the target

	mu     sync.Mutex
	state  healthState
	stop   context.CancelFunc // ends the current monitor
	serial int                // number of the current monitor; results of other monitors are stale
	pause  pause
}

func newBackend(s *service, t Target) *backend {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s", s.lb.id, t.Key))
	return &backend{
		service: s, target: t, cookie: hex.EncodeToString(sum[:16]), stats: s.lb.targets[t.Key], state: healthState{status: Unknown},
	}
}

// begin counts a connection or a request until end.
func (b *backend) begin() {
	b.active.Add(1)
	b.stats.open.Add(1)
}

func (b *backend) end() {
	b.active.Add(-1)
	b.stats.open.Add(-1)
}

func (b *backend) healthy() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.status == Healthy
}

func (b *backend) report() HealthReport {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reportLocked()
}

func (b *backend) reportLocked() HealthReport {
	return HealthReport{
		LoadBalancer:   b.service.lb.id,
		Target:         b.target.Key,
		ListenPort:     b.service.port,
		Status:         b.state.status,
		Detail:         b.state.detail,
		HTTPStatusCode: b.state.code,
	}
}

// healthState is the state machine of a target's health.
//
// Any target becomes unhealthy after `retries` consecutive failures. An unhealthy target becomes healthy
// after as many consecutive successes (API document, health_check.retries). An unknown target becomes
// healthy with its first success; this is an inference, because the document counts retries only for
// unhealthy targets.
type healthState struct {
	status    HealthStatus
	detail    HealthDetail
	code      int
	failures  int // in a row
	successes int // in a row
}

// next returns the state after one more probe.
func (s healthState) next(r probeResult, retries int) healthState {
	if r.ok() {
		s.failures = 0
		s.successes++
		if s.status == Unknown || s.status == Unhealthy && s.successes >= retries {
			s.status, s.detail, s.code = Healthy, "", 0
		}
		return s
	}
	s.successes = 0
	s.failures++
	if s.status == Unhealthy || s.failures >= retries {
		s.status, s.detail, s.code = Unhealthy, r.detail, r.code
	}
	return s
}

// checkChanged reports whether the settings of probes differ.
func checkChanged(old, conf *serviceConf) bool {
	return !reflect.DeepEqual(old.HealthCheck, conf.HealthCheck) ||
		old.ProxyProtocol != conf.ProxyProtocol || old.DestinationPort != conf.DestinationPort
}

// watch starts a monitor that probes the backend with the settings of conf, at once and then once per
// interval. It replaces the current monitor. The status stays; the counts of failures and successes
// start at zero.
func (b *backend) watch(conf *serviceConf) {
	e := b.service.lb.engine
	ctx, cancel := context.WithCancel(b.service.lb.ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	fresh := b.stop == nil
	if !fresh {
		b.stop()
	}
	b.stop = cancel
	b.serial++
	b.state.failures, b.state.successes = 0, 0
	serial, first, now := b.serial, b.reportLocked(), e.clock.Now()
	b.pause.begin(now.Add(conf.HealthCheck.Timeout))
	// Made here, it misses no step of the clock.
	ticker := e.clock.NewTicker(conf.HealthCheck.Interval)
	e.tasks.run(func() {
		defer cancel()
		defer ticker.Stop()
		if fresh {
			e.opts.Health(first)
		}
		b.monitor(ctx, serial, conf, ticker, now.Add(conf.HealthCheck.Interval))
	})
}

// unwatch ends probing. It does not wait for the probing goroutine: that may be in Options.Health and wait for the caller of unwatch.
func (b *backend) unwatch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.serial++
	b.pause.until(never)
	if b.stop != nil {
		b.stop()
	}
}

// monitor probes until ctx is done, for the second time at time next. Probes of one target and service never overlap: a probe
// that takes longer than the interval delays the next one.
func (b *backend) monitor(ctx context.Context, serial int, conf *serviceConf, ticker clock.Ticker, next time.Time) {
	e := b.service.lb.engine
	for {
		result := e.probe(ctx, b.service.lb.id, b.target, conf, func() { b.pauseAs(serial, (*pause).drop) })
		if ctx.Err() != nil {
			return
		}
		if report, changed := b.observe(serial, result, conf.HealthCheck.Retries); changed {
			e.log.Debug("health of target changed", "load_balancer", report.LoadBalancer, "target", report.Target,
				"listen_port", report.ListenPort, "status", report.Status, "detail", report.Detail, "error", result.err)
			e.opts.Health(report)
		}
		b.pauseAs(serial, func(p *pause) { p.until(next) })
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		now := e.clock.Now()
		b.pauseAs(serial, func(p *pause) { p.begin(now.Add(conf.HealthCheck.Timeout)) })
		next = nextTick(next, now, conf.HealthCheck.Interval)
	}
}

// nextTick returns the next time after now, in step with an earlier tick. If the clock was set back, the step begins again.
func nextTick(tick, now time.Time, interval time.Duration) time.Time {
	if tick.After(now) {
		return now.Add(interval)
	}
	return tick.Add((now.Sub(tick)/interval + 1) * interval)
}

// pauseAs changes the pause of a monitor, unless it was replaced.
func (b *backend) pauseAs(serial int, change func(*pause)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if serial == b.serial {
		change(&b.pause)
	}
}

// observe applies the result of a probe, unless its monitor was replaced. It returns the new report and
// whether it changed.
func (b *backend) observe(serial int, r probeResult, retries int) (HealthReport, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if serial != b.serial {
		return HealthReport{}, false
	}
	before := b.reportLocked()
	b.state = b.state.next(r, retries)
	after := b.reportLocked()
	return after, before != after
}
