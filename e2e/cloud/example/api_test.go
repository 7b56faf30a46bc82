package example_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/cloudtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/example"
)

// newCloud makes a cloud and serves its API. No other cloud has its addresses.
func newCloud(t *testing.T, o example.Options) (*example.Cloud, *httptest.Server) {
	t.Helper()
	addresses := cloudtest.Options(t)
	o.Instances, o.LoadBalancers = addresses.Servers, addresses.LoadBalancers
	c, err := example.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(c.Handler())
	t.Cleanup(func() {
		if err := c.Close(); err != nil { // before the server, which waits for requests that hang
			t.Error(err)
		}
		s.Close()
	})
	return c, s
}

// send sends a request and returns the status and the body. The status is 0 if the answer never comes.
func send(t *testing.T, s *httptest.Server, method, path, body string, headers ...string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer example-token")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	r.Close = true
	got, err := s.Client().Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = got.Body.Close() }()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, string(text)
}

// mistakes are what the API answers to each mistake: the status, the code, and a part of the message. INSTANCE and LISTENER exist.
var mistakes = map[string]struct {
	method, path, body string
	status             int
	code, message      string
}{
	"no JSON":               {"POST", "/instances", `name: node-2`, 400, "bad_request", "the body is not the JSON"},
	"no body":               {"POST", "/instances", ``, 400, "bad_request", "the body is not the JSON"},
	"an unknown field":      {"POST", "/instances", `{"name": "node-2", "zone": "x"}`, 400, "bad_request", `unknown field "zone"`},
	"two objects":           {"POST", "/instances", `{"name": "node-2"} {}`, 400, "bad_request", "continues after the JSON"},
	"a huge body":           {"POST", "/instances", `{"name": "` + strings.Repeat("x", 1<<20) + `"}`, 400, "bad_request", "more than 1048576 bytes"},
	"no name":               {"POST", "/instances", `{}`, 400, "bad_request", "name: "},
	"a bad name":            {"POST", "/instances", `{"name": "Node_1"}`, 400, "bad_request", "lower case"},
	"a name that is taken":  {"POST", "/instances", `{"name": "node-1"}`, 409, "name_taken", "choose another name"},
	"an unknown instance":   {"GET", "/instances/vm-1", "", 404, "instance_not_found", "GET /instances"},
	"delete it":             {"DELETE", "/instances/vm-1", "", 404, "instance_not_found", "GET /instances"},
	"change it":             {"PATCH", "/instances/vm-1", `{"name": "x"}`, 404, "instance_not_found", "GET /instances"},
	"no change":             {"PATCH", "/instances/INSTANCE", `{}`, 400, "bad_request", "name and state are missing"},
	"an unknown state":      {"PATCH", "/instances/INSTANCE", `{"state": "asleep"}`, 400, "bad_request", "running, stopped"},
	"an unknown region":     {"POST", "/load-balancers", `{"name": "x", "region": "south"}`, 400, "bad_request", "must be north"},
	"a balancer's name":     {"POST", "/load-balancers", `{"name": "web", "region": "north"}`, 409, "name_taken", "choose another name"},
	"an unknown balancer":   {"GET", "/load-balancers/x", "", 404, "load_balancer_not_found", "GET /load-balancers"},
	"its listeners":         {"GET", "/listeners?load_balancer=x", "", 404, "load_balancer_not_found", "GET /load-balancers"},
	"a listener of it":      {"POST", "/listeners", `{"load_balancer": "x", "port": 80}`, 404, "load_balancer_not_found", "GET /load-balancers"},
	"a listener of nothing": {"POST", "/listeners", `{"port": 80}`, 400, "bad_request", "load_balancer: is missing"},
	"a balancer in use":     {"DELETE", "/load-balancers/web", "", 409, "load_balancer_in_use", "delete it first"},
	"a port that is taken":  {"POST", "/listeners", `{"load_balancer": "web", "port": 8080}`, 409, "port_taken", "has port 8080 already"},
	"no port":               {"POST", "/listeners", `{"load_balancer": "web"}`, 400, "bad_request", "1 to 65535"},
	"a port too high":       {"POST", "/listeners", `{"load_balancer": "web", "port": 65536}`, 400, "bad_request", "65536"},
	"a bad backend":         {"PUT", "/listeners/LISTENER/backends", `{"backends": ["node-1:80"]}`, 400, "bad_request", "node-1"},
	"an empty backend":      {"PUT", "/listeners/LISTENER/backends", `{"backends": [""]}`, 400, "bad_request", "such as 10.64.0.2:30080"},
	"a backend of IPv6":     {"PUT", "/listeners/LISTENER/backends", `{"backends": ["[::1]:80"]}`, 400, "bad_request", "IPv4"},
	"a backend twice":       {"PUT", "/listeners/LISTENER/backends", `{"backends": ["10.0.0.1:1", "10.0.0.1:1"]}`, 400, "bad_request", "twice"},
	"forgotten backends":    {"PUT", "/listeners/LISTENER/backends", `{}`, 400, "bad_request", "send [] to remove all"},
	"an unknown listener":   {"PUT", "/listeners/lis-1/backends", `{"backends": []}`, 404, "listener_not_found", "GET /listeners"},
	"delete that":           {"DELETE", "/listeners/lis-1", "", 404, "listener_not_found", "GET /listeners"},
	"a bad prefix":          {"PUT", "/routes/10.244.1.0", `{"instance": "INSTANCE"}`, 400, "bad_request", "/routes/10.244.1.0/24"},
	"a prefix with a host":  {"PUT", "/routes/10.244.1.1/24", `{"instance": "INSTANCE"}`, 400, "bad_request", "first address"},
	"a route to nothing":    {"PUT", "/routes/10.244.1.0/24", `{"instance": "vm-1"}`, 404, "instance_not_found", "GET /instances"},
	"a route without end":   {"PUT", "/routes/10.244.1.0/24", `{}`, 400, "bad_request", "instance: is missing"},
	"an unknown route":      {"DELETE", "/routes/10.244.1.0/24", "", 404, "route_not_found", "GET /routes"},
	"an unknown path":       {"GET", "/servers", "", 404, "unknown_path", "the API does not have GET"},
	"an unknown method":     {"PUT", "/instances", "", 404, "unknown_path", "the API does not have PUT"},
}

func TestErrors(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	c, s := newCloud(t, example.Options{})
	i, err := c.CreateInstance("node-1")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = c.CreateLoadBalancer("web", example.Region)
	g.Expect(err).NotTo(HaveOccurred())
	l, err := c.CreateListener("web", 8080, nil)
	g.Expect(err).NotTo(HaveOccurred())
	here := strings.NewReplacer("INSTANCE", i.ID, "LISTENER", l.ID)
	for name, tc := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, body := send(t, s, tc.method, example.Path+here.Replace(tc.path), here.Replace(tc.body))
			expectError(t, status, body, tc.status, tc.code, tc.message)
		})
	}
	for name, tc := range map[string]struct {
		path, token, code string
		status            int
	}{
		"without a token":      {example.Path + "/instances", "", "unauthorized", 401},
		"with a wrong token":   {example.Path + "/instances", "Bearer x", "unauthorized", 401},
		"of another account":   {"/accounts/other/instances", "Bearer example-token", "forbidden", 403},
		"of no account at all": {"/instances", "Bearer example-token", "unknown_path", 404},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status, body := send(t, s, "GET", tc.path, "", "Authorization", tc.token)
			expectError(t, status, body, tc.status, tc.code, "")
		})
	}
}

func expectError(t *testing.T, status int, body string, want int, code, message string) {
	t.Helper()
	var e struct{ Error example.Error }
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	if status != want || e.Error.Code != code || !strings.Contains(e.Error.Message, message) {
		t.Errorf("got %d %s, want %d %s with %q", status, body, want, code, message)
	}
}

func TestALoadBalancerHasItsAddressAMomentLater(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c, s := newCloud(t, example.Options{Provisioning: time.Minute, Now: func() time.Time { return now }})
	status, body := send(t, s, "POST", example.Path+"/load-balancers", `{"name": "web", "region": "north"}`)
	if status != 201 || !strings.Contains(body, `"state":"pending","address":""`) {
		t.Errorf("got %d %s", status, body)
	}
	now = now.Add(time.Minute - 1)
	if b, err := c.LoadBalancer("web"); err != nil || b.State != example.Pending || b.Address != "" {
		t.Errorf("a moment before: %+v, %v", b, err)
	}
	now = now.Add(1)
	if b, err := c.LoadBalancer("web"); err != nil || b.State != example.Active || b.Address == "" {
		t.Errorf("after: %+v, %v", b, err)
	}
}

func TestTheAddressesOfLoadBalancersEndAndAreUsedAgain(t *testing.T) {
	t.Parallel()
	c, _ := newCloud(t, example.Options{Provisioning: 1})
	names := map[string]string{}
	for n := range 255 { // of 256 in the prefix, without the first
		name := "web-" + string(rune('a'+n/26)) + string(rune('a'+n%26))
		b, err := c.CreateLoadBalancer(name, example.Region)
		if err != nil {
			t.Fatal(err)
		}
		names[b.ID] = name
	}
	if _, err := c.CreateLoadBalancer("more", example.Region); err == nil || !strings.Contains(err.Error(), "no_address_left") {
		t.Errorf("got %v", err)
	}
	if err := c.DeleteLoadBalancer("web-ab"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateLoadBalancer("more", example.Region); err != nil {
		t.Error(err)
	}
}

// FuzzRequests shows that no request makes the API fail: it answers JSON, and never with 500.
func FuzzRequests(f *testing.F) {
	for _, seed := range [][3]string{
		{"POST", "/instances", `{"name": "node-2"}`},
		{"PATCH", "/instances/vm-1", `{"state": "stopped"}`},
		{"POST", "/load-balancers", `{"name": "web", "region": "north"}`},
		{"PUT", "/listeners/lis-1/backends", `{"backends": ["10.64.0.2:30080", null]}`},
		{"PUT", "/routes/10.244.1.0/24", `{"instance": null}`},
		{"DELETE", "/routes/::/0?instance=%zz", ``},
		{"GET", "/listeners?load_balancer=%00", `null`},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	c, err := example.New(example.Options{})
	if err != nil {
		f.Fatal(err)
	}
	handler := c.Handler()
	f.Fuzz(func(t *testing.T, method, path, body string) {
		if strings.Contains(body, "port") {
			t.Skip("opens ports of this host")
		}
		r, err := http.NewRequestWithContext(t.Context(), method, "http://cloud"+example.Path+path, strings.NewReader(body))
		if err != nil {
			t.Skip("cannot be sent")
		}
		r.Header.Set("Authorization", "Bearer example-token")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code >= 300 && w.Code < 400 || method == http.MethodConnect {
			return // to a path that is clean
		}
		if w.Code >= 500 || !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s %q: %d %s", method, path, body, w.Code, w.Body)
		}
	})
}
