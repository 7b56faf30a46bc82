package contract

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/longtest"
)

// body is the schema of a request or of a response, with its examples.
type body struct {
	name     string
	schema   Schema
	examples []any
}

func bodies(d *Document) []body {
	var all []body
	for _, op := range d.Operations() {
		if op.request != nil {
			all = append(all, body{op.ID + " request", op.request, op.requestExamples})
		}
		if op.response != nil {
			all = append(all, body{op.ID + " response", op.response, op.responseExamples})
		}
	}
	return all
}

func mustCompile(t *testing.T, schema Schema) *validator {
	t.Helper()
	compiled, err := compile(schema)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func TestEachSchemaAllowsTheInstancesMadeFromIt(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, body := range bodies(ForTest(t)) {
		validator := mustCompile(t, body.schema)
		for _, extent := range []Extent{Minimal, Full} {
			instance, err := Synthesize(body.schema, extent)
			if err != nil {
				t.Errorf("%s: %v", body.name, err)
				continue
			}
			for _, violation := range validator.validate(instance) {
				t.Errorf("%s, extent %d: %s", body.name, extent, violation)
			}
			checked++
		}
	}
	if want := 2 * (178 + 76); checked < want {
		t.Errorf("only %d instances checked, want at least %d", checked, want)
	}
}

func TestEachSchemaRefusesInstancesWithOneMistake(t *testing.T) {
	longtest.SkipRace(t)
	t.Parallel()
	refused := make(map[Kind]int)
	for _, body := range bodies(ForTest(t)) {
		validator := mustCompile(t, body.schema)
		mutations, err := Mutations(body.schema)
		if err != nil {
			t.Errorf("%s: %v", body.name, err)
			continue
		}
		for mutation := range mutations {
			violations := validator.validate(mutation.Value)
			if len(violations) == 0 {
				t.Errorf("%s: allowed, but %s %s", body.name, mutation.Pointer, mutation.Why)
			}
			if !slices.ContainsFunc(violations, func(v Violation) bool { return touches(v.Pointer, mutation.Pointer) }) {
				t.Errorf("%s: %s %s, but the violations are in other places: %v", body.name, mutation.Pointer, mutation.Why, violations)
			}
			refused[mutation.Kind]++
		}
	}
	for _, kind := range []Kind{Missing, Null, WrongType, Unknown, BadEnum, OutOfRange, TooLong, TooShort, BadPattern, BadFormat} {
		if refused[kind] == 0 {
			t.Errorf("no instance has this mistake: %s", kind)
		}
	}
	t.Logf("refused: %v", refused)
}

// touches reports whether two places are the same, or one contains the other.
func touches(a, b string) bool {
	return strings.HasPrefix(a+"/", b+"/") || strings.HasPrefix(b+"/", a+"/")
}

// TestTheExamplesOfTheDocumentAreValid tests the checker with Hetzner's examples, on the day of the document. wrong lists
// the examples that contradict their own schema.
func TestTheExamplesOfTheDocumentAreValid(t *testing.T) {
	longtest.SkipRace(t)
	t.Parallel()
	path, err := Find()
	if err != nil {
		t.Skip(err)
	}
	document, err := Load(path, AsOf(in2026(time.July, 15)))
	if err != nil {
		t.Fatal(err)
	}
	// By its schema, a target of type server has no label_selector, ip or targets. The examples show a target with all of
	// them.
	wrong := map[string][]string{
		"update_load_balancer response": {"/load_balancer/targets/0/ip", "/load_balancer/targets/0/label_selector",
			"/load_balancer/targets/0/targets"},
		"create_load_balancer response": {"/load_balancer/targets/0/targets"},
	}
	checked := 0
	for _, body := range bodies(document) {
		validator := mustCompile(t, body.schema)
		var places []string
		for _, example := range body.examples {
			for _, violation := range validator.validate(example) {
				places = append(places, violation.Pointer)
			}
			checked++
		}
		if slices.Sort(places); !slices.Equal(places, wrong[body.name]) {
			t.Errorf("%s: the example is wrong at %v, want %v", body.name, places, wrong[body.name])
		}
	}
	if checked < 100 {
		t.Errorf("only %d examples found", checked)
	}
}

func TestInvalidBodiesAreRefusedAndNameTheirField(t *testing.T) {
	longtest.SkipRace(t)
	t.Parallel()
	document := ForTest(t)
	total := 0
	for _, op := range document.Operations() {
		valid, err := document.RequestBody(op, Full)
		if err != nil {
			t.Error(err)
			continue
		}
		if err := document.ValidateRequest(op, valid); err != nil {
			t.Error(err)
		}
		cases, err := document.InvalidBodies(op)
		if err != nil {
			t.Error(err)
		}
		if (len(cases) > 0) != (op.RequestSchema() != nil) {
			t.Errorf("%s: %d invalid bodies", op, len(cases))
		}
		for _, invalid := range cases {
			if err := document.ValidateRequest(op, invalid.Body); err == nil {
				t.Errorf("%s: allowed, but %s", op, invalid)
			}
		}
		total += len(cases)
	}
	t.Logf("%d invalid bodies", total)

	cases, err := document.InvalidBodies(document.Operation("create_network"))
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]bool)
	for _, invalid := range cases {
		got[invalid.String()] = true
	}
	for _, want := range []string{"/name is missing", "/name is null", "/ip_range is an integer", "body is a boolean",
		"/subnets/0/type is not one of the allowed values"} {
		if !got[want] {
			t.Errorf("create_network: no body in which %s, only %v", want, slices.Sorted(maps.Keys(got)))
		}
	}
}

func TestTheCallerMayChangeASynthesizedInstance(t *testing.T) {
	t.Parallel()
	schema := Schema{"type": "object", "properties": map[string]any{
		"labels": Schema{"type": "object", "additionalProperties": Schema{"type": "string"}, "example": map[string]any{"a": "b"}},
	}}
	first, err := Synthesize(schema, Full)
	if err != nil {
		t.Fatal(err)
	}
	first.(map[string]any)["labels"].(map[string]any)["a"] = "changed"
	second, err := Synthesize(schema, Full)
	if err != nil {
		t.Fatal(err)
	}
	if got := second.(map[string]any)["labels"].(map[string]any)["a"]; got != "b" {
		t.Errorf("the schema's example was changed through an instance: %v", got)
	}
	if _, err := Synthesize(Schema{}, Full); err == nil {
		t.Error("an empty schema gave an instance")
	}
}

func TestAViolationNamesPlaceWantAndGot(t *testing.T) {
	t.Parallel()
	schema := object(map[string]any{
		"id":      Schema{"type": "integer", "minimum": number(1), "maximum": number(9)},
		"name":    Schema{"type": "string", "maxLength": number(3), "minLength": number(1)},
		"code":    Schema{"type": "string", "pattern": "^[a-z]+$"},
		"state":   Schema{"type": "string", "enum": []any{"on", "off"}},
		"created": Schema{"type": "string", "format": "date-time"},
		"price":   Schema{"type": "string", "format": "decimal"},
		"count":   Schema{"type": "integer", "format": "int32"},
		"a/b":     Schema{"type": "array", "items": Schema{"type": "boolean"}, "minItems": number(1), "maxItems": number(2)},
		"place":   Schema{"oneOf": []any{Schema{"type": "string"}, Schema{"type": "integer"}}},
	})
	const valid = `{"id": 1, "name": "abc", "code": "x", "state": "on", "created": "2026-11-01T12:00:00+00:00", "price": "1.00", "count": 1, "a/b": [true], "place": 1}`
	validator := mustCompile(t, schema)
	check := func(change map[string]any, want string) {
		t.Helper()
		var instance map[string]any
		if err := decode([]byte(valid), &instance); err != nil {
			t.Fatal(err)
		}
		for name, value := range change {
			instance[name] = value
			if value == "-" {
				delete(instance, name)
			}
		}
		got := ""
		if violations := validator.validate(instance); len(violations) == 1 {
			got = violations[0].String()
		} else if len(violations) > 1 {
			t.Errorf("several violations: %v", violations)
		}
		if got != want {
			t.Errorf("%v:\n got %s\nwant %s", change, got, want)
		}
	}
	check(nil, "")
	check(map[string]any{"id": "-"}, "/id: want present (required), got missing")
	check(map[string]any{"more": "x"}, `/more: want absent (the document has no such property), got "x"`)
	check(map[string]any{"id": "x"}, `/id: want integer, got string "x"`)
	check(map[string]any{"id": number(0)}, "/id: want at least 1, got 0")
	check(map[string]any{"id": number(10)}, "/id: want at most 9, got 10")
	check(map[string]any{"name": "abcd"}, `/name: want at most 3 characters, got "abcd"`)
	check(map[string]any{"name": ""}, `/name: want at least 1 characters, got ""`)
	check(map[string]any{"code": "X"}, `/code: want pattern ^[a-z]+$, got "X"`)
	check(map[string]any{"state": "x"}, `/state: want one of ["on","off"], got "x"`)
	check(map[string]any{"created": "2026-11-01"}, `/created: want format date-time, got "2026-11-01"`)
	check(map[string]any{"price": "1,00"}, `/price: want format decimal, got "1,00"`)
	check(map[string]any{"count": json.Number("2147483648")}, "/count: want format int32, got 2147483648")
	check(map[string]any{"a/b": []any{"x"}}, `/a~1b/0: want boolean, got string "x"`)
	check(map[string]any{"a/b": []any{}}, "/a~1b: want at least 1 items, got []")
	check(map[string]any{"a/b": []any{true, true, true}}, "/a~1b: want at most 2 items, got [true,true,true]")
	check(map[string]any{"place": true}, "/place: want string, or integer, got true")
	check(map[string]any{"state": strings.Repeat("x", 500)}, `/state: want one of ["on","off"], got "`+strings.Repeat("x", excerptLength-1)+
		"…")
}

func TestAChoiceReportsOnlyTheSelectedBranch(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	validator := mustCompile(t, document.Operation("get_load_balancer").ResponseSchema())
	for _, test := range []struct {
		name string
		edit func(service, target, health map[string]any)
		want []string
	}{
		{"a tcp service with http settings", func(service, _, _ map[string]any) {
			service["protocol"] = "tcp"
			service["http"] = map[string]any{}
		}, []string{"/load_balancer/services/0/http: want absent (the document has no such property), got {}"}},
		{"a service of an unknown protocol", func(service, _, _ map[string]any) { service["protocol"] = "udp" },
			[]string{`/load_balancer/services/0/protocol: want one of ["tcp","http","https"], got "udp"`}},
		{"a target without a type", func(_, target, _ map[string]any) { delete(target, "type") },
			[]string{"/load_balancer/targets/0/type: want present (required), got missing"}},
		{"a healthy target with a detail", func(_, _, health map[string]any) { health["detail"] = "unspecified" },
			[]string{`/load_balancer/targets/0/health_status/0/detail: want absent (the document has no such property), got "unspecified"`}},
		{"an unhealthy target without a detail", func(_, _, health map[string]any) { health["status"] = "unhealthy" },
			[]string{"/load_balancer/targets/0/health_status/0/detail: want present (required), got missing"}},
		{"an unhealthy target with a status code that is not the reason", func(_, _, health map[string]any) {
			health["status"], health["detail"], health["http_status_code"] = "unhealthy", "layer4_timeout", number(500)
		}, []string{"/load_balancer/targets/0/health_status/0/http_status_code: want absent (the document has no such property), got 500"}},
		{"an unhealthy target with its status code", func(_, _, health map[string]any) {
			health["status"], health["detail"], health["http_status_code"] = "unhealthy", "unexpected_http_status", number(500)
		}, nil},
	} {
		instance, err := Synthesize(document.Operation("get_load_balancer").ResponseSchema(), Full)
		if err != nil {
			t.Fatal(err)
		}
		test.edit(
			at(instance, []string{"load_balancer", "services", "0"}).(map[string]any),
			at(instance, []string{"load_balancer", "targets", "0"}).(map[string]any),
			at(instance, []string{"load_balancer", "targets", "0", "health_status", "0"}).(map[string]any),
		)
		var got []string
		for _, violation := range validator.validate(instance) {
			got = append(got, violation.String())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s:\n got %q\nwant %q", test.name, got, test.want)
		}
	}
}
