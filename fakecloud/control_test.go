package fakecloud_test

import (
	"encoding/json"
	"fmt"
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
	c := newCloud(t, o)
	url := must(c.StartControl(t.Context(), ""))(t)
	if url != c.ControlURL() {
		t.Errorf("ControlURL is %q, StartControl returned %q", c.ControlURL(), url)
	}
	return controlled{c, url}
}

// call sends a request to the control API, checks the status and decodes the answer.
func (c controlled) call(t *testing.T, method, path, body string, status int) map[string]any {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), method, c.url+path, strings.NewReader(body)))(t)
	if method == "POST" || method == "PUT" {
		req.Header.Set("Content-Type", "application/json")
	}
	return c.send(t, req, status)
}

func (c controlled) send(t *testing.T, req *http.Request, status int) map[string]any {
	t.Helper()
	resp, b := send(t, req)
	var out map[string]any
	if err := json.Unmarshal([]byte(b), &out); err != nil {
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
	check(t, err)
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
		resp, _ := send(t, req)
		if resp.StatusCode >= 500 && path != "/ready" || resp.StatusCode == 405 {
			t.Errorf("%s %s: %d", e["method"], path, resp.StatusCode)
		}
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

// The tests of package remote guard the effects of requests. This one guards the statuses and messages of the answers.
func TestAnswersOfTheControlAPI(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{Limits: map[string]int{"server": 3}})
	created, _, err := c.Client().Server.Create(t.Context(), serverOpts("one"))
	check(t, err)
	check(t, did(c.Client().Server.GetByID(t.Context(), created.Server.ID)))
	usage := fmt.Sprintf("/servers/%d/usage", created.Server.ID)
	const rule = `{"name": "f", "method": "POST", "first": 1, "effect": {"kind": "api_error", "code": "conflict", "latency": "1ms"}}`
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string // a part of the answer without spaces
	}{
		{"GET", "/nothing", "", 404, "GET /"},
		{"GET", "/health", "", 200, `"ok"`},
		{"GET", "/ready", "", 503, "not ready"},
		{"GET", "/operations", "", 200, `"operation":"create_ssh_key"`},
		{"GET", "/error_codes", "", 200, `"locked":423`},

		{"GET", "/state?kind=server", "", 200, `"resources":{"servers":[{`},
		{"GET", "/state?project=99", "", 200, `"projects":[]`},
		{"GET", "/state?kind=cluster", "", 400, "ssh_key"},
		{"GET", "/journal/count?writes", "", 200, `"count":1,`},
		{"GET", "/journal", "", 200, `"operation":"create_server"`},
		{"GET", "/journal?limit=1", "", 200, `{"count":2,"entries":[{`},
		{"GET", "/journal?limit=1", "", 200, `"operation":"get_server"`},
		{"GET", "/journal?limit=0", "", 200, `"entries":[]`},
		{"GET", "/journal?limit=x", "", 400, "limit"},
		{"GET", "/journal?nonsense=1", "", 400, "nonsense"},
		{"GET", "/journal?status=%zz", "", 400, "query"},
		{"GET", "/journal/count?method=%2", "", 400, "query"},
		{"GET", "/state?kind=server;a", "", 400, "query"},
		{"GET", "/events?project=%zz", "", 400, "query"},
		{"GET", "/events?project=99", "", 400, "project=99: must be the id of a project; GET /projects"},
		{"DELETE", "/journal", "", 200, ""},
		{"GET", "/journal/count", "", 200, `"count":0,`},

		{"POST", "/faults", rule, 201, `"latency":"1ms"`},
		{"POST", "/faults", rule, 409, "exists"},
		{"POST", "/faults", `{"route": "/keys", "effect": {"kind": "drop"}}`, 400, "/ssh_keys…"},
		{"POST", "/faults", `{"rout": "/ssh_keys"}`, 400, "rout"},
		{"GET", "/faults/f", "", 200, `"applied":0`},
		{"GET", "/faults", "", 200, `"name":"f"`},
		{"DELETE", "/faults/f", "", 200, ""},
		{"DELETE", "/faults/f", "", 404, "GET /faults"},
		{"GET", "/faults/f", "", 404, "GET /faults"},
		{"DELETE", "/faults", "", 200, ""},

		{"PUT", "/clock/speed", `{"speed": 0}`, 200, `"speed":0`},
		{"PUT", "/clock/speed", `{"speed": -1}`, 400, "-1"},
		{"PUT", "/clock/speed", "", 400, "is required"},
		{"POST", "/clock/step", `{"by": "1h"}`, 200, `"speed":0`},
		{"POST", "/clock/step", `{"by": "-1h"}`, 400, "-1h"},
		{"POST", "/clock/step", `{"by": 3600}`, 400, "3600"},
		{"POST", "/clock/step", `{}`, 400, "is required"},
		{"GET", "/profile", "", 200, `"instant"`},
		{"PUT", "/profile", `{"actions": "5s"}`, 200, `"5s"`},
		{"PUT", "/profile", `{"actions": "quick"}`, 400, "quick"},
		{"PUT", "/rate_limit", `{"limit": 1}`, 200, `"limit":1`},
		{"PUT", "/rate_limit", `{"limit": -1}`, 400, "-1"},
		{"PUT", "/rate_limit", `{}`, 400, "is required"},
		{"GET", "/rate_limit", "", 200, `"limit":1`},

		{"POST", "/projects", `{"name": "staging", "token": "mine"}`, 201, `"token":"mine"`},
		{"POST", "/projects", `{"name": "staging"}`, 409, "staging"},
		{"POST", "/projects", `{"name": "other", "token": "mine"}`, 409, "exists"},
		{"POST", "/projects", `{"name": "other", "token": "a b"}`, 400, "token"},
		{"POST", "/projects", `{"name": ""}`, 400, "1 to 128"},
		{"GET", "/projects", "", 200, `"name":"staging"`},
		{"DELETE", "/projects/x", "", 400, "must be an id"},
		{"DELETE", "/projects/1", "", 400, "cannot be dropped"},
		{"POST", "/projects/x/reset", "", 400, "must be an id"},
		{"POST", "/projects/1/reset", "[]", 400, "body"},
		{"POST", "/projects/1/reset", `{"keep": ["x"]}`, 400, "rate_limit"},
		{"POST", "/projects/9/reset", "", 404, "GET /projects"},
		{"POST", "/tokens", `{"project": 2, "token": "readonly", "read_only": true}`, 201, `"read_only":true`},
		{"POST", "/tokens", `{"project": 1, "token": "readonly"}`, 409, "exists"},
		{"POST", "/tokens", `{"project": 7}`, 404, "GET /projects"},
		{"DELETE", "/tokens/mine", "", 200, ""},
		{"DELETE", "/tokens/mine", "", 404, "does not exist"},

		{"PUT", "/catalogue/server_types/cx23/locations/fsn1", `{"available": false}`, 200, ""},
		{"PUT", "/catalogue/server_types/114", `{"deprecation": {"unavailable_after": "2030-01-01T00:00:00Z"}}`, 200, ""},
		{"PUT", "/catalogue/server_types/cx23", `{"deprecation": {}}`, 200, ""},
		{"PUT", "/catalogue/server_types/cx23/locations/ash", `{"offered": true, "price_monthly": 9}`, 200, ""},
		{"POST", "/catalogue/server_types", `{"name": "cx24", "copy_of": "cx23", "cores": 3}`, 201, ""},
		{"POST", "/catalogue/server_types", `{"name": "cx24", "copy_of": "cx23"}`, 409, "exists already"},
		{"POST", "/catalogue/server_types", `{"name": "cx25", "copy_of": "cx2"}`, 404, "copy_of"},
		{"POST", "/catalogue/server_types", `{}`, 400, "name"},
		{"PUT", "/catalogue/server_types/cx2/locations/fsn1", `{"available": false}`, 404, "GET /catalogue"},
		{"PUT", "/catalogue/server_types/cx23/locations/mars", `{"available": false}`, 404, "fsn1, nbg1"},
		{"PUT", "/catalogue/server_types/cx23", `{}`, 400, "must change something"},
		{"PUT", "/catalogue/server_types/cx23", `null`, 400, "must change something"},
		{"PUT", "/catalogue/server_types/cx23", `{"availabel": true}`, 400, "availabel"},
		{"PUT", "/catalogue/server_types/cx23", `{"available": "no"}`, 400, "available"},
		{"PUT", "/catalogue/server_types/cx23", `{"available": false} {}`, 400, "one JSON value"},
		{"PUT", "/catalogue/server_types/cx23", `{"price_monthly": 1e400}`, 400, "price_monthly"},
		{"PUT", "/catalogue/server_types/cx23", `{"deprecation": {"unavailable_after": "tomorrow"}}`, 400, "tomorrow"},
		{"DELETE", "/catalogue", "", 200, ""},

		{"GET", "/projects/1/limits", "", 200, `{"server":3}`},
		{"PUT", "/projects/1/limits", `{"server": 2}`, 200, `{"server":2}`},
		{"PUT", "/projects/1/limits", ``, 400, "are required"},
		{"PUT", "/projects/1/limits", `null`, 400, "are required"},
		{"PUT", "/projects/1/limits", `{"server": 1.5}`, 400, "1.5"},
		{"PUT", "/projects/1/limits", `{"server": -1}`, 400, "at least 1"},
		{"PUT", "/projects/1/limits", `{"cluster": 1}`, 400, "must be one of"},
		{"PUT", "/projects/9/limits", `{"server": 1}`, 404, "GET /projects"},
		{"GET", "/projects/9/limits", "", 404, "GET /projects"},
		{"GET", "/projects/x/limits", "", 400, "must be an id"},

		{"PUT", usage, `{"cpu": 150, "bytes_in": 1e4}`, 200, ""},
		{"PUT", usage, `{}`, 200, ""},
		{"PUT", usage, `{"cpu": -1}`, 400, "cpu"},
		{"PUT", usage, `{"cpu": 1e999}`, 400, "cpu"},
		{"PUT", usage, `{"cpu": "1"}`, 400, "cpu"},
		{"PUT", usage, `{"cpu": 1, "disk": 1}`, 400, "disk"},
		{"PUT", usage, `{"cpu": 1, "bytes_in": 1, "cpu": -0}`, 400, ""},
		{"PUT", usage, `[1]`, 400, "body"},
		{"PUT", usage, `{"cpu": 1} {"cpu": 1}`, 400, "one JSON value"},
		{"PUT", usage, `{"cpu": 1, "packets_in": 1` + "\x00}", 400, "body"},
		{"PUT", usage, strings.Repeat(`{"cpu": `, 1000) + `1}`, 400, "body"},
		{"PUT", "/servers/x/usage", `{"cpu": 1}`, 400, "must be an id"},
		{"PUT", "/servers/1/usage", `{"cpu": 1}`, 404, "server 1 does not exist"},

		{"GET", "/scenarios", "", 200, ""},
		{"POST", "/scenarios", `{"scenario": "sold-out=cx23@fsn1"}`, 201, ""},
		{"POST", "/scenarios",
			`{"scenario": "mine=", "file": "name: mine\ndescription: A test.\nchanges: [{limit: {project: 1, kind: server, most: 1}}]"}`, 201, ""},
		{"POST", "/scenarios", `{"scenario": "/etc/passwd"}`, 404, ""},
		{"POST", "/scenarios", `{"scenario": "sold-out", "values": "a@b@c"}`, 400, ""},
		{"POST", "/scenarios", `{}`, 400, ""},
		{"DELETE", "/scenarios/1", "", 200, ""},
		{"DELETE", "/scenarios/1", "", 404, ""},
		{"DELETE", "/scenarios/x", "", 400, ""},
		{"POST", "/reset", `{"keep": ["scenarios"]}`, 200, ""},
		{"DELETE", "/scenarios/2", "", 200, ""},
	} {
		answer := c.call(t, tt.method, tt.path, tt.body, tt.status)
		text, _ := json.Marshal(answer) // it was JSON
		if !strings.Contains(string(text), tt.want) || (answer["error"] != nil) != (tt.status >= 400) {
			t.Errorf("%s %s %s: %s, want %q", tt.method, tt.path, tt.body, text, tt.want)
		}
	}
}

// parts returns the numbers of SSH keys, fault rules and requests in the journal.
func (c controlled) parts(t *testing.T) (sshKeys, rules, requests int) {
	t.Helper()
	list := must(c.Faults().List(t.Context()))(t)
	return keys(t, c.Cloud), len(list), must(c.Journal().Count(t.Context(), journal.Filter{}))(t)
}

func TestReset(t *testing.T) {
	t.Parallel()
	c := startControlled(t, fakecloud.Options{RateLimit: 10})
	fill := func() {
		c.createKey(t, "one")
		must(c.Faults().Add(t.Context(), fault.Rule{Method: "PUT", Resource: "ssh_key",
			Effect: fault.DropConnection()}))(t)
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
	c := newCloud(t, fakecloud.Options{})
	const n = 500
	for i := range n {
		check(t, orderServer(t.Context(), c, fmt.Sprintf("s-%d", i)))
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
