package api_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

const (
	author = "author" // the token that makes what a change needs, by today's API
	reader = "reader" // a read-only token with the same API date as the default token
)

// datedCloud is a cloud with an API date for its default token: the token's or the cloud's.
type datedCloud struct {
	t     *testing.T
	cloud *fakecloud.Cloud
}

// newDatedCloud returns a cloud with an API date and, if it is not "", an API date of the default token and the reader.
func newDatedCloud(t *testing.T, cloudDate, tokenDate string) *datedCloud {
	t.Helper()
	c := fakecloud.New(fakecloud.Options{APIDate: cloudDate})
	t.Cleanup(c.Close)
	w := &datedCloud{t, c}
	w.token(author, "2100-01-01", false)
	w.token(reader, tokenDate, true)
	w.token(c.Token(), tokenDate, false)
	return w
}

func (w *datedCloud) token(text, date string, readOnly bool) {
	w.t.Helper()
	if _, err := w.cloud.AddToken(w.t.Context(), fakecloud.DefaultProject, text, readOnly); err != nil {
		w.t.Fatal(err)
	}
	if err := w.cloud.SetTokenDate(w.t.Context(), text, date); err != nil {
		w.t.Fatal(err)
	}
}

func (w *datedCloud) as(token, method, path, body string) (int, map[string]any) {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, "/v1"+path, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	rec := httptest.NewRecorder()
	w.cloud.Handler().ServeHTTP(rec, r)
	answer := map[string]any{}
	if rec.Body.Len() > 0 {
		if err := json.Unmarshal(rec.Body.Bytes(), &answer); err != nil {
			w.t.Fatalf("%s %s: %v: %s", method, path, err, rec.Body)
		}
	}
	return rec.Code, answer
}

// do sends a request with the default token.
func (w *datedCloud) do(method, path, body string) (int, map[string]any) {
	w.t.Helper()
	return w.as(w.cloud.Token(), method, path, body)
}

// make creates a resource by today's API and returns its path and its JSON.
func (w *datedCloud) make(path, body string) (string, map[string]any) {
	w.t.Helper()
	status, answer := w.as(author, http.MethodPost, path, body)
	made, _ := answer[strings.TrimSuffix(path[1:], "s")].(map[string]any)
	if status != http.StatusCreated || made == nil {
		w.t.Fatalf("create %s: %d %v", path, status, answer)
	}
	return fmt.Sprintf("%s/%.0f", path, made["id"]), made
}

// get reads a value by the path of its keys and indexes: get("/servers/1", "server", "public_net").
func (w *datedCloud) get(path string, keys ...any) any {
	w.t.Helper()
	status, answer := w.do(http.MethodGet, path, "")
	if status != http.StatusOK {
		w.t.Fatalf("GET %s: %d %v", path, status, answer)
	}
	return at(answer, keys...)
}

func at(v any, keys ...any) any {
	for _, k := range keys {
		switch in := v.(type) {
		case map[string]any:
			v = in[k.(string)]
		case []any:
			v = in[k.(int)]
		default:
			return nil
		}
	}
	return v
}

// has returns the names of those fields that an object has.
func has(object any, fields ...string) string {
	var found []string
	for _, f := range fields {
		if _, ok := object.(map[string]any)[f]; ok {
			found = append(found, f)
		}
	}
	return strings.Join(found, " ")
}

const (
	anyServer   = `{"name": "s", "server_type": "cx23", "image": "debian-13", "location": "fsn1"}`
	anyBalancer = `{"name": "lb", "load_balancer_type": "lb11", "location": "fsn1"}`
)

// changes are the dated changes of the API. show returns before until the day, and after from the day on.
var changes = []struct {
	name, day     string
	before, after string
	show          func(*datedCloud) string
}{
	{"ActionsNeedIDs", "2025-01-30", "200 actions meta", "422 ", func(w *datedCloud) string {
		w.make("/servers", anyServer)
		status, answer := w.do(http.MethodGet, "/actions?status=success", "")
		return fmt.Sprint(status, " ", has(answer, "actions", "meta"))
	}},
	{"ServerTypeLocations", "2025-09-24", "", "locations", func(w *datedCloud) string {
		return has(w.get("/server_types?name=cx23", "server_types", 0), "locations")
	}},
	{"ServerTypeAvailability", "2026-04-01", "name", "name available recommended", func(w *datedCloud) string {
		s, _ := w.make("/servers", anyServer)
		return has(w.get(s, "server", "server_type", "locations", 0), "name", "available", "recommended")
	}},
	{"AssigneeTypeOptional", "2026-04-27", "422 assignee_type", "201 ", func(w *datedCloud) string {
		status, answer := w.do(http.MethodPost, "/primary_ips", `{"name": "ip", "type": "ipv4", "location": "fsn1"}`)
		return fmt.Sprint(status, " ", fieldsOf(answer))
	}},
	{"LoadBalancerIdleTimeout", "2026-04-30", "201 , ", "422 services.0.http.timeout_idle, timeout_idle", showIdleTimeout},
	{"MustBeUnassigned", "2026-05-01", "204 204", "422 422", func(w *datedCloud) string {
		s, made := w.make("/servers", strings.Replace(anyServer, `"s"`, `"s", "start_after_create": false`, 1))
		f, _ := w.make("/floating_ips", `{"type": "ipv4", "server": `+strings.TrimPrefix(s, "/servers/")+`}`)
		floating, _ := w.do(http.MethodDelete, f, "")
		primary, _ := w.do(http.MethodDelete, fmt.Sprintf("/primary_ips/%.0f", at(made, "public_net", "ipv4", "id")), "")
		return fmt.Sprint(primary, floating)
	}},
	{"DatacenterGone", "2026-07-01", "201 hel1, 201 hel1, datacenter, datacenter, datacenter", "201 fsn1, 422 <nil>, , , ", showDatacenter},
	{"ImageDeprecation", "2026-09-11", "deprecated, deprecated, deprecated",
		"deprecated deprecation, deprecated deprecation, deprecated deprecation", showImages},
	{"NetworkMembers", "2026-09-22", "404 <nil>", "200 []", func(w *datedCloud) string {
		n, _ := w.make("/networks", `{"name": "n", "ip_range": "10.0.0.0/16"}`)
		status, answer := w.do(http.MethodGet, n+"/members", "")
		return fmt.Sprint(status, " ", answer["members"])
	}},
	{"UnassignedAssigneeType", "2026-09-23", "server", "unassigned", func(w *datedCloud) string {
		ip, _ := w.make("/primary_ips", `{"name": "ip", "type": "ipv4", "location": "fsn1"}`)
		return fmt.Sprint(w.get(ip, "primary_ip", "assignee_type"))
	}},
	{"DatacentersGone", "2026-10-01", "200 200", "410 410", func(w *datedCloud) string {
		list, _ := w.do(http.MethodGet, "/datacenters", "")
		one, _ := w.do(http.MethodGet, "/datacenters/4", "")
		return fmt.Sprint(list, one)
	}},
	{"LoadBalancerHealthDetail", "2026-10-02", "unhealthy , ", "unhealthy detail, detail", showHealth},
	{"ReadonlyTokenForbidden", "2026-10-05", "401 token_readonly", "403 forbidden", func(w *datedCloud) string {
		status, answer := w.as(reader, http.MethodDelete, "/servers/1", "")
		return fmt.Sprint(status, " ", at(answer, "error", "code"))
	}},
	{"LoadBalancerDeleteAction", "2026-10-05", "204 ", "201 action", func(w *datedCloud) string {
		lb, _ := w.make("/load_balancers", anyBalancer)
		status, answer := w.do(http.MethodDelete, lb, "")
		return fmt.Sprint(status, " ", has(answer, "action"))
	}},
	{"LoadBalancerPrimaryIPs", "2026-10-05", "201, ip, ip", "422, ip id blocked, ip id blocked", func(w *datedCloud) string {
		lb, _ := w.make("/load_balancers", anyBalancer)
		net := w.get(lb, "load_balancer", "public_net")
		// Before, the field was unknown, and the API ignores the values of unknown fields.
		status, _ := w.do(http.MethodPost, "/load_balancers",
			strings.Replace(anyBalancer, `"lb"`, `"other", "public_net": {"ipv4": "text"}`, 1))
		return fmt.Sprintf("%d, %s, %s", status, has(at(net, "ipv4"), "ip", "id", "blocked"), has(at(net, "ipv6"), "ip", "id", "blocked"))
	}},
}

func showIdleTimeout(w *datedCloud) string {
	body := func(name, timeout string) string {
		return `{"name": "` + name +
			`", "load_balancer_type": "lb11", "location": "fsn1", "services": [{"protocol": "http", "http": {"timeout_idle": ` + timeout +
			`}}]}`
	}
	lb, _ := w.make("/load_balancers", body("lb", "40"))
	shown := has(w.get(lb, "load_balancer", "services", 0, "http"), "timeout_idle")
	status, answer := w.do(http.MethodPost, "/load_balancers", body("other", "400"))
	return fmt.Sprintf("%d %s, %s", status, fieldsOf(answer), shown)
}

func showDatacenter(w *datedCloud) string {
	s, _ := w.make("/servers", anyServer)
	ip, _ := w.make("/primary_ips", `{"name": "ip", "type": "ipv4", "location": "fsn1"}`)
	serverStatus, server := w.do(http.MethodPost, "/servers",
		`{"name": "other", "server_type": "cx23", "image": "debian-13", "datacenter": "hel1-dc2"}`)
	ipStatus, primary := w.do(http.MethodPost, "/primary_ips",
		`{"name": "other", "type": "ipv4", "assignee_type": "server", "datacenter": "3"}`)
	return fmt.Sprintf("%d %v, %d %v, %s, %s, %s",
		serverStatus, at(server, "server", "location", "name"), ipStatus, at(primary, "primary_ip", "location", "name"),
		has(server["server"], "datacenter"), has(w.get(s, "server"), "datacenter"), has(w.get(ip, "primary_ip"), "datacenter"))
}

func showImages(w *datedCloud) string {
	s, _ := w.make("/servers", anyServer)
	_, made := w.as(author, http.MethodPost, s+"/actions/create_image", `{"type": "snapshot"}`)
	snapshot := fmt.Sprintf("/images/%.0f", at(made, "image", "id"))
	var shown []string
	for _, image := range []any{w.get("/images/199030328", "image"), w.get(snapshot, "image"), w.get(s, "server", "image")} {
		shown = append(shown, has(image, "deprecated", "deprecation"))
	}
	return strings.Join(shown, ", ")
}

// showHealth shows the target of a server that is off: by itself and by a label selector.
func showHealth(w *datedCloud) string {
	s, _ := w.make("/servers", strings.Replace(anyServer, `"s"`, `"s", "labels": {"a": "b"}, "start_after_create": false`, 1))
	id := strings.TrimPrefix(s, "/servers/")
	lb, _ := w.make("/load_balancers",
		strings.Replace(anyBalancer, `"lb"`, `"lb", "services": [{"protocol": "tcp", "listen_port": 80, "destination_port": 80}],
		"targets": [{"type": "server", "server": {"id": `+id+`}}, {"type": "label_selector", "label_selector": {"selector": "a=b"}}]`, 1))
	if err := w.cloud.Step(w.t.Context(), 5*time.Minute); err != nil { // until the health checks have failed
		w.t.Fatal(err)
	}
	targets := w.get(lb, "load_balancer", "targets")
	health := at(targets, 0, "health_status", 0)
	return fmt.Sprintf("%v %s, %s", at(health, "status"), has(health, "detail"), has(at(targets, 1, "targets", 0, "health_status", 0),
		"detail"))
}

// The date of a token wins over that of the cloud, in both directions.
func TestEachChangeHasTwoSides(t *testing.T) {
	t.Parallel()
	for _, c := range changes {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			eve := dayBefore(t, c.day)
			for _, tc := range []struct{ cloud, token, want string }{
				{eve, "", c.before}, {c.day, "", c.after}, {"", "", c.after},
				{"", eve, c.before}, {eve, c.day, c.after}, {c.day, eve, c.before},
			} {
				if got := c.show(newDatedCloud(t, tc.cloud, tc.token)); got != tc.want {
					t.Errorf("API date of the cloud %q, of the token %q: %q, want %q", tc.cloud, tc.token, got, tc.want)
				}
			}
		})
	}
}

func dayBefore(t *testing.T, day string) string {
	t.Helper()
	d, err := time.Parse(time.DateOnly, day)
	if err != nil {
		t.Fatal(err)
	}
	return d.AddDate(0, 0, -1).Format(time.DateOnly)
}

// The table above has a row for each change in date.go.
func TestEachChangeIsInTheTable(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "date.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, c := range changes {
		rows[c.name] = true
	}
	declared := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !spec.Names[0].IsExported() {
			return true
		}
		declared++
		if name := spec.Names[0].Name; !rows[name] {
			t.Errorf("the change %s is in date.go, but not in the table of this test; add a row", name)
		}
		return true
	})
	if declared != len(changes) {
		t.Errorf("date.go has %d changes, the table %d", declared, len(changes))
	}
}

// The JSON of resources is cached. Tokens of different dates read the same resources by turns, alone and in lists, and each
// gets the form of its date.
func TestTokensOfDifferentDatesReadTheSameResources(t *testing.T) {
	t.Parallel()
	w := newDatedCloud(t, "", "")
	w.token("old", "2026-06-01", false)
	server, _ := w.make("/servers", anyServer)
	balancer, _ := w.make("/load_balancers", anyBalancer)
	read := func(token, path string, keys ...any) any {
		_, answer := w.as(token, http.MethodGet, path, "")
		return at(answer, keys...)
	}
	forms := func(token string) [4]string {
		return [4]string{
			has(read(token, server, "server"), "datacenter"),
			has(read(token, "/servers", "servers", 0), "datacenter"),
			has(read(token, balancer, "load_balancer", "public_net", "ipv4"), "blocked"),
			has(read(token, "/images/199030328", "image"), "deprecation"),
		}
	}
	want := map[string][4]string{
		"old": {"datacenter", "datacenter", "", ""}, author: {"", "", "blocked", "deprecation"},
		w.cloud.Token(): {"", "", "blocked", "deprecation"},
	}
	for _, tokens := range [][]string{{"old", author, w.cloud.Token()}, {w.cloud.Token(), "old", author}} {
		// A new version of the server empties its cache, and that of the list.
		_, answer := w.as(tokens[0], http.MethodPut, server, `{"labels": {"by": "x"}}`)
		if got := has(answer["server"], "datacenter"); got != want[tokens[0]][0] {
			t.Errorf("%s updates: %q, want %q", tokens[0], got, want[tokens[0]][0])
		}
		for _, token := range tokens {
			if got := forms(token); got != want[token] {
				t.Errorf("%s of %v: %q, want %q", token, tokens, got, want[token])
			}
		}
	}
}

// An operation that does not exist yet is an unknown path: 404, even without a token.
func TestAnOperationOfALaterDayIsAnUnknownPath(t *testing.T) {
	t.Parallel()
	for date, want := range map[string]int{"2026-09-21": http.StatusNotFound, "2026-09-22": http.StatusUnauthorized} {
		w := newDatedCloud(t, date, "")
		if status, answer := w.as("", http.MethodGet, "/networks/1/members", ""); status != want {
			t.Errorf("%s: %d %v, want %d", date, status, answer, want)
		}
	}
}

func TestARequestNamesADatacenterOrALocation(t *testing.T) {
	t.Parallel()
	w := newDatedCloud(t, "2026-06-30", "")
	const both = `"datacenter": "fsn1-dc14", "location": "fsn1"` // LKDevelopment/hetzner-cloud-php-sdk issue 1
	for fields, wrong := range map[string]string{`"datacenter": "mars-dc1"`: "datacenter", both: "datacenter location"} {
		for path, body := range map[string]string{
			"/servers":     `{"name": "s", "server_type": "cx23", "image": "debian-13", ` + fields + `}`,
			"/primary_ips": `{"name": "ip", "type": "ipv4", "assignee_type": "server", ` + fields + `}`,
		} {
			if status, answer := w.do(http.MethodPost, path, body); status != http.StatusUnprocessableEntity ||
				fieldsOf(answer) != wrong {
				t.Errorf("%s %s: %d %v", path, fields, status, answer)
			}
		}
	}
}
