package api

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/faults"
)

// operations returns the routes in the form that fault rules need.
func operations(routes []Route) []faults.Operation {
	out := make([]faults.Operation, len(routes))
	for i, r := range routes {
		out[i] = faults.Operation{Method: r.Method, Route: r.Pattern, ID: r.OperationID}
	}
	return out
}

// injectFaults applies the fault rules that take the request.
func (a *API) injectFaults(next Handler) Handler {
	return func(w http.ResponseWriter, r *Request) {
		if a.faults.Empty() {
			next(w, r)
			return
		}
		d, ok := a.faults.Decide(&faults.Call{
			Method: r.HTTP.Method, Route: r.Route.Pattern, Operation: r.Route.OperationID,
			Resource: faults.ResourceOf(r.Route.Pattern), Path: strings.TrimPrefix(r.HTTP.URL.Path, Prefix),
			Client: first(r.HTTP.Header["User-Agent"]), Token: r.bearer(), Project: r.Project.ID(),
		})
		if d.Selected {
			_ = a.cloud.Sync() // the counters: what a rule did once is not done again after a restart
		}
		if !ok {
			next(w, r)
			return
		}
		r.Fault = d.Names
		// The delay counts from the request's arrival. A test that awaits the rule and then steps the clock by the delay
		// thus ends the delay.
		a.delay(r, r.arrived, d.Before)
		a.misbehave(w, r, d, next)
	}
}

// misbehave applies the rules' effect to a request.
func (a *API) misbehave(w http.ResponseWriter, r *Request, d faults.Decision, next Handler) {
	e := &d.Effect
	switch e.Kind {
	case fault.KindFailAction:
		r.Project = r.Project.WithOutcome(&cloud.ActionOutcome{Fail: true, FailCode: cloud.Code(e.Code), FailMessage: e.Message})
	case fault.KindSlowAction:
		r.Project = r.Project.WithOutcome(&cloud.ActionOutcome{Duration: time.Duration(e.Duration), Times: e.Times})
	case fault.KindHangAction:
		r.Project = r.Project.WithOutcome(&cloud.ActionOutcome{Hang: true, Rule: d.Taker})
	case fault.KindSlowGuest, fault.KindIgnoreShutdown, fault.KindStayOff:
		r.Project = r.Project.WithOutcome(&cloud.ActionOutcome{
			GuestTakes: time.Duration(e.Duration), GuestIgnores: e.Kind == fault.KindIgnoreShutdown, StaysOff: e.Kind == fault.KindStayOff,
		})
	case fault.KindEmpty:
		r.Project = r.Project.Empty()
	case fault.KindHide:
		r.Project = r.Project.WithoutServer(e.Server)
	case fault.KindCutBody:
	case "":
	default:
		if !e.After {
			a.answer(w, r, e)
			return
		}
	}
	if !e.After && e.Kind != fault.KindCutBody && d.After == 0 {
		next(w, r)
		return
	}
	held := &heldResponse{header: http.Header{}}
	next(held, r)
	if !e.After && e.Kind != fault.KindCutBody {
		r.Handled = held.status // for the journal if the client leaves during the delay
		a.delay(r, a.cloud.Now(), d.After)
		r.Handled = 0
		held.send(w)
		return
	}
	r.Handled = held.status
	a.delay(r, a.cloud.Now(), d.After)
	if e.Kind == fault.KindCutBody {
		held.cut(w, e.Bytes)
		return
	}
	a.answer(w, r, e)
}

// answer sends the effect's answer instead of the operation's.
func (a *API) answer(w http.ResponseWriter, r *Request, e *fault.Effect) {
	switch e.Kind {
	case fault.KindAPIError:
		err := &cloud.Error{Code: cloud.Code(e.Code), Status: faults.Codes[e.Code], Message: e.Message}
		if e.Status != 0 {
			err.Status = e.Status
		}
		if err.Message == "" {
			err.Message = "fault injected by rule " + r.Fault
		}
		if e.Code == "rate_limit_exceeded" {
			r.writeRate(w.Header(), a.limits.usedUp(a.cloud.Now()))
		}
		writeError(w, r, err)
	case fault.KindHTTPStatus:
		r.ErrorCode = ""
		for _, name := range rateHeaders { // those of the API behind it
			w.Header().Del(name)
		}
		writeRaw(w, e)
	case fault.KindExhaustRateLimit:
		s := a.limits.exhaust(r.rateKey(), a.cloud.Now())
		r.writeRate(w.Header(), s)
		writeError(w, r, cloud.ErrRateLimit(s.limit))
	case fault.KindReset:
		resetConnection(w)
	default:
		panic(http.ErrAbortHandler)
	}
}

// writeRaw answers like a proxy in front of the API.
func writeRaw(w http.ResponseWriter, e *fault.Effect) {
	body, contentType := e.Body, e.ContentType
	if body == "" && e.Status != http.StatusNoContent && e.Status != http.StatusNotModified {
		title := strconv.Itoa(e.Status) + " " + http.StatusText(e.Status)
		body = "<html><head><title>" + title + "</title></head><body><h1>" + title + "</h1></body></html>\n"
	}
	switch {
	case contentType != "":
	case json.Valid([]byte(body)):
		contentType = "application/json"
	default:
		contentType = "text/html"
	}
	h := w.Header()
	if body != "" {
		h.Set("Content-Type", contentType)
		h.Set("Content-Length", strconv.Itoa(len(body)))
	}
	w.WriteHeader(e.Status)
	_, _ = io.WriteString(w, body)
}

// delay waits until d has passed since a time, on the cloud's clock. If the client leaves first, it ends the request.
func (a *API) delay(r *Request, since time.Time, d time.Duration) {
	if d <= 0 {
		return
	}
	// net/http notices that a client left only after the body has been read.
	r.bufferBody()
	timer := a.cloud.Clock().NewTimer(d - a.cloud.Clock().Since(since))
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-r.HTTP.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// bufferBody reads the body ahead, up to one byte more than the largest allowed body.
func (r *Request) bufferBody() {
	body := r.HTTP.Body
	ahead, err := io.ReadAll(io.LimitReader(body, MaxBodyBytes+1))
	rest := io.Reader(body)
	if err != nil {
		rest = failingReader{err}
	}
	r.HTTP.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(ahead), rest), body}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

// connectionResetter is the writer of the in-process transport. That transport has no connection to close.
type connectionResetter interface{ ResetConnection() }

// resetConnection ends the connection with a TCP reset. Over HTTP/2, it resets the stream.
func resetConnection(w http.ResponseWriter) {
	for u := w; u != nil; {
		if c, ok := u.(connectionResetter); ok {
			c.ResetConnection()
			break
		}
		inner, ok := u.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		u = inner.Unwrap()
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	raw := conn
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok { // TLS
		raw = t.NetConn()
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		// A connection that does not linger is closed with RST.
		_ = tcp.SetLinger(0)
	}
	_ = raw.Close()
}

// heldResponse keeps an answer until it is sent, cut or dropped.
type heldResponse struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (h *heldResponse) Header() http.Header { return h.header }

func (h *heldResponse) WriteHeader(status int) {
	if h.status == 0 {
		h.status = status
	}
}

func (h *heldResponse) Write(b []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	return h.body.Write(b)
}

func (h *heldResponse) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), h.header)
	w.WriteHeader(h.status)
	_, _ = w.Write(h.body.Bytes())
}

// cut sends the header and a part of the body, then drops the connection. Without a body, it only drops the connection.
func (h *heldResponse) cut(w http.ResponseWriter, n int) {
	full := h.body.Bytes()
	if len(full) == 0 {
		panic(http.ErrAbortHandler)
	}
	if n == 0 {
		n = len(full) / 2
	}
	maps.Copy(w.Header(), h.header)
	w.Header().Set("Content-Length", strconv.Itoa(len(full)))
	w.WriteHeader(h.status)
	_, _ = w.Write(full[:min(n, len(full)-1)])
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// Faults returns the fault rules of the API.
func (a *API) Faults() *faults.Set { return a.faults }
