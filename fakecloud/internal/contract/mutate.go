package contract

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
)

// Kind is the kind of mistake in a mutated instance.
type Kind string

// The ways in which [Mutations] makes an instance wrong.
const (
	Missing    Kind = "missing"      // a required property is absent
	Null       Kind = "null"         // null where the schema does not allow it
	WrongType  Kind = "wrong type"   // a value of a type that the schema does not allow
	Unknown    Kind = "unknown"      // a property that the schema does not have
	BadEnum    Kind = "bad enum"     // a string that is not one of the allowed ones
	OutOfRange Kind = "out of range" // a number below the minimum or above the maximum
	TooLong    Kind = "too long"     // more characters or entries than allowed
	TooShort   Kind = "too short"    // fewer characters or entries than needed
	BadPattern Kind = "bad pattern"  // a string that does not match the pattern
	BadFormat  Kind = "bad format"   // a string or number that does not have the format
)

// Mutation is an instance of a schema with exactly one mistake.
type Mutation struct {
	Pointer string // JSON pointer of the wrong place
	Kind    Kind
	Why     string // what is wrong, for the name of a test
	Value   any    // the whole instance, as decoded JSON
}

// Mutations yields instances that break one rule each, for every property and every rule of the schema. All of them are
// invalid in the strict reading of this package. They are made from the full instance of [Synthesize], and its error is
// returned.
func Mutations(schema Schema) (iter.Seq[Mutation], error) {
	instance, err := Synthesize(schema, Full)
	if err != nil {
		return nil, err
	}
	return MutationsOf(schema, instance), nil
}

// MutationsOf is [Mutations] with another valid instance.
func MutationsOf(schema Schema, instance any) iter.Seq[Mutation] {
	return func(yield func(Mutation) bool) {
		m := mutator{yield: yield}
		m.mutate(schema, instance, "", func(value any) any { return value })
	}
}

// mutator walks over a schema and its instance in parallel.
type mutator struct {
	yield   func(Mutation) bool
	stopped bool
}

// put returns the whole instance with one place replaced.
type put func(any) any

func (m *mutator) emit(pointer string, kind Kind, why string, value any) {
	if !m.stopped && !m.yield(Mutation{Pointer: pointer, Kind: kind, Why: why, Value: clone(value)}) {
		m.stopped = true
	}
}

func (m *mutator) mutate(schema Schema, value any, at string, replace put) {
	if m.stopped {
		return
	}
	types := allTypes(schema)
	for _, wrong := range []any{number(42), "wrong", true, []any{}, map[string]any{}} {
		kind := typeOf(wrong)
		allowed := slices.Contains(types, kind) || kind == "integer" && slices.Contains(types, "number")
		if !allowed {
			m.emit(at, WrongType, "is "+article(kind), replace(wrong))
		}
	}
	if !slices.Contains(types, "null") {
		m.emit(at, Null, "is null", replace(nil))
	}
	switch value := value.(type) {
	case string:
		m.mutateString(schema, at, replace)
	case json.Number:
		m.mutateNumber(schema, at, replace)
	case []any:
		m.mutateArray(schema, value, at, replace)
	case map[string]any:
		m.mutateObject(branchFor(schema, value), value, at, replace)
	}
}

// allTypes returns the types that a schema or any branch of it allows.
func allTypes(schema Schema) []string {
	types := typesOf(schema)
	for _, branch := range list(schema["oneOf"]) {
		types = append(types, allTypes(branch.(Schema))...)
	}
	if len(types) == 0 && len(properties(schema)) > 0 {
		return []string{"object"}
	}
	return types
}

func typeOf(value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case json.Number:
		if number := rational(value); number != nil && number.IsInt() {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

func article(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}

// branchFor returns the branch of a oneOf that an object belongs to, or the schema itself.
func branchFor(schema Schema, value map[string]any) Schema {
	name, branches := choices(schema)
	for _, branch := range branches {
		if slices.Contains(branch.values, value[name]) {
			return branchFor(branch.schema, value)
		}
	}
	if branches := list(schema["oneOf"]); name == "" && len(branches) > 0 {
		return branchFor(branches[0].(Schema), value)
	}
	return schema
}

func (m *mutator) mutateObject(schema Schema, value map[string]any, at string, replace put) {
	with := func(name string, child any) any {
		changed := maps.Clone(value)
		changed[name] = child
		return replace(changed)
	}
	for _, name := range sortedKeys(value) {
		place := at + "/" + escape(name)
		child := property(schema, name)
		if child == nil {
			child, _ = schema["additionalProperties"].(Schema)
		}
		if child == nil {
			continue
		}
		if required(schema, name) {
			changed := maps.Clone(value)
			delete(changed, name)
			m.emit(place, Missing, "is missing", replace(changed))
		}
		m.mutate(child, value[name], place, func(other any) any { return with(name, other) })
	}
	if closed(schema) {
		m.emit(at+"/no_such_property", Unknown, "is not a property", with("no_such_property", "surplus"))
	}
}

func (m *mutator) mutateArray(schema Schema, value []any, at string, replace put) {
	items, _ := schema["items"].(Schema)
	prefix := list(schema["prefixItems"])
	for i := range value {
		child := items
		if i < len(prefix) {
			child = prefix[i].(Schema)
		}
		if child == nil {
			continue
		}
		m.mutate(child, value[i], fmt.Sprintf("%s/%d", at, i), func(other any) any {
			changed := slices.Clone(value)
			changed[i] = other
			return replace(changed)
		})
	}
	if most, ok := integer(schema, "maxItems"); ok && len(value) > 0 {
		m.emit(at, TooLong, fmt.Sprintf("has %d entries", most+1), replace(slices.Repeat(value[:1], int(most+1))))
	}
	if least, ok := integer(schema, "minItems"); ok && least > 0 {
		m.emit(at, TooShort, "has no entries", replace([]any{}))
	}
}

func (m *mutator) mutateString(schema Schema, at string, replace put) {
	if schema["oneOf"] != nil {
		return // another branch may allow what this one forbids
	}
	if len(list(schema["enum"])) > 0 {
		m.emit(at, BadEnum, "is not one of the allowed values", replace("no-such-value"))
	}
	if most, ok := integer(schema, "maxLength"); ok {
		m.emit(at, TooLong, fmt.Sprintf("has %d characters", most+1), replace(strings.Repeat("a", int(most+1))))
	}
	if least, ok := integer(schema, "minLength"); ok && least > 0 {
		m.emit(at, TooShort, "is empty", replace(""))
	}
	if pattern, ok := schema["pattern"].(string); ok {
		if expression, err := regexp.Compile(pattern); err == nil {
			for _, candidate := range []string{"Not Allowed", " blank ", "-"} {
				if !expression.MatchString(candidate) {
					m.emit(at, BadPattern, "does not match the pattern", replace(candidate))
					break
				}
			}
		}
	}
	switch schema["format"] {
	case "date-time", "decimal", "ipv4":
		m.emit(at, BadFormat, fmt.Sprintf("is not of format %s", schema["format"]), replace("not of this format"))
	}
}

func (m *mutator) mutateNumber(schema Schema, at string, replace put) {
	if schema["oneOf"] != nil {
		return
	}
	if minimum := rational(schema["minimum"]); minimum != nil {
		below := new(big.Rat).Sub(minimum, big.NewRat(1, 1))
		m.emit(at, OutOfRange, "is "+below.RatString(), replace(json.Number(below.RatString())))
	}
	if maximum := rational(schema["maximum"]); maximum != nil {
		above := new(big.Rat).Add(maximum, big.NewRat(1, 1))
		m.emit(at, OutOfRange, "is "+above.RatString(), replace(json.Number(above.RatString())))
	}
	if !hasType(schema, "number") {
		m.emit(at, WrongType, "is not whole", replace(json.Number("1.5")))
	}
	if pattern, ok := schema["pattern"].(string); ok && hasType(schema, "string") { // an id, which may be a text
		for _, candidate := range []string{"wrong", "0", "1.0"} {
			m.emit(at, BadPattern, fmt.Sprintf("is the text %q, which does not match %s", candidate, pattern), replace(candidate))
		}
	}
	switch schema["format"] {
	case "int32", "int64":
		m.emit(at, BadFormat, "does not fit into 64 bits", replace(json.Number("9223372036854775808")))
	}
}

// Case is a request body with exactly one mistake.
type Case struct {
	Field string // JSON pointer of the wrong place; empty for the body itself
	Kind  Kind
	Why   string
	Body  []byte
}

// String returns a name for a test: the field and its mistake.
func (c Case) String() string {
	if c.Field == "" {
		return "body " + c.Why
	}
	return c.Field + " " + c.Why
}

// InvalidBodies returns, for each field of the request of op, bodies that are wrong only in this field: missing, null, of
// a wrong type, not allowed, too long, out of range and so on. The document allows none of them. The real API accepts some
// (null for an absent field, unknown properties, defaults of required fields): the caller selects by [Case.Kind]. An
// operation without a body has no invalid bodies.
func (d *Document) InvalidBodies(op *Operation) ([]Case, error) {
	if op.request == nil {
		return nil, nil
	}
	mutations, err := Mutations(op.request)
	if err != nil {
		return nil, fmt.Errorf("request of %s: %w", op, err)
	}
	return cases(mutations)
}

// cases returns mutations as bodies.
func cases(mutations iter.Seq[Mutation]) ([]Case, error) {
	var all []Case
	for mutation := range mutations {
		body, err := json.Marshal(mutation.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", mutation.Pointer, err)
		}
		all = append(all, Case{Field: mutation.Pointer, Kind: mutation.Kind, Why: mutation.Why, Body: body})
	}
	return all, nil
}
