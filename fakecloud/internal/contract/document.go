package contract

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// EnvDocument is the environment variable with the path of the API document, or of its folder.
const EnvDocument = "HETZNER_API_DOCUMENT"

// EnvRequire is the environment variable that makes tests fail without the document, instead of being skipped. CI sets
// it. Every value except "" counts.
const EnvRequire = "REQUIRE_API_DOCUMENT"

// documentFile is the name of Hetzner's document.
const documentFile = "cloud.spec.json"

// ErrNoDocument means that [Find] did not find the API document.
var ErrNoDocument = errors.New("the Hetzner Cloud API document was not found")

// Document is the API document with its amendments. It is safe for concurrent use.
type Document struct {
	operations []*Operation
	byID       map[string]*Operation
	codes      errorCodes // of the chapter "Error Codes", valid for each operation
	asOf       time.Time

	// knowsUnassigned is set once primary_ip.assignee_type has the value "unassigned".
	knowsUnassigned bool
}

// Operation is one method on one path of the API.
type Operation struct {
	Method  string // upper case
	Path    string // the template, without the base path: /servers/{id}
	ID      string // operationId: get_server
	Tag     string // Servers
	Summary string
	// Description is Markdown.
	Description string

	// Success is the one status of a successful answer. For a removed operation it is 410.
	Success    int
	Deprecated bool
	// Removed operations answer 410 deprecated_api_endpoint and nothing else.
	Removed bool
	// Since is when the operation was added, if it is newer than the document; else zero.
	Since time.Time
	// Query lists the query parameters.
	Query []Parameter

	segments         []string
	request          Schema // nil: takes no body
	response         Schema // nil: the successful answer has no body
	codes            errorCodes
	responseExamples []any
	requestExamples  []any

	compiledRequest  func() (*validator, error)
	compiledResponse func() (*validator, error)
	values           func() map[string]bool // see documentedValues
}

// Parameter is a query parameter of an operation.
type Parameter struct {
	Name     string
	Required bool
	Array    bool     // may be given several times
	Type     string   // of one value: string, integer …
	Enum     []string // the allowed values; empty: any
	Schema   Schema   // of one value; nil for a parameter that is newer than the document
}

// String returns the operation as method and path template.
func (o *Operation) String() string { return o.Method + " " + o.Path }

// RequestSchema returns the schema of the request's body with allOf merged and references
// resolved, or nil if the operation takes none. Callers must not change it.
func (o *Operation) RequestSchema() Schema { return o.request }

// ResponseSchema returns the schema of the successful answer's body in the same form as
// [Operation.RequestSchema], or nil if it has none (204).
func (o *Operation) ResponseSchema() Schema { return o.response }

// Option changes how a document is loaded.
type Option func(*Document)

// AsOf leaves out the amendments after day, to check a server that answers like the API of that day. The document is of
// July 2026: an earlier day gives the API of July 2026.
func AsOf(day time.Time) Option {
	return func(d *Document) { d.asOf = day }
}

// Find returns the path of the API document. It is the value of [EnvDocument] if that is set (a file, or a folder with the
// file). Otherwise it is ../shared/hetzner/cloud.spec.json, relative to the root of the module of the working directory, or
// else [CachePath]. The error wraps [ErrNoDocument] if there is no such file.
func Find() (string, error) {
	if path := os.Getenv(EnvDocument); path != "" {
		if info, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", EnvDocument, err)
		} else if info.IsDir() {
			path = filepath.Join(path, documentFile)
		}
		return path, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, "..", "shared", "hetzner", documentFile)
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			// This may be the root of a nested module: if the file does not exist, continue upwards.
			if _, err := os.Stat(path); err == nil {
				return path, nil
			}
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	path, err := CachePath()
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s is not set, and ../shared/hetzner/%s does not exist: make api-document downloads it",
			ErrNoDocument, EnvDocument, documentFile)
	}
	return path, nil
}

// CachePath returns the path of the document in the user's cache, where `make api-document` puts it.
func CachePath() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "ccm-from-scratch", "hetzner", documentFile), err
}

// Load reads the document at path and applies the amendments.
func Load(path string, options ...Option) (*Document, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	document, err := Parse(content, options...)
	if err != nil {
		return nil, fmt.Errorf("API document %s: %w", path, err)
	}
	return document, nil
}

var loadFound = sync.OnceValues(func() (*Document, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	return Load(path)
})

// ForTest returns the document of [Find], loaded once per process. Without a document it skips the test, or fails it if
// [EnvRequire] is set. It fails the test if the document is broken, or if the file of [EnvDocument] does not exist.
func ForTest(tb testing.TB) *Document {
	tb.Helper()
	document, err := loadFound()
	stopWithout(tb, err)
	return document
}

// stopWithout skips or fails a test if err is not nil.
func stopWithout(tb testing.TB, err error) {
	tb.Helper()
	switch required := os.Getenv(EnvRequire) != ""; {
	case err == nil:
	case errors.Is(err, ErrNoDocument) && !required:
		tb.Skipf("not checked against the API document: %v. Set %s to make this a failure", err, EnvRequire)
	case errors.Is(err, ErrNoDocument):
		tb.Fatalf("%v, and %s is set", err, EnvRequire)
	default:
		tb.Fatal(err)
	}
}

// The parts of OpenAPI that are read.
type (
	rawDocument struct {
		Info struct {
			Description string `json:"description"`
		} `json:"info"`
		Paths      map[string]map[string]json.RawMessage `json:"paths"`
		Components struct {
			Schemas map[string]any `json:"schemas"`
		} `json:"components"`
	}
	rawOperation struct {
		OperationID string                 `json:"operationId"`
		Summary     string                 `json:"summary"`
		Description string                 `json:"description"`
		Tags        []string               `json:"tags"`
		Deprecated  bool                   `json:"deprecated"`
		Parameters  []rawParameter         `json:"parameters"`
		RequestBody *rawBody               `json:"requestBody"`
		Responses   map[string]rawResponse `json:"responses"`
	}
	rawParameter struct {
		Name     string         `json:"name"`
		In       string         `json:"in"`
		Required bool           `json:"required"`
		Schema   map[string]any `json:"schema"`
	}
	rawBody struct {
		Content map[string]rawMedia `json:"content"`
	}
	rawResponse = rawBody
	rawMedia    struct {
		Schema   map[string]any `json:"schema"`
		Example  any            `json:"example"`
		Examples map[string]struct {
			Value any `json:"value"`
		} `json:"examples"`
	}
)

func (m rawMedia) examples() []any {
	var all []any
	if m.Example != nil {
		all = append(all, m.Example)
	}
	for _, key := range sortedKeys(m.Examples) {
		all = append(all, m.Examples[key].Value)
	}
	return all
}

// Parse reads a document from its JSON text and applies the amendments.
func Parse(content []byte, options ...Option) (*Document, error) {
	var raw rawDocument
	if err := decode(content, &raw); err != nil {
		return nil, err
	}
	document := &Document{
		byID:  make(map[string]*Operation),
		codes: parseErrorTable(raw.Info.Description),
		asOf:  time.Unix(1<<40, 0),
	}
	for _, option := range options {
		option(document)
	}
	if len(document.codes) == 0 {
		return nil, errors.New("no table of error codes in info.description")
	}
	reader := reader{components: raw.Components.Schemas}
	for _, path := range sortedKeys(raw.Paths) {
		for _, method := range sortedKeys(raw.Paths[path]) {
			if !slices.Contains([]string{"get", "put", "post", "delete", "patch"}, method) {
				continue // parameters, summary, servers
			}
			var rawOp rawOperation
			if err := decode(raw.Paths[path][method], &rawOp); err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			op, err := reader.operation(method, path, rawOp)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			document.operations = append(document.operations, op)
		}
	}
	for _, amendment := range Amendments() {
		if !amendment.Since.After(document.asOf) {
			amendment.apply(document)
		}
	}
	return document, document.finish()
}

// finish indexes the operations. Their schemas are compiled at the first use, because most tests use few of them.
func (d *Document) finish() error {
	slices.SortFunc(d.operations, func(a, b *Operation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
	})
	for _, op := range d.operations {
		if d.byID[op.ID] != nil {
			return fmt.Errorf("operationId %q is used by both %s and %s", op.ID, d.byID[op.ID], op)
		}
		d.byID[op.ID] = op
		op.segments = strings.Split(strings.Trim(op.Path, "/"), "/")
		op.compiledRequest = sync.OnceValues(func() (*validator, error) { return compile(op.request) })
		op.compiledResponse = sync.OnceValues(func() (*validator, error) { return compile(op.response) })
		op.values = sync.OnceValue(func() map[string]bool { return documentedValues(op.response) })
	}
	return nil
}

// operation returns the Operation of a raw operation.
func (r reader) operation(method, path string, raw rawOperation) (*Operation, error) {
	op := &Operation{
		Method:      strings.ToUpper(method),
		Path:        path,
		ID:          raw.OperationID,
		Summary:     raw.Summary,
		Description: raw.Description,
		Deprecated:  raw.Deprecated,
		codes:       parseErrorTable(raw.Description),
	}
	if len(raw.Tags) > 0 {
		op.Tag = raw.Tags[0]
	}
	for _, parameter := range raw.Parameters {
		if parameter.In == "query" {
			op.Query = append(op.Query, newParameter(parameter))
		}
	}
	var err error
	if raw.RequestBody != nil {
		media := raw.RequestBody.Content["application/json"]
		op.requestExamples = media.examples()
		if op.request, err = r.read(media.Schema); err != nil {
			return nil, fmt.Errorf("request: %w", err)
		}
	}
	for _, status := range sortedKeys(raw.Responses) {
		var number int
		if _, err := fmt.Sscanf(status, "%d", &number); err != nil || number/100 != 2 || len(status) != 3 {
			continue // 4xx and 5xx have the same envelope everywhere, see envelope.go
		}
		if op.Success != 0 {
			return nil, fmt.Errorf("several successful statuses, %d and %d: the checker expects one", op.Success, number)
		}
		op.Success = number
		media, ok := raw.Responses[status].Content["application/json"]
		if !ok {
			continue
		}
		op.responseExamples = media.examples()
		if op.response, err = r.read(media.Schema); err != nil {
			return nil, fmt.Errorf("response %s: %w", status, err)
		}
	}
	if op.Success == 0 {
		return nil, errors.New("no successful status")
	}
	return op, nil
}

func newParameter(raw rawParameter) Parameter {
	schema := raw.Schema
	parameter := Parameter{Name: raw.Name, Required: raw.Required}
	if items, ok := schema["items"].(map[string]any); ok {
		parameter.Array, schema = true, items
	}
	parameter.Schema = schema
	parameter.Type, _ = schema["type"].(string)
	for _, value := range list(schema["enum"]) {
		parameter.Enum = append(parameter.Enum, fmt.Sprint(value))
	}
	return parameter
}

// Operations returns all operations, sorted by path and method.
func (d *Document) Operations() []*Operation { return slices.Clone(d.operations) }

// Operation returns the operation with the given operationId, or nil.
func (d *Document) Operation(id string) *Operation { return d.byID[id] }

// Match returns the operation of a request, or nil. The path may start with the base path /v1 or not. If two templates
// fit, such as /servers/actions and /servers/{id}, the one with the longer literal start wins.
func (d *Document) Match(method, path string) *Operation {
	path = strings.TrimPrefix(path, "/v1")
	segments := strings.Split(strings.Trim(path, "/"), "/")
	var best *Operation
	for _, op := range d.operations {
		if op.Method == method && fits(op.segments, segments) && (best == nil || moreLiteral(op.segments, best.segments)) {
			best = op
		}
	}
	return best
}

func isParameter(segment string) bool { return strings.HasPrefix(segment, "{") }

func fits(template, path []string) bool {
	return slices.EqualFunc(template, path, func(want, got string) bool {
		return want == got || isParameter(want) && got != ""
	})
}

// moreLiteral reports whether a has a literal at the first place where only one of a and b has one.
func moreLiteral(a, b []string) bool {
	for i := range a {
		if isParameter(a[i]) != isParameter(b[i]) {
			return isParameter(b[i])
		}
	}
	return false
}

// decode reads exactly one JSON value and keeps the text of numbers.
func decode(content []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("must be one JSON value, but more follows")
	}
	return nil
}

func hasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}
