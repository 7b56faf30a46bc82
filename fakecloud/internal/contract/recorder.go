package contract

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Exchange is a request with the violations in it or in its answer.
type Exchange struct {
	Method string
	URL    string // path and query
	Status int
	Err    error // an [*Error]
}

// String returns the exchange and its violations over several lines.
func (e Exchange) String() string {
	return fmt.Sprintf("%s %s → %d\n%v", e.Method, e.URL, e.Status, e.Err)
}

// Recorder validates each exchange that passes through it, and records the operations and their answers. Put it around a
// server with [Recorder.Middleware] or around a client with [Recorder.Transport]. One Recorder may serve several servers
// and clients at once.
type Recorder struct {
	document *Document
	ignore   func(*http.Request, int) bool

	mu           sync.Mutex
	violations   []Exchange
	undocumented []Exchange
	dropped      int
	exchanges    int
	seen         map[string]*answers // by operationId
	unmatched    *answers
}

// maxExchanges bounds how many wrong exchanges a Recorder keeps, so that a mistake in each answer of a long test does not
// fill the memory. It counts the others.
const maxExchanges = 200

// answers collects which answers an operation gave.
type answers struct {
	// statuses has the error codes of each status.
	statuses map[int]map[string]bool
	// values has the values of successful answers, see Unseen.
	values map[string]bool
}

// NewRecorder returns a Recorder that validates against document.
func NewRecorder(document *Document) *Recorder {
	return &Recorder{
		document:  document,
		ignore:    func(*http.Request, int) bool { return false },
		seen:      make(map[string]*answers),
		unmatched: &answers{},
	}
}

// Ignore makes the Recorder ignore the exchanges for which f returns true. It is for injected faults, which break answers
// on purpose. Call it before use.
func (r *Recorder) Ignore(f func(request *http.Request, status int) bool) { r.ignore = f }

// Middleware returns a handler that calls next and records the exchanges. It does not change or delay the answers.
func (r *Recorder) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		var sent bytes.Buffer
		outer := request
		if request.Body != nil {
			outer = request.Clone(request.Context())
			outer.Body = readCloser{Reader: io.TeeReader(request.Body, &sent), Closer: request.Body}
		}
		response := &capture{ResponseWriter: w}
		// If the handler panics, with http.ErrAbortHandler to drop the connection, there is no answer to record.
		next.ServeHTTP(response, outer)
		r.record(request, sent.Bytes(), response.code(), response.header(), response.body.Bytes())
	})
}

// Transport returns a RoundTripper that sends requests with next (nil: http.DefaultTransport) and records the exchanges. It
// reads the whole body of the answer before it returns. If the body breaks off, the caller gets the same broken body, and
// the exchange is not recorded.
func (r *Recorder) Transport(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		// The body is read before: a transport may still send it after RoundTrip has returned.
		sent, outer, err := buffered(request)
		if err != nil {
			return nil, err
		}
		response, err := next.RoundTrip(outer)
		if err != nil {
			return response, err
		}
		body, err := io.ReadAll(response.Body)
		closeErr := response.Body.Close()
		rest := io.Reader(bytes.NewReader(body))
		if err != nil {
			rest = io.MultiReader(rest, failingReader{err})
		} else if closeErr == nil {
			r.record(request, sent, response.StatusCode, response.Header, body)
		}
		response.Body = io.NopCloser(rest)
		return response, nil
	})
}

// buffered reads the body of a request. It returns the body and a request with the same body.
func buffered(request *http.Request) ([]byte, *http.Request, error) {
	if request.Body == nil || request.Body == http.NoBody {
		return nil, request, nil
	}
	sent, err := io.ReadAll(request.Body)
	if err := errors.Join(err, request.Body.Close()); err != nil {
		return nil, nil, err
	}
	outer := request.Clone(request.Context())
	outer.Body = io.NopCloser(bytes.NewReader(sent))
	return sent, outer, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

type readCloser struct {
	io.Reader
	io.Closer
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// capture is a ResponseWriter that keeps a copy of the answer.
type capture struct {
	http.ResponseWriter
	status int
	sent   http.Header // the header when the status was written
	body   bytes.Buffer
}

// Unwrap lets http.ResponseController use the original writer.
func (c *capture) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (c *capture) WriteHeader(status int) {
	if c.status == 0 && status >= http.StatusOK {
		c.status, c.sent = status, c.Header().Clone()
	}
	c.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (c *capture) Write(p []byte) (int, error) {
	if c.status == 0 {
		c.WriteHeader(http.StatusOK)
	}
	c.body.Write(p)
	return c.ResponseWriter.Write(p)
}

func (c *capture) code() int {
	if c.status == 0 {
		return http.StatusOK // net/http sends it when the handler returns
	}
	return c.status
}

func (c *capture) header() http.Header {
	if c.sent == nil {
		return c.Header()
	}
	return c.sent
}

// record validates an exchange and records its answer.
func (r *Recorder) record(request *http.Request, sent []byte, status int, header http.Header, body []byte) {
	if r.ignore(request, status) {
		return
	}
	op := r.document.Match(request.Method, request.URL.Path)
	exchange := Exchange{Method: request.Method, URL: request.URL.RequestURI(), Status: status}
	answerErr := r.document.ValidateResponse(op, status, header, body)
	var requestErr error
	if op != nil && status/100 == 2 {
		requestErr = r.document.ValidateRequest(op, sent)
	}

	var instance any
	if op != nil && status == op.Success && len(body) > 0 && decode(body, &instance) != nil {
		instance = nil // ValidateResponse has reported it
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.exchanges++
	if answerErr != nil {
		exchange.Err = answerErr
		r.violations = r.keep(r.violations, exchange)
	}
	if requestErr != nil {
		exchange.Err = requestErr
		r.undocumented = r.keep(r.undocumented, exchange)
	}
	seen := r.unmatched
	if op != nil {
		if r.seen[op.ID] == nil {
			r.seen[op.ID] = &answers{}
		}
		seen = r.seen[op.ID]
	}
	seen.add(status, body)
	if instance != nil {
		seen.note(op, instance)
	}
}

func (r *Recorder) keep(exchanges []Exchange, exchange Exchange) []Exchange {
	if len(exchanges) >= maxExchanges {
		r.dropped++
		return exchanges
	}
	return append(exchanges, exchange)
}

func (a *answers) add(status int, body []byte) {
	if a.statuses == nil {
		a.statuses = make(map[int]map[string]bool)
	}
	if a.statuses[status] == nil {
		a.statuses[status] = make(map[string]bool)
	}
	var failure struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	if status >= 400 && decode(body, &failure) == nil && failure.Error.Code != "" {
		a.statuses[status][failure.Error.Code] = true
	}
}

// Violations returns the exchanges whose answers the document does not allow, in the order of their ends. It returns at
// most the first 200.
func (r *Recorder) Violations() []Exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.violations)
}

// Undocumented returns the exchanges in which the server accepted (2xx) a request body that the document does not allow.
// This may be correct: the real API accepts some of them, and clients rely on it.
func (r *Recorder) Undocumented() []Exchange {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.undocumented)
}

// Err returns all violations as one error, or nil if there are none. It has equal violations of one operation only once.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.violations) == 0 {
		return nil
	}
	var b strings.Builder
	told := make(map[string]int)
	for _, exchange := range r.violations {
		told[exchange.Err.Error()]++
		if told[exchange.Err.Error()] == 1 {
			b.WriteString("\n" + exchange.String())
		}
	}
	return fmt.Errorf("%d answers that the API document does not allow (%d different):%s",
		len(r.violations)+r.dropped, len(told), b.String())
}

// Statuses returns the statuses that an operation answered with, in ascending order.
func (r *Recorder) Statuses(op *Operation) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[op.ID] == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(r.seen[op.ID].statuses))
}

// Saw reports whether an operation answered with a status and an error code. A nil op stands for requests without an
// operation.
func (r *Recorder) Saw(op *Operation, status int, code string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.unmatched
	if op != nil {
		seen = r.seen[op.ID]
	}
	return seen != nil && seen.statuses[status][code]
}

// Exchanges returns how many exchanges were validated.
func (r *Recorder) Exchanges() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exchanges
}

// State says how far an operation works.
type State string

// The states of an operation.
const (
	Implemented    State = "implemented"   // it gave its successful answer (or 410, if it was removed)
	NotImplemented State = "501"           // it answered 501
	OnlyErrors     State = "only errors"   // it answered, but never successfully
	NotExercised   State = "not exercised" // it got no request
)

// State returns how far op works, by the recorded answers.
func (r *Recorder) State(op *Operation) State {
	statuses := r.Statuses(op)
	switch {
	case len(statuses) == 0:
		return NotExercised
	case slices.Contains(statuses, op.Success):
		return Implemented
	case slices.Contains(statuses, http.StatusNotImplemented):
		return NotImplemented
	}
	return OnlyErrors
}
