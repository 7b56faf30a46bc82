package recording

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// scenario uses the cloud as the tests of infidelities need it.
func scenario(w *world) {
	w.Helper()
	// Their pseudonyms are those that the simulation gives to the server.
	w.do("POST", "/firewalls", object{"name": "fw", "rules": []object{{"direction": "in", "protocol": "tcp", "port": "22",
		"source_ips": []string{"203.0.113.9/32", "2a01:4f8:1:2::/64"}}}})
	_, network := w.do("POST", "/networks", object{
		"name": "cluster", "ip_range": "10.0.0.0/16", "labels": object{"env": "prod"},
		"subnets": []object{{"type": "cloud", "network_zone": "eu-central", "ip_range": "10.0.1.0/24"}},
	})
	w.do("POST", "/networks", object{"name": "other", "ip_range": "10.1.0.0/16"})
	w.do("POST", "/networks", object{"name": "other", "ip_range": "10.2.0.0/16"}) // uniqueness_error
	w.do("GET", "/networks?per_page=1", nil)
	w.do("GET", "/networks", nil)
	path := "/networks/" + w.idOf(network, "network")
	_, protected := w.do("POST", path+"/actions/change_protection", object{"delete": true})
	w.await(protected)
	w.do("DELETE", path, nil) // protected
	_, server := w.do("POST", "/servers", object{
		"name": "web-1", "server_type": "cx23", "image": "debian-13", "location": "fsn1", "networks": []any{at(network, "network", "id")},
	})
	one := "/servers/" + w.idOf(server, "server")
	w.do("POST", one+"/actions/poweroff", nil) // locked
	w.await(server)
	next, _ := server["next_actions"].([]any)
	for _, action := range next {
		w.await(object{"action": action})
	}
	w.step(10 * time.Second)
	v6, _ := at(server, "server", "public_net", "ipv6", "ip").(string)
	_, reverse := w.do("POST", one+"/actions/change_dns_ptr", object{"ip": strings.Replace(v6, "::/64", "::1", 1), "dns_ptr": "a.example"})
	w.await(reverse)
	_, reverse = w.do("POST", one+"/actions/change_dns_ptr",
		object{"ip": at(server, "server", "public_net", "ipv4", "ip"), "dns_ptr": "b.example"})
	w.await(reverse)
	w.do("GET", one, nil)
	w.do("GET", one+"/actions", nil)
	w.do("POST", "/zones", object{"name": "a.example", "mode": "primary"})
	_, set := w.do("POST", "/zones/a.example/rrsets", object{"name": "www", "type": "A", "records": []object{{"value": "203.0.113.7"},
		{"value": "203.0.113.8"}}})
	w.await(set)
	w.do("GET", "/zones/a.example/rrsets", nil)
	w.do("GET", "/servers?label_selector=env%3Dprod", nil)
	w.do("GET", "/servers/4711", nil)                              // not_found
	w.do("POST", "/servers", object{"name": "-", "location": "x"}) // invalid_input
	_, lb := w.do("POST", "/load_balancers", object{
		"name": "lb", "load_balancer_type": "lb11", "location": "fsn1", "algorithm": object{"type": "least_connections"},
		"targets":  []object{{"type": "server", "server": object{"id": at(server, "server", "id")}}},
		"services": []object{{"protocol": "tcp", "listen_port": 80, "destination_port": 30080}},
	})
	w.await(lb)
	two := "/load_balancers/" + w.idOf(lb, "load_balancer")
	w.do("GET", two, nil)
	w.step(time.Minute)
	w.do("DELETE", two, nil)
}

// change returns an answer with another value at a place, where * is each entry. The value may be a function of the old one.
func change(v any, place string, to any) any {
	name, rest, _ := strings.Cut(place, ".")
	as, isFunc := to.(func(any) any)
	switch {
	case place == "" && isFunc:
		return as(v)
	case place == "":
		return to
	case name == "*":
		for i, entry := range list(v) {
			list(v)[i] = change(entry, rest, to)
		}
		return v
	}
	o, _ := v.(object)
	if old, ok := o[name]; to == any(gone) && rest == "" {
		delete(o, name)
	} else if ok || o != nil && rest == "" && !isFunc {
		o[name] = change(old, rest, to)
	}
	return v
}

const gone = "a field that is not there"

func reversed(v any) any { slices.Reverse(list(v)); return v }
func shorter(v any) any  { return list(v)[min(1, len(list(v))):] }

// TestEachInfidelityIsFound records a cloud that answers wrongly in one place. The replay must name that place, and no other.
func TestEachInfidelityIsFound(t *testing.T) {
	t.Parallel()
	const protect, records = "/networks/{id}/actions/change_protection", "/zones/{id_or_name}/rrsets"
	for _, c := range []struct {
		name, method, route string
		status              int
		what, place         string
		lie                 any // the value at the place, or a function of the answer
	}{
		{"a boolean", "GET", "/servers/{id}", 200, DiffValue, "server.rescue_enabled", true},
		{"a boolean in a list", "GET", "/networks", 200, DiffValue, "networks.*.protection.delete", true},
		{"a next action that is missing", "POST", "/servers", 201, DiffEntries, "next_actions", shorter},
		{"an action that a list lacks", "GET", "/servers/{id}/actions", 200, DiffEntries, "actions", shorter},
		{"another order of actions", "GET", "/servers/{id}/actions", 200, DiffOrder, "actions", reversed},
		{"another command", "POST", protect, 201, DiffValue, "action.command", "protect"},
		{"another order of records", "GET", records, 200, DiffOrder, "rrsets.*.records", reversed},
		{"an algorithm", "GET", "/load_balancers/{id}", 200, DiffValue, "load_balancer.algorithm.type", "round_robin"},
		{"a protocol", "GET", "/load_balancers/{id}", 200, DiffValue, "load_balancer.services.*.protocol", "http"},
		{"a type of targets", "GET", "/load_balancers/{id}", 200, DiffValue, "load_balancer.targets.*.type", "ip"},
		{"a direction", "POST", "/firewalls", 201, DiffValue, "firewall.rules.*.direction", "out"},
		{"a type of subnets", "GET", "/networks", 200, DiffValue, "networks.*.subnets.*.type", "vswitch"},
		{"an unknown algorithm", "GET", "/load_balancers/{id}", 200, DiffValue, "load_balancer.algorithm.type", "least_traffic"},
		{"an unknown type of records", "GET", records, 200, DiffValue, "rrsets.*.type", "LOC"},
		{"an unknown category", "GET", "/servers/{id}", 200, DiffValue, "server.server_type.category", "gpu"},
		{"another command in a list", "GET", "/servers/{id}/actions", 200, DiffValue, "actions.*.command", "make_server"},
		{"another kind of resource of an action", "POST", protect, 201, DiffValue, "action.resources.*.type", "firewall"},
		{"an action of another resource", "POST", protect, 201, DiffReference, "action.resources.*.id", 987654321},
		{"another status", "POST", "/networks", 201, DiffStatus, "", func(a *wrongAnswer) { a.status = 200 }},
		{"another error code", "DELETE", "/networks/{id}", 423, DiffCode, "error.code", "locked"},
		{"an error without details", "POST", "/servers", 422, DiffNull, "error.details", nil},
		{"an error instead of success", "GET", "/servers/{id}", 200, DiffStatus, "", func(a *wrongAnswer) {
			a.status, a.body = 404, object{"error": object{"code": "not_found", "message": "gone", "details": nil}}
		}},
		{"a missing field", "GET", "/servers/{id}", 200, DiffAdditional, "server.rescue_enabled", gone},
		{"an additional field", "GET", "/servers/{id}", 200, DiffMissing, "server.mtu", 1450},
		{"null instead of a value", "GET", "/servers/{id}", 200, DiffNull, "server.public_net.ipv4", nil},
		{"another type", "GET", "/servers/{id}", 200, DiffType, "server.primary_disk_size", "40"},
		{"another order", "GET", "/networks", 200, DiffOrder, "networks", reversed},
		{"an entry that is missing", "GET", "/networks", 200, DiffEntries, "networks", shorter},
		{"a missing header", "GET", "/servers", 200, DiffHeader, "Ratelimit-Remaining",
			func(a *wrongAnswer) { a.header.Del("RateLimit-Remaining") }},
		{"links to other pages", "GET", "/networks", 200, DiffHeader, "Link", func(a *wrongAnswer) { a.header.Del("Link") }},
		{"an action that fails", "GET", "/actions/{id}", 200, DiffAction, "action", func(a *wrongAnswer) {
			if did := a.body["action"].(object); did["command"] == "create_load_balancer" && did["status"] != running {
				did["status"], did["error"] = "error", object{"code": "action_failed", "message": "Action failed"}
			}
		}},
		{"204 instead of 201 with an action", "DELETE", "/load_balancers/{id}", 201, DiffStatus, "", func(a *wrongAnswer) {
			a.status, a.body = 204, nil
			a.header.Del("Content-Type")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(r *http.Request, a *wrongAnswer) {
				route := match(r.Method, strings.TrimPrefix(r.URL.Path, BasePath))
				if route == nil || r.Method != c.method || route.pattern != c.route || a.status != c.status {
					return
				}
				if lie, ok := c.lie.(func(*wrongAnswer)); ok {
					lie(a)
				} else if r.URL.RawQuery == "" {
					change(a.body, c.place, c.lie)
				}
			})
			scenario(w)
			report := w.verify()
			found := false
			for _, d := range report.Differences {
				if d.Route == c.route && d.What == c.what && strings.HasPrefix(d.Place, c.place) {
					found = true
				} else if d.Seq == 0 || d.Route != c.route {
					t.Errorf("another place is named, too: %+v", d)
				}
			}
			if !found {
				t.Errorf("want %s at %q of %s, got %+v", c.what, c.place, c.route, report.Differences)
			}
		})
	}
}

// TestWhatIsNotComparedIsFoundNowhere changes what FIDELITY.md declares as not compared.
func TestWhatIsNotComparedIsFoundNowhere(t *testing.T) {
	t.Parallel()
	for place, lie := range map[string]any{
		"server.name": "web-2", "server.public_net.ipv4.ip": "203.0.113.99", "server.primary_disk_size": 41,
		"server.created": "2020-01-01T00:00:00Z", "server.status": "off", "server.locked": true,
		"certificate.status.issuance": "completed", "certificate.status.renewal": "failed",
		"zone.authoritative_nameservers.delegation_status": "lame", "zone.registrar": "hetzner",
		"server_types.*.locations.*.available": false, "server_types.*.locations.*.recommended": true,
		"load_balancer.ingoing_traffic": 5, "load_balancer.targets.*.health_status.*.status": "unhealthy",
		"error.message": "words", "error.details.fields.*.messages.*": "words",
	} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			lied := false
			w := newWorld(t, func(r *http.Request, a *wrongAnswer) {
				if r.Method == "GET" || a.status >= 400 {
					before := string(encode(a.body))
					change(a.body, place, func(any) any { return lie })
					lied = lied || string(encode(a.body)) != before
				}
			})
			scenario(w)
			_, made := w.do("POST", "/certificates", object{"name": "c", "type": "managed", "domain_names": []string{"a.example"}})
			w.do("GET", "/certificates/"+w.idOf(made, "certificate"), nil)
			w.do("GET", "/zones/a.example", nil)
			w.do("GET", "/server_types", nil)
			if report := w.verify(); len(report.Differences) > 0 || !lied {
				t.Errorf("it is compared, so FIDELITY.md must not declare it: %v %+v", lied, report.Differences)
			}
		})
	}
}

func TestAFaithfulRecordingHasNoDifferences(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	scenario(w)
	w.token = "not-a-token"
	w.do("GET", "/servers", nil) // unauthorized
	w.token = ""
	w.do("GET", "/servers", nil)
	w.token = w.cloud.Token()
	w.do("GET", "/nothing", nil)
	w.do("PATCH", "/servers", nil)
	w.do("POST", "/servers", `{"name": `)
	report := w.verify()
	for _, d := range report.Differences {
		t.Errorf("%+v", d)
	}
	for _, s := range report.NotReplayable {
		t.Errorf("not replayed: %+v", s)
	}
	if report.Replayed < 30 {
		t.Errorf("%d exchanges were replayed", report.Replayed)
	}
}

// TestResourcesFromBeforeTheRecordingAreMade reads what exists already.
func TestResourcesFromBeforeTheRecordingAreMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	before := w.client
	w.client = &http.Client{Transport: w.cloud.Transport()} // past the recorder
	scenario(w)
	_, key := w.do("POST", "/ssh_keys", object{"name": "mine", "public_key": testSSHKey})
	_, volume := w.do("POST", "/volumes", object{"name": "data", "size": 10, "location": "fsn1"})
	_, zone := w.do("POST", "/zones", object{"name": "private.example", "mode": "primary"})
	_, server := w.do("GET", "/servers?name=web-1", nil)
	w.step(time.Hour)
	id := string(encode(int64(at(server["servers"].([]any)[0], "id").(float64))))
	_, image := w.do("POST", "/servers/"+id+"/actions/create_image", object{"type": "snapshot"})
	w.step(time.Hour)
	w.client = before
	for _, path := range []string{
		"/servers", "/networks", "/ssh_keys", "/volumes", "/zones", "/primary_ips", "/images?type=snapshot", "/load_balancers",
		"/firewalls", "/servers/" + id, "/volumes/" + w.idOf(volume, "volume"), "/zones/" + w.idOf(zone, "zone"),
		"/ssh_keys/" + w.idOf(key, "ssh_key"),
		"/images/" + w.idOf(image, "image"),
	} {
		if status, body := w.do("GET", path, nil); status != 200 {
			t.Fatalf("%s: %d %v", path, status, body)
		}
	}
	_, off := w.do("POST", "/servers/"+id+"/actions/poweroff", nil)
	w.await(off)
	report := w.verify()
	for _, d := range report.Differences {
		t.Errorf("%+v", d)
	}
	if len(report.NotReplayable) != 1 || !strings.Contains(report.NotReplayable[0].Reason, "image") {
		t.Errorf("not replayed: %+v, want the image only", report.NotReplayable)
	}
}

// TestWhatIsNotRecordedDoesNotDiffer has a read-only token and another rate limit.
func TestWhatIsNotRecordedDoesNotDiffer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(o *fakecloud.Options) { o.RateLimit = 0 })
	if _, err := w.cloud.AddToken(t.Context(), fakecloud.DefaultProject, "read", true); err != nil {
		t.Fatal(err)
	}
	w.token = "read"
	w.do("GET", "/servers", nil)
	if status, _ := w.do("DELETE", "/servers/1", nil); status != 403 {
		t.Fatal(status)
	}
	if report := w.verify(); len(report.Differences) > 0 || report.Replayed != 2 {
		t.Errorf("%+v", report)
	}
}

// TestWhatCannotBeReplayedIsListed has answers that depend on what is not in the recording.
func TestWhatCannotBeReplayedIsListed(t *testing.T) {
	t.Parallel()
	lost := false
	w := newWorld(t, func(r *http.Request, a *wrongAnswer) {
		if code := map[string]string{"/v1/volumes": "rate_limit_exceeded", "/v1/firewalls": "unavailable",
			"/v1/networks": "resource_limit_exceeded"}[r.URL.Path]; code != "" {
			a.status = map[string]int{"/v1/volumes": 429, "/v1/firewalls": 503, "/v1/networks": 403}[r.URL.Path]
			a.body = object{"error": object{"code": code, "message": "m"}}
		}
	})
	w.rec.proxy.Transport = transport{w.rec, roundTrip(func(r *http.Request) (*http.Response, error) {
		if lost {
			return nil, errors.New("no route")
		}
		return lying{w.cloud.Transport(), w.wrong}.RoundTrip(r)
	})}
	for _, path := range []string{"/volumes", "/firewalls", "/networks", "/servers/10/actions/99"} {
		w.do("GET", path, nil)
	}
	w.do("PUT", "/servers/10", object{"name": "a"})
	lost = true
	if status, _ := w.do("GET", "/servers", nil); status != http.StatusBadGateway {
		t.Errorf("without an answer: %d", status)
	}
	report := w.verify()
	var reasons []string
	for _, s := range report.NotReplayable {
		reasons = append(reasons, s.Reason)
	}
	want := []string{"the rate limit depends on what else used the project", "the cloud had a failure: 503",
		"the limits of the project are not in the recording", "no answer came"}
	if !slices.Equal(reasons, want) || len(report.Differences) > 0 || report.Replayed != 2 {
		t.Errorf("%+v, want %q", report, want)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestOverlappingRequestsAreReplayedInTheOrderOfTheirIDs(t *testing.T) {
	t.Parallel()
	rec := &Recording{}
	for i, e := range []struct {
		at, end int64
		path    string
		id      string
	}{{0, 9, "/servers", "30"}, {1, 8, "/servers", "20"}, {2, 7, "/volumes", "10"}, {3, 8, "/volumes", "5"}, {9, 9, "/servers", "1"},
		{20, 30, "/servers", "0"}} {
		kind := strings.TrimSuffix(e.path[1:], "s")
		rec.Exchanges = append(rec.Exchanges, Exchange{Seq: i + 1, At: e.at, End: e.end, Method: "POST", Path: e.path, Status: 201,
			Response: []byte(`{"` + kind + `":{"id":` + e.id + `}}`)})
	}
	var got []int
	for _, e := range order(rec) {
		got = append(got, e.Seq)
	}
	if want := []int{2, 1, 4, 3, 5, 6}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestAReportNamesEqualDifferencesOnce(t *testing.T) {
	t.Parallel()
	d := Difference{Seq: 1, Method: "GET", Route: "/servers", What: DiffNull, Place: "server.image", Recording: "null", Fake: "object"}
	other := d
	other.Seq = 2
	r := Report{Target: "other", Exchanges: 3, Replayed: 2, CutOff: true, Differences: []Difference{d, other},
		NotReplayable: []Skipped{{3, "GET", "/x", "why"}}}
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := `3 exchanges with other, 2 replayed, 1 not, 0 undecided
the last line is not complete and was left out: the recorder was killed while it wrote
  not replayed: #3 GET /x: why
2 differences
  #1 GET /servers: null at server.image: recording null, simulation object (2 times)
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}

func TestTheReplayHasNoTraffic(t *testing.T) {
	t.Parallel()
	for place, want := range map[string]bool{
		"load_balancer.ingoing_traffic": true, "load_balancers.*.outgoing_traffic": true, "load_balancer.included_traffic": false,
		"load_balancer.targets.*.health_status.*.status":              true,
		"load_balancers.*.targets.*.targets.*.health_status.*.detail": true,
		"load_balancer.targets.*.health_status.*.listen_port":         false, "server.status": false, "status": false,
	} {
		if got := ofTraffic(place); got != want {
			t.Errorf("%s: %v, want %v", place, got, want)
		}
	}
}
