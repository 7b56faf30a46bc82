package api

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/bind"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/requestlog"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// Request is one request on its way through the chain.
type Request struct {
	HTTP  *http.Request
	Route *Route
	// correlate sets CorrelationID, identify sets Project.
	CorrelationID string
	Project       cloud.Project
	// ErrorCode, Fault and Handled are for the journal.
	ErrorCode string
	Fault     string
	Handled   int

	api     *API
	path    *chi.Context // the parts of the path
	arrived time.Time    // on the cloud's clock
	values  *headerValues

	date  Date // the day whose behaviour the request gets: its token's or the API's
	token cloud.Token
	known bool // the token is known
	// refusal is why it is not.
	refusal error
	writer  responseWriter
	query   url.Values
	// unread are the fields and query parameters that nothing reads.
	unread []string

	resource       int64 // see resourceID
	resourceParsed bool
}

// first returns the first value of a header. Unlike Header.Get, it does not spend time on the header's name.
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// setHeader is h[key] = []string{value} for a canonical key.
func (r *Request) setHeader(h http.Header, key, value string) {
	v := r.values
	if v.n == len(v.text) {
		h[key] = []string{value}
		return
	}
	i := v.n
	v.text[i] = value
	v.n++
	h[key] = v.text[i : i+1 : i+1]
}

// headerValues holds the values of a response's headers in one allocation. It lives as long as the header, and so longer than the request.
type headerValues struct {
	text [6]string
	n    int
}

// MaxBodyBytes is the size of the largest allowed body. The largest real ones have user_data (32 KiB) or certificates.
const MaxBodyBytes = 1 << 20

// Query returns the parsed query.
func (r *Request) Query() url.Values { return r.query }

// parsedQuery is a query with its values. The values must not be changed.
type parsedQuery struct {
	raw    string
	values url.Values
}

// parseQuery parses the query, unless it is that of the last request: most clients poll. A malformed query is invalid_input.
// url.URL.Query would drop the parameters that it cannot read, and a list would lose its filter.
func (r *Request) parseQuery() (err error) {
	raw := r.HTTP.URL.RawQuery
	if raw == "" {
		return nil
	}
	last := r.api.lastQuery.Load()
	if last != nil && last.raw == raw {
		r.query = last.values
		return nil
	}
	if r.query, err = url.ParseQuery(raw); err == nil {
		if len(raw) <= maxLinkURL {
			r.api.lastQuery.Store(&parsedQuery{strings.Clone(raw), r.query})
		}
		return nil
	}
	for pair := range strings.SplitSeq(raw, "&") {
		if _, pairErr := url.ParseQuery(pair); pairErr != nil {
			name, _, _ := strings.Cut(pair, "=")
			return cloud.ErrField(abbreviate(name), "is malformed; encode the query with percent signs: "+pairErr.Error())
		}
	}
	return cloud.ErrField("query", err.Error())
}

// abbreviate shortens a long text of a request for an error message.
func abbreviate(text string) string {
	if len(text) > 64 {
		return strings.ToValidUTF8(text[:64], "")
	}
	return text
}

// ID returns the path's {id}. If it is not a number, the error is not_found.
func (r *Request) ID(kind store.Kind) (int64, error) {
	if id := r.resourceID(); id > 0 {
		return id, nil
	}
	return r.pathID(kind, "id")
}

// resourceID returns the id of the resource that the request created, or the path's {id}, or 0. It parses the path once,
// for the operation and for the journal.
func (r *Request) resourceID() int64 {
	if r.resource != 0 || r.resourceParsed || r.Route.Pattern == "" {
		return r.resource
	}
	r.resourceParsed = true
	if text := r.path.URLParam("id"); text != "" {
		r.resource, _ = cloud.ParseID(text)
	}
	return r.resource
}

// param returns a part of the path.
func (r *Request) param(name string) string {
	text := r.path.URLParam(name)
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

func (r *Request) pathID(kind store.Kind, param string) (int64, error) {
	text := r.path.URLParam(param)
	id, ok := cloud.ParseID(text)
	if !ok {
		return 0, cloud.ErrNotFound(kind, abbreviate(text))
	}
	return id, nil
}

// cached reports whether the form of the request's date is in the caches. They have only the form of the API's own date.
func (r *Request) cached() bool { return r.date == r.api.date }

// withID returns the handler of an operation on one resource. The path has its id.
func withID(kind store.Kind, handle func(*Request, int64) (Response, error)) handler {
	return func(r *Request) (Response, error) {
		id, err := r.ID(kind)
		if err != nil {
			return Response{}, err
		}
		return handle(r, id)
	}
}

// withBody returns the handler of an operation with a body. B is a struct with bind's tags.
func withBody[B any](handle func(*Request, B) (Response, error)) handler {
	return func(r *Request) (Response, error) {
		var body B
		if err := r.Bind(&body); err != nil {
			return Response{}, err
		}
		return handle(r, body)
	}
}

// withIDAndBody returns the handler of an operation on one resource with a body.
func withIDAndBody[B any](kind store.Kind, handle func(*Request, int64, B) (Response, error)) handler {
	return withID(kind, func(r *Request, id int64) (Response, error) {
		var body B
		if err := r.Bind(&body); err != nil {
			return Response{}, err
		}
		return handle(r, id, body)
	})
}

// Bind decodes the body into out, a pointer to a struct with bind's tags.
func (r *Request) Bind(out any) error {
	pooled := bodies.Get().(*[]byte)
	buffer := bytes.NewBuffer((*pooled)[:0])
	_, err := buffer.ReadFrom(http.MaxBytesReader(&r.writer, r.HTTP.Body, MaxBodyBytes))
	body := buffer.Bytes()
	defer keepBody(pooled, body) // what is bound has copies
	if err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return cloud.ErrJSON("it is larger than " + strconv.FormatInt(tooLarge.Limit, 10) + " bytes")
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return cloud.ErrJSON("it did not arrive in time")
		}
		return cloud.ErrJSON("it could not be read")
	}
	r.writer.bytesIn = int64(len(body))
	if d := r.writer.details; d != nil {
		d.Request = bytes.Clone(body[:min(len(body), requestlog.MaxBody)])
	}
	if r.HTTP.Context().Value(onlyUnknownFields{}) != nil {
		if err := bind.Unknown(r.HTTP.Context(), body, out, r.date.day()); err != nil {
			return err
		}
		return cloud.ErrServiceError("the body was only checked for unknown fields")
	}
	unread, err := bind.Unread(r.HTTP.Context(), body, out, r.date.day())
	if refused := r.readAll(unread); refused != nil {
		return refused
	}
	return r.ofOperation(err)
}

// ofOperation returns an error of a body in the form of the operation.
func (r *Request) ofOperation(err error) error {
	if e, ok := errors.AsType[*cloud.Error](err); ok && e.Code == "json_error" {
		if r.Route.OperationID == "create_server" {
			return cloud.ErrJSONOf(true)
		}
		if strings.HasPrefix(r.Route.Pattern, "/networks") {
			return cloud.ErrJSONOf(false)
		}
	}
	return err
}

type onlyUnknownFields struct{}

// OnlyUnknownFields returns a context for requests that are only checked: the answer is invalid_input if the body has
// fields that the operation does not know, and service_error otherwise. Operations without a body are carried out.
func OnlyUnknownFields(ctx context.Context) context.Context {
	return context.WithValue(ctx, onlyUnknownFields{}, true)
}

// responseWriter records the status and the sizes for the journal.
type responseWriter struct {
	http.ResponseWriter
	status   int
	bytesIn  int64
	bytesOut int64
	details  *requestlog.Details // nil if the journal does not need them
}

func (w *responseWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	if d := w.details; d != nil && len(d.Response) < requestlog.MaxBody {
		d.Response = append(d.Response, b[:min(len(b), requestlog.MaxBody-len(d.Response))]...)
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytesOut += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
