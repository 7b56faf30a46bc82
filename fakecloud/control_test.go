package fakecloud_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// controlled is a cloud and its control API.
type controlled struct {
	*fakecloud.Cloud
	url string
}

func startControlled(t *testing.T, o fakecloud.Options) controlled {
	t.Helper()
	c := fakecloud.New(o)
	t.Cleanup(c.Close)
	url, err := c.StartControl(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if url != c.ControlURL() {
		t.Errorf("ControlURL is %q, StartControl returned %q", c.ControlURL(), url)
	}
	return controlled{c, url}
}

// call sends a request to the control API, checks the status and decodes the answer.
func (c controlled) call(t *testing.T, method, path, body string, status int) map[string]any {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == "POST" || method == "PUT" {
		req.Header.Set("Content-Type", "application/json")
	}
	return c.send(t, req, status)
}

func (c controlled) send(t *testing.T, req *http.Request, status int) map[string]any {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("%s %s: %v: %s", req.Method, req.URL, err, b)
	}
	if resp.StatusCode != status {
		t.Errorf("%s %s: %d %s, want %d", req.Method, req.URL, resp.StatusCode, b, status)
	}
	return out
}

func (c controlled) createKey(t *testing.T, name string) *hcloud.SSHKey {
	t.Helper()
	key, _, err := c.Client().SSHKey.Create(t.Context(), hcloud.SSHKeyCreateOpts{Name: name, PublicKey: testKey})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestTheControlAPIListsItsEndpoints(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{})
	endpoints := c.call(t, "GET", "/", "", 200)["endpoints"].([]any)
	if len(endpoints) < 20 {
		t.Errorf("only %d endpoints", len(endpoints))
	}
	for _, e := range endpoints {
		e := e.(map[string]any)
		path := strings.NewReplacer("{name}", "unknown", "{token}", "unknown").Replace(e["path"].(string))
		if path == "/events" || path == "/journal/await" { // these do not answer at once
			continue
		}
		if e["summary"] == "" {
			t.Errorf("%s %s has no summary", e["method"], path)
		}
		req, _ := http.NewRequestWithContext(t.Context(), e["method"].(string), c.url+path, nil)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode >= 500 && path != "/ready" || resp.StatusCode == 405 {
			t.Errorf("%s %s: %d", e["method"], path, resp.StatusCode)
		}
	}
	if e := c.call(t, "GET", "/nothing", "", 404)["error"].(string); !strings.Contains(e, "GET /") {
		t.Errorf("unknown path: %s", e)
	}
}

func TestTheControlAPIIsReadyWhenTheAPIListens(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{})
	c.call(t, "GET", "/health", "", 200)
	c.call(t, "GET", "/ready", "", 503)
	endpoint, err := c.Start(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if c.Endpoint() != endpoint || !strings.HasSuffix(endpoint, "/v1") {
		t.Errorf("Endpoint is %q, Start returned %q", c.Endpoint(), endpoint)
	}
	c.call(t, "GET", "/ready", "", 200)
}

func TestTheControlAPIShowsStateAndJournal(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{})
	key := c.createKey(t, "one")
	if _, _, err := c.Client().SSHKey.GetByID(t.Context(), key.ID); err != nil {
		t.Fatal(err)
	}

	state := c.call(t, "GET", "/state?kind=ssh_key", "", 200)["projects"].([]any)[0].(map[string]any)
	resources := state["resources"].(map[string]any)
	if keys := resources["ssh_keys"].([]any); len(keys) != 1 || keys[0].(map[string]any)["name"] != "one" || len(resources) != 1 {
		t.Errorf("state: %v", state)
	}
	if p := c.call(t, "GET", "/state?project=99", "", 200)["projects"].([]any); len(p) != 0 {
		t.Errorf("state of no project: %v", p)
	}
	if e := c.call(t, "GET", "/state?kind=cluster", "", 400)["error"].(string); !strings.Contains(e, "ssh_key") {
		t.Errorf("unknown kind: %s", e)
	}

	if n := c.call(t, "GET", "/journal/count?writes", "", 200)["count"]; n != 1.0 {
		t.Errorf("%v writes", n)
	}
	j := c.call(t, "GET", "/journal?limit=1", "", 200)
	entry := j["entries"].([]any)[0].(map[string]any)
	if j["count"] != 2.0 || entry["route"] != "/ssh_keys/{id}" || entry["operation"] != "get_ssh_key" || entry["status"] != 200.0 {
		t.Errorf("journal: %v", j)
	}
	c.call(t, "GET", "/journal?limit=x", "", 400)
	c.call(t, "GET", "/journal?nonsense=1", "", 400)
	c.call(t, "DELETE", "/journal", "", 200)
	if n, _ := c.Journal().Count(t.Context(), journal.Filter{}); n != 0 {
		t.Errorf("%d entries after DELETE", n)
	}
}

func TestTheControlAPIManagesFaults(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{})
	rule := `{"name": "f", "method": "POST", "route": "/ssh_keys", "first": 1, "effect": {"kind": "api_error", "code": "conflict", "latency": "1ms"}}`
	c.call(t, "POST", "/faults", rule, 201)
	c.call(t, "POST", "/faults", rule, 409)
	if e := c.call(t, "POST", "/faults", `{"route": "/keys", "effect": {"kind": "drop"}}`, 400)["error"].(string); !strings.Contains(e,
		"/ssh_keys…") {
		t.Errorf("unknown route: %s", e)
	}
	c.call(t, "POST", "/faults", `{"rout": "/ssh_keys"}`, 400)
	if a := (reach{"http://fakecloud.invalid/v1", &http.Client{Transport: c.Transport()}}).do(t.Context(), "POST", "/ssh_keys",
		createKey); a.status != 409 {
		t.Errorf("%+v", a)
	}
	f := c.call(t, "GET", "/faults/f", "", 200)["fault"].(map[string]any)
	if f["applied"] != 1.0 || f["effect"].(map[string]any)["latency"] != "1ms" {
		t.Errorf("%v", f)
	}
	c.call(t, "DELETE", "/faults/f", "", 200)
	c.call(t, "DELETE", "/faults/f", "", 404)
	c.call(t, "GET", "/faults/f", "", 404)
	c.call(t, "POST", "/faults", rule, 201)
	c.call(t, "DELETE", "/faults", "", 200)
	if l := c.call(t, "GET", "/faults", "", 200)["faults"].([]any); len(l) != 0 {
		t.Errorf("%v", l)
	}
	if o := c.call(t, "GET", "/operations", "", 200)["operations"].([]any); len(o) < 50 {
		t.Errorf("%d operations", len(o))
	}
	if o := c.call(t, "GET", "/error_codes", "", 200)["error_codes"].(map[string]any); o["locked"] != 423.0 {
		t.Errorf("%v", o)
	}
}

func TestTheControlAPIMovesTheClock(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{})
	if got := c.call(t, "PUT", "/clock/speed", `{"speed": 0}`, 200)["speed"]; got != 0.0 {
		t.Errorf("speed %v", got)
	}
	before, _ := c.Now(t.Context())
	c.call(t, "POST", "/clock/step", `{"by": "1h"}`, 200)
	if now, _ := c.Now(t.Context()); now.Sub(before) != time.Hour {
		t.Errorf("stepped to %v from %v", now, before)
	}
	c.call(t, "POST", "/clock/step", `{"by": "-1h"}`, 400)
	c.call(t, "POST", "/clock/step", `{"by": 3600}`, 400)
	c.call(t, "POST", "/clock/step", `{}`, 400)
	c.call(t, "PUT", "/clock/speed", `{"speed": -1}`, 400)
	c.call(t, "PUT", "/clock/speed", ``, 400)
	if got := c.call(t, "GET", "/clock", "", 200)["time"]; got != before.Add(time.Hour).Format(time.RFC3339Nano) {
		t.Errorf("time %v", got)
	}
}

func TestTheSpeedOfAGivenClockCannotBeChanged(t *testing.T) {
	t.Parallel()
	fake := clocktesting.NewFakeClock(time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC))
	c := startControlled(t, fakecloud.Options{Clock: fake})
	err := c.Step(t.Context(), time.Minute)
	if now, _ := c.Now(t.Context()); err != nil || !now.Equal(fake.Now()) || now.Minute() != 1 {
		t.Errorf("%v, %v", err, now)
	}
	if err := c.Step(t.Context(), -1); err == nil {
		t.Error("a step back is accepted")
	}
	c.call(t, "PUT", "/clock/speed", `{"speed": 2}`, 409)
	if speed := c.call(t, "GET", "/clock", "", 200)["speed"]; speed != 0.0 {
		t.Errorf("speed %v", speed)
	}
	machine := startControlled(t, fakecloud.Options{Clock: clock.RealClock{}})
	machine.call(t, "POST", "/clock/step", `{"by": "1s"}`, 409)
	if speed := machine.call(t, "GET", "/clock", "", 200)["speed"]; speed != 1.0 {
		t.Errorf("speed %v", speed)
	}
}

func TestTheControlAPIChangesProfileAndRateLimit(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{})
	if p := c.call(t, "GET", "/profile", "", 200)["actions"]; p != "instant" {
		t.Errorf("profile %v", p)
	}
	if p := c.call(t, "PUT", "/profile", `{"actions": "5s"}`, 200)["actions"]; p != "5s" {
		t.Errorf("profile %v", p)
	}
	c.call(t, "PUT", "/profile", `{"actions": "quick"}`, 400)
	c.call(t, "PUT", "/rate_limit", `{"limit": 1}`, 200)
	c.call(t, "PUT", "/rate_limit", `{"limit": -1}`, 400)
	c.call(t, "PUT", "/rate_limit", `{}`, 400)
	r := reach{"http://fakecloud.invalid/v1", &http.Client{Transport: c.Transport()}}
	if a := r.do(t.Context(), "GET", "/ssh_keys", ""); a.status != 200 {
		t.Errorf("%+v", a)
	}
	if a := r.do(t.Context(), "GET", "/ssh_keys", ""); a.status != 429 {
		t.Errorf("%+v", a)
	}
	if l := c.call(t, "GET", "/rate_limit", "", 200)["limit"]; l != 1.0 {
		t.Errorf("limit %v", l)
	}
}

func TestTheControlAPIManagesProjectsAndTokens(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{})
	c.createKey(t, "one")
	p := c.call(t, "POST", "/projects", `{"name": "staging"}`, 201)["project"].(map[string]any)
	token := p["token"].(string)
	if len(token) != 64 {
		t.Errorf("token %q", token)
	}
	c.call(t, "POST", "/projects", `{"name": "staging"}`, 409)
	c.call(t, "POST", "/projects", `{"name": "other", "token": "`+token+`"}`, 409)
	c.call(t, "POST", "/projects", `{"name": ""}`, 400)
	c.call(t, "POST", "/projects", `{"name": "other", "token": "a b"}`, 400)
	if l := c.call(t, "GET", "/projects", "", 200)["projects"].([]any); len(l) != 2 {
		t.Errorf("%v", l)
	}
	other := c.Client(hcloud.WithToken(token))
	if keys, err := other.SSHKey.All(t.Context()); err != nil || len(keys) != 0 {
		t.Errorf("the new project sees %v, %v", keys, err)
	}
	ro := c.call(t, "POST", "/tokens", `{"project": 2, "token": "readonly", "read_only": true}`, 201)["token"].(string)
	if _, _, err := c.Client(hcloud.WithToken(ro)).SSHKey.Create(t.Context(),
		hcloud.SSHKeyCreateOpts{Name: "x", PublicKey: testKey}); !hcloud.IsError(err, hcloud.ErrorCodeForbidden) {
		t.Errorf("read-only token: %v", err)
	}
	c.call(t, "POST", "/tokens", `{"project": 7}`, 404)
	c.call(t, "POST", "/tokens", `{"project": 1, "token": "readonly"}`, 409)
	c.call(t, "DELETE", "/tokens/"+token, "", 200)
	c.call(t, "DELETE", "/tokens/"+token, "", 404)
	if _, err := other.SSHKey.All(t.Context()); !hcloud.IsError(err, hcloud.ErrorCodeUnauthorized) {
		t.Errorf("revoked token: %v", err)
	}
}

// parts returns the numbers of SSH keys, fault rules and requests in the journal.
func (c controlled) parts(t *testing.T) (sshKeys, rules, requests int) {
	t.Helper()
	list, err := c.Faults().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	requests, err = c.Journal().Count(t.Context(), journal.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	return keys(t, c.Cloud), len(list), requests
}

func TestReset(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{RateLimit: 10})
	fill := func() {
		c.createKey(t, "one")
		if _, err := c.Faults().Add(t.Context(), fault.Rule{Method: "PUT", Resource: "ssh_key",
			Effect: fault.DropConnection()}); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	c.call(t, "POST", "/reset", "", 200)
	if n, f, j := c.parts(t); n+f+j != 0 {
		t.Errorf("left: %d keys, %d faults, %d requests", n, f, j)
	}
	r := reach{"http://fakecloud.invalid/v1", &http.Client{Transport: c.Transport()}}
	if a := r.do(t.Context(), "GET", "/ssh_keys", ""); a.header.Get("RateLimit-Remaining") != "9" {
		t.Errorf("rate limit after reset: %v", a.header)
	}
	fill()
	c.call(t, "POST", "/reset", `{"keep": ["resources", "journal", "faults"]}`, 200)
	if n, f, j := c.parts(t); n != 1 || f != 1 || j != 2 {
		t.Errorf("kept: %d keys, %d faults, %d requests", n, f, j)
	}
	limits := func() int { return len(c.call(t, "GET", "/projects/1/limits", "", 200)) }
	for keep, want := range map[string]bool{`[]`: false, `["catalogue", "limits"]`: true} {
		c.call(t, "PUT", "/projects/1/limits", `{"server": 1}`, 200)
		c.call(t, "PUT", "/catalogue/server_types/cx23/locations/fsn1", `{"available": false}`, 200)
		c.call(t, "POST", "/reset", `{"keep": `+keep+`}`, 200)
		cx23, _, err := c.Client().ServerType.GetByName(t.Context(), "cx23")
		if err != nil || cx23.Locations[0].Available == want || (limits() == 1) != want {
			t.Errorf("keep %s: %+v, %d limits, %v", keep, cx23, limits(), err)
		}
		c.call(t, "POST", "/reset", "", 200)
	}
	if e := c.call(t, "POST", "/reset", `{"keep": ["everything"]}`, 400)["error"].(string); !strings.Contains(e, "rate_limit") {
		t.Errorf("%s", e)
	}
}

func TestTheControlAPIRefusesMalformedQueries(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{})
	for _, path := range []string{"/journal?status=%zz", "/journal/count?method=%2", "/state?kind=server;a", "/events?project=%zz"} {
		answer := c.call(t, "GET", path, "", http.StatusBadRequest)
		if text, _ := answer["error"].(string); !strings.Contains(text, "query") {
			t.Errorf("%s: %v", path, answer)
		}
	}
}

// largestWrite is a response that keeps its body and the size of its largest write.
type largestWrite struct {
	*httptest.ResponseRecorder
	size int
}

func (w *largestWrite) Write(b []byte) (int, error) {
	w.size = max(w.size, len(b))
	return w.ResponseRecorder.Write(b)
}

// The control API sends large answers piece by piece: a whole body would need several times the memory of the state.
func TestTheControlAPIStreamsStateAndJournal(t *testing.T) {
	t.Parallel()
	c := fakecloud.New(fakecloud.Options{})
	t.Cleanup(c.Close)
	const n = 500
	for i := range n {
		if _, _, err := c.Client().Server.Create(t.Context(), hcloud.ServerCreateOpts{
			Name: fmt.Sprintf("s-%d", i), ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
		}); err != nil {
			t.Fatal(err)
		}
	}
	for path, list := range map[string]func(map[string]any) any{
		"/journal":           func(m map[string]any) any { return m["entries"] },
		"/journal/await?n=1": func(m map[string]any) any { return m["entries"] },
		"/state": func(m map[string]any) any {
			return m["projects"].([]any)[0].(map[string]any)["resources"].(map[string]any)["servers"]
		},
	} {
		w := &largestWrite{ResponseRecorder: httptest.NewRecorder()}
		c.ControlHandler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		var body map[string]any
		size := w.Body.Len()
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%s: %d, %v", path, w.Code, err)
		}
		if got := len(list(body).([]any)); got != n {
			t.Errorf("%s: %d items, want %d", path, got, n)
		}
		if limit := 64 << 10; w.size > limit || size < 2*limit {
			t.Errorf("%s: a write of %d of %d bytes", path, w.size, size)
		}
	}
}

func TestABrowserCannotControlTheCloud(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{})
	for name, tc := range map[string]struct {
		header http.Header
		host   string
		status int
	}{
		"a form":              {http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, "", 415},
		"text":                {http.Header{"Content-Type": {"text/plain"}}, "", 415},
		"no type":             {http.Header{}, "", 415},
		"another origin":      {http.Header{"Content-Type": {"application/json"}, "Origin": {"https://evil.example"}}, "", 403},
		"a rebound name":      {http.Header{"Content-Type": {"application/json"}}, "evil.example", 403},
		"a program on it":     {http.Header{"Content-Type": {"application/json"}}, "localhost", 200},
		"JSON with a charset": {http.Header{"Content-Type": {"application/json; charset=utf-8"}}, "", 200},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", c.url+"/reset", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header, req.Host = tc.header, tc.host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct{ Error string }
		err = json.NewDecoder(resp.Body).Decode(&answer)
		_ = resp.Body.Close()
		if refused := answer.Error != ""; err != nil || resp.StatusCode != tc.status || refused != (tc.status != 200) {
			t.Errorf("%s: %d %+v %v, want %d, and an error in JSON", name, resp.StatusCode, answer, err, tc.status)
		}
	}
}

func TestTheControlAPITakesReportsOfUsage(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{})
	created, _, err := c.Client().Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "one", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"},
	})
	if err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/servers/%d/usage", created.Server.ID)
	for body, status := range map[string]int{
		`{"cpu": 150, "bytes_in": 1e4}`:         200,
		`{}`:                                    200,
		`{"cpu": -1}`:                           400,
		`{"cpu": 1e999}`:                        400,
		`{"cpu": "1"}`:                          400,
		`{"cpu": 1, "disk": 1}`:                 400,
		`{"cpu": 1, "bytes_in": 1, "cpu": -0}`:  400,
		`[1]`:                                   400,
		`{"cpu": 1} {"cpu": 1}`:                 400,
		`{"cpu": 1, "packets_in": 1` + "\x00}":  400,
		strings.Repeat(`{"cpu": `, 1000) + `1}`: 400,
	} {
		c.call(t, "PUT", path, body, status)
	}
	c.call(t, "PUT", "/servers/x/usage", `{"cpu": 1}`, 400)
	if e := c.call(t, "PUT", "/servers/1/usage", `{"cpu": 1}`, 404)["error"].(string); !strings.Contains(e, "server 1 does not exist") {
		t.Errorf("an unknown server: %s", e)
	}
}
