package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strings"
)

// Schema is a JSON schema (2020-12, with OpenAPI's additions) as decoded JSON. It is simplified: references are resolved,
// allOf is merged into one schema, nullable is a type, and the branches of a oneOf contain the keywords next to it. Numbers
// are [json.Number].
type Schema = map[string]any

// maxReferences bounds how deep references may nest: a schema that contains itself is an error, not an endless loop. The
// official document has no references.
const maxReferences = 32

// reader simplifies schemas of one document.
type reader struct {
	components map[string]any
	depth      int
}

// read returns schema in the form that [Schema] describes. It does not change its argument.
func (r reader) read(schema map[string]any) (Schema, error) {
	if ref, ok := schema["$ref"].(string); ok {
		target, ok := r.components[strings.TrimPrefix(ref, "#/components/schemas/")].(map[string]any)
		if !ok || r.depth >= maxReferences {
			return nil, fmt.Errorf("$ref %q leads nowhere or into itself", ref)
		}
		r.depth++
		return r.read(target)
	}
	result := maps.Clone(schema)
	if nullable, _ := result["nullable"].(bool); nullable {
		if name, ok := result["type"].(string); ok {
			result["type"] = []any{name, "null"}
		}
	}
	delete(result, "nullable")
	if err := r.readChildren(result); err != nil {
		return nil, err
	}
	parts, err := r.readAll(list(schema["allOf"]), "allOf")
	if err != nil {
		return nil, err
	}
	delete(result, "allOf")
	for _, part := range parts {
		if result, err = merge(result, part); err != nil {
			return nil, fmt.Errorf("allOf: %w", err)
		}
	}
	branches, err := r.readAll(list(schema["oneOf"]), "oneOf")
	if err != nil || len(branches) == 0 {
		return result, err
	}
	return distribute(result, branches)
}

// readChildren simplifies the schemas directly below.
func (r reader) readChildren(schema Schema) error {
	if properties := properties(schema); properties != nil {
		read := make(map[string]any, len(properties))
		for name, property := range properties {
			child, ok := property.(map[string]any)
			if !ok {
				return fmt.Errorf("properties/%s: %T is not a schema", name, property)
			}
			var err error
			if read[name], err = r.read(child); err != nil {
				return fmt.Errorf("properties/%s: %w", name, err)
			}
		}
		schema["properties"] = read
	}
	for _, keyword := range []string{"items", "additionalProperties"} {
		if child, ok := schema[keyword].(map[string]any); ok {
			var err error
			if schema[keyword], err = r.read(child); err != nil {
				return fmt.Errorf("%s: %w", keyword, err)
			}
		}
	}
	if prefix := list(schema["prefixItems"]); prefix != nil {
		read, err := r.readAll(prefix, "prefixItems")
		if err != nil {
			return err
		}
		schema["prefixItems"] = anys(read)
	}
	return nil
}

func (r reader) readAll(schemas []any, keyword string) ([]Schema, error) {
	var result []Schema
	for i, schema := range schemas {
		child, ok := schema.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("%s/%d: %T is not a schema", keyword, i, schema)
		}
		read, err := r.read(child)
		if err != nil {
			return nil, fmt.Errorf("%s/%d: %w", keyword, i, err)
		}
		result = append(result, read)
	}
	return result, nil
}

// distribute moves the keywords next to a oneOf into each of its branches.
func distribute(schema Schema, branches []Schema) (Schema, error) {
	result := Schema{}
	common := Schema{}
	for keyword, value := range schema {
		switch keyword {
		case "discriminator", "title", "description", "example", "default":
			result[keyword] = value
		case "oneOf":
		default:
			common[keyword] = value
		}
	}
	for i, branch := range branches {
		merged, err := merge(common, branch)
		if err != nil {
			return nil, fmt.Errorf("oneOf/%d: %w", i, err)
		}
		branches[i] = merged
	}
	result["oneOf"] = anys(branches)
	return result, nil
}

// merge returns the schema that allows what both a and b allow. Annotations of b win.
func merge(a, b Schema) (Schema, error) {
	result := maps.Clone(a)
	for keyword, value := range b {
		old, both := result[keyword]
		if !both || reflect.DeepEqual(old, value) {
			result[keyword] = value
			continue
		}
		switch keyword {
		case "properties":
			merged := maps.Clone(old.(map[string]any))
			for name, property := range value.(map[string]any) {
				merged[name] = property
				if first, ok := old.(map[string]any)[name].(Schema); ok {
					both, err := merge(first, property.(Schema))
					if err != nil {
						return nil, fmt.Errorf("properties/%s: %w", name, err)
					}
					merged[name] = both
				}
			}
			result[keyword] = merged
		case "required":
			names := slices.Clone(list(old))
			for _, name := range list(value) {
				if !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
			result[keyword] = names
		case "enum":
			result[keyword] = slices.DeleteFunc(slices.Clone(list(old)), func(v any) bool {
				return !slices.Contains(list(value), v)
			})
		case "type":
			types := slices.DeleteFunc(slices.Clone(typesOf(a)), func(name string) bool {
				return !slices.Contains(typesOf(b), name)
			})
			result[keyword] = anys(types)
		case "minimum", "minLength", "minItems":
			result[keyword] = extreme(old, value, 1)
		case "maximum", "maxLength", "maxItems":
			result[keyword] = extreme(old, value, -1)
		case "additionalProperties":
			result[keyword] = false
		case "title", "description", "example", "default", "deprecated", "x-enumDescriptions":
			result[keyword] = value
		default:
			return nil, fmt.Errorf("cannot merge two different %q", keyword)
		}
	}
	return result, nil
}

func extreme(a, b any, sign int) any {
	if x, y := rational(a), rational(b); x != nil && y != nil && y.Cmp(x)*sign > 0 {
		return b
	}
	return a
}

// rational returns the value of a JSON number, or nil.
func rational(value any) *big.Rat {
	number, ok := value.(json.Number)
	if !ok {
		return nil
	}
	result, ok := new(big.Rat).SetString(number.String())
	if !ok {
		return nil
	}
	return result
}

// integer returns the value of a schema's keyword that is an integer.
func integer(schema Schema, keyword string) (int64, bool) {
	number, ok := schema[keyword].(json.Number)
	if !ok {
		return 0, false
	}
	value, err := number.Int64()
	return value, err == nil
}

func list(value any) []any {
	values, _ := value.([]any)
	return values
}

func anys[T any](values []T) []any {
	result := make([]any, len(values))
	for i, value := range values {
		result[i] = value
	}
	return result
}

func properties(schema Schema) map[string]any {
	values, _ := schema["properties"].(map[string]any)
	return values
}

// property returns the schema of a property, or nil.
func property(schema Schema, name string) Schema {
	child, _ := properties(schema)[name].(Schema)
	return child
}

func required(schema Schema, name string) bool {
	return slices.Contains(list(schema["required"]), any(name))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// typesOf returns the allowed types; empty means any.
func typesOf(schema Schema) []string {
	switch value := schema["type"].(type) {
	case string:
		return []string{value}
	case []any:
		var names []string
		for _, name := range value {
			names = append(names, fmt.Sprint(name))
		}
		return names
	}
	return nil
}

func hasType(schema Schema, name string) bool { return slices.Contains(typesOf(schema), name) }

// closed reports whether an object has only the listed properties. Here the checker is stricter than JSON schema: a list
// of properties is complete unless additionalProperties allows others.
func closed(schema Schema) bool {
	additional, stated := schema["additionalProperties"]
	if stated {
		return additional == false
	}
	return len(properties(schema)) > 0
}

// choice is one branch of a oneOf that is selected by the value of a property.
type choice struct {
	values []any // of the discriminator
	schema Schema
}

// choices returns the branches of a oneOf with a discriminator, and the discriminator's name. The values come from the
// branches, because the document's mapping names components that the branches do not have.
func choices(schema Schema) (name string, result []choice) {
	discriminator, _ := schema["discriminator"].(map[string]any)
	name, _ = discriminator["propertyName"].(string)
	if name == "" {
		return "", nil
	}
	for _, branch := range list(schema["oneOf"]) {
		branch := branch.(Schema)
		values := list(property(branch, name)["enum"])
		if len(values) == 0 {
			return "", nil
		}
		result = append(result, choice{values: values, schema: branch})
	}
	return name, result
}

// visit calls f for schema and for each schema in it, parents first.
func visit(schema Schema, f func(Schema)) {
	f(schema)
	for _, name := range sortedKeys(properties(schema)) {
		visit(property(schema, name), f)
	}
	for _, keyword := range []string{"items", "additionalProperties"} {
		if child, ok := schema[keyword].(Schema); ok {
			visit(child, f)
		}
	}
	for _, keyword := range []string{"oneOf", "prefixItems"} {
		for _, child := range list(schema[keyword]) {
			visit(child.(Schema), f)
		}
	}
}
