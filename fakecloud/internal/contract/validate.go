package contract

import (
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// Violation is one place where a body, a status or a header is not as documented.
type Violation struct {
	// Pointer is the JSON pointer of the place in the body. For other places it is a name: "status", "header Content-Type".
	Pointer string
	Want    string
	Got     string
}

// String returns the violation in one line.
func (v Violation) String() string {
	place := v.Pointer
	if place == "" {
		place = "the body"
	}
	return fmt.Sprintf("%s: want %s, got %s", place, v.Want, v.Got)
}

// Error has all violations of one request or answer.
type Error struct {
	Operation  *Operation // nil: the API does not have the path
	Subject    string     // the checked part: "request", "response 404"
	Violations []Violation
}

// Error returns all violations, one per line.
func (e *Error) Error() string {
	var b strings.Builder
	name := "no operation of the API"
	if e.Operation != nil {
		name = e.Operation.String()
	}
	fmt.Fprintf(&b, "%s of %s:", e.Subject, name)
	for _, violation := range e.Violations {
		b.WriteString("\n  " + violation.String())
	}
	return b.String()
}

// report returns the violations as an error, or nil if there are none.
func report(op *Operation, subject string, violations []Violation) error {
	if len(violations) == 0 {
		return nil
	}
	return &Error{Operation: op, Subject: subject, Violations: violations}
}

// ValidateRequest returns an [*Error] with all violations if the document does not allow body in a request to op. For an
// operation without a body, an empty body and an empty object are valid: clients send both.
func (d *Document) ValidateRequest(op *Operation, body []byte) error {
	const subject = "request"
	schema, err := op.compiledRequest()
	if err != nil {
		return fmt.Errorf("schema of the request of %s: %w", op, err)
	}
	if schema == nil {
		if text := strings.TrimSpace(string(body)); text != "" && text != "{}" {
			return report(op, subject, []Violation{{Want: "no body", Got: cut(text)}})
		}
		return nil
	}
	var instance any
	if err := decode(body, &instance); err != nil {
		return report(op, subject, []Violation{{Want: "JSON", Got: fmt.Sprintf("%q (%v)", cut(string(body)), err)}})
	}
	return report(op, subject, schema.validate(instance))
}

// ValidateResponse returns an [*Error] with all violations if the document does not allow an answer to a request to op: the
// status, the headers and the body of a success or an error.
//
// A nil op stands for a request without an operation, see [Document.Match]. Its answer must be an error. A 501 means that
// fakecloud does not model the operation: only its form is checked.
func (d *Document) ValidateResponse(op *Operation, status int, header http.Header, body []byte) error {
	subject := "response " + strconv.Itoa(status)
	violations := headerViolations(status, header)
	switch {
	case status/100 == 4 || status/100 == 5:
		violations = append(violations, d.errorViolations(op, status, body)...)
	case op == nil || op.Removed:
		want := "an error (the API has no such path or method)"
		if op != nil {
			want = "410 (the operation was removed)"
		}
		violations = append(violations, Violation{Pointer: "status", Want: want, Got: strconv.Itoa(status)})
	case status != op.Success:
		violations = append(violations, Violation{Pointer: "status", Want: strconv.Itoa(op.Success), Got: strconv.Itoa(status)})
	default:
		bodyViolations, err := d.successViolations(op, header, body)
		if err != nil {
			return err
		}
		violations = append(violations, bodyViolations...)
	}
	return report(op, subject, violations)
}

func (d *Document) successViolations(op *Operation, header http.Header, body []byte) ([]Violation, error) {
	schema, err := op.compiledResponse()
	if err != nil {
		return nil, fmt.Errorf("schema of the response of %s: %w", op, err)
	}
	if schema == nil {
		if len(body) > 0 {
			return []Violation{{Want: "no body", Got: cut(string(body))}}, nil
		}
		return nil, nil
	}
	var instance any
	if err := decode(body, &instance); err != nil {
		return []Violation{{Want: "JSON", Got: fmt.Sprintf("%q (%v)", cut(string(body)), err)}}, nil
	}
	violations := schema.validate(instance)
	if len(violations) > 0 {
		return violations, nil // the other checks need a valid form
	}
	violations = append(violations, pagingViolations(header, instance)...)
	violations = append(violations, op.commandViolations(instance)...)
	return append(violations, d.consistencyViolations(instance)...), nil
}

var correlationID = regexp.MustCompile(`^[0-9a-f]+$`)

// headerViolations checks the headers of each answer. Without the content type, clients lose error codes and paging.
// Hetzner's support asks for X-Correlation-Id.
func headerViolations(status int, header http.Header) []Violation {
	var violations []Violation
	contentType := header.Get("Content-Type")
	if mediaType, _, err := mime.ParseMediaType(contentType); hasBody(status) && (err != nil || mediaType != "application/json") {
		violations = append(violations, Violation{Pointer: "header Content-Type", Want: "application/json",
			Got: strconv.Quote(contentType)})
	}
	if id := header.Get("X-Correlation-Id"); !correlationID.MatchString(id) {
		violations = append(violations, Violation{Pointer: "header X-Correlation-Id", Want: "hexadecimal digits", Got: strconv.Quote(id)})
	}
	return append(violations, rateLimitViolations(status, header)...)
}

// rateLimitViolations checks the three headers of the chapter "Rate Limiting". They must be numbers. All of them may be
// missing, because a server may have no limit, but not with status 429.
func rateLimitViolations(status int, header http.Header) []Violation {
	names := []string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}
	expected := status == http.StatusTooManyRequests
	for _, name := range names {
		expected = expected || header.Get(name) != ""
	}
	if !expected {
		return nil
	}
	var violations []Violation
	for _, name := range names {
		if _, err := strconv.ParseUint(header.Get(name), 10, 63); err != nil {
			violations = append(violations, Violation{Pointer: "header " + name, Want: "a whole number",
				Got: strconv.Quote(header.Get(name))})
		}
	}
	return violations
}
