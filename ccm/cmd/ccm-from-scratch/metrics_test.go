package main

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	"k8s.io/cloud-provider/controllers/route"
	"k8s.io/cloud-provider/controllers/service"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
)

// testCloud returns a provider with all features. It makes no request.
func testCloud() *ccm.Cloud {
	return ccm.New(ccm.Config{Token: "t", Endpoint: "http://127.0.0.1:1/v1", Network: "n", RoutesEnabled: true, LoadBalancersEnabled: true})
}

// registered returns the metrics of the program, each with its labels.
func registered(t *testing.T) map[string][]string {
	t.Helper()
	cloud := testCloud()
	kube := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(kube, 0)
	nodes := factory.Core().V1().Nodes()
	_, podRange, err := net.ParseCIDR("10.244.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	// A controller, a client and an election register their metrics when they are made.
	routes, _ := cloud.Routes()
	_, err1 := service.New(cloud, kube, factory.Core().V1().Services(), nodes, "c", utilfeature.DefaultFeatureGate)
	_, err2 := route.New(routes, kube, nodes, "c", []*net.IPNet{podRange})
	_, err3 := nodelifecycle.NewCloudNodeLifecycleController(nodes, kube, cloud, time.Second, 1)
	_, err4 := node.NewCloudNodeController(nodes, kube, cloud, time.Second, 1, 1)
	_, err5 := kubernetes.NewForConfig(&rest.Config{Host: "127.0.0.1:1"})
	_, err6 := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          &resourcelock.LeaseLock{LockConfig: resourcelock.ResourceLockConfig{Identity: "i"}},
		LeaseDuration: 3 * time.Minute, RenewDeadline: 2 * time.Minute, RetryPeriod: time.Minute,
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
	})
	for _, err := range []error{err1, err2, err3, err4, err5, err6} {
		if err != nil {
			t.Fatal(err)
		}
	}
	own, ok := cloud.Metrics().(prometheus.Collector)
	controllers, ok2 := legacyregistry.Registerer().(prometheus.Collector)
	if !ok || !ok2 {
		t.Fatal("a registry cannot list what is registered")
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		own.Describe(descs)
		controllers.Describe(descs)
		close(descs)
	}()
	all := map[string][]string{}
	text := regexp.MustCompile(`^Desc\{fqName: "([^"]+)".*constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	for d := range descs {
		m := text.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("a description that this test cannot read: %s", d)
		}
		all[m[1]] = strings.Split(m[3], ",")
		for _, constant := range labelName.FindAllStringSubmatch(m[2], -1) {
			all[m[1]] = append(all[m[1]], constant[1])
		}
	}
	return all
}

var (
	quoted     = regexp.MustCompile(`"[^"]*"`)
	vector     = regexp.MustCompile(`([a-zA-Z_:][a-zA-Z0-9_:]*)\{([^}]*)\}`)
	labelName  = regexp.MustCompile(`([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)`)
	grouping   = regexp.MustCompile(`\b(?:by|without)\s*\(([^)]*)\)`)
	interval   = regexp.MustCompile(`\[[^\]]*\]`)
	identifier = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
)

// The labels that Prometheus adds, and the one of the buckets of a histogram.
var addedLabels = []string{"job", "instance", "namespace", "pod", "container", "le"}

// check returns what a query uses that does not exist.
func check(query string, metrics map[string][]string) (unknown []string) {
	query = interval.ReplaceAllString(quoted.ReplaceAllString(query, `""`), "")
	var labels []string
	for _, v := range vector.FindAllStringSubmatch(query, -1) {
		name := v[1]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(name, suffix); metrics[name] == nil && metrics[base] != nil {
				name = base
			}
		}
		if metrics[name] == nil {
			unknown = append(unknown, "metric "+v[1])
		}
		labels = append(labels, metrics[name]...)
		for _, l := range labelName.FindAllStringSubmatch(v[2], -1) {
			if !slices.Contains(metrics[name], l[1]) && !slices.Contains(addedLabels, l[1]) {
				unknown = append(unknown, "label "+l[1]+" of "+v[1])
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(query, -1) {
		for _, l := range identifier.FindAllString(g[1], -1) {
			if !slices.Contains(labels, l) && !slices.Contains(addedLabels, l) {
				unknown = append(unknown, "label "+l)
			}
		}
	}
	// What remains are functions and operators; a metric must have braces, so that it was seen above.
	rest := grouping.ReplaceAllString(vector.ReplaceAllString(query, ""), "")
	for _, i := range identifier.FindAllStringIndex(rest, -1) {
		word := rest[i[0]:i[1]]
		if !strings.HasPrefix(strings.TrimSpace(rest[i[1]:]), "(") {
			unknown = append(unknown, "word "+word+" (write a metric with braces)")
		}
	}
	return unknown
}

func TestTheDashboardShowsOnlyMetricsThatExist(t *testing.T) {
	text, err := os.ReadFile("../../chart/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Templating struct {
			List []struct {
				Type  string
				Query json.RawMessage
			}
		}
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	metrics := registered(t)
	queries := 0
	for _, p := range dashboard.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q has no query", p.Title)
		}
		for _, target := range p.Targets {
			queries++
			for _, u := range check(target.Expr, metrics) {
				t.Errorf("panel %q: the program has no %s: %s", p.Title, u, target.Expr)
			}
		}
	}
	for _, v := range dashboard.Templating.List {
		if v.Type != "query" {
			continue
		}
		var query struct{ Query string }
		if err := json.Unmarshal(v.Query, &query); err != nil {
			t.Fatal(err)
		}
		metric := regexp.MustCompile(`^label_values\((\w+), job\)$`).FindStringSubmatch(query.Query)
		if metric == nil || metrics[metric[1]] == nil {
			t.Errorf("the variable's query %q names no metric of the program", query.Query)
		}
		queries++
	}
	if queries < 10 {
		t.Errorf("the test has found only %d queries", queries)
	}
}

func TestTheCheckOfTheDashboardFindsWhatDoesNotExist(t *testing.T) {
	t.Parallel()
	metrics := map[string][]string{"requests_total": {"code"}, "duration_seconds": {"method"}}
	for query, want := range map[string]string{
		`sum by (code) (rate(requests_total{job="a"}[$__rate_interval]))`:          "",
		`histogram_quantile(0.5, sum by (le, method) (duration_seconds_bucket{}))`: "",
		`rate(request_total{}[5m])`:          "metric request_total",
		`requests_total{status="200"}`:       "label status of requests_total",
		`sum by (status) (requests_total{})`: "label status",
		`sum(requests)`:                      "word requests (write a metric with braces)",
	} {
		if got := strings.Join(check(query, metrics), ", "); got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

// The metrics port serves both kinds: a PodMonitor reads one port.
func TestTheMetricsPortServesTheControllersMetricsToo(t *testing.T) {
	families, err := metricsOf(testCloud()).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	for _, want := range []string{"hcloud_api_in_flight_requests", "process_cpu_seconds_total", "go_goroutines"} {
		if !slices.Contains(names, want) {
			t.Errorf("no %s", want)
		}
	}
}
