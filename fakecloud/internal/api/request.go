package api

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/bind"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// Request is one request on its way through the chain.
type Request struct {
	HTTP  *http.Request
	Route *Route
	// CorrelationID is set by correlate, Project and ReadOnly by authenticate (Project also by
	// limitRate, where the token is known).
	CorrelationID string
	Project       cloud.Project
	// ErrorCode, Fault and Handled are for the journal.
	ErrorCode string
	Fault     string
	Handled   int

	api     *API
	arrived time.Time // on the cloud's clock
	values  *headerValues

	token  cloud.Token
	known  bool // the token is known
	writer responseWriter
	query  url.Values

	resource       int64 // what the request is about: see resourceID
	resourceParsed bool
}

// first returns the first value of a header, which Header.Get would look up after making sure that
// its name is canonical.
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

// headerValues holds the values of a response's headers, so that they need not be allocated one by
// one. It lives as long as the header does, which is longer than the request.
type headerValues struct {
	text [6]string
	n    int
}

// MaxBodyBytes is the size of the largest body that is read. The largest legitimate ones are
// user_data (32 KiB) and certificates.
const MaxBodyBytes = 1 << 20

// Query returns the parsed query.
func (r *Request) Query() url.Values {
	if r.query == nil {
		r.query = r.HTTP.URL.Query()
	}
	return r.query
}

// ID returns the path's {id}. An id that is not a number names nothing: not_found.
func (r *Request) ID(kind cloud.Kind) (int64, error) {
	if id := r.resourceID(); id > 0 {
		return id, nil
	}
	return r.pathID(kind, "id")
}

// resourceID returns the id of the resource that the request is about: what it created, or else the path's
// {id}; 0 if there is neither. The path is looked at once, for the operation and for the journal.
func (r *Request) resourceID() int64 {
	if r.resource != 0 || r.resourceParsed || r.Route.Pattern == "" {
		return r.resource
	}
	r.resourceParsed = true
	if text := chi.URLParam(r.HTTP, "id"); text != "" {
		if id, err := strconv.ParseInt(text, 10, 64); err == nil && id > 0 {
			r.resource = id
		}
	}
	return r.resource
}

func (r *Request) pathID(kind cloud.Kind, param string) (int64, error) {
	text := chi.URLParam(r.HTTP, param)
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id <= 0 {
		if len(text) > 64 {
			text = text[:64]
		}
		return 0, cloud.ErrNotFound(kind, text)
	}
	return id, nil
}

// Bind decodes the body into out, a pointer to a struct with bind's tags.
func (r *Request) Bind(out any) error {
	body, err := io.ReadAll(http.MaxBytesReader(&r.writer, r.HTTP.Body, MaxBodyBytes))
	if err != nil {
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return cloud.ErrJSON("it is larger than " + strconv.FormatInt(tooLarge.Limit, 10) + " bytes")
		}
		return cloud.ErrJSON("it could not be read")
	}
	r.writer.bytesIn = int64(len(body))
	return bind.JSON(body, out)
}

// responseWriter remembers what was written, for the journal.
type responseWriter struct {
	http.ResponseWriter
	status   int
	bytesIn  int64
	bytesOut int64
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
	n, err := w.ResponseWriter.Write(b)
	w.bytesOut += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
