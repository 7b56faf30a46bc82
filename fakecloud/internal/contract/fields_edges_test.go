package contract

import (
	"slices"
	"testing"
)

// thing returns an operation whose request has a bound of each kind.
func thing(t *testing.T) *Operation {
	t.Helper()
	document, err := Parse(small(`{"type": "object", "required": ["name"], "properties": {
		"name": {"type": "string", "minLength": 1, "maxLength": 3},
		"size": {"type": ["integer", "null"], "minimum": 5, "maximum": 7, "default": 6},
		"kind": {"type": "string", "enum": ["a", "b"]},
		"on": {"type": "boolean"},
		"place": {"oneOf": [{"type": "string"}, {"type": "integer", "minimum": 1}]},
		"list": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "object", "properties": {"value": {"type": "string"}}}}
	}}`, `{}`))
	if err != nil {
		t.Fatal(err)
	}
	return document.Operation("create_thing")
}

const thingBody = `{"name": "ab", "size": 6, "kind": "a", "on": true, "place": "x", "list": [{"value": "1.2"}]}`

func TestEdgesAreAllJustAllowed(t *testing.T) {
	t.Parallel()
	op := thing(t)
	cases, err := op.Edges([]byte(thingBody))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range cases {
		got = append(got, c.String())
		if err := (&Document{}).ValidateRequest(op, c.Body); err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
	want := []string{
		"/kind is absent", "/kind is a", "/kind is b", "/list is absent", "/list has 1 entries", "/list has 2 entries",
		"/list/0/value is absent",
		"/name has 1 characters", "/name has 3 characters", "/on is absent", "/on is false", "/place is absent", "/place is 1",
		"/size is absent", "/size is 5", "/size is 7", "/size is null",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestBreaksAreAllForbidden(t *testing.T) {
	t.Parallel()
	op := thing(t)
	cases, err := op.Breaks([]byte(thingBody))
	if err != nil || len(cases) < 20 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, c := range cases {
		if (&Document{}).ValidateRequest(op, c.Body) == nil {
			t.Errorf("%s is valid: %s", c, c.Body)
		}
	}
}

func TestDefaultsAreGivenAndAbsent(t *testing.T) {
	t.Parallel()
	all, err := thing(t).Defaults([]byte(`{"name": "ab", "size": 7}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 || all[0].Field != "/size" || all[0].Required || string(all[0].Given) != `{"name":"ab","size":6}` ||
		string(all[0].Absent) != `{"name":"ab"}` {
		t.Errorf("%+v", all)
	}
}

func TestFieldsOfABodyAndOfItsOperation(t *testing.T) {
	t.Parallel()
	op := thing(t)
	fields, err := op.FieldsOf([]byte(thingBody))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/kind", "/list", "/list/*", "/list/*/value", "/name", "/on", "/place", "/size"}; !slices.Equal(sortedKeys(fields),
		want) {
		t.Errorf("%q", sortedKeys(fields))
	}
	if all, err := op.FieldsOf(nil); err != nil || len(all) != len(fields) {
		t.Errorf("%q, %v", sortedKeys(all), err)
	}
}
