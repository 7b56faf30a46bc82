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
		for _, p := range places(schema, instance) {
			for _, m := range p.mistakes() {
				m.Value = clone(m.Value)
				if !yield(m) {
					return
				}
			}
		}
	}
}

// mistakes returns the mutations of one place.
func (p place) mistakes() (all []Mutation) {
	emit := func(kind Kind, why string, value any) { all = append(all, Mutation{p.at, kind, why, p.with(value)}) }
	if p.without != nil && !p.optional {
		all = append(all, Mutation{p.at, Missing, "is missing", p.without()})
	}
	types := allTypes(p.schema)
	for _, wrong := range []any{number(42), "wrong", true, []any{}, map[string]any{}} {
		kind := typeOf(wrong)
		allowed := slices.Contains(types, kind) || kind == "integer" && slices.Contains(types, "number")
		if !allowed {
			emit(WrongType, "is "+article(kind), wrong)
		}
	}
	if !slices.Contains(types, "null") {
		emit(Null, "is null", nil)
	}
	switch value := p.value.(type) {
	case string:
		mutateString(p.schema, emit)
	case json.Number:
		mutateNumber(p.schema, emit)
	case []any:
		if most, ok := integer(p.schema, "maxItems"); ok && len(value) > 0 {
			emit(TooLong, fmt.Sprintf("has %d entries", most+1), slices.Repeat(value[:1], int(most+1)))
		}
		if least, ok := integer(p.schema, "minItems"); ok && least > 0 {
			emit(TooShort, "has no entries", []any{})
		}
	case map[string]any:
		if closed(branchFor(p.schema, value)) {
			surplus := maps.Clone(value)
			surplus["no_such_property"] = "surplus"
			all = append(all, Mutation{p.at + "/no_such_property", Unknown, "is not a property", p.with(surplus)})
		}
	}
	return all
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

func mutateString(schema Schema, emit func(Kind, string, any)) {
	if schema["oneOf"] != nil {
		return // another branch may allow what this one forbids
	}
	if len(list(schema["enum"])) > 0 {
		emit(BadEnum, "is not one of the allowed values", "no-such-value")
	}
	if most, ok := integer(schema, "maxLength"); ok {
		emit(TooLong, fmt.Sprintf("has %d characters", most+1), strings.Repeat("a", int(most+1)))
	}
	if least, ok := integer(schema, "minLength"); ok && least > 0 {
		emit(TooShort, "is empty", "")
	}
	if pattern, ok := schema["pattern"].(string); ok {
		if expression, err := regexp.Compile(pattern); err == nil {
			for _, candidate := range []string{"Not Allowed", " blank ", "-"} {
				if !expression.MatchString(candidate) {
					emit(BadPattern, "does not match the pattern", candidate)
					break
				}
			}
		}
	}
	switch schema["format"] {
	case "date-time", "decimal", "ipv4":
		emit(BadFormat, fmt.Sprintf("is not of format %s", schema["format"]), "not of this format")
	}
}

func mutateNumber(schema Schema, emit func(Kind, string, any)) {
	if schema["oneOf"] != nil {
		return
	}
	if minimum := rational(schema["minimum"]); minimum != nil {
		below := new(big.Rat).Sub(minimum, big.NewRat(1, 1))
		emit(OutOfRange, "is "+below.RatString(), json.Number(below.RatString()))
	}
	if maximum := rational(schema["maximum"]); maximum != nil {
		above := new(big.Rat).Add(maximum, big.NewRat(1, 1))
		emit(OutOfRange, "is "+above.RatString(), json.Number(above.RatString()))
	}
	if !hasType(schema, "number") {
		emit(WrongType, "is not whole", json.Number("1.5"))
	}
	if pattern, ok := schema["pattern"].(string); ok && hasType(schema, "string") { // an id, which may be a text
		for _, candidate := range []string{"wrong", "0", "1.0"} {
			emit(BadPattern, fmt.Sprintf("is the text %q, which does not match %s", candidate, pattern), candidate)
		}
	}
	switch schema["format"] {
	case "int32", "int64":
		emit(BadFormat, "does not fit into 64 bits", json.Number("9223372036854775808"))
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
