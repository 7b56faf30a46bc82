package fakecloud_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// ask sends a request to the control API.
func ask(t *testing.T, method, url string, header http.Header) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestTheControlAPIHasAPageForBrowsers(t *testing.T) {
	t.Parallel()
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	endpoint, err := cloud.Start(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	control, err := cloud.StartControl(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	html := http.Header{"Accept": {"text/html,*/*"}}
	for _, tc := range []struct {
		method, path      string
		header            http.Header
		status            int
		contentType, text string
	}{
		{"GET", "/", html, 200, "text/html", `content="` + endpoint + `"`},
		{"GET", "/", nil, 200, "application/json", `"endpoints"`},
		{"GET", "/ui/app.js", html, 200, "text/javascript", "import"},
		{"GET", "/ui/style.css", html, 200, "text/css", "body"},
		{"GET", "/ui/", html, 404, "text/plain", ""},
		{"GET", "/ui/index.html", html, 404, "text/plain", ""},
		{"GET", "/ui/../page.go", html, 404, "", ""},
		{"POST", "/ui/app.js", http.Header{"Content-Type": {"application/json"}}, 405, "application/json", "not allowed"},
		{"GET", "/debug/pprof/nothing", nil, 404, "application/json", "does not exist"},
		{"GET", "/debug/pprof/profile?seconds=9999", nil, 400, "application/json", "must be 1 to 300"},
		{"GET", "/journal/7", nil, 404, "application/json", "is not in the journal"},
		{"GET", "/journal/x", nil, 400, "application/json", "must be an id"},
		{"GET", "/timeline?limit=-1", nil, 400, "application/json", "must be a number of at least 0"},
		// A page of another origin may not change anything.
		{"POST", "/reset", http.Header{"Content-Type": {"application/json"}, "Origin": {"https://other.example"}},
			403, "", "another origin"},
	} {
		resp, body := ask(t, tc.method, control+tc.path, tc.header)
		contentType := resp.Header.Get("Content-Type")
		if resp.StatusCode != tc.status || !strings.HasPrefix(contentType, tc.contentType) || !strings.Contains(body, tc.text) {
			t.Errorf("%s %s: %d %s %.200s; want %d %s %s", tc.method, tc.path, resp.StatusCode, contentType, body, tc.status,
				tc.contentType, tc.text)
		}
		if tc.contentType == "text/html" && !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: no policy that keeps the page from loading things of other hosts", tc.path)
		}
	}
	if resp, body := ask(t, "GET", control+"/debug/pprof/heap", nil); resp.StatusCode != 200 || !strings.HasPrefix(body, "\x1f\x8b") {
		t.Errorf("heap profile: %d, %d bytes, want a compressed profile", resp.StatusCode, len(body))
	}
}

func TestMetricsCountWhatClientsDo(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cloud := fakecloud.New(fakecloud.Options{RateLimit: 100})
	defer cloud.Close()
	control, err := cloud.StartControl(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	ask(t, "GET", control+"/metrics", nil) // the first look
	client := cloud.Client(hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}))
	if _, _, err := client.Server.Create(ctx, hcloud.ServerCreateOpts{
		Name: "a", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
	}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, _, err := client.Server.Create(ctx, hcloud.ServerCreateOpts{
			Name: "a", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
		}); !hcloud.IsError(err, hcloud.ErrorCodeUniquenessError) {
			t.Fatal(err)
		}
	}
	_, text := ask(t, "GET", control+"/metrics", nil)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewBufferString(text))
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for name, family := range families {
		for _, m := range family.Metric {
			key := name
			for _, l := range m.Label {
				key += " " + l.GetValue()
			}
			values[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for key, want := range map[string]float64{
		"fakecloud_api_requests_total  create_server 1 201":                 1,
		"fakecloud_api_requests_total uniqueness_error create_server 1 409": 2,
		"fakecloud_api_request_duration_seconds create_server":              3,
		"fakecloud_resources server":                                        1,
		"fakecloud_resources primary_ip":                                    2,
		"fakecloud_rate_limit_remaining 1":                                  97,
		"fakecloud_projects":                                                1,
		"fakecloud_actions_running":                                         0,
	} {
		if got, ok := values[key]; !ok || got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	for _, name := range []string{"go_goroutines", "fakecloud_clock_time_seconds", "fakecloud_journal_bytes"} {
		if values[name] == 0 {
			t.Errorf("%s is missing or 0", name)
		}
	}
	dashboard, err := os.ReadFile("grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`(fakecloud|go|process)_[a-z_]+`).FindAllString(string(dashboard), -1) {
		family := strings.TrimSuffix(name, "_bucket")
		if families[family] == nil && !strings.Contains(family, "load_balancer") { // the cloud has none
			t.Errorf("the dashboard shows %s, which does not exist", name)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestMetricsOfManyProjectsAreBounded shows that a project for each job does not make a series for each.
func TestMetricsOfManyProjectsAreBounded(t *testing.T) {
	t.Parallel()
	cloud := fakecloud.New(fakecloud.Options{AutoProjects: true, RateLimit: 3600})
	defer cloud.Close()
	control, err := cloud.StartControl(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	ask(t, "GET", control+"/metrics", nil) // the first look
	for i := range 250 {
		client := cloud.Client(hcloud.WithToken(strings.Repeat("t", i+1)))
		if _, err := client.Server.All(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_, text := ask(t, "GET", control+"/metrics", nil)
	if n := strings.Count(text, "fakecloud_api_requests_total{"); n != 101 {
		t.Errorf("%d series of requests, want 100 projects and others", n)
	}
	if n := strings.Count(text, "fakecloud_rate_limit_remaining{"); n > 100 {
		t.Errorf("%d series of rate limits, want at most 100", n)
	}
}
