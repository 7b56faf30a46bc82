package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// Response is the answer of an operation. Its body is a JSON object with the given parts, or Body. Without both, it has no body.
type Response struct {
	Status int
	Parts  []Part
	Body   []byte
	// Link is the value of the Link header, or "".
	Link string
	// Created is the id of the resource that the request created, or 0. It is for the journal.
	Created int64
}

// Part is one member of a response's JSON object.
type Part struct {
	Key string
	// JSON is indented as a member of an answer: see Request.member.
	JSON []byte
	// Value, if set, is encoded instead of JSON, right where the response needs it.
	Value appender
	// Items, if set, are a list instead of JSON. Each is indented like JSON.
	Items [][]byte
}

// append appends the member's value.
func (p Part) append(b []byte, level int) []byte {
	switch {
	case p.Value != nil:
		return appendAsMember(b, p.Value.appendJSON, level)
	case p.Items == nil:
		return append(b, p.JSON...)
	case len(p.Items) == 0:
		return append(b, "[]"...)
	}
	open := byte('[')
	for _, item := range p.Items {
		b = appendShifted(appendLine(append(b, open), 2*level), item, level)
		open = ','
	}
	return append(appendLine(b, level), ']')
}

// object returns a response with a JSON object of the given members.
func object(status int, parts ...Part) Response { return Response{Status: status, Parts: parts} }

// noContent answers a deletion without an action: 204.
func noContent(err error) (Response, error) { return Response{Status: http.StatusNoContent}, err }

// bodies are buffers for bodies. One large write to a connection takes less time than many small ones.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// maxPooledBody keeps rare large bodies out of the pool.
const maxPooledBody = 256 << 10

func writeResponse(w http.ResponseWriter, r *Request, resp Response) {
	h := w.Header()
	if resp.Link != "" {
		r.setHeader(h, "Link", resp.Link)
	}
	if len(resp.Parts) == 0 && resp.Body == nil {
		w.WriteHeader(resp.Status)
		return
	}
	h["Content-Type"] = contentTypeJSON
	if resp.Body != nil {
		writeBody(w, r, resp.Status, resp.Body)
		return
	}
	buffer := bodies.Get().(*[]byte)
	body := resp.append((*buffer)[:0], r.level())
	writeBody(w, r, resp.Status, body)
	keepBody(buffer, body)
}

// keepBody returns a buffer to the pool after body was appended to it.
func keepBody(buffer *[]byte, body []byte) {
	if cap(body) <= maxPooledBody {
		*buffer = body
		bodies.Put(buffer)
	}
}

func writeBody(w http.ResponseWriter, r *Request, status int, body []byte) {
	r.setHeader(w.Header(), "Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client is gone
}

// append appends the body.
func (resp *Response) append(b []byte, level int) []byte {
	size := 0
	for _, p := range resp.Parts {
		size += len(p.Key) + len(p.JSON) + 16
		for _, item := range p.Items {
			size += len(item) + len(item)/8
		}
	}
	b = slices.Grow(b, size)
	open := byte('{')
	for _, p := range resp.Parts {
		b = append(append(appendLine(append(b, open), level), '"'), p.Key...)
		b = p.append(append(b, `": `...), level)
		open = ','
	}
	return append(b, "\n}\n"...)
}

var contentTypeJSON = []string{"application/json"}

type errorJSON struct {
	Code    cloud.Code `json:"code"`
	Message string     `json:"message"`
	// The real API leaves details out of an invalid_input that concerns no field (hcloud-go pull request 507). In other errors
	// without details, it is null.
	Details any `json:"details,omitzero"`
}

type fieldJSON struct {
	Name     string   `json:"name"`
	Messages []string `json:"messages,omitempty"`
}

type limitJSON struct {
	Name string `json:"name"`
}

// writeError answers with an error. If it is not a *cloud.Error, it is a bug in fakecloud, and the answer is a 500.
func writeError(w http.ResponseWriter, r *Request, err error) {
	var e *cloud.Error
	if !errors.As(err, &e) {
		e = cloud.ErrServer("fakecloud: " + err.Error())
	}
	r.ErrorCode = string(e.Code)
	shown := errorJSON{Code: e.Code, Message: e.Message, Details: errorDetails(e)}
	if r.refusesServer() && len(e.Limits) == 0 && (len(e.Fields) == 0 || e.Code == "uniqueness_error") {
		shown.Details = struct{}{}
	}
	writeResponse(w, r, object(e.Status, Part{Key: "error", Value: compact(marshal(shown))}))
}

// noDetails is encoded as null.
var noDetails = json.RawMessage("null")

// errorDetails returns the details in the form that clients expect for the code. It returns nil to leave the field out.
func errorDetails(e *cloud.Error) any {
	switch {
	case e.Details == cloud.NoDetails:
		return nil
	case e.Details != "":
		return json.RawMessage(e.Details)
	case len(e.Fields) > 0:
		return map[string]any{"fields": each(e.Fields, func(f cloud.FieldError) fieldJSON { return fieldJSON(f) })}
	case len(e.Limits) > 0:
		return map[string]any{"limits": each(e.Limits, func(name string) limitJSON { return limitJSON{name} })}
	case e.Announcement != "":
		return map[string]any{"announcement": e.Announcement}
	case len(e.Nearest) > 0:
		return map[string]any{"nearest": e.Nearest}
	case e.Code == "invalid_input":
		return nil
	}
	return noDetails
}

// timeJSON is a time in the format of the API: RFC 3339 in UTC with seconds.
type timeJSON time.Time

// MarshalJSON implements json.Marshaler. The zero time is null.
func (t timeJSON) MarshalJSON() ([]byte, error) {
	return appendTime(nil, "", time.Time(t)), nil
}

// nullable returns nil, encoded as null, for a zero value.
func nullable[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// each returns what convert makes of each item of a list. It is not nil: nil would be encoded as null.
func each[T, U any](list []T, convert func(T) U) []U {
	out := make([]U, len(list))
	for i, v := range list {
		out[i] = convert(v)
	}
	return out
}

// nonNil returns an empty slice for nil. nil would be encoded as null.
func nonNil[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
