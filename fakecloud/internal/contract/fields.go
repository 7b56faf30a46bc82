package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Edge is the kind of a [Case] that the document allows, at the edge of what it allows.
const Edge Kind = "allowed"

// place is one place in a body: a field, an entry of a list, or the body itself.
type place struct {
	at       string // JSON pointer
	schema   Schema
	value    any
	with     func(any) any // the body with another value in this place
	without  func() any    // the body without this place; nil if it is not a property
	optional bool
}

// places returns all places of a body.
func places(schema Schema, body any) []place {
	var all []place
	var add func(place)
	add = func(p place) {
		all = append(all, p)
		switch value := p.value.(type) {
		case map[string]any:
			for _, child := range members(p, branchFor(p.schema, value), value) {
				add(child)
			}
		case []any:
			items, _ := p.schema["items"].(Schema)
			prefix := list(p.schema["prefixItems"])
			for i := range value {
				child := items
				if i < len(prefix) {
					child = prefix[i].(Schema)
				}
				if child == nil {
					continue
				}
				add(place{at: fmt.Sprintf("%s/%d", p.at, i), schema: child, value: value[i],
					with: func(other any) any {
						changed := slices.Clone(value)
						changed[i] = other
						return p.with(changed)
					}})
			}
		}
	}
	add(place{schema: schema, value: body, with: func(other any) any { return other }})
	return all
}

// members returns the places directly below an object.
func members(p place, schema Schema, object map[string]any) []place {
	var all []place
	for _, name := range sortedKeys(object) {
		child := property(schema, name)
		if child == nil {
			child, _ = schema["additionalProperties"].(Schema)
		}
		if child == nil {
			continue
		}
		changed := func(change func(map[string]any)) any {
			other := maps.Clone(object)
			change(other)
			return p.with(other)
		}
		all = append(all, place{
			at: p.at + "/" + escape(name), schema: child, value: object[name], optional: !required(schema, name),
			with:    func(other any) any { return changed(func(o map[string]any) { o[name] = other }) },
			without: func() any { return changed(func(o map[string]any) { delete(o, name) }) },
		})
	}
	return all
}

// edges returns values next to a place's own that the schema allows, with their descriptions.
func (p place) edges() map[string]any {
	values := make(map[string]any)
	if slices.Contains(allTypes(p.schema), "null") {
		values["is null"] = nil
	}
	for _, schema := range scalars(p.schema) {
		for _, value := range list(schema["enum"]) {
			values[fmt.Sprintf("is %v", value)] = value
		}
		for _, bound := range []string{"minimum", "maximum"} {
			if value, ok := schema[bound].(json.Number); ok {
				values["is "+value.String()] = value
			}
		}
		for _, bound := range []string{"minLength", "maxLength"} {
			if length, ok := integer(schema, bound); ok {
				values[fmt.Sprintf("has %d characters", length)] = strings.Repeat("a", int(length))
			}
		}
	}
	if text, ok := p.value.(bool); ok {
		values[fmt.Sprintf("is %t", !text)] = !text
	}
	entries, ok := p.value.([]any)
	if !ok || len(entries) == 0 {
		return values
	}
	least, _ := integer(p.schema, "minItems")
	values[fmt.Sprintf("has %d entries", least)] = entries[:min(int(least), len(entries))]
	if most, ok := integer(p.schema, "maxItems"); ok {
		values[fmt.Sprintf("has %d entries", most)] = several(entries[0], int(most))
	}
	return values
}

// scalars returns the schema itself, or the branches of a oneOf without a discriminator: an id or a name.
func scalars(schema Schema) []Schema {
	if _, branches := choices(schema); branches != nil {
		return nil
	}
	return alternatives(schema)
}

var firstDigits = regexp.MustCompile(`[0-9]+`)

// several returns n entries like the given one. The texts in them differ in their first number, because some lists have no
// duplicates.
func several(entry any, n int) []any {
	entries := make([]any, n)
	for i := range entries {
		entries[i] = clone(entry)
		if fields, ok := entries[i].(map[string]any); ok {
			if text, ok := fields["value"].(string); ok {
				fields["value"] = replaceFirst(text, fmt.Sprint(100+i))
			}
		}
	}
	return entries
}

func replaceFirst(text, number string) string {
	at := firstDigits.FindStringIndex(text)
	if at == nil {
		return text + number
	}
	return text[:at[0]] + number + text[at[1]:]
}

// FieldsOf returns the JSON pointers of the fields of the request of op, with * for each entry of a list. With a body, it
// returns only the fields in it.
func (o *Operation) FieldsOf(body []byte) (map[string]bool, error) {
	var instance any
	var err error
	if body == nil {
		instance, err = Synthesize(o.request, Full)
	} else {
		err = decode(body, &instance)
	}
	fields := make(map[string]bool)
	for _, p := range places(o.request, instance)[1:] {
		fields[anyEntry.ReplaceAllString(p.at, "/*$1")] = true
	}
	return fields, err
}

var anyEntry = regexp.MustCompile(`/[0-9]+(/|$)`)

// Breaks returns the bodies of [Document.InvalidBodies] made from body, which must be valid.
func (o *Operation) Breaks(body []byte) ([]Case, error) {
	var instance any
	if err := decode(body, &instance); err != nil {
		return nil, err
	}
	return cases(MutationsOf(o.request, instance))
}

// Edges returns bodies that differ from body in one field, and that the document allows: a field at each of its bounds, with
// each of its values, null, or absent.
func (o *Operation) Edges(body []byte) ([]Case, error) {
	var instance any
	if err := decode(body, &instance); err != nil {
		return nil, err
	}
	return cases(func(yield func(Mutation) bool) {
		for _, p := range places(o.request, instance) {
			if p.optional && p.without != nil && !yield(Mutation{p.at, Edge, "is absent", p.without()}) {
				return
			}
			edges := p.edges()
			for _, why := range sortedKeys(edges) {
				if !yield(Mutation{p.at, Edge, why, clone(p.with(edges[why]))}) {
					return
				}
			}
		}
	})
}

// LongTexts returns bodies that differ from body in one field, which has n characters. They are made for each text of body.
func (o *Operation) LongTexts(body []byte, n int) ([]Case, error) {
	var instance any
	if err := decode(body, &instance); err != nil {
		return nil, err
	}
	return cases(func(yield func(Mutation) bool) {
		for _, p := range places(o.request, instance) {
			_, isText := p.value.(string)
			if isText && !yield(Mutation{p.at, TooLong, fmt.Sprintf("has %d characters", n), p.with(strings.Repeat("a", n))}) {
				return
			}
		}
	})
}

// Default is a field with a default: one body with the default, and one without the field.
type Default struct {
	Field         string // JSON pointer
	Required      bool
	Given, Absent []byte
}

// Defaults returns the fields of body that have a default in the document.
func (o *Operation) Defaults(body []byte) ([]Default, error) {
	var instance any
	if err := decode(body, &instance); err != nil {
		return nil, err
	}
	var all []Default
	for _, p := range places(o.request, instance) {
		value, ok := p.schema["default"]
		if !ok || p.without == nil {
			continue
		}
		given, err := json.Marshal(p.with(value))
		if err != nil {
			return nil, err
		}
		absent, err := json.Marshal(p.without())
		if err != nil {
			return nil, err
		}
		all = append(all, Default{p.at, !p.optional, given, absent})
	}
	return all, nil
}
