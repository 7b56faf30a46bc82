package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// validator checks instances against one schema.
type validator struct {
	compiled *jsonschema.Schema
}

// compile prepares a schema. It returns nil for a nil schema.
func compile(schema Schema) (*validator, error) {
	if schema == nil {
		return nil, nil
	}
	const url = "schema:document"
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	for name, check := range formats {
		compiler.RegisterFormat(&jsonschema.Format{Name: name, Validate: check})
	}
	if err := compiler.AddResource(url, strict(schema)); err != nil {
		return nil, err
	}
	compiled, err := compiler.Compile(url)
	if err != nil {
		return nil, err
	}
	return &validator{compiled: compiled}, nil
}

// strict returns the schema in the form that is compiled. Objects are closed, see [closed]. A oneOf with a discriminator
// becomes one "if" per branch: an error then names what is wrong in the selected branch, not in all branches.
func strict(schema Schema) Schema {
	result := Schema{}
	for keyword, value := range schema {
		switch keyword {
		case "properties":
			children := make(map[string]any)
			for name := range properties(schema) {
				children[name] = strict(property(schema, name))
			}
			result[keyword] = children
		case "items", "additionalProperties":
			if child, ok := value.(Schema); ok {
				value = strict(child)
			}
			result[keyword] = value
		case "oneOf", "prefixItems":
			var children []any
			for _, child := range list(value) {
				children = append(children, strict(child.(Schema)))
			}
			result[keyword] = children
		case "description", "title", "example", "discriminator", "x-enumDescriptions":
		default:
			result[keyword] = value
		}
	}
	if closed(schema) {
		result["additionalProperties"] = false
	}
	if name, branches := choices(schema); name != "" {
		delete(result, "oneOf")
		var known, conditions []any
		for _, branch := range branches {
			known = append(known, branch.values...)
			conditions = append(conditions, map[string]any{
				"if": map[string]any{
					"properties": map[string]any{name: map[string]any{"enum": branch.values}},
					"required":   []any{name},
				},
				"then": strict(branch.schema),
			})
		}
		result["type"] = "object"
		result["required"] = []any{name}
		result["properties"] = map[string]any{name: map[string]any{"enum": known}}
		result["allOf"] = conditions
	}
	return result
}

var decimal = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

// formats are the formats of OpenAPI and the document that JSON schema does not have.
var formats = map[string]func(any) error{
	"int32": func(v any) error { return within(v, -1<<31, 1<<31-1) },
	"int64": func(v any) error { return within(v, -1<<63, 1<<63-1) },
	"decimal": func(v any) error {
		if s, ok := v.(string); ok && !decimal.MatchString(s) {
			return errors.New("not a decimal number")
		}
		return nil
	},
	"double": func(any) error { return nil }, // every JSON number is a double
}

func within(value any, low, high int64) error {
	number := rational(value)
	if number == nil {
		return nil // not a number: the check of the type reports it
	}
	if number.Cmp(new(big.Rat).SetInt64(low)) < 0 || number.Cmp(new(big.Rat).SetInt64(high)) > 0 {
		return fmt.Errorf("not between %d and %d", low, high)
	}
	return nil
}

// validate returns what is wrong with the instance, sorted by place.
func (v *validator) validate(instance any) []Violation {
	err := v.compiled.Validate(instance)
	if err == nil {
		return nil
	}
	var failed *jsonschema.ValidationError
	if !errors.As(err, &failed) {
		return []Violation{{Want: "a value that can be validated", Got: err.Error()}}
	}
	violations := leaves(failed, instance)
	slices.SortStableFunc(violations, func(a, b Violation) int { return strings.Compare(a.Pointer, b.Pointer) })
	return slices.Compact(violations)
}

// leaves flattens the tree of causes. For a oneOf it reports all branches, because the intended one is unknown.
func leaves(failed *jsonschema.ValidationError, instance any) []Violation {
	if _, undecided := failed.ErrorKind.(*kind.OneOf); undecided {
		wants := []string{}
		for _, cause := range failed.Causes {
			for _, leaf := range leaves(cause, instance) {
				wants = append(wants, leaf.Want)
			}
		}
		return []Violation{{
			Pointer: pointer(failed.InstanceLocation),
			Want:    strings.Join(wants, ", or "),
			Got:     excerpt(at(instance, failed.InstanceLocation)),
		}}
	}
	if len(failed.Causes) == 0 {
		return describe(failed, instance)
	}
	var result []Violation
	for _, cause := range failed.Causes {
		result = append(result, leaves(cause, instance)...)
	}
	return result
}

// describe returns the violations of one failed keyword.
func describe(failed *jsonschema.ValidationError, instance any) []Violation {
	value := at(instance, failed.InstanceLocation)
	violation := Violation{Pointer: pointer(failed.InstanceLocation), Got: excerpt(value)}
	var several []Violation
	switch k := failed.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing {
			several = append(several, Violation{Pointer: violation.Pointer + "/" + escape(name), Want: "present (required)",
				Got: "missing"})
		}
		return several
	case *kind.AdditionalProperties:
		for _, name := range k.Properties {
			object, _ := value.(map[string]any)
			several = append(several, Violation{
				Pointer: violation.Pointer + "/" + escape(name),
				Want:    "absent (the document has no such property)",
				Got:     excerpt(object[name]),
			})
		}
		return several
	case *kind.Type:
		violation.Want = strings.Join(k.Want, " or ")
		violation.Got = k.Got + " " + violation.Got
	case *kind.Enum:
		violation.Want = "one of " + excerpt(k.Want)
	case *kind.Format:
		violation.Want = "format " + k.Want
	case *kind.Pattern:
		violation.Want = "pattern " + k.Want
	case *kind.Minimum:
		violation.Want = "at least " + k.Want.RatString()
	case *kind.Maximum:
		violation.Want = "at most " + k.Want.RatString()
	case *kind.MinLength:
		violation.Want = fmt.Sprintf("at least %d characters", k.Want)
	case *kind.MaxLength:
		violation.Want = fmt.Sprintf("at most %d characters", k.Want)
	case *kind.MinItems:
		violation.Want = fmt.Sprintf("at least %d items", k.Want)
	case *kind.MaxItems:
		violation.Want = fmt.Sprintf("at most %d items", k.Want)
	default:
		violation.Want = strings.Join(failed.ErrorKind.KeywordPath(), "/")
	}
	return []Violation{violation}
}

// at returns the value at a place in a decoded instance.
func at(instance any, location []string) any {
	for _, step := range location {
		switch value := instance.(type) {
		case map[string]any:
			instance = value[step]
		case []any:
			var i int
			if _, err := fmt.Sscanf(step, "%d", &i); err != nil || i >= len(value) {
				return nil
			}
			instance = value[i]
		default:
			return nil
		}
	}
	return instance
}

func escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// pointer returns a location as a JSON pointer (RFC 6901).
func pointer(location []string) string {
	var b strings.Builder
	for _, step := range location {
		b.WriteString("/" + escape(step))
	}
	return b.String()
}

// excerptLength is the length of a wrong value in an error, in bytes.
const excerptLength = 120

// excerpt returns a value as JSON, cut to excerptLength.
func excerpt(value any) string {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return fmt.Sprint(value)
	}
	return cut(strings.TrimSpace(buffer.String()))
}

func cut(text string) string {
	if len(text) <= excerptLength {
		return text
	}
	return strings.ToValidUTF8(text[:excerptLength], "") + "…"
}
