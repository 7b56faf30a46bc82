package contract

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestEachOperationIsMatchedByItsOwnPath(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	parameter := regexp.MustCompile(`\{[^}]+\}`)
	for _, op := range document.Operations() {
		path := parameter.ReplaceAllString(op.Path, "4711")
		for _, base := range []string{"", "/v1"} {
			if got := document.Match(op.Method, base+path); got != op {
				t.Errorf("%s %s%s belongs to %v, want %s", op.Method, base, path, got, op)
			}
		}
		if document.Operation(op.ID) != op {
			t.Errorf("%s is not found by its id", op.ID)
		}
	}
}

func TestAPathIsMatchedLikeInARouter(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	for _, test := range []struct{ method, path, want string }{
		{"GET", "/servers", "list_servers"},
		{"GET", "/v1/servers/actions", "list_servers_actions"},
		{"GET", "/servers/actions/5", "get_servers_action"},
		{"GET", "/servers/5/actions", "list_server_actions"},
		{"POST", "/servers/5/actions/poweron", "poweron_server"},
		{"GET", "/servers/5/actions/6", "get_server_action"},
		{"GET", "/networks/5/members", "list_network_members"},
		{"DELETE", "/v1/load_balancers/5", "delete_load_balancer"},
		{"PATCH", "/servers/5", ""},
		{"GET", "/nothing", ""},
		{"GET", "/servers/5/6/7/8", ""},
		{"GET", "/servers//actions", ""},
		{"GET", "/", ""},
	} {
		got := ""
		if op := document.Match(test.method, test.path); op != nil {
			got = op.ID
		}
		if got != test.want {
			t.Errorf("%s %s belongs to %q, want %q", test.method, test.path, got, test.want)
		}
	}
}

func TestOperationsHaveTheValuesOfTheDocument(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	if got := len(document.Operations()); got < 190 {
		t.Errorf("%d operations, want at least the 189 of July 2026 and one newer", got)
	}
	create := document.Operation("create_server")
	if create.Success != 201 || create.Tag != "Servers" || create.Deprecated || create.RequestSchema() == nil {
		t.Errorf("create_server: %+v", create)
	}
	if op := document.Operation("get_server_action"); !op.Deprecated {
		t.Errorf("get_server_action is deprecated in the document")
	}
	if op := document.Operation("delete_network"); op.Success != 204 || op.ResponseSchema() != nil {
		t.Errorf("delete_network: success %d, response %v", op.Success, op.ResponseSchema())
	}
	if op := document.Operation("list_actions"); op != nil {
		t.Errorf("list_actions is not an operation of the API")
	}
	query := document.Operation("list_servers").Query
	names := make(map[string]Parameter)
	for _, parameter := range query {
		names[parameter.Name] = parameter
	}
	if sort := names["sort"]; !sort.Array || sort.Required || len(sort.Enum) != 9 {
		t.Errorf("parameter sort of list_servers: %+v", sort)
	}
	if id := document.Operation("get_actions").Query[0]; id.Name != "id" || !id.Required || !id.Array || id.Type != "integer" {
		t.Errorf("parameter of get_actions: %+v", id)
	}
}

func TestErrorTablesAreReadFromTheProse(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	for _, test := range []struct {
		operation, code string
		status          int
		want            bool
	}{
		{"", "rate_limit_exceeded", 429, true},
		{"", "rate_limit_exceeded", 400, false},
		{"", "locked", 423, true},
		{"", "protected", 423, true},
		{"", "source_port_already_used", 412, false},
		{"add_load_balancer_service", "source_port_already_used", 412, true},
		{"add_load_balancer_service", "source_port_already_used", 422, false},
		{"update_load_balancer_service", "source_port_already_used", 422, true},
		{"retry_certificate", "dns_zone_not_found", 422, true}, // no status in the document
		{"get_server_metrics", "cpu", 422, false},              // another table
	} {
		codes := document.codes
		if test.operation != "" {
			codes = document.Operation(test.operation).codes
		}
		if got := codes.allows(test.code, test.status); got != test.want {
			t.Errorf("%q %s with %d: allowed %t, want %t", test.operation, test.code, test.status, got, test.want)
		}
	}
	if got := document.ErrorCodes(nil)["not_found"]; len(got) != 1 || got[0] != 404 {
		t.Errorf("statuses of not_found: %v", got)
	}
	if got := document.ErrorCodes(document.Operation("create_server")); got["placement_error"] == nil || got["not_found"] != nil {
		t.Errorf("own codes of create_server: %v", got)
	}
}

func TestTheDocumentIsFoundByTheEnvironmentNextToTheModuleOrInTheCache(t *testing.T) {
	dir := t.TempDir()
	module := filepath.Join(dir, "checkout")
	nested := filepath.Join(module, "tools", "inner")
	shared := filepath.Join(dir, "shared", "hetzner")
	for _, folder := range []string{nested, shared} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{filepath.Join(module, "go.mod"), filepath.Join(nested, "go.mod"), filepath.Join(shared, documentFile)} {
		if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(EnvDocument, "")
	t.Chdir(nested)
	got, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(shared, documentFile); !sameFile(t, got, want) {
		t.Errorf("found %s, want %s", got, want)
	}

	t.Setenv(EnvDocument, shared)
	if got, err := Find(); err != nil || got != filepath.Join(shared, documentFile) {
		t.Errorf("by the folder in the environment: %s, %v", got, err)
	}
	t.Setenv(EnvDocument, filepath.Join(shared, documentFile))
	if got, err := Find(); err != nil || got != filepath.Join(shared, documentFile) {
		t.Errorf("by the file in the environment: %s, %v", got, err)
	}
	t.Setenv(EnvDocument, filepath.Join(dir, "nowhere"))
	if _, err := Find(); err == nil || errors.Is(err, ErrNoDocument) {
		t.Errorf("a wrong %s gives %v, want an error that does not skip tests", EnvDocument, err)
	}
	t.Setenv(EnvDocument, "")
	t.Chdir(t.TempDir())
	for _, variable := range []string{"XDG_CACHE_HOME", "HOME", "LocalAppData"} { // of Linux, macOS, Windows
		t.Setenv(variable, dir)
	}
	if _, err := Find(); !errors.Is(err, ErrNoDocument) {
		t.Errorf("without a document: %v, want ErrNoDocument", err)
	}
	cached, err := CachePath()
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(cached), 0o755), os.WriteFile(cached, []byte("{}"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Find(); err != nil || got != cached {
		t.Errorf("in the user's cache: %s, %v", got, err)
	}
}

// stopped is a testing.TB that records how a test ended.
type stopped struct {
	testing.TB
	how string
}

func (s *stopped) Helper() {}
func (s *stopped) Skipf(format string, args ...any) {
	s.how = "skipped: " + fmt.Sprintf(format, args...)
}
func (s *stopped) Fatalf(format string, args ...any) {
	s.how = "failed: " + fmt.Sprintf(format, args...)
}
func (s *stopped) Fatal(args ...any) { s.how = "failed: " + fmt.Sprint(args...) }

func TestAMissingDocumentSkipsATestUnlessItIsRequired(t *testing.T) {
	missing := fmt.Errorf("%w: looked everywhere", ErrNoDocument)
	for name, test := range map[string]struct {
		required string
		err      error
		want     []string
	}{
		"there":                    {"", nil, []string{""}},
		"missing":                  {"", missing, []string{"skipped: ", "looked everywhere", "Set REQUIRE_API_DOCUMENT"}},
		"missing, though required": {"1", missing, []string{"failed: ", "looked everywhere", "REQUIRE_API_DOCUMENT is set"}},
		"broken":                   {"", errors.New("not JSON"), []string{"failed: not JSON"}},
	} {
		t.Setenv(EnvRequire, test.required)
		tb := &stopped{TB: t}
		stopWithout(tb, test.err)
		for i, part := range test.want {
			if i == 0 && !strings.HasPrefix(tb.how, part) || !strings.Contains(tb.how, part) || part == "" && tb.how != "" {
				t.Errorf("%s: %q, want %q in it", name, tb.how, part)
			}
		}
	}
}

func sameFile(t *testing.T, a, b string) bool {
	t.Helper()
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	if errX != nil || errY != nil {
		t.Fatal(errX, errY)
	}
	return os.SameFile(x, y)
}

// small returns a document with one operation, POST /things, whose request has the given schema.
func small(schema, components string) []byte {
	return []byte(`{
		"info": {"description": "| Status | Code |\n| --- | --- |\n| ` + "`404` | `not_found`" + ` | Entity not found. |"},
		"paths": {"/things": {"post": {
			"operationId": "create_thing", "tags": ["Things"],
			"requestBody": {"content": {"application/json": {"schema": ` + schema + `}}},
			"responses": {"201": {}, "4xx": {}}
		}}},
		"components": {"schemas": ` + components + `}
	}`)
}

func TestSchemasMayUseReferencesAndNullable(t *testing.T) {
	t.Parallel()
	document, err := Parse(small(
		`{"allOf": [{"$ref": "#/components/schemas/Named"}, {"type": "object", "properties": {"size": {"type": "integer", "nullable": true}}, "required": ["size"]}]}`,
		`{"Named": {"type": "object", "properties": {"name": {"$ref": "#/components/schemas/Name"}}, "required": ["name"]},
		  "Name": {"type": "string", "maxLength": 3}}`))
	if err != nil {
		t.Fatal(err)
	}
	op := document.Operation("create_thing")
	for body, valid := range map[string]bool{
		`{"name": "abc", "size": 1}`:             true,
		`{"name": "abc", "size": null}`:          true,
		`{"name": "abcd", "size": 1}`:            false,
		`{"name": "abc"}`:                        false,
		`{"size": 1}`:                            false,
		`{"name": null, "size": 1}`:              false,
		`{"name": "abc", "size": 1, "other": 1}`: false,
		`{"name": "abc", "size": 1} {}`:          false,
		`{"name": "abc", `:                       false,
		``:                                       false,
	} {
		if err := document.ValidateRequest(op, []byte(body)); (err == nil) != valid {
			t.Errorf("%s: %v, want valid %t", body, err, valid)
		}
	}
}

func TestABrokenDocumentIsAnError(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		content []byte
		want    string
	}{
		"not JSON":       {[]byte(`{`), "unexpected EOF"},
		"no error codes": {[]byte(`{"paths": {}}`), "no table of error codes"},
		"a reference into itself": {small(`{"$ref": "#/components/schemas/A"}`, `{"A": {"$ref": "#/components/schemas/A"}}`),
			"into itself"},
		"a reference to nothing":   {small(`{"$ref": "#/components/schemas/B"}`, `{}`), `"#/components/schemas/B"`},
		"parts that contradict":    {small(`{"allOf": [{"format": "a"}, {"format": "b"}]}`, `{}`), `cannot merge two different "format"`},
		"a property without shape": {small(`{"type": "object", "properties": {"a": 1}}`, `{}`), "is not a schema"},
	} {
		_, err := Parse(test.content)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", name, err, test.want)
		}
	}
}

func TestAllOfAllowsOnlyValuesThatAllItsPartsAllow(t *testing.T) {
	t.Parallel()
	document, err := Parse(small(`{
		"type": "object", "required": ["a"],
		"properties": {"a": {"type": ["string", "null"], "minLength": 1, "maxLength": 9, "enum": ["x", "y", "zz"]}},
		"allOf": [{"required": ["b"], "properties": {
			"a": {"type": "string", "minLength": 2, "maxLength": 12, "enum": ["y", "zz"]},
			"b": {"type": "integer", "minimum": 3}
		}}]}`, `{}`))
	if err != nil {
		t.Fatal(err)
	}
	op := document.Operation("create_thing")
	for body, valid := range map[string]bool{
		`{"a": "zz", "b": 3}`: true,
		`{"a": "y", "b": 3}`:  false, // too short
		`{"a": "x", "b": 3}`:  false,
		`{"a": null, "b": 3}`: false,
		`{"a": "zz", "b": 2}`: false,
		`{"a": "zz"}`:         false,
		`{"b": 3}`:            false,
	} {
		if err := document.ValidateRequest(op, []byte(body)); (err == nil) != valid {
			t.Errorf("%s: %v, want valid %t", body, err, valid)
		}
	}
}

func TestAnEarlierDayLeavesOutNewerAmendments(t *testing.T) {
	t.Parallel()
	path, err := Find()
	stopWithout(t, err)
	july, err := Load(path, AsOf(in2026(time.July, 15)))
	if err != nil {
		t.Fatal(err)
	}
	if op := july.Operation("list_network_members"); op != nil {
		t.Errorf("members of networks came in September")
	}
	if op := july.Operation("delete_load_balancer"); op.Success != 204 {
		t.Errorf("delete_load_balancer answers %d in July, want 204", op.Success)
	}
	if op := july.Operation("list_datacenters"); op.Removed {
		t.Errorf("data centers were removed in October")
	}
	if !july.codes.allows("token_readonly", 401) {
		t.Errorf("token_readonly was replaced in October")
	}
}

func TestEachAmendmentFindsItsPlaceInTheDocument(t *testing.T) {
	t.Parallel()
	path, err := Find()
	stopWithout(t, err)
	// The document of July 2026 already has these.
	there := map[string]bool{
		"deleting an assigned Primary or Floating IP: 422 must_be_unassigned":   true,
		"servers and Primary IPs have no datacenter, in requests and responses": true,
	}
	document, err := Load(path, AsOf(time.Time{}.Add(-1)))
	if err != nil {
		t.Fatal(err)
	}
	for i, amendment := range Amendments() {
		if amendment.Source == "" || i > 0 && amendment.Since.Before(Amendments()[i-1].Since) {
			t.Errorf("%s: has no source, or is not in the order of days", amendment.What)
		}
		if changed := amendment.apply(document); (changed > 0) == there[amendment.What] {
			t.Errorf("%s: %d places changed, want some: %t", amendment.What, changed, !there[amendment.What])
		}
		if changed := amendment.apply(document); changed > 0 {
			t.Errorf("%s: the second time, it changes %d places, want 0", amendment.What, changed)
		}
	}
}
