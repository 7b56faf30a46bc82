package contract_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
)

// instant makes actions end at once.
func instant(o *fakecloud.Options) { o.Actions = "instant" }

// fieldTest sends requests for one operation that differ from a valid one in one field.
type fieldTest struct {
	*testing.T
	document *contract.Document
	recorder *contract.Recorder
	op       *contract.Operation
	sample   func(*world) sample
	results  *fieldResults
	way      *way // nil for none
	parented bool // the path of the last request names a resource that differs in nothing from a simple one
}

// fieldResults counts what was checked, and collects the exceptions that were needed.
type fieldResults struct {
	fields   map[string]bool
	broken   int
	long     int
	allowed  int
	defaults int
	used     map[string]bool
}

// exceptions are cases in which the answer differs from what the schema says, as expressions for "operation /field mistake",
// and the reason. null of an optional field counts as absent, and unknown fields are ignored, in all requests: clients of
// other ages send both.
var exceptions = map[string]string{
	// The schema allows it, and a sentence of the document does not.
	`.*/(apply_to|remove_from|targets)/0/server is (absent|null)`:                   "the type server needs it",
	`(add|remove)_load_balancer_target /server is (absent|null)`:                    "the type server needs it",
	`(create_network /subnets/0|add_network_subnet )/vswitch_id is (absent|null)`:   "the type vswitch needs it",
	`create_certificate /(certificate|private_key) is (absent|null)`:                "the type uploaded needs it",
	`create_(floating_ip|volume) /(home_location|location|server) is (absent|null)`: "needs a location or a server",
	`create_load_balancer /(location|network_zone) is (absent|null)`:                "needs one of the two",
	`create_primary_ip /(location|assignee_id|assignee_type) is (absent|null)`:      "needs a location, or an assignee and its type",
	`(create_load_balancer /services/2|(add|update)_load_balancer_service )/http(/certificates|) (is absent|has 0 entries)`: "https needs " +
		"one: hcloud-cloud-controller-manager issue 223",
	`create_server_image /no_such_property is not a property`:           "cloudpanel-ce issues 659 and 662",
	`create_volume /automount is true`:                                  "needs a server",
	`change_server_protection /(delete|rebuild) is (absent|null|false)`: "both must have the same value",
	`create_zone(_rrset|) (/rrsets/0|)/records has 0 entries`:           "must not be empty",
	`create_zone(_rrset|) (/rrsets/0|)/type is SOA`:                     "a zone has one SOA record, at its apex",
	`create_zone /name has 255 characters`:                              "a domain has at most 253 characters, and 63 in each label",
	`assign_floating_ip /server is null`: "the schema is that of an answer: null if not assigned; " +
		"there is the action unassign",
	`create_(floating_ip /home_|primary_ip /)location is 9007199254740991`: "no location has this id",
	`create_load_balancer /public_net/ipv[46] is 1`:                        "no Primary IP has this id",
	// Neither schema nor sentence says so.
	`(create|set)_firewall(_rules|) /rules/0/(port is (absent|null)|source_ips (is (absent|null)|has 0 entries))`: "Terraform's documentation: required for the protocol, and for the direction",
	// The schema does not allow it.
	`(create_load_balancer /services/[012]|add_load_balancer_service )/.* is (missing|null)`: "api-facts.md: the fields of a service and " +
		"of its health check have defaults",
	`update_load_balancer_service /.* is (missing|null|its default)`: "api-facts.md: update_service is a patch",
}

// excused reports whether a case is an exception.
func (f *fieldTest) excused(c contract.Case) bool {
	pattern := matching(exceptions, f.op.ID+" "+c.String())
	f.results.used[pattern] = true
	return pattern != ""
}

var expressions sync.Map // compiled, by their text

// matching returns the expression among the keys that matches a text, or "".
func matching(patterns map[string]string, text string) string {
	for pattern := range patterns {
		compiled, ok := expressions.Load(pattern)
		if !ok {
			compiled = regexp.MustCompile("^" + pattern + "$")
			expressions.Store(pattern, compiled)
		}
		if compiled.(*regexp.Regexp).MatchString(text) {
			return pattern
		}
	}
	return ""
}

// someOperations returns the operations of the document, and with -short some of them.
func someOperations(t *testing.T, document *contract.Document, some int) (all []*contract.Operation) {
	t.Helper()
	operations := document.Operations()
	for _, i := range longtest.Share(t, len(operations), some) {
		all = append(all, operations[i])
	}
	return all
}

// prepare returns a new world, and the path and body of a valid request in it.
func (f *fieldTest) prepare() (w *world, path string, body []byte) {
	f.Helper()
	w = f.way.newWorld(f.T, f.recorder)
	path, body = f.prepareIn(w)
	return w, path, body
}

// prepareIn returns the path and body of a valid request in a world.
func (f *fieldTest) prepareIn(w *world) (path string, body []byte) {
	f.Helper()
	s := f.sample(w)
	if f.parented = s.id == ""; f.parented {
		s.id = f.parent(w)
	}
	path = strings.NewReplacer("{id}", s.id, "{id_or_name}", s.id, "{rr_name}", "www", "{rr_type}", "A").Replace(f.op.Path)
	if f.op.RequestSchema() == nil {
		return path, nil
	}
	full, err := f.document.RequestBody(f.op, contract.Full)
	if err != nil {
		f.Fatal(err)
	}
	var instance any
	if err := json.Unmarshal(full, &instance); err != nil {
		f.Fatal(err)
	}
	if fields, ok := instance.(object); ok && f.op.Method == http.MethodPost && !strings.Contains(f.op.Path, "{") {
		instance = w.distinct(strings.Trim(f.op.Path, "/s"), fields)
	}
	for _, pointer := range slices.Sorted(maps.Keys(s.fields)) {
		instance = edit(instance, strings.Split(pointer, "/")[1:], s.fields[pointer])
	}
	if body, err = json.Marshal(instance); err != nil {
		f.Fatal(err)
	}
	return path, body
}

// parent makes the resource that the path names, and returns its id.
func (f *fieldTest) parent(w *world) string {
	f.Helper()
	collection, _, one := strings.Cut(f.op.Path, "/{")
	if !one {
		return ""
	}
	kind := strings.TrimSuffix(collection[1:], "s")
	if strings.Contains(f.op.Path, "{rr_type}") {
		set := object{"name": "www", "type": "A", "records": records("198.51.100.1")}
		return string(w.idWith(kind, object{"rrsets": []any{set}}))
	}
	return string(w.id(kind))
}

// edit returns a value with another one at a path.
func edit(in any, path []string, value any) any {
	switch in := in.(type) {
	case object:
		if len(path) == 1 && value == absent {
			delete(in, path[0])
			return in
		}
		if len(path) == 1 {
			in[path[0]] = value
			return in
		}
		in[path[0]] = edit(in[path[0]], path[1:], value)
	case []any:
		i, _ := strconv.Atoi(path[0])
		if len(path) == 1 {
			in[i] = value
		} else {
			in[i] = edit(in[i], path[1:], value)
		}
	}
	return in
}

// refuses reports whether an answer is the error of a wrong field, and names that field or one in it.
func refuses(response *httptest.ResponseRecorder, pointer string) (exactly, within bool) {
	var failure struct {
		Error struct {
			Code, Message string
			Details       struct{ Fields []struct{ Name string } }
		}
	}
	if json.Unmarshal(response.Body.Bytes(), &failure) != nil || response.Code != 422 || failure.Error.Code != "invalid_input" {
		return false, false
	}
	name := strings.ReplaceAll(strings.TrimPrefix(pointer, "/"), "/", ".")
	if before, _, ok := strings.Cut(name, "labels."); ok {
		name = before + "labels" // the message names the label
	}
	exactly = len(failure.Error.Details.Fields) == 0 && strings.HasPrefix(failure.Error.Message, name+" ") // "image not found"
	for _, field := range failure.Error.Details.Fields {
		dots := strings.NewReplacer("[", ".", "]", "").Replace(field.Name) // of the DNS service; ssh_keys has no index
		exactly = exactly || field.Name == name || field.Name+".0" == name || dots != field.Name && strings.HasSuffix("."+dots, "."+name)
		within = within || exactly || strings.HasPrefix(field.Name+".", name+".")
	}
	return exactly, within
}

// base checks that the sample itself is valid.
func (f *fieldTest) base() {
	f.Helper()
	w, path, body := f.prepare()
	if err := f.document.ValidateRequest(f.op, body); err != nil {
		f.Error(err)
	}
	if response := w.send(f.op.Method, path, body); response.Code >= 300 {
		f.Fatalf("%s %s: %d %s", path, body, response.Code, response.Body)
	}
	fields, err := f.op.FieldsOf(body)
	if err != nil {
		f.Fatal(err)
	}
	for field := range fields {
		f.results.fields[f.op.ID+" "+field] = true
	}
}

// edges sends the requests that are just allowed. It returns the optional fields.
func (f *fieldTest) edges() map[string]bool {
	f.Helper()
	w, path, body := f.prepare()
	cases, err := f.op.Edges(body)
	if err != nil {
		f.Fatal(err)
	}
	optional := make(map[string]bool)
	for _, c := range cases {
		optional[c.Field] = optional[c.Field] || c.Why == "is absent" && !strings.Contains(c.Field, "labels/")
		if err := f.document.ValidateRequest(f.op, c.Body); err != nil {
			f.Errorf("%s: %v", c, err)
		}
		response := w.send(f.op.Method, path, c.Body)
		f.results.allowed++
		if _, refused := refuses(response, c.Field); refused && !f.excused(c) {
			f.Errorf("%s: %d %s, but the document allows it", c, response.Code, response.Body)
		}
		if response.Code < 300 {
			w, path, _ = f.prepare()
		}
	}
	return optional
}

// breaks sends the requests that break one rule each.
func (f *fieldTest) breaks(optional map[string]bool) {
	f.Helper()
	w, path, body := f.prepare()
	cases, err := f.op.Breaks(body)
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range cases {
		if c.Field == "" {
			continue // not an object: json_error, see refuseBodies
		}
		response := w.send(f.op.Method, path, c.Body)
		f.results.broken++
		accepted := c.Kind == contract.Unknown || c.Kind == contract.Null && optional[c.Field]
		if refused, _ := refuses(response, c.Field); refused == accepted && !f.excused(c) {
			f.Errorf("%s: %d %s, want the field refused: %t", c, response.Code, response.Body, !accepted)
		}
		if response.Code < 300 {
			w, path, _ = f.prepare()
		}
	}
}

// bounds sends the requests in which one text is very long. Where the document has no limit, ours is in package bind. Labels have
// rules of their own.
func (f *fieldTest) bounds() {
	f.Helper()
	w, path, body := f.prepare()
	cases, err := f.op.LongTexts(body, 300_000)
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range cases {
		if strings.Contains(c.Field, "labels/") {
			continue
		}
		response := w.send(f.op.Method, path, c.Body)
		f.results.long++
		if _, refused := refuses(response, c.Field); !refused && !f.excused(c) {
			f.Errorf("%s: %d, want the field refused", c, response.Code)
		}
		if response.Code < 300 {
			w, path, _ = f.prepare()
		}
	}
}

// defaults compares requests with the document's default of a field, and without the field.
func (f *fieldTest) defaults() {
	f.Helper()
	_, _, body := f.prepare()
	all, err := f.op.Defaults(body)
	if err != nil {
		f.Fatal(err)
	}
	after := func(body []byte) string {
		w, path, _ := f.prepare()
		response := w.send(f.op.Method, path, body)
		if response.Code >= 300 {
			return "" // breaks has checked that
		}
		var all strings.Builder
		for line := range strings.Lines(everything(w, f.document)) {
			if !strings.HasPrefix(line, "/certificates:") { // their keys are random
				all.WriteString(line)
			}
		}
		return response.Body.String() + "\n" + all.String()
	}
	for _, d := range all {
		given, omitted := after(d.Given), after(d.Absent)
		if d.Required && omitted == "" {
			continue // a client cannot leave it out
		}
		f.results.defaults++
		if (given == "" || given != omitted) && !f.excused(contract.Case{Field: d.Field, Why: "is its default"}) {
			f.Errorf("%s is its default, but that is not what an absent field means: %s", d.Field, firstDifference(given, omitted))
		}
	}
}

// TestContractEveryFieldOfEveryBody checks each field of each body: a request that breaks just one of its rules is refused
// and the error names the field, a request at the edge of a rule is not, and a field that is absent has its default.
func TestContractEveryFieldOfEveryBody(t *testing.T) {
	longtest.SkipRace(t)
	t.Parallel()
	document := contract.ForTest(t)
	recorder := contract.NewRecorder(document)
	results := &fieldResults{fields: make(map[string]bool), used: make(map[string]bool)}
	for _, op := range someOperations(t, document, 60) {
		if op.RequestSchema() == nil {
			continue
		}
		for i, makeSample := range samplesOf(op) {
			t.Run(fmt.Sprintf("%s %d", op.ID, i), func(t *testing.T) {
				f := &fieldTest{T: t, document: document, recorder: recorder, op: op, sample: makeSample, results: results}
				f.base()
				f.breaks(f.edges())
				f.bounds()
				f.defaults()
			})
		}
		fields, err := op.FieldsOf(nil)
		if err != nil {
			t.Fatal(err)
		}
		for field := range fields {
			if !results.fields[op.ID+" "+field] {
				t.Errorf("%s: no sample has the field %s", op.ID, field)
			}
		}
	}
	if err := recorder.Err(); err != nil {
		t.Error(err)
	}
	for pattern := range exceptions {
		if !results.used[pattern] && !testing.Short() {
			t.Errorf("%s is not needed: remove it from exceptions", pattern)
		}
	}
	t.Logf("%d fields, %d broken rules, %d allowed edges, %d long texts, %d defaults",
		len(results.fields), results.broken, results.allowed, results.long, results.defaults)
}

func samplesOf(op *contract.Operation) []func(*world) sample {
	for _, all := range []map[string][]func(*world) sample{samples, serverSamples, loadBalancerSamples} {
		if all[op.ID] != nil {
			return all[op.ID]
		}
	}
	return []func(*world) sample{func(*world) sample { return sample{} }}
}
