package contract

import (
	"slices"
	"strings"
	"testing"
)

func TestUnseenReturnsTheValuesThatNoAnswerHad(t *testing.T) {
	t.Parallel()
	document, err := Parse(small(`{
		"type": "object", "required": ["things"],
		"properties": {"things": {"type": "array", "items": {"type": "object", "properties": {
			"name": {"type": "string"},
			"status": {"type": "string", "enum": ["on", "off"]},
			"image": {"type": ["object", "null"], "properties": {"id": {"type": "integer"}}},
			"parts": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}}
		}}}}}`, `{}`))
	if err != nil {
		t.Fatal(err)
	}
	op := document.Operation("create_thing")
	op.response = op.request // the small document has only the request
	op.values = func() map[string]bool { return documentedValues(op.response) }
	all := []string{"/image", "/image/id", "/thing", "/thing/name", "/thing/parts", "/thing/parts/*", "/thing/parts/*/a", "/thing/status",
		"/thing/status=off", "/thing/status=on"}
	recorder := NewRecorder(document)
	recorder.seen[op.ID] = &answers{}
	for _, step := range []struct {
		body   string
		unseen []string
	}{
		{`{"things": []}`, []string{"/image", "/thing"}},
		{`{"things": [{"name": "x", "status": "on", "image": null, "parts": []}]}`,
			[]string{"/image", "/thing/parts/*", "/thing/status=off"}},
		{`{"things": [{"status": "off"}, {"parts": [{"a": 1}, {"b": 2}]}]}`, []string{"/image"}},
		{`{"things": [{"image": {"id": 1}}]}`, nil},
	} {
		var instance any
		if err := decode([]byte(step.body), &instance); err != nil {
			t.Fatal(err)
		}
		recorder.seen[op.ID].note(op, instance)
		if got := recorder.Unseen([]*Operation{op}); !slices.Equal(got, step.unseen) {
			t.Errorf("after %s: %v, want %v", step.body, got, step.unseen)
		}
	}
	for value := range op.values() {
		if !slices.Contains(all, value) && value != "/things" {
			t.Errorf("the schema has no %s", value)
		}
	}
	for _, value := range all {
		if !op.values()[value] {
			t.Errorf("%s is missing in %s", value, strings.Join(all, " "))
		}
	}
}
