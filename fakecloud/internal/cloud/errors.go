package cloud

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// Code is an error code of the API, as in the `code` of an error's JSON.
type Code string

// Error is an error that the API answers with.
type Error struct {
	Code    Code
	Status  int // HTTP status
	Message string
	// Fields are the details of invalid_input and uniqueness_error.
	Fields []FieldError
	// Limits are the details of resource_limit_exceeded: names of the limits.
	Limits []string
	// Announcement is the details of deprecated_api_endpoint: a URL.
	Announcement string
	// Nearest are the details of a path or method that the API does not have: operations, such as "GET /v1/servers".
	Nearest []string
	// Details, if set, are the JSON of the details instead of the fields above. NoDetails leaves the details out.
	Details string
}

// NoDetails is the value of Error.Details for an answer without the member details.
const NoDetails = "none"

// FieldError is a problem of one field of a request. Name is the path of the field, such as
// "services.0.listen_port".
type FieldError struct {
	Name     string
	Messages []string
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }

// Each code has one constructor, with the HTTP status of the API document. General codes are in its
// chapter Errors, operation specific codes are listed with the operation.

// ErrJSON is 400 json_error: the body is not JSON, or not an object.
func ErrJSON(reason string) *Error {
	return &Error{Code: "json_error", Status: 400, Message: "invalid JSON in request body: " + reason}
}

// ErrJSONOf is the json_error of the creation of a server (Cyclenerd/hcloud-github-runner issue 22), or else of an operation on networks
// (vitobotta/hetzner-k3s issues 426, 427 and 464).
func ErrJSONOf(server bool) *Error {
	if server {
		return &Error{Code: "json_error", Status: 422, Message: "syntax error"}
	}
	return &Error{Code: "json_error", Status: 400, Message: "A valid JSON document is required.", Details: NoDetails}
}

// ErrSelector is the invalid_input of a list's label selector that cannot be parsed (jenkinsci/hetzner-cloud-plugin issue 75).
func ErrSelector(err error) *Error {
	e := ErrField("label_selector", err.Error())
	e.Message = "invalid label_selector: " + err.Error()
	return e
}

// ErrDNS is an invalid_input of the DNS service: the message is the problem (cert-manager-webhook-hetzner issue 213).
func ErrDNS(field, problem string) *Error {
	e := ErrField(field, problem)
	e.Message = problem
	return e
}

// ErrUnauthorized is 401 unauthorized.
func ErrUnauthorized(message string) *Error {
	return &Error{Code: "unauthorized", Status: 401, Message: message}
}

// ErrTokenReadonly is 401 token_readonly, the answer to a read-only token's write before
// 2026-10-05.
func ErrTokenReadonly() *Error {
	return &Error{Code: "token_readonly", Status: 401, Message: "the token is only allowed to perform GET requests"}
}

// ErrForbidden is 403 forbidden.
func ErrForbidden(message string) *Error {
	return &Error{Code: "forbidden", Status: 403, Message: message}
}

// ErrLimitExceeded is 403 resource_limit_exceeded; limit is its name, such as "server_limit".
func ErrLimitExceeded(limit, message string) *Error {
	return &Error{Code: "resource_limit_exceeded", Status: 403, Message: message, Limits: []string{limit}}
}

// ErrNotFound is 404 not_found for a resource.
func ErrNotFound(kind store.Kind, id any) *Error {
	return &Error{
		Code: "not_found", Status: 404,
		Message: fmt.Sprintf("%s with ID '%v' not found", strings.ReplaceAll(string(kind), "_", " "), id),
	}
}

// words returns a kind as the real API's messages write it.
func words(kind store.Kind) string {
	switch kind {
	case KindPrimaryIP:
		return "Primary IP" // OpenRouterLabs/spawn issue 2902
	case KindFloatingIP:
		return "Floating IP"
	case KindSSHKey:
		return "SSH key" // snowdrop/k8s-infra issue 214
	}
	return strings.ReplaceAll(string(kind), "_", " ")
}

// ErrNoRoute is 404 not_found for a path that the API does not have. nearest are the operations of the most similar path. The API document
// says that the form of details depends on the code, and shows no form for this code.
func ErrNoRoute(nearest ...string) *Error {
	return &Error{Code: "not_found", Status: 404, Message: "api route not found", Nearest: nearest}
}

// ErrMethodNotAllowed is 405 method_not_allowed. nearest are the operations of the path.
func ErrMethodNotAllowed(method string, nearest ...string) *Error {
	return &Error{Code: "method_not_allowed", Status: 405, Message: "method " + method + " is not allowed here", Nearest: nearest}
}

// ErrUniqueness is 409 uniqueness_error; field is the request's field that must be unique.
func ErrUniqueness(field, message string) *Error {
	return &Error{Code: "uniqueness_error", Status: 409, Message: message, Fields: []FieldError{{Name: field}}}
}

// ErrConflict is 409 conflict: the resource changed during the request; clients retry.
func ErrConflict(message string) *Error {
	return &Error{Code: "conflict", Status: 409, Message: message}
}

// ErrDeprecatedEndpoint is 410 deprecated_api_endpoint.
func ErrDeprecatedEndpoint(announcement string) *Error {
	return &Error{Code: "deprecated_api_endpoint", Status: 410, Message: "API functionality was removed", Announcement: announcement}
}

// ErrResourceUnavailable is 412 resource_unavailable, for example a type that cannot be ordered in
// a location.
func ErrResourceUnavailable(message string) *Error {
	return &Error{Code: "resource_unavailable", Status: 412, Message: message}
}

// MaxMistakes is how many fields an invalid_input names. It bounds the answer; the limit is ours.
const MaxMistakes = 100

// ErrInvalidInput is 422 invalid_input. The message names the fields, and the details their problems (hetznercloud/cli issue 1075,
// terraform-provider-hcloud issue 173; the API document's example has the problem in both). Of a load balancer's service, a rule and an
// item of a list, the message names the outer field (terraform-provider-hcloud issue 1162, hetznercloud/cli issue 725,
// ansible-collections/hetzner.hcloud issue 585). The details have no place for "there is more", so that the message says it.
func ErrInvalidInput(fields ...FieldError) *Error {
	cut := len(fields) > MaxMistakes
	fields = fields[:min(len(fields), MaxMistakes)]
	e := &Error{Code: "invalid_input", Status: 422, Message: "invalid input", Fields: fields}
	var names []string
	for _, f := range fields {
		name, inner, nested := strings.Cut(f.Name, ".")
		if nested && strings.IndexAny(inner, "0123456789") != 0 && !slices.Contains([]string{"health_check", "http", "rules"}, name) {
			name = f.Name
		}
		if name = "'" + name + "'"; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	switch len(names) {
	case 0:
	case 1:
		e.Message = "invalid input in field " + names[0]
	default:
		e.Message = "invalid input in fields " + strings.Join(names, ", ")
	}
	if cut {
		e.Message += fmt.Sprintf("; only the first %d fields are named", MaxMistakes)
	}
	return e
}

// ErrField is ErrInvalidInput for one field.
func ErrField(name, message string) *Error { return ErrFields(message, name) }

// ErrFields is ErrInvalidInput with the same message for several fields.
func ErrFields(message string, names ...string) *Error {
	fields := make([]FieldError, len(names))
	for i, name := range names {
		fields[i] = FieldError{Name: name, Messages: []string{message}}
	}
	return ErrInvalidInput(fields...)
}

// errInput is an invalid_input that names no field (hetzner-k3s issue 681).
func errInput(message string) error {
	return &Error{Code: "invalid_input", Status: 422, Message: message, Details: "{}"}
}

// ErrServiceError is 422 service_error.
func ErrServiceError(message string) *Error {
	return &Error{Code: "service_error", Status: 422, Message: message}
}

// ErrUnsupported is 422 unsupported_error: the resource does not support the action.
func ErrUnsupported(message string) *Error {
	return &Error{Code: "unsupported_error", Status: 422, Message: message}
}

// ErrResourceInUse is 422 resource_in_use: a firewall that is applied cannot be deleted.
func ErrResourceInUse(message string) *Error {
	return &Error{Code: "resource_in_use", Status: 422, Message: message}
}

// ErrLocked is 423 locked: an action is running on the resource. The real API's message about a server is in
// terraform-provider-hcloud issues 492 and 734.
func ErrLocked(kind store.Kind) *Error {
	return &Error{Code: "locked", Status: 423, Message: fmt.Sprintf("cannot perform operation because %s is locked", words(kind))}
}

// ErrProtected is 423 protected: the protection of the resource forbids the action.
func ErrProtected(message string) *Error {
	return &Error{Code: "protected", Status: 423, Message: message}
}

// ErrRateLimit is 429 rate_limit_exceeded.
func ErrRateLimit(limit int) *Error {
	return &Error{Code: "rate_limit_exceeded", Status: 429, Message: fmt.Sprintf("limit of %d requests per hour reached", limit)}
}

// ErrServer is 500 server_error.
func ErrServer(message string) *Error {
	return &Error{Code: "server_error", Status: 500, Message: message}
}

// ErrOperation is an operation specific 422 error, with one of the codes that the API document
// lists for the operation: server_not_stopped, ip_not_available, target_already_defined, …
func ErrOperation(code Code, message string) *Error {
	return &Error{Code: code, Status: 422, Message: message}
}

// ErrPrecondition is an operation specific 412 error: source_port_already_used of add_service,
// primary_ip_version_mismatch.
func ErrPrecondition(code Code, message string) *Error {
	return &Error{Code: code, Status: 412, Message: message}
}
