package fakecloud_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// ask sends a request to the control API.
func ask(t *testing.T, method, url string, header http.Header) (*http.Response, string) {
	t.Helper()
	r := must(http.NewRequestWithContext(t.Context(), method, url, nil))(t)
	r.Header = header
	return send(t, r)
}

// send sends a request, and reads the body of its answer.
func send(t *testing.T, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp := must(http.DefaultClient.Do(r))(t)
	defer func() { _ = resp.Body.Close() }()
	body := must(io.ReadAll(resp.Body))(t)
	return resp, string(body)
}

func TestTheControlAPIHasAPageForBrowsers(t *testing.T) {
	t.Parallel()
	cloud := startControlled(t, fakecloud.Options{})
	endpoint := must(cloud.Start(t.Context(), ""))(t)
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
		resp, body := ask(t, tc.method, cloud.url+tc.path, tc.header)
		contentType := resp.Header.Get("Content-Type")
		if resp.StatusCode != tc.status || !strings.HasPrefix(contentType, tc.contentType) || !strings.Contains(body, tc.text) {
			t.Errorf("%s %s: %d %s %.200s; want %d %s %s", tc.method, tc.path, resp.StatusCode, contentType, body, tc.status,
				tc.contentType, tc.text)
		}
		if tc.contentType == "text/html" && !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: no policy that keeps the page from loading things of other hosts", tc.path)
		}
	}
	if resp, body := ask(t, "GET", cloud.url+"/debug/pprof/heap", nil); resp.StatusCode != 200 || !strings.HasPrefix(body, "\x1f\x8b") {
		t.Errorf("heap profile: %d, %d bytes, want a compressed profile", resp.StatusCode, len(body))
	}
}

// TestThePageNamesWhatClientsNeed has browsers that reach the cloud at several names, and clouds with a public or a secret token.
func TestThePageNamesWhatClientsNeed(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("s", 64)
	for _, tc := range []struct {
		name, host, endpoint string // a host of the request and the endpoint's, both without port
		tokens               []string
	}{
		{"an address of this machine", "127.0.0.1", "127.0.0.1", nil},
		{"a name of this machine", "localhost", "localhost", nil},
		{"a name that is allowed", "cloud.example", "cloud.example", nil},
		{"a secret token", "127.0.0.1", "127.0.0.1", []string{secret}},
		{"both tokens", "127.0.0.1", "127.0.0.1", []string{secret, fakecloud.DefaultToken}},
	} {
		cloud := startControlled(t, fakecloud.Options{AllowedHosts: []string{"cloud.example"}, Tokens: tc.tokens})
		must(cloud.Start(t.Context(), ""))(t)
		r := must(http.NewRequestWithContext(t.Context(), http.MethodGet, cloud.url+"/", nil))(t)
		r.Host = tc.host + ":4243"
		r.Header.Set("Accept", "text/html")
		_, text := send(t, r)
		public := tc.tokens == nil || slices.Contains(tc.tokens, fakecloud.DefaultToken)
		want := strings.Replace(cloud.Endpoint(), "127.0.0.1", tc.endpoint, 1)
		if !strings.Contains(text, `content="`+want+`"`) || strings.Contains(text, secret) ||
			strings.Contains(text, fakecloud.DefaultToken) != public {
			t.Errorf("%s: want the endpoint %s, the public token %t, and no secret one, in\n%s", tc.name, want, public, text)
		}
	}
}

// TestThePageUsesTheAPIOfAProject sends the page's requests without a token, and those that other pages could make a browser send.
func TestThePageUsesTheAPIOfAProject(t *testing.T) {
	t.Parallel()
	cloud := startControlled(t, fakecloud.Options{Tokens: []string{strings.Repeat("s", 64)}})
	other, _, err := cloud.AddProject(t.Context(), "other", "")
	check(t, err)
	asJSON := http.Header{"Content-Type": {"application/json"}}
	followed := http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"document"}}
	const create = `{"name": "web-1", "server_type": "cx23", "image": "debian-13"}`
	for _, tc := range []struct {
		what, method, path, body string
		header                   http.Header
		host                     string
		status                   int
		text                     string
	}{
		{"another origin", "POST", "/projects/1/v1/servers", create,
			http.Header{"Content-Type": {"application/json"}, "Origin": {"https://evil.example"}}, "", 403, "another origin"},
		{"a form that resets", "POST", "/reset", "{}",
			http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, "", 415, `"error":"send the header`},
		{"no type", "POST", "/reset", "{}", nil, "", 415, `"error":"send the header`},
		{"a rebound name resets", "POST", "/reset", "{}", asJSON, "evil.example", 403, `"error":"`},
		{"a program on this machine", "POST", "/reset", "{}", asJSON, "localhost", 200, "{}"},
		{"JSON with a charset", "POST", "/reset", "{}", http.Header{"Content-Type": {"application/json; charset=utf-8"}}, "", 200, "{}"},
		{"another site", "DELETE", "/projects/1/v1/servers/1000001", "",
			http.Header{"Sec-Fetch-Site": {"cross-site"}}, "", 403, "another origin"},
		{"a look from another site", "GET", "/metrics", "",
			http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"no-cors"}}, "", 403, "another origin"},
		{"a link of another site", "GET", "/debug/pprof/trace?seconds=1", "",
			followed, "", 403, "another origin"},
		{"another port of this machine", "GET", "/journal/await?n=0", "",
			http.Header{"Sec-Fetch-Site": {"same-site"}}, "", 403, "another origin"},
		{"another origin reads", "GET", "/snapshot", "", http.Header{"Origin": {"https://evil.example"}}, "", 403, "another origin"},
		{"a link to the page", "GET", "/", "",
			followed, "", 200, "endpoints"},
		{"the page in a frame", "GET", "/", "",
			http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"navigate"}, "Sec-Fetch-Dest": {"iframe"}}, "",
			403, "another origin"},
		{"an address that was typed", "GET", "/rate_limit", "", http.Header{"Sec-Fetch-Site": {"none"}}, "", 200, "limit"},
		{"the page reads", "GET", "/rate_limit", "", http.Header{"Sec-Fetch-Site": {"same-origin"}}, "", 200, "limit"},
		{"a form", "POST", "/projects/1/v1/servers", create, http.Header{"Content-Type": {"text/plain"}}, "", 415, "application/json"},
		{"a rebound name", "GET", "/projects/1/v1/servers", "", nil, "evil.example", 403, "DNS rebinding"},
		{"nothing of these has an effect", "GET", "/projects/1/v1/servers", "", nil, "", 200, `"servers":[]`},
		{"the page", "POST", "/projects/1/v1/servers", create, asJSON, "", 201, `"web-1"`},
		{"another project", "GET", fmt.Sprintf("/projects/%d/v1/servers", other), "", nil, "", 200, `"servers":[]`},
		{"no project", "GET", "/projects/99/v1/servers", "", nil, "", 404, "project 99 does not exist"},
		{"no id", "GET", "/projects/x/v1/servers", "", nil, "", 400, "must be an id"},
		{"no route", "GET", "/projects/1/v1/server", "", nil, "", 404, "not_found"},
		{"a wrong method", "PATCH", "/projects/1/v1/servers", "", nil, "", 405, "method_not_allowed"},
		{"the API's own rules", "POST", "/projects/1/v1/servers", create, asJSON, "", 409, "uniqueness_error"},
		{"a copy", "POST", "/fork", "{}", asJSON, "", 201, `"endpoint"`},
		{"the page of the copy", "DELETE", "/forks/1/projects/1/v1/servers/1000001", "", nil, "", 200, "delete_server"},
		{"the cloud does not change with it", "GET", "/projects/1/v1/servers/1000001", "", nil, "", 200, `"web-1"`},
		{"a copy of the copy", "POST", "/forks/1/fork", "{}", asJSON, "", 201, `/forks/1/forks/1/v1"`},
		{"the copies of the copy", "GET", "/forks/1/forks", "", nil, "", 200, `/forks/1/forks/1"`},
		{"the API of the copy for clients", "GET", "/forks/1/v1/servers", "", nil, "", 401, "unauthorized"},
	} {
		r := must(http.NewRequestWithContext(t.Context(), tc.method, cloud.url+tc.path, strings.NewReader(tc.body)))(t)
		r.Header, r.Host = tc.header, tc.host
		resp, body := send(t, r)
		text := strings.ReplaceAll(strings.ReplaceAll(body, " ", ""), "\n", "")
		if resp.StatusCode != tc.status || !strings.Contains(text, strings.ReplaceAll(tc.text, " ", "")) {
			t.Errorf("%s: %s %s: %d %s; want %d and %s", tc.what, tc.method, tc.path, resp.StatusCode, body, tc.status, tc.text)
		}
	}
	// What the page did is in the journal, as of a client of the project.
	n, err := cloud.Journal().Count(t.Context(), journal.Filter{Operation: "create_server", Project: 1})
	if err != nil || n != 2 {
		t.Errorf("the journal has %d requests of the page, %v; want 2", n, err)
	}
}

func TestMetricsCountWhatClientsDo(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cloud := startControlled(t, fakecloud.Options{RateLimit: 100})
	ask(t, "GET", cloud.url+"/metrics", nil) // the first look
	client := cloud.Client(hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}))
	check(t, orderServer(ctx, cloud.Cloud, "a"))
	for range 2 {
		if _, _, err := client.Server.Create(ctx, serverOpts("a")); !hcloud.IsError(err, hcloud.ErrorCodeUniquenessError) {
			t.Fatal(err)
		}
	}
	_, text := ask(t, "GET", cloud.url+"/metrics", nil)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families := must(parser.TextToMetricFamilies(bytes.NewBufferString(text)))(t)
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
	dashboard := must(os.ReadFile("grafana.json"))(t)
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
	cloud := startControlled(t, fakecloud.Options{AutoProjects: true, RateLimit: 3600})
	ask(t, "GET", cloud.url+"/metrics", nil) // the first look
	for i := range 250 {
		client := cloud.Client(hcloud.WithToken(strings.Repeat("t", i+1)))
		must(client.Server.All(t.Context()))(t)
	}
	_, text := ask(t, "GET", cloud.url+"/metrics", nil)
	if n := strings.Count(text, "fakecloud_api_requests_total{"); n != 101 {
		t.Errorf("%d series of requests, want 100 projects and others", n)
	}
	if n := strings.Count(text, "fakecloud_rate_limit_remaining{"); n > 100 {
		t.Errorf("%d series of rate limits, want at most 100", n)
	}
}
