package recording

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// private are values that must not pass, by their meaning. All are too long to appear by chance.
var private = map[string]string{
	"token": "tokentokentokentokentokentokentokentokentokentokentokentoken1234", "server name": "acme-frontend",
	"user data": "hunter2-user-data",
	"label key": "acme.corp/department", "label value": "skunkworks", "description": "Our secret plan", "domain": "acme-corp.de",
	"record": "mail.acme-internal.net", "text record": "v=spf1 include:acme", "comment": "call Alice", "source range": "203.0.113.64/26",
	"target address": "203.0.113.7", "IPv6": "2a01:4f8:c0c:77::", "reverse DNS": "www.acme-shop.com", "e-mail": "alice@acme.io",
	"SSH key": "AAAAC3NzaC1lZDI1NTE5AAAAIJsvqlNCPOsyJZzPYQKm0cdfs5HE54cU4mQLsIJ1hT1P", "key comment": "secret-comment",
	"health path": "/acme-health", "health domain": "health.acme.dev", "response": "acme is alive", "TSIG key": "YWNtZS10c2lnLXNlY3JldA==",
	"cookie": "ACMECOOKIE", "unknown field": "acme_field", "unknown value": "acme-value", "query": "acme-query",
	"zone file": "acme-zonefile",
	"path":      "acme-path", "header": "acme-header", "user agent": "acme-agent",
	"phrase": "open sesame now", "snapshot": "acme snapshot",
}

// TestNothingPrivatePasses sends private values wherever the API takes text, and looks for them in the recording.
func TestNothingPrivatePasses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(r *http.Request, a *wrongAnswer) { // the cloud may add what the document does not have
		a.header.Set("X-Acme", private["header"])
		if s, ok := a.body["server"].(object); ok {
			s["acme_new"] = private["unknown value"]
		}
		// A message can only be checked for values that were seen before.
		if e, ok := a.body["error"].(object); ok && r.URL.Path == "/v1/servers" {
			e["message"] = fmt.Sprintf("%v: '%s' of %s, %s and %s at %s, %s", e["message"], private["server name"], private["token"],
				private["description"], private["e-mail"], private["target address"], private["phrase"])
		}
	})
	w.token = private["token"]
	if _, err := w.cloud.AddToken(t.Context(), 1, w.token, false); err != nil {
		t.Fatal(err)
	}
	usePrivateValues(w)
	w.read()
	text := w.file.String()
	found := func(what, value string) {
		if value = strings.Trim(string(encode(value)), `"`); strings.Contains(text, value) {
			at := strings.Index(text, value)
			t.Errorf("the recording has the %s, %q: …%s", what, value, text[max(0, at-150):min(len(text), at+50)])
		}
	}
	for what, value := range private {
		found(what, value)
	}
	for _, m := range secretsOf(w) {
		found("secret of an answer", m)
	}
	if n := strings.Count(text, "\n"); n < 30 {
		t.Errorf("only %d lines were recorded", n)
	}
	for _, kept := range []string{`"server_type":"cx23"`, `"status":"running"`, `"command":"create_server"`, `"10.0.0.0/16"`,
		`"uniqueness_error"`, `"user_data":"[secret]"`, `"acme_new":"[string]"`, `"debian-13"`, `"fsn1"`, `"id:asc"`} {
		if !strings.Contains(text, kept) {
			t.Errorf("the recording lacks %s", kept)
		}
	}
}

// usePrivateValues sends requests with all private values, and mistakes with them.
func usePrivateValues(w *world) {
	w.Helper()
	p := private
	labels := object{p["label key"]: p["label value"]}
	_, key := w.do("POST", "/ssh_keys", object{"name": p["server name"], "public_key": testSSHKey, "labels": labels})
	w.do("POST", "/ssh_keys", object{"name": "x", "public_key": testSSHKey}) // uniqueness_error
	_, network := w.do("POST", "/networks", object{"name": p["description"], "ip_range": "10.0.0.0/16", "labels": labels,
		"subnets": []object{{"type": "cloud", "network_zone": "eu-central", "ip_range": "10.0.1.0/24"}}})
	_, firewall := w.do("POST", "/firewalls", object{"name": "fw", "rules": []object{{"direction": "in", "protocol": "tcp", "port": "443",
		"source_ips": []string{p["source range"], p["IPv6"] + "/64"}, "description": p["description"]}}})
	server := object{"name": p["server name"], "server_type": "cx23", "image": "debian-13", "location": "fsn1", "labels": labels,
		"user_data": p["user data"], "networks": []any{at(network, "network", "id")}, "ssh_keys": []any{at(key, "ssh_key", "id")},
		"firewalls": []object{{"firewall": at(firewall, "firewall", "id")}}, p["unknown field"]: p["unknown value"]}
	_, created := w.do("POST", "/servers", server)
	w.await(created)
	w.step(time.Minute)
	one := "/servers/" + w.idOf(created, "server")
	w.do("GET", one, nil)
	for _, action := range []string{"reset_password", "request_console", "enable_rescue", "create_image"} {
		_, a := w.do("POST", one+"/actions/"+action, object{"description": p["snapshot"], "type": map[string]string{
			"enable_rescue": "linux64", "create_image": "snapshot"}[action]})
		w.step(time.Minute)
		if a["action"] == nil && action != "reset_password" && action != "request_console" {
			w.Errorf("%s: %v", action, a)
		}
	}
	w.do("GET", "/images?type=snapshot&sort=id:asc", nil)
	w.do("POST", one+"/actions/change_dns_ptr",
		object{"ip": at(created, "server", "public_net", "ipv4", "ip"), "dns_ptr": p["reverse DNS"]})
	w.do("POST", "/load_balancers", object{"name": "lb", "load_balancer_type": "lb11", "location": "fsn1",
		"targets": []object{{"type": "ip", "ip": object{"ip": p["target address"]}},
			{"type": "label_selector", "label_selector": object{"selector": p["label key"] + " in (" + p["label value"] + ",b)"}}},
		"services": []object{{"protocol": "http", "listen_port": 80, "http": object{"cookie_name": p["cookie"]}, "health_check": object{
			"protocol": "http", "port": 80, "interval": 15, "timeout": 10, "retries": 3, "http": object{"domain": p["health domain"],
				"path": p["health path"], "response": p["response"], "status_codes": []string{"2??"}}}}}})
	w.do("GET", "/load_balancers", nil)
	w.do("POST", "/zones", object{"name": p["domain"], "mode": "primary", "rrsets": []object{
		{"name": "www", "type": "CNAME", "records": []object{{"value": p["record"] + ".", "comment": p["comment"]}}},
		{"name": "@", "type": "TXT", "records": []object{{"value": `"` + p["text record"] + `"`}}},
		{"name": "@", "type": "A", "records": []object{{"value": p["target address"]}}},
	}})
	w.do("GET", "/zones/"+p["domain"]+"/rrsets", nil)
	w.do("GET", "/zones/"+p["domain"]+"/rrsets/www/CNAME", nil)
	w.do("POST", "/zones", object{"name": "b.acme.zone", "mode": "secondary", "primary_nameservers": []object{{
		"address": p["target address"], "tsig_key": p["TSIG key"], "tsig_algorithm": "hmac-sha256"}}})
	w.do("GET", "/zones", nil)
	w.do("POST", "/zones", object{"name": "c.acme.zone", "mode": "primary", "zonefile": "@ IN TXT " + p["zone file"]})
	w.do("POST", "/certificates", object{"name": "c", "certificate": testSSHKey, "private_key": p["user data"]})
	w.do("GET", "/servers?name="+p["query"]+"&"+p["query"]+"="+p["query"]+"&label_selector="+p["label value"], nil)
	w.do("GET", "/"+p["path"]+"/"+p["path"], nil)
	w.do("GET", "/servers/"+p["path"], nil)
	w.do("POST", "/servers", object{"name": "z", "server_type": "none", "user_data": p["phrase"]})
	// Mistakes: private values where they do not belong.
	for _, name := range []string{"name", "server_type", "image", "location", "labels", "user_data", "networks", "ssh_keys"} {
		for _, value := range []any{p["token"], []string{p["user data"]}, object{p["unknown field"]: p["user data"]}} {
			body := object{"name": "y", "server_type": "cx23", "image": "debian-13", "location": "fsn1"}
			body[name] = value
			w.do("POST", "/servers", body)
		}
	}
	w.do("POST", "/placement_groups", object{"name": "g", "type": p["token"]})
	w.do("POST", "/placement_groups", `{"name": "`+p["user data"])
	w.do("POST", "/placement_groups", `"`+p["user data"]+`"`)
}

// secretsOf returns the secrets that the cloud made.
func secretsOf(w *world) (all []string) {
	w.Helper()
	w.client = &http.Client{Transport: w.cloud.Transport()}
	_, list := w.do("GET", "/servers", nil)
	for _, s := range list["servers"].([]any) {
		for _, path := range [][]string{{"public_net", "ipv4", "ip"}, {"public_net", "ipv6", "ip"}} {
			if ip, _ := at(s, path...).(string); ip != "" && !strings.HasPrefix(ip, "198.18.") && !strings.HasPrefix(ip, "2001:db8:") {
				all = append(all, ip)
			}
		}
		all = append(all, fmt.Sprintf("/servers/%.0f", at(s, "id")))
	}
	return all
}

func TestTheSameValueHasTheSamePseudonym(t *testing.T) {
	t.Parallel()
	r := NewRedactor([]string{"cx23"})
	exchange := func(method, path, query, request, response string) Exchange {
		t.Helper()
		return r.Exchange(&Message{
			Method: method, Path: path, Query: query, Request: []byte(request), Status: 200, Response: []byte(response),
		})
	}
	first := exchange("POST", "/servers", "", `{"name":"web","labels":{"app":"web"},"networks":[90]}`,
		`{"server":{"id":500,"name":"web","labels":{"app":"web"},"public_net":{"ipv4":{"id":700,"ip":"203.0.113.1"}}}}`)
	if got, want := string(first.Response), `{"server":{"id":6464,"labels":{"name-1":"name-2"},"name":"name-2","public_net":{"ipv4":`+
		`{"id":6528,"ip":"198.18.0.1"}}}}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, want := string(first.Request), `{"labels":{"name-1":"name-2"},"name":"name-2","networks":[6400]}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	second := exchange("GET", "/servers/500", "name=web&label_selector=app%3Dweb,app+in+(web)", "", `{"error":{"code":"not_found",`+
		`"message":"server web with ID '500' and 203.0.113.1 not found","details":null}}`)
	if second.Path != "/servers/6464" || second.Query["name"][0] != "name-2" ||
		second.Query["label_selector"][0] != "name-1=name-2,name-1 in (name-2)" {
		t.Errorf("%s %v", second.Path, second.Query)
	}
	third := exchange("GET", "/servers", "", "", `{"error":{"code":"x","message":"198.51.100.77, a.b@c.org, 12345678, Acme-1 and 'x y' are new",`+
		`"details":{"fields":[{"name":"198.51.100.77"},{"name":"services.0.http"}]}}}`)
	if want := `[{"name":"198.18.0.2"},{"name":"services.0.http"}]},"message":"198.18.0.2, user-1@name.example, [number], name-4 and ` +
		`'name -name-5' are new"}}`; !strings.HasSuffix(string(third.Response), want) {
		t.Errorf("%s, want %s", third.Response, want)
	}
	if want := "server name-2 with ID '6464' and 198.18.0.1 not found"; !strings.Contains(string(second.Response), want) {
		t.Errorf("%s, want %s", second.Response, want)
	}
}

func TestPseudonyms(t *testing.T) {
	t.Parallel()
	p := newPseudonyms()
	for _, c := range []struct{ in, want string }{
		{"", ""}, {"@", "@"}, {"10.1.2.3", "10.1.2.3"}, {"10.0.0.0/8", "10.0.0.0/8"}, {"0.0.0.0/0", "0.0.0.0/0"}, {"::/0", "::/0"},
		{"fd00::1", "fd00::1"}, {"198.51.100.9", "198.18.0.1"}, {"198.51.100.9", "198.18.0.1"}, {"198.51.100.9/32", "198.18.0.1/32"},
		{"198.51.100.0/24", "198.19.0.0/24"}, {"192.0.2.0/28", "198.19.1.0/28"}, {"2a01:4f8::1", "2001:db8:0:1::1"},
		{"2a01:4f8::/64", "2001:db8:0:1::/64"}, {"2a01:4f8::abcd:1234:5678", "2001:db8:0:1::1:1"}, {"a@b.c", "user-1@name.example"},
		{"Foo.com", "name-1.example"}, {"www.foo.com.", "name-2.name-1.example."}, {"foo", "name-1"}, {"two words", "name -3"},
		{"-a-", "-name-4-"}, {"-", "-"}, {"Größe", "nameü-5"},
	} {
		if got := p.text(c.in); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
	if a, b := p.hex("0a:1B:2c"), p.hex("0a:1B:2c"); a != b || !regexp.MustCompile(`^[0-9a-f:]{8}$`).MatchString(a) || a == "0a:1B:2c" {
		t.Errorf("%q, %q", a, b)
	}
}

func TestPseudonymsOfIDsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	p := newPseudonyms()
	var all []int64
	for _, batch := range [][]int64{{500, 100, 100}, {300}, {1, 2, 3, 4}, {200, 250, 600, 0, -1}, {301, 302, 303}} {
		p.learn(slices.Clone(batch))
		for _, id := range batch {
			if id > 0 {
				all = append(all, id)
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	for i := 1; i < len(all); i++ {
		if p.ids[all[i-1]] >= p.ids[all[i]] || p.ids[all[i-1]] < 1 {
			t.Errorf("%d is %d, %d is %d", all[i-1], p.ids[all[i-1]], all[i], p.ids[all[i]])
		}
	}
	for i := range int64(50_000) { // a neighbour has no room for all of these
		p.learn([]int64{1_000_000 - i})
	}
	made := map[int64]bool{}
	for _, id := range p.ids {
		made[id] = true
	}
	if len(made) != len(p.ids) {
		t.Errorf("%d ids have %d pseudonyms", len(p.ids), len(made))
	}
}

// FuzzRedact checks that a text of a request or an answer passes only where it may.
func FuzzRedact(f *testing.F) {
	f.Add("POST", "/servers", "name=a", `{"name":"s3cret-value","labels":{"s3cret-value":"b"}}`, `{"server":{"id":1,"name":"s3cret-value"}}`)
	f.Add("GET", "/zones/s3cret-value/rrsets/@/A", "%", `[`, `{"error":{"code":"x","message":"s3cret-value is wrong"}}`)
	f.Add("PUT", "//", "s3cret-value=1&s3cret-value", `{"s3cret-value":{}}`, `[{"s3cret-value":1e999}]`)
	f.Fuzz(func(t *testing.T, method, path, query, request, response string) {
		r := NewRedactor(nil)
		e := r.Exchange(&Message{
			Method: method, Path: "/" + path, Query: query, Request: []byte(request), Status: 200, Response: []byte(response),
		})
		e.Seq, e.Path = 1, strings.NewReplacer(" ", "", "?", "", "#", "").Replace(e.Path)
		text := encode(e)
		if bytes.Contains(text, []byte("s3cret-value")) {
			t.Errorf("%s", text)
		}
		if !json.Valid(text) || bytes.ContainsRune(text, '\n') {
			t.Errorf("not a line: %s", text)
		}
	})
}
