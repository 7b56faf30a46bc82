package api

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// TestRawCalls sends what people send to the real API by hand, and compares what their scripts read. api-facts.md, "What raw calls show",
// has the sources.
func TestRawCalls(t *testing.T) {
	t.Parallel()
	const key = `{"name": "a", "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHuYzGvJaxIeSGGkf1M8UXw+o3rTa0TWp5tLsAkeJxzv"}`
	for name, tc := range map[string]struct {
		method, path, body string
		status             int
		text               string // the beginning of the answer, with | for a line break
	}{
		"a list": {"GET", "/v1/ssh_keys?per_page=1", "", 200,
			`{|  "ssh_keys": [|    {|      "id": 1000001,|      "name": "a",|`},
		"an empty list": {"GET", "/v1/servers", "", 200,
			`{|  "servers": [],|  "meta": {|    "pagination": {|      "page": 1,|      "per_page": 25,|      "previous_page": null,|`},
		"one":                {"GET", "/v1/ssh_keys/1000001", "", 200, `{|  "ssh_key": {|    "id": 1000001,|`},
		"a catalogue's":      {"GET", "/v1/locations", "", 200, `{|  "locations": [|    {|      "id": 1,|      "name": "fsn1",|`},
		"a network":          {"POST", "/v1/networks", `{"name": "n", "ip_range": "10.0.0.0/16"}`, 201, `{|    "network": {|        "id": `},
		"zones":              {"GET", "/v1/zones", "", 200, `{|    "zones": [],|    "meta": {|        "pagination": {|`},
		"a slash at the end": {"GET", "/v1/ssh_keys/?page=1", "", 200, `{|  "ssh_keys": [|    {`},
		"a slash and a body": {"POST", "/v1/placement_groups/", `{"name": "g", "type": "spread"}`, 201, `{|  "placement_group": {`},
		"two slashes":        {"GET", "//v1//ssh_keys/1000001", "", 200, `{|  "ssh_key": {`},
		"no id":              {"DELETE", "/v1/ssh_keys/", "", 404, `{|  "error": {|    "code": "not_found"`},
		"an error": {"GET", "/v1/servers/1", "", 404,
			`{|  "error": {|    "code": "not_found",|    "message": "server with ID '1' not found",|    "details": null|  }|}|`},
		"no JSON of a server": {"POST", "/v1/servers", `{"name": `, 422,
			`{| "error": {|  "code": "json_error",|  "message": "syntax error",|  "details": {}| }|}|`},
		"no image of a server": {"POST", "/v1/servers", `{"name": "s", "server_type": "22", "image": "none"}`, 422,
			`{| "error": {|  "code": "invalid_input",|  "message": "image not found",|  "details": {}| }|}|`},
		"no network zone": {"POST", "/v1/networks",
			`{"name": "n", "ip_range": "10.0.0.0/8", "subnets": [{"type": "cloud", "network_zone": "x"}]}`, 422,
			`{|    "error": {|        "code": "invalid_input",|        "message": "invalid input in field 'subnets[0].network_zone'",`},
		"no JSON of a network": {"POST", "/v1/networks", `{"name": `, 400,
			`{|    "error": {|        "code": "json_error",|        "message": "A valid JSON document is required."|    }|}|`},
		"a selector": {"GET", "/v1/servers?label_selector=a%3Db+c", "", 422,
			`{|  "error": {|    "code": "invalid_input",|    "message": "invalid label_selector: expected comma at pos 4",|`},
		"texts of a volume": {"POST", "/v1/volumes",
			`{"name": "v", "size": "10", "location": "fsn1", "automount": "false"}`, 201, `{|  "volume"`},
		"texts of a server": {"POST", "/v1/servers",
			`{"name": "s", "server_type": "22", "image": "debian-13", "start_after_create": "true"}`, 201, `{|  "server": {|    "id": `},
		"no number":    {"POST", "/v1/volumes", `{"name": "v", "size": "ten", "location": "fsn1"}`, 422, `{|  "error"`},
		"another text": {"POST", "/v1/volumes", `{"name": "v", "size": 10, "location": "fsn1", "automount": "yes"}`, 422, `{|  "error"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, nil)
			f.do(t, "one", http.MethodPost, "/v1/ssh_keys", key)
			a := f.do(t, "one", tc.method, tc.path, tc.body)
			tc.text = strings.ReplaceAll(tc.text, "|", "\n")
			if a.status != tc.status || !strings.HasPrefix(a.body, tc.text) || !strings.HasSuffix(a.body, "\n}\n") {
				t.Errorf("%d %q, want %d %q", a.status, a.body, tc.status, tc.text)
			}
		})
	}
}

// TestEachAnswerIsIndentedAsByTheLibrary reads each list and the first of its resources twice, since both are kept.
func TestEachAnswerIsIndentedAsByTheLibrary(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	f.do(t, "one", http.MethodPost, "/v1/servers", `{"name": "s", "server_type": "cx23", "image": "debian-13"}`)
	f.do(t, "one", http.MethodPost, "/v1/load_balancers", `{"name": "lb", "load_balancer_type": "lb11", "location": "fsn1"}`)
	f.do(t, "one", http.MethodPost, "/v1/networks", `{"name": "n", "ip_range": "10.0.0.0/16", "labels": {"a": "\\\"{[:,"}}`)
	f.do(t, "one", http.MethodPost, "/v1/networks", `{"name": "n", "ip_range": "10.0.0.0/16"}`)
	f.do(t, "one", http.MethodPost, "/v1/zones", `{"name": "example.org", "mode": "primary"}`)
	f.do(t, "one", http.MethodPost, "/v1/firewalls", `{"name": "f\\\"{[:,\u2028"}`)
	for _, route := range Routes() {
		if route.Method != http.MethodGet || strings.Contains(route.Pattern, "{") {
			continue
		}
		spaces := "  "
		if strings.HasPrefix(route.Pattern, "/networks") || strings.HasPrefix(route.Pattern, "/zones") {
			spaces = "    "
		}
		for range 3 {
			got := f.do(t, "one", http.MethodGet, "/v1"+route.Pattern, "").body
			var want bytes.Buffer
			if err := json.Indent(&want, []byte(got), "", spaces); err != nil || want.String() != got {
				t.Errorf("%s: %v\n%s\nwant %s", route.Pattern, err, got, want.String())
			}
		}
	}
}

func TestPagesOfAllowedOriginsCallTheAPI(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) { o.Origins = []string{"http://localhost:3000"} })
	for _, tc := range []struct {
		origin, method string
		status         int
		allowed        string
	}{
		{"http://localhost:3000", http.MethodOptions, 204, "http://localhost:3000"}, {"http://evil.example", http.MethodOptions, 405, ""},
		{"http://localhost:3000", http.MethodGet, 401, "http://localhost:3000"}, {"", http.MethodGet, 401, ""},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tc.method, "/v1/servers", nil)
		r.Header.Set("Origin", tc.origin)
		r.Header.Set("Access-Control-Request-Method", http.MethodPost)
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		if got := w.Header().Get("Access-Control-Allow-Origin"); w.Code != tc.status || got != tc.allowed {
			t.Errorf("%s from %q: %d, allowed %q", tc.method, tc.origin, w.Code, got)
		}
	}
}

// A field that nothing reads is named, and refused in one operation and on request. cloudpanel-ce issues 659 and 662 show the refusal.
func TestUnreadFieldsAreNamed(t *testing.T) {
	t.Parallel()
	const server = `{"name": "s", "server_type": "cx23", "image": "debian-13"`
	for name, tc := range map[string]struct {
		method, path, body string
		date               Date
		names              string
		refused            string // the message without the option
	}{
		"user data":      {"POST", "/v1/servers", server + `, "user-data": "x", "sshkeys": ["a"]}`, Date{}, "sshkeys, user-data", ""},
		"a data center":  {"POST", "/v1/servers", server + `, "datacenter": "nbg1-dc3"}`, Date{}, "datacenter", ""},
		"before it went": {"POST", "/v1/servers", server + `, "datacenter": "nbg1-dc3"}`, day(2026, 6, 1), "", ""},
		"before it came": {"POST", "/v1/load_balancers", `{"name": "lb", "load_balancer_type": "lb11", "location": "fsn1", "public_net": {}}`,
			day(2026, 6, 1), "", ""},
		"null":    {"POST", "/v1/servers", server + `, "other": null}`, Date{}, "other", ""},
		"no body": {"POST", "/v1/servers/1/actions/poweroff", `{"force": true}`, Date{}, "force", "server with ID '1' not found"},
		"no JSON": {"DELETE", "/v1/servers/1", `force`, Date{}, "", "server with ID '1' not found"},
		"a deep one": {"POST", "/v1/firewalls",
			`{"name": "f", "rules": [{"direction": "in", "protocol": "icmp", "source_ips": ["::/0"], "dir": 1}]}`, Date{}, "rules.0.dir", ""},
		"a line break":    {"POST", "/v1/firewalls", `{"name": "f", "a\nb": 1}`, Date{}, `a\nb`, ""},
		"a filter":        {"GET", "/v1/servers?name=a&status=off&description=b", "", Date{}, "description", ""},
		"a query of none": {"GET", "/v1/networks/1?page=1", "", Date{}, "page", "network with ID '1' not found"},
		"an image": {"POST", "/v1/servers/1/actions/create_image", `{"labelkey": "a", "other": "b"}`, Date{}, "labelkey, other",
			"invalid input: unknown field name 'labelkey'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, refuse := range []bool{false, true} {
				var log bytes.Buffer
				f := newFixture(t, func(o *Options) {
					o.Date, o.RefuseUnknown, o.Logger = tc.date, refuse, slog.New(slog.NewTextHandler(&log, nil))
				})
				a := f.do(t, "one", tc.method, tc.path, tc.body)
				const words = "a request has fields that nothing reads; see its names, or refuse them with --unknown-fields refuse"
				said := strings.ReplaceAll(log.String(), `\\`, `\`)
				if !strings.Contains(said, tc.names) || strings.Contains(said, words) != (tc.names != "") {
					t.Errorf("the log says %q", said)
				}
				entries := f.entries(t, journal.Filter{})
				if got := a.header.Get(UnknownFieldsHeader); got != tc.names || entries[0].UnknownFields != tc.names {
					t.Errorf("the header names %q, the journal %q, want %q", got, entries[0].UnknownFields, tc.names)
				}
				if refused := tc.refused != "" || refuse && tc.names != ""; refused != (a.Error != nil) ||
					refused && !refuse && a.Error.Message != tc.refused {
					t.Errorf("refuse %t: %d %s", refuse, a.status, a.body)
				}
			}
		})
	}
}
