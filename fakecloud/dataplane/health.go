package dataplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
)

// HealthStatus is the health of a target for one service.
type HealthStatus string

// The statuses of the API document.
const (
	Unknown   HealthStatus = "unknown"
	Healthy   HealthStatus = "healthy"
	Unhealthy HealthStatus = "unhealthy"
)

// HealthDetail says why a target is unhealthy.
type HealthDetail string

// The details of the API document of October 2026.
const (
	// DetailUnspecified is for what the others do not cover: a failed TLS handshake, a connection
	// that ends early, an answer that is not HTTP.
	DetailUnspecified HealthDetail = "unspecified"
	// DetailNoConnection is a refused or impossible connection.
	DetailNoConnection HealthDetail = "layer4_no_connection"
	// DetailConnectTimeout is a connection that was not made in time.
	DetailConnectTimeout HealthDetail = "layer4_timeout"
	// DetailResponseTimeout is a TLS handshake or an answer that did not end in time.
	DetailResponseTimeout HealthDetail = "layer7_timeout"
	// DetailHTTPStatus is an answer with a status that is not asked for; the report has the code.
	DetailHTTPStatus HealthDetail = "unexpected_http_status"
	// DetailHTTPContent is an answer without the text that is asked for.
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

// HealthSink gets a report when a target is new (Unknown) and whenever its status, detail or code
// changes, in order per target and service. It is called from the goroutine that probes, without a
// lock of the engine, and may call the engine. A report about something that was just removed may
// still come.
type HealthSink interface {
	TargetHealth(HealthReport)
}

// HealthSinkFunc is a function as HealthSink.
type HealthSinkFunc func(HealthReport)

// TargetHealth calls f.
func (f HealthSinkFunc) TargetHealth(r HealthReport) { f(r) }

// backend is a target as seen by one service.
type backend struct {
	service *service
	target  Target
	// cookie is the name of the target in sticky sessions: 32 hexadecimal digits, as in the cookies
	// of the real load balancer, and the same after a restart.
	cookie string
	active atomic.Int64 // connections or requests in progress

	mu     sync.Mutex
	state  healthState
	stop   context.CancelFunc // ends the current monitor
	serial int                // of the current monitor; others' results are stale
}

func newBackend(s *service, t Target) *backend {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%s", s.lb.id, t.Key))
	return &backend{service: s, target: t, cookie: hex.EncodeToString(sum[:16]), state: healthState{status: Unknown}}
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
// An unknown target turns healthy with the first probe that succeeds. Any target turns unhealthy
// after `retries` failures in a row, and an unhealthy one healthy after as many successes in a row
// (API document, health_check.retries). That one success is enough for an unknown target is an
// inference: the document counts retries for unhealthy targets only.
type healthState struct {
	status    HealthStatus
	detail    HealthDetail
	code      int
	failures  int // in a row
	successes int // in a row
}

// next is the state after one more probe.
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

// checkChanged reports whether targets must be probed in another way than before.
func checkChanged(old, conf *serviceConf) bool {
	return !reflect.DeepEqual(old.HealthCheck, conf.HealthCheck) ||
		old.ProxyProtocol != conf.ProxyProtocol || old.DestinationPort != conf.DestinationPort
}

// watch starts to probe the backend as conf says, at once and then once per interval, in place of
// what went on before. The status stays; the counts of probes start anew.
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
	serial, first := b.serial, b.reportLocked()
	e.tasks.run(func() {
		defer cancel()
		if fresh {
			e.opts.Health.TargetHealth(first)
		}
		b.monitor(ctx, serial, conf)
	})
}

// unwatch ends probing. It does not wait: the goroutine that probes may be in a HealthSink that
// waits for whoever calls this.
func (b *backend) unwatch() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.serial++
	if b.stop != nil {
		b.stop()
	}
}

// monitor probes until ctx is done. A probe that takes longer than the interval delays the next one;
// there is never more than one at a time per target and service.
func (b *backend) monitor(ctx context.Context, serial int, conf *serviceConf) {
	e := b.service.lb.engine
	ticker := e.clock.NewTicker(conf.HealthCheck.Interval)
	defer ticker.Stop()
	for {
		result := e.probe(ctx, b.target, conf)
		if ctx.Err() != nil {
			return
		}
		if report, changed := b.observe(serial, result, conf.HealthCheck.Retries); changed {
			e.log.Debug("health", "load_balancer", report.LoadBalancer, "target", report.Target,
				"listen_port", report.ListenPort, "status", report.Status, "detail", report.Detail, "error", result.err)
			e.opts.Health.TargetHealth(report)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// observe takes the result of a probe into account, unless the monitor was replaced meanwhile.
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
