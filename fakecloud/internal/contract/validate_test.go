package contract

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// headers returns the headers of a valid answer.
func headers() http.Header {
	return http.Header{
		"Content-Type":     {"application/json"},
		"X-Correlation-Id": {"0123456789abcdef"},
	}
}

// answer returns a valid successful body for op: an instance of its schema whose values agree with each other.
func answer(t *testing.T, op *Operation) []byte {
	t.Helper()
	if op.response == nil {
		return nil
	}
	instance, err := Synthesize(op.response, Full)
	if err != nil {
		t.Fatal(err)
	}
	settle(instance)
	if action, ok := at(instance, []string{"action"}).(map[string]any); ok && len(op.commands()) > 0 {
		action["command"] = op.commands()[0]
	}
	if pagination, ok := at(instance, []string{"meta", "pagination"}).(map[string]any); ok {
		entries, _ := entriesOf(instance)
		maps.Copy(pagination, map[string]any{
			"page": number(1), "per_page": number(25), "previous_page": nil, "next_page": nil, "last_page": number(1),
			"total_entries": number(int64(entries)),
		})
	}
	content, err := json.Marshal(instance)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// settle makes each action in an instance a running one.
func settle(value any) {
	switch value := value.(type) {
	case map[string]any:
		if value["command"] != nil && value["progress"] != nil {
			value["status"], value["finished"], value["error"], value["progress"] = "running", nil, nil, number(0)
		}
		for _, child := range value {
			settle(child)
		}
	case []any:
		for _, child := range value {
			settle(child)
		}
	}
}

func TestAValidAnswerOfEachOperationConforms(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	for _, op := range document.Operations() {
		if op.Removed {
			continue
		}
		header := headers()
		if op.Success == http.StatusNoContent {
			header.Del("Content-Type")
		}
		if err := document.ValidateResponse(op, op.Success, header, answer(t, op)); err != nil {
			t.Error(err)
		}
	}
}

func TestAnErrorConformsIfItsCodeIsDocumentedWithItsStatus(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	const notFound = `{"error": {"code": "not_found", "message": "server not found", "details": null}}`
	failure := func(code, details string) string {
		return `{"error": {"code": "` + code + `", "message": "it is so", "details": ` + details + `}}`
	}
	for _, test := range []struct {
		name, operation string
		status          int
		body            string
		want            string // a part of the error; empty: no error
	}{
		{"a general code", "get_server", 404, notFound, ""},
		{"a general code on an unknown path", "", 404, notFound, ""},
		{"a code with another status", "get_server", 422, notFound, "/error/code: want a code that is documented with status 422"},
		{"an unknown code", "get_server", 404, failure("gone_fishing", "null"), `got "gone_fishing"`},
		{"a code of the operation", "create_server", 422, failure("placement_error", "null"), ""},
		{"a code of another operation", "get_server", 422, failure("placement_error", "null"), "/error/code"},
		{"the right codes are named", "create_server", 412, failure("not_found", "null"),
			"(primary_ip_version_mismatch, resource_unavailable)"},
		{"a status without codes", "create_server", 418, failure("not_found", "null"), "(there is none)"},
		{"still in use", "delete_certificate", 422, failure("resource_in_use", "null"), ""},
		{"still assigned", "delete_primary_ip", 422, failure("must_be_unassigned", "null"), ""},
		{"a write with a read-only token", "create_server", 403, failure("forbidden", "null"), ""},
		{"the code before October 2026", "create_server", 401, failure("token_readonly", "null"), "/error/code"},
		{"no details", "get_server", 404, `{"error": {"code": "not_found", "message": "m"}}`, "/error/details: want present"},
		{"details of a wrong type", "get_server", 404, failure("not_found", "[]"), "/error/details: want null or object"},
		{"no message", "get_server", 404, `{"error": {"code": "not_found", "details": null}}`, "/error/message: want present"},
		{"an empty message", "get_server", 404, `{"error": {"code": "not_found", "message": "", "details": null}}`, "/error/message"},
		{"another field next to the error", "get_server", 404,
			`{"error": {"code": "not_found", "message": "m", "details": null}, "server": null}`, "/server: want absent"},
		{"no JSON", "get_server", 500, "Internal Server Error", "want an error in JSON"},
		{"an empty body", "get_server", 500, "", "want an error in JSON"},
		{"invalid input", "create_server", 422, failure("invalid_input", `{"fields": [{"name": "name", "messages": ["is too long"]}]}`),
			""},
		{"invalid input without fields", "create_server", 422, failure("invalid_input", "null"), "/error/details: want object, got null"},
		{"invalid input without messages", "create_server", 422, failure("invalid_input", `{"fields": [{"name": "name"}]}`),
			"/error/details/fields/0/messages: want present"},
		{"invalid input without a field", "create_server", 422, failure("invalid_input", `{"fields": []}`),
			"/error/details/fields: want at least 1 items"},
		{"a name taken", "create_server", 409, failure("uniqueness_error", `{"fields": [{"name": "name"}]}`), ""},
		{"a name taken, with messages", "create_server", 409,
			failure("uniqueness_error", `{"fields": [{"name": "name", "messages": ["x"]}]}`),
			"/error/details/fields/0/messages: want absent"},
		{"a limit", "create_server", 403, failure("resource_limit_exceeded", `{"limits": [{"name": "project_limit"}]}`), ""},
		{"a limit without a name", "create_server", 403, failure("resource_limit_exceeded", `{"limits": [{}]}`),
			"/error/details/limits/0/name: want present"},
		{"a removed operation", "list_datacenters", 410,
			failure("deprecated_api_endpoint", `{"announcement": "https://docs.hetzner.cloud/changelog"}`), ""},
		{"a removed operation without the announcement", "list_datacenters", 410, failure("deprecated_api_endpoint", "null"),
			"/error/details"},
		{"an operation that the server lacks", "list_zones", 501, failure("not_implemented", "null"), ""},
		{"an operation that the server lacks, in plain text", "list_zones", 501, "no", "want an error in JSON"},
	} {
		var op *Operation
		if test.operation != "" {
			op = document.Operation(test.operation)
		}
		err := document.ValidateResponse(op, test.status, headers(), []byte(test.body))
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}

func TestStatusHeadersAndBodyOfASuccessAreChecked(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	without := func(names ...string) http.Header {
		header := headers()
		for _, name := range names {
			header.Del(name)
		}
		return header
	}
	with := func(pairs ...string) http.Header {
		header := headers()
		for i := 0; i < len(pairs); i += 2 {
			header.Set(pairs[i], pairs[i+1])
		}
		return header
	}
	limits := []string{"RateLimit-Limit", "3600", "RateLimit-Remaining", "3599", "RateLimit-Reset", "1793534400"}
	for _, test := range []struct {
		name, operation string
		status          int
		header          http.Header
		body            string // "proper" stands for the result of answer
		want            string
	}{
		{"all is well", "get_server", 200, headers(), "proper", ""},
		{"with a character set", "get_server", 200, with("Content-Type", "application/json; charset=utf-8"), "proper", ""},
		{"with limits", "get_server", 200, with(limits...), "proper", ""},
		{"a wrong success", "get_server", 201, headers(), "proper", "status: want 200, got 201"},
		{"a load balancer deleted", "delete_load_balancer", 201, headers(), "proper", ""},
		{"a load balancer deleted as before October", "delete_load_balancer", 204, headers(), "", "status: want 201, got 204"},
		{"a redirection", "get_server", 302, headers(), "", "status: want 200, got 302"},
		{"success of a removed operation", "get_datacenter", 200, headers(), "{}", "want 410"},
		{"success on an unknown path", "", 200, headers(), "{}", "want an error"},
		{"no content type", "get_server", 200, without("Content-Type"), "proper", "header Content-Type"},
		{"a wrong content type", "get_server", 200, with("Content-Type", "text/plain"), "proper", "header Content-Type"},
		{"no content type on no content", "delete_network", 204, without("Content-Type"), "", ""},
		{"no correlation id", "get_server", 200, without("X-Correlation-Id"), "proper", "header X-Correlation-Id"},
		{"a correlation id that is none", "get_server", 200, with("X-Correlation-Id", "request 5"), "proper", "header X-Correlation-Id"},
		{"some limits only", "get_server", 200, with(limits[:4]...), "proper", "header RateLimit-Reset: want a whole number"},
		{"a limit in words", "get_server", 200, with("RateLimit-Limit", "many"), "proper", "header RateLimit-Limit"},
		{"a body where none belongs", "delete_network", 204, headers(), "{}", "want no body"},
		{"no body", "get_server", 200, headers(), "", "want JSON"},
		{"half a body", "get_server", 200, headers(), `{"server": {"id": 42, "na`, "want JSON"},
		{"two bodies", "get_pricing", 200, headers(), `{} {}`, "want JSON"},
		{"another body", "get_server", 200, headers(), `{"servers": []}`, "/server: want present"},
		{"data center in a server", "get_server", 200, headers(), `{"server": {"datacenter": {}}}`, "/server/datacenter: want absent"},
	} {
		var op *Operation
		if test.operation != "" {
			op = document.Operation(test.operation)
		}
		body := []byte(test.body)
		if test.body == "proper" {
			body = answer(t, op)
		}
		err := document.ValidateResponse(op, test.status, test.header, body)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
	rateLimited := `{"error": {"code": "rate_limit_exceeded", "message": "limit of 3600 requests per hour reached", "details": null}}`
	if err := document.ValidateResponse(nil, 429, headers(), []byte(rateLimited)); err == nil {
		t.Error("429 without the headers of the rate limit conforms")
	}
	if err := document.ValidateResponse(nil, 429, with(limits...), []byte(rateLimited)); err != nil {
		t.Error(err)
	}
}

func TestThePagesOfAListMustAgree(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	op := document.Operation("list_networks")
	network := at(mustSynthesize(t, op.response), []string{"networks", "0"})
	const link = `<https://api.hetzner.cloud/v1/networks?page=1&per_page=2>; rel="prev", <https://api.hetzner.cloud/v1/networks?page=3&per_page=2>; rel="next", <https://api.hetzner.cloud/v1/networks?page=3&per_page=2>; rel="last"`
	type values = map[string]any
	// Page 2 of 5 networks, two on each page.
	for _, test := range []struct {
		name    string
		change  values
		entries int
		link    string
		want    string
	}{
		{"the middle", nil, 2, link, ""},
		{"no link header", nil, 2, "", `header Link, rel "next": want page 3, got ""`},
		{"a link to a wrong page", nil, 2, strings.ReplaceAll(link, "page=3", "page=4"), `header Link, rel "next": want page 3, got "4"`},
		{"a wrong next page", values{"next_page": number(4)}, 2, link, "/meta/pagination/next_page: want 3"},
		{"an end too early", values{"next_page": nil}, 2, link, "/meta/pagination/next_page: want 3"},
		{"a wrong previous page", values{"previous_page": nil}, 2, link, "/meta/pagination/previous_page: want 1"},
		{"a wrong last page", values{"last_page": number(2)}, 2, link, "/meta/pagination/last_page: want 3"},
		{"an entry too few", nil, 1, link, "want 2 entries on page 2, got 1"},
		{"an entry too many", nil, 3, link, "want 2 entries on page 2, got 3"},
		{"an unknown total", values{"total_entries": nil}, 2, link, ""},
		{"a page zero", values{"page": number(0)}, 2, link, "page and per_page of at least 1"},
		{"the last page", values{"page": number(3), "previous_page": number(2), "next_page": nil}, 1, `</v1/networks?page=2>; rel="prev"`,
			""},
		{"the last page without its number", values{"page": number(3), "previous_page": number(2), "next_page": nil, "last_page": nil}, 1,
			`</v1/networks?page=2>; rel="prev"`, ""},
		{"the last page with a link beyond", values{"page": number(3), "previous_page": number(2), "next_page": nil}, 1,
			`</v1/networks?page=2>; rel="prev", </v1/networks?page=4>; rel="next"`, `rel "next": want page null, got "4"`},
		{"the first page", values{"page": number(1), "previous_page": nil, "next_page": number(2)}, 2, `</v1/networks?page=2>; rel="next"`,
			""},
		{"beyond the end", values{"page": number(9), "previous_page": nil, "next_page": nil}, 0, "", ""},
		{"nothing at all", values{"page": number(1), "previous_page": nil, "next_page": nil, "last_page": number(1),
			"total_entries": number(0)}, 0, "", ""},
	} {
		pagination := values{
			"page": number(2), "per_page": number(2), "previous_page": number(1), "next_page": number(3),
			"last_page": number(3), "total_entries": number(5),
		}
		maps.Copy(pagination, test.change)
		body, err := json.Marshal(values{
			"networks": slices.Repeat([]any{network}, test.entries),
			"meta":     values{"pagination": pagination},
		})
		if err != nil {
			t.Fatal(err)
		}
		header := headers()
		if test.link != "" {
			header.Set("Link", test.link)
		}
		err = document.ValidateResponse(op, 200, header, body)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.want)
		}
	}
}

func mustSynthesize(t *testing.T, schema Schema) any {
	t.Helper()
	instance, err := Synthesize(schema, Full)
	if err != nil {
		t.Fatal(err)
	}
	return instance
}

func TestAnActionMustAgreeWithItsStatus(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	op := document.Operation("get_action")
	for body, want := range map[string]string{
		`"status": "running", "progress": 50, "finished": null, "error": null`:                                                      "",
		`"status": "success", "progress": 100, "finished": "2026-11-01T12:00:01+00:00", "error": null`:                              "",
		`"status": "error", "progress": 100, "finished": "2026-11-01T12:00:01Z", "error": {"code": "action_failed", "message": ""}`: "",
		`"status": "running", "progress": 50, "finished": "2026-11-01T12:00:01Z", "error": null`:                                    "/action/finished: want null in an action with status running",
		`"status": "success", "progress": 100, "finished": null, "error": null`:                                                     "/action/finished: want a value in an action with status success",
		`"status": "success", "progress": 99, "finished": "2026-11-01T12:00:01Z", "error": null`:                                    "/action/progress: want percent, 100 on success",
		`"status": "running", "progress": 101, "finished": null, "error": null`:                                                     "/action/progress",
		`"status": "error", "progress": 10, "finished": "2026-11-01T12:00:01Z", "error": null`:                                      "/action/error: want a value",
		`"status": "running", "progress": 50, "finished": null, "error": {"code": "action_failed", "message": ""}`:                  "/action/error: want null",
	} {
		content := `{"action": {"id": 1, "command": "start_server", "started": "2026-11-01T12:00:00+00:00", "resources": [], ` + body + `}}`
		err := document.ValidateResponse(op, 200, headers(), []byte(content))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", body, err, want)
		}
	}
}

func TestAnActionHasTheCommandOfTheExample(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	for command, want := range map[string]string{"stop_server": "", "poweroff": "want stop_server (as in the example)"} {
		content := `{"action": {"id": 1, "command": "` + command + `", "status": "running", "progress": 0, "finished": null, "error": null,
			"started": "2026-11-01T12:00:00+00:00", "resources": []}}`
		err := document.ValidateResponse(document.Operation("poweroff_server"), 201, headers(), []byte(content))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", command, err, want)
		}
	}
}

func TestAddressesMustBeValid(t *testing.T) {
	t.Parallel()
	for text, wrong := range map[string]string{
		`{"ip": "10.0.0.1", "gateway": "10.0.0.1", "ip_range": "10.0.0.0/16", "destination": "0.0.0.0/0", "subnet": "10.0.1.0/24"}`: "",
		`{"ip": "2001:db8::/64"}`:                 "",
		`{"ip": null, "gateway": null}`:           "",
		`{"ip": {"ip": "invalid IP"}}`:            "/ip/ip: want an IP address",
		`{"gateway": "10.0.0.0/16"}`:              "/gateway: want an IP address",
		`{"subnets": [{"ip_range": "10.0.0.1"}]}`: "/subnets/0/ip_range: want a network",
		`{"destination": "10.0.0.1/16"}`:          "/destination: want a network in CIDR notation without host bits",
		`{"subnet": "invalid Prefix"}`:            "/subnet: want a network",
	} {
		var instance any
		if err := decode([]byte(text), &instance); err != nil {
			t.Fatal(err)
		}
		got := (&Document{}).consistencyViolations(instance)
		if (wrong == "") != (len(got) == 0) || len(got) > 0 && !strings.HasPrefix(got[0].String(), wrong) {
			t.Errorf("%s: %v, want %q", text, got, wrong)
		}
	}
}

func TestAPrimaryIPIsUnassignedExactlyIfItHasNoAssignee(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	path, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	july, err := Load(path, AsOf(in2026(time.July, 15)))
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		document *Document
		kind     string
		id       any
		valid    bool
	}{
		{document, "server", number(17), true},
		{document, "unassigned", nil, true},
		{document, "load_balancer", number(17), true},
		{document, "server", nil, false},
		{document, "unassigned", number(17), false},
		{document, "volume", number(17), false},
		{july, "server", nil, true},
		{july, "unassigned", nil, false},
	} {
		op := test.document.Operation("get_primary_ip")
		instance := mustSynthesize(t, op.response)
		ip := at(instance, []string{"primary_ip"}).(map[string]any)
		ip["assignee_type"], ip["assignee_id"] = test.kind, test.id
		body, err := json.Marshal(instance)
		if err != nil {
			t.Fatal(err)
		}
		if err := test.document.ValidateResponse(op, 200, headers(), body); (err == nil) != test.valid {
			t.Errorf("%s of %v: %v, want valid %t", test.kind, test.id, err, test.valid)
		}
	}
}

func TestAnOperationWithoutABodyTakesNoBodyOrAnEmptyObject(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	op := document.Operation("poweron_server")
	for body, valid := range map[string]bool{"": true, " \n": true, "{}": true, "{} ": true, `{"force": true}`: false, "null": false} {
		err := document.ValidateRequest(op, []byte(body))
		if (err == nil) != valid {
			t.Errorf("%q: %v, want valid %t", body, err, valid)
		}
	}
	err := document.ValidateRequest(op, []byte(`{"force": true}`))
	var typed *Error
	if !errors.As(err, &typed) || typed.Operation != op || typed.Subject != "request" {
		t.Errorf("got %#v, want an *Error that names operation and subject", err)
	}
	if want := "request of POST /servers/{id}/actions/poweron:\n  the body: want no body, got {\"force\": true}"; err.Error() != want {
		t.Errorf("got %q\nwant %q", err, want)
	}
}
