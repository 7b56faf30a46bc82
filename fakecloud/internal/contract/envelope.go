package contract

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// errorCodes maps an error code to its statuses. A code without a status in the document has an empty list and allows
// every 4xx: these are codes of certificates, which appear in actions.
type errorCodes map[string][]int

// errorRow matches a row of a table of error codes, "| `422` | `server_not_stopped` | … |". Other
// tables of the document have no code in backticks in their second column.
var errorRow = regexp.MustCompile("(?m)^\\| *(?:`([0-9]{3})`)? *\\| *`([a-z0-9_]+)` *\\|")

// parseErrorTable returns the codes of all error tables in a description.
func parseErrorTable(description string) errorCodes {
	codes := make(errorCodes)
	for _, row := range errorRow.FindAllStringSubmatch(description, -1) {
		codes.add(row[2], row[1])
	}
	return codes
}

func (c errorCodes) add(code, status string) {
	number, err := strconv.Atoi(status)
	if err != nil {
		c[code] = []int{}
		return
	}
	c[code] = append(c[code], number)
}

func (c errorCodes) allows(code string, status int) bool {
	statuses, known := c[code]
	return known && (slices.Contains(statuses, status) || len(statuses) == 0 && status/100 == 4)
}

// ErrorCodes returns the error codes of op and their statuses, without the general ones. For a nil op, it returns the
// general ones.
func (d *Document) ErrorCodes(op *Operation) map[string][]int {
	codes := d.codes
	if op != nil {
		codes = op.codes
	}
	result := make(map[string][]int, len(codes))
	for code, statuses := range codes {
		result[code] = slices.Clone(statuses)
	}
	return result
}

// detailsForm is the form of "details" for the codes whose form the chapter "Errors" shows.
var detailsForm = map[string]Schema{
	"invalid_input": object(map[string]any{"fields": nonEmpty(object(map[string]any{
		"name":     stringSchema(),
		"messages": nonEmpty(stringSchema()),
	}))}),
	"uniqueness_error":        object(map[string]any{"fields": nonEmpty(object(map[string]any{"name": stringSchema()}))}),
	"resource_limit_exceeded": object(map[string]any{"limits": nonEmpty(object(map[string]any{"name": stringSchema()}))}),
	"deprecated_api_endpoint": object(map[string]any{"announcement": stringSchema()}),
}

// object returns the schema of an object whose properties are all required.
func object(properties map[string]any) Schema {
	return Schema{"type": "object", "properties": properties, "required": anys(sortedKeys(properties))}
}

func nonEmpty(items Schema) Schema {
	return Schema{"type": "array", "items": items, "minItems": number(1)}
}

func stringSchema() Schema { return Schema{"type": "string", "minLength": number(1)} }

// errorViolations checks the body of an error: the envelope, the code (it must be documented for the operation and the
// status), and the details.
func (d *Document) errorViolations(op *Operation, status int, body []byte) []Violation {
	var instance any
	if err := decode(body, &instance); err != nil {
		return []Violation{{Want: "an error in JSON", Got: fmt.Sprintf("%q (%v)", cut(string(body)), err)}}
	}
	if op != nil && strings.HasPrefix(op.Path, "/networks") && bytes.Contains(body, []byte("A valid JSON document is required.")) {
		return nil // without details: hetzner-k3s issue 426
	}
	schema, err := compile(errorEnvelope())
	if err != nil {
		return []Violation{{Want: "a schema of the error envelope", Got: err.Error()}}
	}
	if violations := schema.validate(instance); len(violations) > 0 {
		return violations
	}
	if status == http.StatusNotImplemented {
		return nil
	}
	failure := at(instance, []string{"error"}).(map[string]any)
	code := failure["code"].(string)
	var violations []Violation
	if !d.codes.allows(code, status) && (op == nil || !op.codes.allows(code, status)) {
		violations = append(violations, Violation{
			Pointer: "/error/code",
			Want:    "a code that is documented with status " + strconv.Itoa(status) + d.known(op, status),
			Got:     strconv.Quote(code),
		})
	}
	// An error that names no field has empty details: hetzner-k3s issue 681, frappe/press issue 5857.
	details, isObject := failure["details"].(map[string]any)
	empty := isObject && len(details) == 0 && (code == "uniqueness_error" && op != nil && op.ID == "create_server" ||
		code == "invalid_input" && !strings.HasPrefix(failure["message"].(string), "invalid input in field"))
	if form, ok := detailsForm[code]; ok && !empty {
		schema, err := compile(form)
		if err != nil {
			return []Violation{{Want: "a schema of the details of " + code, Got: err.Error()}}
		}
		for _, violation := range schema.validate(failure["details"]) {
			violation.Pointer = "/error/details" + violation.Pointer
			violations = append(violations, violation)
		}
	}
	return violations
}

// known lists the correct codes.
func (d *Document) known(op *Operation, status int) string {
	var codes []string
	for code := range d.codes {
		if d.codes.allows(code, status) {
			codes = append(codes, code)
		}
	}
	if op != nil {
		for code := range op.codes {
			if op.codes.allows(code, status) {
				codes = append(codes, code)
			}
		}
	}
	if len(codes) == 0 {
		return " (there is none)"
	}
	slices.Sort(codes)
	return " (" + strings.Join(slices.Compact(codes), ", ") + ")"
}

// errorEnvelope returns the schema of an error. It requires details, unlike the document: api-facts.md says that details
// is present, and null if there are none.
func errorEnvelope() Schema {
	return object(map[string]any{"error": object(map[string]any{
		"code":    stringSchema(),
		"message": stringSchema(),
		"details": Schema{"type": []any{"object", "null"}},
	})})
}
