package control

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// metrics are a cloud's numbers in the format of Prometheus.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec

	mu       sync.Mutex
	projects map[int64]string // their labels
}

// maxMetricProjects bounds the series: the requests of further projects have the label other.
const maxMetricProjects = 100

// Observe makes the cloud count requests and keep the bodies of the latest ones, from the first look at the page or at /metrics on. A
// cloud without such a look does not pay for that: it costs a third of a GET.
func (c *Controller) Observe() {
	c.observe.Do(func() {
		m := &metrics{
			registry: prometheus.NewRegistry(), projects: map[int64]string{},
			requests: prometheus.NewCounterVec(prometheus.CounterOpts{
				Name: "fakecloud_api_requests_total",
				Help: "Requests to the API. The status 0 is that of a dropped connection.",
			}, []string{"operation", "status", "code", "project"}),
			seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
				Name: "fakecloud_api_request_duration_seconds",
				Help: "How long requests to the API took on the machine's clock, delays of fault rules included.",
				Buckets: []float64{
					0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 30,
				},
			}, []string{"operation"}),
		}
		m.registry.MustRegister(m.requests, m.seconds, collectors.NewGoCollector(),
			collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), gauges{c})
		c.Journal.Observe(m.count)
		c.metrics = m
	})
}

// count counts a request.
func (m *metrics) count(e *journal.Entry, took time.Duration) {
	operation := e.Operation
	if operation == "" {
		operation = "none" // no such path
	}
	m.requests.WithLabelValues(operation, strconv.Itoa(e.Status), e.ErrorCode, m.project(e.Project)).Inc()
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
}

// project returns the label of a project.
func (m *metrics) project(id int64) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	label, ok := m.projects[id]
	switch {
	case ok:
	case id == 0:
		return "none" // the token is not valid
	case len(m.projects) >= maxMetricProjects:
		return "other"
	default:
		label = strconv.FormatInt(id, 10)
		m.projects[id] = label
	}
	return label
}

// showMetrics answers in the format of Prometheus.
func showMetrics(c *Controller, w http.ResponseWriter, r *http.Request) {
	c.Observe()
	promhttp.HandlerFor(c.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("fakecloud_"+name, help, labels, nil)
}

var (
	descResources = desc("resources", "Resources of all projects.", "kind")
	descRunning   = desc("actions_running", "Actions that run.")
	descDue       = desc("due", "What is due later, such as the ends of actions.")
	descProjects  = desc("projects", "Projects.")
	descRate      = desc("rate_limit_remaining", "Requests that are left to a project; missing without a limit.", "project")
	descEvents    = desc("events_total", "Changes of resources, counted while a client reads them.")
	descReaders   = desc("event_subscribers", "Readers of changes, in this program and over /events.")
	descJournal   = desc("journal_bytes", "Memory of the journal's entries.")
	descFaults    = desc("fault_rules", "Fault rules that are in force.")
	descTaken     = desc("faults_taken_total", "Requests that the fault rules in force have taken.")
	descScenarios = desc("scenarios_running", "Scenarios that run.")
	descTime      = desc("clock_time_seconds", "The cloud's time, in Unix seconds.")
	descSpeed     = desc("clock_speed", "The speed of the cloud's clock; 1 is that of the machine.")
	descTargets   = desc("load_balancer_targets", "Targets of a load balancer, servers of selectors included, by the health on a port.",
		"load_balancer", "name", "listen_port", "status")
	descOpen        = desc("load_balancer_open_connections", "Open connections of a load balancer.", "load_balancer")
	descConnections = desc("load_balancer_connections_total", "Connections that a load balancer has accepted.", "load_balancer")
	descForwarded   = desc("load_balancer_requests_total", "HTTP requests that a load balancer has forwarded.", "load_balancer")
	descTargetOpen  = desc("load_balancer_target_open",
		"Connections (tcp) and requests (http, https) that a target serves now, over all services.", targetLabels...)
	descTargetTaken = desc("load_balancer_target_taken_total",
		"Connections (tcp) and requests (http, https) that have reached a target, over all services.", targetLabels...)
	descBytes = desc("load_balancer_bytes_total", "Bytes from (in) and to (out) clients.", "load_balancer", "direction")
)

// targetLabels name a target. The label server is empty for a target of type ip.
var targetLabels = []string{"load_balancer", "server", "address"}

// gauges reads the cloud when the metrics are read.
type gauges struct{ *Controller }

// Describe implements prometheus.Collector. It sends nothing: Collect decides.
func (g gauges) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (g gauges) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	projects, shown := g.Cloud.Projects(), g.API.ShownResources()
	counts, running := map[store.Kind]int{}, 0
	for _, p := range projects {
		st := p.View()
		for _, s := range shown {
			counts[s.Kind()] += s.Len(st)
		}
		running += st.Actions.Unfinished()
		for lb := range st.LoadBalancers.All() {
			g.health(lb, gauge)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		gauge(descResources, float64(counts[kind]), string(kind))
	}
	events, subscribers := g.Cloud.EventCounts()
	gauge(descRunning, float64(running))
	gauge(descDue, float64(g.Cloud.DueCount()))
	gauge(descProjects, float64(len(projects)))
	counter(descEvents, float64(events))
	gauge(descReaders, float64(subscribers))
	gauge(descJournal, float64(g.Journal.Bytes()))
	gauge(descScenarios, float64(len(g.Cloud.Scenarios())))
	gauge(descTime, float64(g.Cloud.Now().UnixMilli())/1000)
	gauge(descSpeed, g.Speed())
	for project, left := range g.API.RatesLeft(g.Cloud.Now(), maxMetricProjects) {
		gauge(descRate, float64(left), strconv.FormatInt(project, 10))
	}
	g.faults(gauge, counter)
	g.traffic(gauge, counter)
}

type sender func(d *prometheus.Desc, v float64, labels ...string)

// health counts the targets of a load balancer by port and status.
func (g gauges) health(lb *cloud.LoadBalancer, gauge sender) {
	type key struct {
		port   int
		status string
	}
	n := map[key]int{}
	for t := range lb.Backends() {
		for _, h := range t.Health {
			n[key{h.ListenPort, h.Status}]++
		}
	}
	for k, count := range n {
		gauge(descTargets, float64(count), strconv.FormatInt(lb.ID, 10), lb.Name, strconv.Itoa(k.port), k.status)
	}
}

func (g gauges) faults(gauge, counter sender) {
	rules, _ := g.API.Faults().List(context.Background()) // its error is always nil
	taken := uint64(0)
	for i := range rules {
		taken += rules[i].Applied
	}
	gauge(descFaults, float64(len(rules)))
	counter(descTaken, float64(taken))
}

func (g gauges) traffic(gauge, counter sender) {
	if g.Traffic == nil {
		return
	}
	for _, t := range g.Traffic() {
		lb := strconv.FormatInt(t.ID, 10)
		gauge(descOpen, float64(t.Open), lb)
		counter(descConnections, float64(t.Connections), lb)
		counter(descForwarded, float64(t.Requests), lb)
		counter(descBytes, float64(t.BytesIn), lb, "in")
		counter(descBytes, float64(t.BytesOut), lb, "out")
		for _, target := range t.Targets {
			server := ""
			if target.Server != 0 {
				server = strconv.FormatInt(target.Server, 10)
			}
			gauge(descTargetOpen, float64(target.Open), lb, server, target.Address)
			counter(descTargetTaken, float64(target.Taken), lb, server, target.Address)
		}
	}
}
