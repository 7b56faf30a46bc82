package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
)

// Endpoint is one operation of the control API.
type Endpoint struct {
	Method  string `json:"method"`
	Path    string `json:"path"`
	Summary string `json:"summary"`

	handle func(*Controller, *http.Request) (any, error)
	stream func(*Controller, http.ResponseWriter, *http.Request)
}

// Endpoints returns the whole control API.
func Endpoints() []Endpoint {
	return []Endpoint{
		{Method: "GET", Path: "/", Summary: "this list"},
		{Method: "GET", Path: "/health", Summary: "200 while the process answers", handle: health},
		{Method: "GET", Path: "/ready", Summary: "200 when the API can be used, 503 before", handle: ready},
		{Method: "POST", Path: "/reset", Summary: `start over: resources, journal, faults, rate limits; {"keep": ["journal"]} keeps some`, handle: reset},
		{Method: "GET", Path: "/state", Summary: "all resources of all projects, as the API shows them; ?project=1&kind=server selects", handle: state},
		{Method: "GET", Path: "/events", Summary: "changes of resources as they happen: JSON lines, or server-sent events where text/event-stream is accepted; ?snapshot=true begins with what exists, ?project=1&kind=server selects", stream: events},
		{Method: "GET", Path: "/journal", Summary: "the latest requests; ?method= route= path= operation= resource_id= status= error_code= client= fault= project= since= writes errors dropped select, limit= keeps the last ones", handle: listJournal},
		{Method: "GET", Path: "/journal/count", Summary: "how many requests are in the journal, by the same parameters", handle: countJournal},
		{Method: "GET", Path: "/journal/await", Summary: "wait until n= requests (1) are in the journal, by the same parameters; 504 if they are not within timeout= (30s) of the machine's time", handle: awaitJournal},
		{Method: "DELETE", Path: "/journal", Summary: "empty the journal", handle: deleteJournal},
		{Method: "GET", Path: "/faults", Summary: "the fault rules, and how many requests each has matched and been applied to", handle: listFaults},
		{Method: "POST", Path: "/faults", Summary: `add a fault rule: {"method": "POST", "route": "/servers", "first": 2, "effect": {"kind": "api_error", "code": "conflict"}}`, handle: addFault},
		{Method: "GET", Path: "/faults/{name}", Summary: "one fault rule", handle: getFault},
		{Method: "GET", Path: "/faults/{name}/await", Summary: "wait until the fault rule has been applied n= times (1) in all; 504 if it has not within timeout= (30s) of the machine's time", handle: awaitFault},
		{Method: "DELETE", Path: "/faults/{name}", Summary: "remove one fault rule", handle: deleteFault},
		{Method: "DELETE", Path: "/faults", Summary: "remove all fault rules", handle: deleteFaults},
		{Method: "GET", Path: "/operations", Summary: "methods, routes and operation names that fault rules and the journal know", handle: listOperations},
		{Method: "GET", Path: "/error_codes", Summary: "error codes that fault rules know, with their HTTP status", handle: listCodes},
		{Method: "GET", Path: "/clock", Summary: "the cloud's time and speed", handle: getClock},
		{Method: "POST", Path: "/clock/step", Summary: `move the clock forward: {"by": "30s"}; what is due by then is done when this answers`, handle: stepClock},
		{Method: "PUT", Path: "/clock/speed", Summary: `make the clock run faster or slower: {"speed": 10}; 0 stops it`, handle: setSpeed},
		{Method: "GET", Path: "/profile", Summary: "how long actions take", handle: getProfile},
		{Method: "PUT", Path: "/profile", Summary: `how long actions take that start from now on: {"actions": "instant"}, realistic, or a duration`, handle: setProfile},
		{Method: "POST", Path: "/actions/resume", Summary: "end the actions that hang_action keeps running, as they would have ended", handle: resumeActions},
		{Method: "GET", Path: "/actions/idle", Summary: "wait until no action is running; 504 if one is after timeout= (30s) of the machine's time", handle: awaitIdle},
		{Method: "GET", Path: "/ca_roots", Summary: "the root of the authority that issues managed certificates, in PEM", stream: caRoots},
		{Method: "GET", Path: "/hypervisors", Summary: "the hypervisors that are attached, and the actions that wait for each", handle: listHypervisors},
		{Method: "POST", Path: "/hypervisors", Summary: `attach a hypervisor, for as long as the answer is read: JSON lines, first the servers that it has, then tasks; {"name": "kind", "selector": "role=node", "task_timeout": "5m", "grace": "15s"}`, stream: attachHypervisor},
		{Method: "DELETE", Path: "/hypervisors/{hypervisor}", Summary: "detach a hypervisor: the actions that wait for it fail", handle: detachHypervisor},
		{Method: "POST", Path: "/hypervisors/{hypervisor}/tasks/{action}", Summary: `end the action of a task: {} in success, {"error": {"code": "resource_unavailable", "message": "no room"}} as failed`, handle: completeTask},
		{Method: "POST", Path: "/hypervisors/{hypervisor}/servers/{server}", Summary: `tell that a server's machine runs or does not, by itself: {"running": false}`, handle: reportMachine},
		{Method: "GET", Path: "/load_balancer_endpoints", Summary: "where load balancers listen on this machine, and what could not be bound", handle: listLoadBalancerEndpoints},
		{Method: "GET", Path: "/rate_limit", Summary: "requests per hour and project; 0 is no limit", handle: getRateLimit},
		{Method: "PUT", Path: "/rate_limit", Summary: `change the rate limit and fill it up: {"limit": 3600}`, handle: setRateLimit},
		{Method: "GET", Path: "/projects", Summary: "all projects", handle: listProjects},
		{Method: "POST", Path: "/projects", Summary: `create a project with a token: {"name": "staging"}, or with {"token": "…"} of your choice`, handle: addProject},
		{Method: "POST", Path: "/tokens", Summary: `make a token: {"project": 1, "read_only": true}, or with {"token": "…"} of your choice`, handle: addToken},
		{Method: "DELETE", Path: "/tokens/{token}", Summary: "make a token invalid", handle: deleteToken},
	}
}

// Handler serves the control API. It has no authentication, so that it belongs on a loopback
// address; what a web page in a browser on the same machine could do to it is refused.
func (c *Controller) Handler() http.Handler {
	mux := chi.NewRouter()
	for _, e := range Endpoints() {
		switch {
		case e.stream != nil:
			mux.Method(e.Method, e.Path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.stream(c, w, r) }))
		case e.handle != nil:
			mux.Method(e.Method, e.Path, c.serve(e.handle))
		default:
			mux.Method(e.Method, e.Path, c.serve(func(*Controller, *http.Request) (any, error) {
				return map[string]any{"endpoints": Endpoints()}, nil
			}))
		}
	}
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusNotFound, errorBody{"there is no " + r.URL.Path + " here; GET / lists what there is"})
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusMethodNotAllowed, errorBody{r.Method + " is not possible here; GET / lists what is"})
	})
	return http.NewCrossOriginProtection().Handler(c.guard(mux))
}

// guard refuses what a browser sends without asking: simple requests have no JSON content type, and a name
// that was rebound to this machine is neither a loopback name nor an address.
func (c *Controller) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.hostAllowed(r) {
			writeJSON(w, http.StatusForbidden, errorBody{api.HostRefused(r)})
			return
		}
		if _, err := url.ParseQuery(r.URL.RawQuery); err != nil { // else parameters would be dropped in silence
			writeJSON(w, http.StatusBadRequest, errorBody{"the query is malformed; encode it with percent signs: " + err.Error()})
			return
		}
		if r.Method == http.MethodPost || r.Method == http.MethodPut {
			if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
				writeJSON(w, http.StatusUnsupportedMediaType, errorBody{"send the header Content-Type: application/json"})
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// hostAllowed accepts addresses, too, where the control API is reachable from other machines: behind a mapped
// port it does not know its own, and no name can be rebound to make a browser send one.
func (c *Controller) hostAllowed(r *http.Request) bool {
	onLoopback, ok := api.HostAllowed(r, c.AllowedHosts)
	if ok || onLoopback {
		return ok
	}
	_, err := netip.ParseAddr(api.HostName(r))
	return err == nil
}

// statusError is an error with an HTTP status of its own.
type statusError struct {
	status int
	error
}

func (e statusError) Unwrap() error { return e.error }

type errorBody struct {
	Error string `json:"error"`
}

func (c *Controller) serve(handle func(*Controller, *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := handle(c, r)
		if err != nil {
			writeJSON(w, statusOf(err), errorBody{err.Error()})
			return
		}
		status := http.StatusOK
		if r.Method == http.MethodPost && r.URL.Path != "/reset" && r.URL.Path != "/clock/step" && !strings.HasPrefix(r.URL.Path, "/hypervisors/") {
			status = http.StatusCreated
		}
		if s, ok := out.(streamed); ok {
			s.send(w, status)
			return
		}
		writeJSON(w, status, out)
	})
}

func statusOf(err error) int {
	var s statusError
	switch {
	case errors.As(err, &s):
		return s.status
	case errors.Is(err, ErrNotFound), errors.Is(err, hypervisor.ErrNoMachine):
		return http.StatusNotFound
	case errors.Is(err, hypervisor.ErrNoTask):
		return http.StatusGone
	case errors.Is(err, hypervisor.ErrDetached):
		return http.StatusConflict
	case errors.Is(err, ErrExists), errors.Is(err, fault.ErrExists), errors.Is(err, ErrClock):
		return http.StatusConflict
	}
	return http.StatusBadRequest
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // the client may be gone
}

const maxBodyBytes = 1 << 20

// decode reads a JSON object; an empty body counts as {}, an unknown field is an error.
func decode(r *http.Request, out any) error {
	body, err := readBody(r)
	if err != nil || len(body) == 0 {
		return err
	}
	return strict(body, out)
}

func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBodyBytes))
	if err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	return body, nil
}
