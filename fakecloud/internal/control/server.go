package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/catalogue"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/control/page"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/strictjson"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/scenario"
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
		{"GET", "/", "this list; for a browser, a page that shows the cloud", nil, showIndex},
		{"GET", "/health", "200 while the process answers", health, nil},
		{"GET", "/ready", "200 while the API can be used; 503 before, and while changes cannot be saved", ready, nil},
		{"POST", "/reset", `reset resources, journal, faults, rate limits, catalogue, limits and scenarios; {"keep": ["journal"]} keeps ` +
			`some of them`, body(reset), nil},
		{"GET", "/state", "all resources of all projects, in the API's JSON; ?project=1&kind=server selects", state, nil},
		{"GET", "/events", "a stream of the changes of resources: JSON lines, or server-sent events for Accept: text/event-stream; " +
			"?snapshot=true begins with the existing resources, ?project=1&kind=server selects", nil, events},
		{"GET", "/journal", "the latest requests; ?method= route= path= operation= resource_id= status= error_code= client= fault= " +
			"project= since= writes errors dropped select, limit= keeps the last ones", listJournal, nil},
		{"GET", "/journal/count", "how many requests are in the journal; the same parameters select", countJournal, nil},
		{"GET", "/journal/await", "wait until n= requests (default 1) are in the journal; the same parameters select; 504 after timeout= " +
			"(default 30s) of the machine's time", awaitJournal, nil},
		{"GET", "/journal/{seq}", "one request with its body and that of its answer, without secrets; the bodies of the latest 1,000 " +
			"requests are kept, 16 KiB of each, from the first look at the page or at /metrics on", numbered("seq", getExchange), nil},
		{"DELETE", "/journal", "empty the journal", deleteJournal, nil},
		{"GET", "/faults", "the fault rules, and how many requests each has selected and taken", listFaults, nil},
		{"POST", "/faults", `add a fault rule: {"method": "POST", "route": "/servers", "first": 2, "effect": {"kind": "api_error", ` +
			`"code": "conflict"}}`, body(addFault), nil},
		{"GET", "/faults/{name}", "one fault rule", getFault, nil},
		{"GET", "/faults/{name}/await", "wait until the fault rule has been applied n= times (default 1) in all; 504 after timeout= " +
			"(default 30s) of the machine's time", awaitFault, nil},
		{"DELETE", "/faults/{name}", "remove one fault rule", deleteFault, nil},
		{"DELETE", "/faults", "remove all fault rules", deleteFaults, nil},
		{"GET", "/metrics", "numbers in the format of Prometheus; requests are counted from the first look on", nil, showMetrics},
		{"GET", "/debug/pprof/{profile}", "a profile for go tool pprof: profile?seconds=30 of the CPU, heap, goroutine, allocs, block, " +
			"mutex, or trace?seconds=1", nil, showProfile},
		{"GET", "/operations", "methods, routes and operation names for fault rules and the journal", listOperations, nil},
		{"GET", "/error_codes", "error codes for fault rules, with their HTTP status", listCodes, nil},
		{"GET", "/clock", "the cloud's time and speed", getClock, nil},
		{"POST", "/clock/step",
			`move the clock forward: {"by": "30s"}; when this answers, the cloud has done what became due`, body(stepClock), nil},
		{"PUT", "/clock/speed", `make the clock run faster or slower: {"speed": 10}; 0 stops it`, body(setSpeed), nil},
		{"GET", "/timeline",
			"what is due later, and for which resources, in the order in which it happens; limit= shows the next ones only", timeline, nil},
		{"GET", "/snapshot", "all that the cloud has, with its secrets: JSON lines for PUT /snapshot and --snapshot", nil, getSnapshot},
		{"PUT", "/snapshot", "replace all that the cloud has by a snapshot of at most 1 GiB; its clock then shows the snapshot's time",
			nil, putSnapshot},
		{"POST", "/fork", "a copy of the cloud as it is now, with an endpoint and a control API of its own, which the answer names; at " +
			"most 100 at a time, with the copies of copies", addFork, nil},
		{"GET", "/forks", "the copies that were not deleted", listForks, nil},
		{"DELETE", "/forks/{fork}", "remove a copy", deleteFork, nil},
		{"GET", "/profile", "how long actions take", getProfile, nil},
		{"PUT", "/profile", `change how long new actions take: {"actions": "instant"}, realistic, or a duration`, body(setProfile), nil},
		{"POST", "/actions/resume", "let the actions end that hang_action keeps running", resumeActions, nil},
		{"GET", "/actions/idle", "wait until no action is running; 504 after timeout= (default 30s) of the machine's time", awaitIdle, nil},
		{"GET", "/ca_roots", "the root of the authority that issues managed certificates, in PEM", nil, caRoots},
		{"GET", "/doors/{door}", "what a door shows, such as guests of --guests; 404 if there is no such door", nil, showDoor},
		{"GET", "/hypervisors", "the attached hypervisors, and the actions that wait for each", listHypervisors, nil},
		{"POST", "/hypervisors",
			`attach a hypervisor while the client reads the answer: JSON lines, first the servers, then tasks; {"name": "kind", "selector": "role=node", "task_timeout": "5m", "grace": "15s"}`, nil, attachHypervisor},
		{"DELETE", "/hypervisors/{hypervisor}", "detach a hypervisor: the actions that wait for it fail", detachHypervisor, nil},
		{"POST", "/hypervisors/{hypervisor}/tasks/{action}", `end the action of a task: {} with success, {"error": {"code": ` +
			`"resource_unavailable", "message": "no room"}} with a failure`, numberedBody("action", completeTask), nil},
		{"POST", "/hypervisors/{hypervisor}/servers/{server}",
			`report that a server's guest started or stopped by itself: {"running": false}`, numberedBody("server", reportGuest), nil},
		{"PUT", "/servers/{server}/usage",
			`report what a server uses, for its metrics: {"cpu": 150, "disk_read_ops": 4, "disk_write_ops": 9, "disk_read_bytes": 4e4, "disk_write_bytes": 2e5, "packets_in": 35, "packets_out": 30, "bytes_in": 2e4, "bytes_out": 1e4}, percent of one core and averages per second; what is missing is 0; report again within a minute`, numberedBody("server", reportServerUsage), nil},
		{"GET", "/load_balancer_endpoints",
			"where load balancers listen on this machine, and which ports could not be bound", listLoadBalancerEndpoints, nil},
		{"GET", "/rate_limit", "requests per hour and project; 0 means no limit", getRateLimit, nil},
		{"PUT", "/rate_limit", `change the rate limit and fill it up: {"limit": 3600}`, body(setRateLimit), nil},
		{"GET", "/catalogue", "the server types as the API shows them, with those that are retired everywhere", getCatalogue, nil},
		{"POST", "/catalogue/server_types",
			`add a server type: {"name": "cx25", "copy_of": "cx23", "cores": 4}; memory, disk, cpu_type, architecture, category and description can differ, too`, body(addServerType), nil},
		{"PUT", "/catalogue/server_types/{type}",
			`change how a server type is offered in all its locations: {"deprecation": {"unavailable_after": "2027-01-01T00:00:00Z"}}; {"deprecation": {}} takes it back`, body(offerServerType), nil},
		{"PUT", "/catalogue/server_types/{type}/locations/{location}",
			`change how a server type is offered in one location: {"available": false}; recommended, deprecation, price_monthly and offered can be given, too`, body(offerServerType), nil},
		{"DELETE", "/catalogue", "restore the catalogue that the cloud began with", resetCatalogue, nil},
		{"GET", "/scenarios", "the scenarios that run, and the built-in ones that can be started (INCIDENTS.md)", listScenarios, nil},
		{"POST", "/scenarios", `start a scenario: {"scenario": "sold-out=cx23@fsn1"}, or the text of a file: {"scenario": "mine", ` +
			`"file": "name: …"}`, body(startScenario), nil},
		{"DELETE", "/scenarios/{scenario}",
			"end a scenario, by its id: what it has changed is as before; what someone else has changed meanwhile stays",
			numbered("scenario", endScenario), nil},
		{"GET", "/projects", "all projects, and which were made for unknown tokens", listProjects, nil},
		{"POST", "/projects", `create a project and a token for it: {"name": "staging"}; "token" sets the token`, body(addProject), nil},
		{"DELETE", "/projects/{project}", "drop a project with its tokens, all that it owns, and its fault rules",
			numbered("project", dropProject), nil},
		{"POST", "/projects/{project}/reset", `reset one project: its resources, its requests in the journal, the fault rules that ` +
			`select it by its id, its rate limit; {"keep": ["journal"]} keeps some of them`, numberedBody("project", resetProject), nil},
		{"GET", "/projects/{project}/limits", "how many resources of each kind a project may own", numbered("project", getLimits), nil},
		{"PUT", "/projects/{project}/limits",
			`replace the limits of a project: {"server": 10, "primary_ip": 20}; {} removes all`, numberedBody("project", setLimits), nil},
		{"GET", "/tokens/{token}", "the project of a token", getToken, nil},
		{"POST", "/tokens", `make a token: {"project": 1, "read_only": true}; "token" sets the token`, body(addToken), nil},
		{"PUT", "/tokens/{token}",
			`give a token an API date of its own: {"api_date": "2026-06-01"}; "" is the cloud's`, body(setTokenDate), nil},
		{"DELETE", "/tokens/{token}", "make a token invalid", deleteToken, nil},
	}
}

// Handler serves the control API. It has no authentication: serve it on a loopback address. It refuses the requests that
// web pages in a browser on the same machine can send, reads included: they take time and memory, switch on what costs, or have secrets.
func (c *Controller) Handler() http.Handler {
	mux := chi.NewRouter()
	for _, e := range Endpoints() {
		if e.stream != nil {
			mux.Method(e.Method, e.Path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.stream(c, w, r) }))
		} else {
			mux.Method(e.Method, e.Path, c.serve(e.handle))
		}
	}
	mux.Method(http.MethodGet, "/ui/*", page.Files())
	mux.HandleFunc("/projects/{project}"+api.Prefix+"/*", c.serveProject)
	mux.NotFound(func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusNotFound, errorBody{r.URL.Path + " does not exist; GET / lists all paths"})
	})
	mux.MethodNotAllowed(func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, http.StatusMethodNotAllowed, errorBody{"method " + r.Method + " is not allowed here; GET / lists all methods"})
	})
	return c.forks.route(sameOrigin(c.guard(mux)))
}

// sameOrigin refuses the requests that a browser sends for a page of another origin, except for those that open the page of the cloud.
// Programs do not send the headers that it looks at.
func sameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asWrite := *r
		asWrite.Method = http.MethodPost // the protection lets all others pass
		opensPage := r.Method == http.MethodGet && r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
			r.Header.Get("Sec-Fetch-Dest") == "document"
		if protection.Check(&asWrite) != nil && !opensPage {
			writeJSON(w, http.StatusForbidden, errorBody{"web pages of another origin may not use the control API; send the request " +
				"without the headers Origin and Sec-Fetch-Site"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// showIndex lists the control API, or answers a browser with the page.
func showIndex(c *Controller, w http.ResponseWriter, r *http.Request) {
	if !page.Wanted(r) {
		writeJSON(w, http.StatusOK, map[string]any{"endpoints": Endpoints()})
		return
	}
	c.Observe()
	shown := page.Shown{Endpoint: c.endpointFor(r)}
	if _, ok := c.Cloud.Token(c.PublicToken); ok {
		shown.Token = c.PublicToken
	}
	page.Index(w, shown)
}

// showDoor lets a door answer.
func showDoor(c *Controller, w http.ResponseWriter, r *http.Request) {
	if door, ok := c.Doors.Load(chi.URLParam(r, "door")); ok {
		door.(http.Handler).ServeHTTP(w, r)
		return
	}
	writeJSON(w, http.StatusNotFound, errorBody{r.URL.Path + " does not exist; fakecloud --help lists the flags that open doors"})
}

// endpointFor returns the endpoint under the name by which the browser reaches this machine. A loopback address is for this machine only.
func (c *Controller) endpointFor(r *http.Request) string {
	if c.Endpoint == nil {
		return ""
	}
	at, host := c.Endpoint(), api.HostName(r)
	u, err := url.Parse(at)
	if ip, _ := netip.ParseAddr(host); err != nil || u.Host == "" || host == "" || ip.IsLoopback() || !isLoopback(u.Hostname()) {
		return at
	}
	u.Host = net.JoinHostPort(host, u.Port())
	return u.String()
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// guard refuses the requests that a browser sends for a foreign web page. Such a request has no JSON content type, or its
// Host is a name that was rebound to this machine.
func (c *Controller) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.hostAllowed(r) {
			writeJSON(w, http.StatusForbidden, errorBody{api.HostRefused(r)})
			return
		}
		if _, err := url.ParseQuery(r.URL.RawQuery); err != nil { // r.URL.Query would ignore malformed parameters
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

// hostAllowed reports whether the request's Host is allowed. If the control API listens on an address that is not a
// loopback address, it accepts all IP addresses: behind a mapped port, it does not know its own, and DNS rebinding needs a
// name.
func (c *Controller) hostAllowed(r *http.Request) bool {
	onLoopback, ok := api.HostAllowed(r, c.AllowedHosts)
	if ok || onLoopback {
		return ok
	}
	_, ok = api.HostAddress(r)
	return ok
}

// statusError is an error with an HTTP status.
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
		var out any
		err, reads := c.Cloud.Refuses(), r.Method == http.MethodGet
		if err == nil || reads {
			out, err = handle(c, r)
			if saved := c.Cloud.Sync(); err == nil && !reads { // an answer does not run ahead of the disk
				err = saved
			}
		}
		if err != nil {
			writeJSON(w, statusOf(err), errorBody{err.Error()})
			return
		}
		status := http.StatusOK
		if r.Method == http.MethodPost && !strings.HasSuffix(r.URL.Path, "/reset") && r.URL.Path != "/clock/step" &&
			!strings.HasPrefix(r.URL.Path, "/hypervisors/") {
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
	case errors.Is(err, ErrNotFound), errors.Is(err, hypervisor.ErrNoGuest), errors.Is(err, catalogue.ErrNotFound),
		errors.Is(err, scenario.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, hypervisor.ErrNoTask):
		return http.StatusGone
	case errors.Is(err, ErrExists), errors.Is(err, fault.ErrExists), errors.Is(err, catalogue.ErrExists), errors.Is(err, ErrClock),
		errors.Is(err, hypervisor.ErrDetached):
		return http.StatusConflict
	}
	if e, ok := errors.AsType[*cloud.Error](err); ok && e.Status >= 500 { // it could not be saved
		return e.Status
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

// body returns a handler that decodes the body of its requests.
func body[T any](handle func(*Controller, *http.Request, T) (any, error)) func(*Controller, *http.Request) (any, error) {
	return func(c *Controller, r *http.Request) (any, error) {
		var in T
		if err := decode(r, &in); err != nil {
			return nil, err
		}
		return handle(c, r, in)
	}
}

// decode reads a JSON object. An empty body counts as {}. An unknown field is an error.
func decode(r *http.Request, out any) error {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBodyBytes))
	if err == nil && len(body) > 0 {
		err = strictjson.Decode(body, out)
	}
	if err != nil {
		return fmt.Errorf("body: %w", err)
	}
	return nil
}
