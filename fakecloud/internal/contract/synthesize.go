package contract

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Extent selects the properties of objects in [Synthesize].
type Extent int

const (
	// Minimal instances have only the required properties.
	Minimal Extent = iota
	// Full instances have all properties. Lists have one entry for each kind in the schema.
	Full
)

// maxNesting bounds the depth of an instance. The deepest in the document is about 12.
const maxNesting = 40

// Synthesize returns an instance of the schema as decoded JSON (numbers are [json.Number]). It uses the schema's examples,
// defaults and allowed values. The result is the same at each call, and shares no memory with the schema. It returns an
// error if the schema has no hint of an allowed value.
func Synthesize(schema Schema, extent Extent) (any, error) {
	instance, err := synthesize(schema, extent, 0)
	if err != nil {
		return nil, err
	}
	return clone(instance), nil
}

func synthesize(schema Schema, extent Extent, depth int) (any, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("nested deeper than %d", maxNesting)
	}
	if branches := list(schema["oneOf"]); len(branches) > 0 {
		return synthesize(branches[0].(Schema), extent, depth+1)
	}
	// The example of an object may lack the properties of amendments, so that objects are always built.
	if len(properties(schema)) > 0 {
		return synthesizeObject(schema, extent, depth)
	}
	if items, ok := schema["items"].(Schema); ok && !isScalar(items) {
		return synthesizeArray(schema, items, extent, depth)
	}
	for _, keyword := range []string{"const", "example", "default"} {
		if value, ok := schema[keyword]; ok && value != nil {
			return value, nil
		}
	}
	if values := list(schema["enum"]); len(values) > 0 {
		return values[0], nil
	}
	return synthesizePlain(schema, extent, depth)
}

func isScalar(schema Schema) bool {
	return schema["oneOf"] == nil && schema["prefixItems"] == nil && !hasType(schema, "object") && !hasType(schema, "array")
}

func synthesizeObject(schema Schema, extent Extent, depth int) (any, error) {
	object := make(map[string]any)
	for name := range properties(schema) {
		if extent == Minimal && !required(schema, name) {
			continue
		}
		value, err := synthesize(property(schema, name), extent, depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		object[name] = value
	}
	return object, nil
}

func synthesizeArray(schema, items Schema, extent Extent, depth int) (any, error) {
	entries := []any{}
	if prefix := list(items["prefixItems"]); prefix != nil {
		tuple := []any{}
		for _, item := range prefix {
			value, err := synthesize(item.(Schema), extent, depth+1)
			if err != nil {
				return nil, err
			}
			tuple = append(tuple, value)
		}
		return []any{tuple}, nil
	}
	least, _ := integer(schema, "minItems")
	if extent == Minimal && least == 0 {
		return entries, nil
	}
	for _, kind := range alternatives(items) {
		value, err := synthesize(kind, extent, depth+1)
		if err != nil {
			return nil, err
		}
		entries = append(entries, value)
	}
	for int64(len(entries)) < least {
		entries = append(entries, entries[0])
	}
	if most, ok := integer(schema, "maxItems"); ok && int64(len(entries)) > most {
		entries = entries[:most]
	}
	return entries, nil
}

// alternatives returns the branches of a oneOf, also of nested ones, or the schema itself.
func alternatives(schema Schema) []Schema {
	branches := list(schema["oneOf"])
	if len(branches) == 0 {
		return []Schema{schema}
	}
	var all []Schema
	for _, branch := range branches {
		all = append(all, alternatives(branch.(Schema))...)
	}
	return all
}

// synthesizePlain makes a value from the type and its bounds, if the schema has no value.
func synthesizePlain(schema Schema, extent Extent, depth int) (any, error) {
	types := typesOf(schema)
	if len(types) == 0 {
		return nil, fmt.Errorf("schema without type and example: %s", excerpt(schema))
	}
	switch types[0] {
	case "string":
		switch format, _ := schema["format"].(string); format {
		case "date-time":
			return "2026-11-01T12:00:00Z", nil
		case "decimal":
			return "1.0000", nil
		case "ipv4":
			return "192.0.2.1", nil
		}
		length, _ := integer(schema, "minLength")
		return strings.Repeat("a", int(max(length, 1))), nil
	case "integer", "number":
		if minimum, ok := schema["minimum"].(json.Number); ok {
			return minimum, nil
		}
		return number(1), nil
	case "boolean":
		return true, nil
	case "array":
		if items, ok := schema["items"].(Schema); ok {
			return synthesizeArray(schema, items, extent, depth)
		}
		return []any{}, nil
	case "object":
		if values, ok := schema["additionalProperties"].(Schema); ok && extent == Full {
			value, err := synthesize(values, extent, depth+1)
			return map[string]any{"key": value}, err
		}
		return map[string]any{}, nil
	}
	return nil, nil //nolint:nilnil // the type is null: that is its value
}

// clone returns a deep copy of decoded JSON.
func clone(value any) any {
	switch value := value.(type) {
	case map[string]any:
		result := make(map[string]any, len(value))
		for name, child := range value {
			result[name] = clone(child)
		}
		return result
	case []any:
		result := slices.Clone(value)
		for i := range result {
			result[i] = clone(result[i])
		}
		return result
	}
	return value
}

// RequestBody returns a body for a request to op that the document allows, or nil if op takes none. Its ids may not exist.
func (d *Document) RequestBody(op *Operation, extent Extent) ([]byte, error) {
	if op.request == nil {
		return nil, nil
	}
	instance, err := Synthesize(op.request, extent)
	if err != nil {
		return nil, fmt.Errorf("request of %s: %w", op, err)
	}
	return json.Marshal(instance)
}
