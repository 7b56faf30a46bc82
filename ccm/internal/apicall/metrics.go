package apicall

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/exp/ctxutil"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// apiMetrics counts each attempt of each API call, as the rate limit does. hcloud-go's own
// instrumentation works above our retries and would count a call with three attempts once. The first
// three metrics have the same names as hcloud-go's.
type apiMetrics struct {
	requests  *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	inFlight  prometheus.Gauge
	retries   *prometheus.CounterVec
	failures  *prometheus.CounterVec
	remaining prometheus.Gauge
	purposes  *prometheus.CounterVec
	held      *prometheus.CounterVec
}

func newAPIMetrics(reg prometheus.Registerer) *apiMetrics {
	f := promauto.With(reg)
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return f.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	return &apiMetrics{
		requests: counter("hcloud_api_requests_total",
			"Answered requests to the Hetzner Cloud API, by HTTP status, method and endpoint.", "code", "method", "api_endpoint"),
		duration: f.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "hcloud_api_request_duration_seconds",
			Help:    "Duration of one request to the Hetzner Cloud API until its answer was read.",
			Buckets: prometheus.DefBuckets,
		}, []string{"method"}),
		inFlight: gauge("hcloud_api_in_flight_requests", "Requests to the Hetzner Cloud API that currently wait for an answer."),
		retries: counter("hcloud_api_retries_total",
			"Repeated requests to the Hetzner Cloud API, by reason, method and endpoint.", "reason", "method", "api_endpoint"),
		failures: counter("hcloud_api_request_failures_total",
			"Requests to the Hetzner Cloud API without an answer (connection, timeout, body cut off).", "method", "api_endpoint"),
		remaining: gauge("hcloud_api_rate_limit_remaining", "Remaining requests of the rate limit according to the last answer."),
		purposes: counter("ccm_api_requests_total",
			"Requests to the Hetzner Cloud API, answered or not, by the controller that needed them and the purpose.",
			"controller", "purpose"),
		held: counter("ccm_api_requests_held_back_total",
			"Requests of periodic work that were not sent because little of the rate limit remains, by controller and purpose.",
			"controller", "purpose"),
	}
}

// countPurpose counts a request by the controller that needs it and the purpose.
func countPurpose(ctx context.Context, requests *prometheus.CounterVec) {
	p := PurposeOf(ctx)
	requests.WithLabelValues(p.controller, p.name).Inc()
}

// endpointLabel returns the path of the operation without identifiers, so that the label has few
// values.
func endpointLabel(req *http.Request) string { return cmp.Or(ctxutil.OpPath(req.Context()), "unknown") }

func (m *apiMetrics) observe(req *http.Request, resp *http.Response, took time.Duration) {
	if resp == nil {
		m.failures.WithLabelValues(req.Method, endpointLabel(req)).Inc()
		return
	}
	m.requests.WithLabelValues(strconv.Itoa(resp.StatusCode), req.Method, endpointLabel(req)).Inc()
	m.duration.WithLabelValues(req.Method).Observe(took.Seconds())
	if n, err := strconv.Atoi(resp.Header.Get("RateLimit-Remaining")); err == nil {
		m.remaining.Set(float64(n))
	}
}
