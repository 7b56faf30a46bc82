// Package api is the public API: HTTP around package cloud.
//
// What all operations share exists once: the table of routes, the chain of each request (correlation id, journal, rate
// limit, authentication, fault rules, route), request bodies, lists, responses and errors. A resource's file decodes,
// calls one method of the cloud, and encodes.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-chi/chi/v5"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/faults"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/requestlog"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// Options configure an API.
type Options struct {
	Cloud *cloud.Cloud
	// Journal, if set, gets an entry for every request.
	Journal *requestlog.Log
	// RateLimit is how many requests per hour each project may make. 0 means no limit.
	RateLimit int
	// Date is the day of the API's behaviour for tokens without a date. The zero value is today.
	Date Date
	// AllowedHosts are names that a listener on a loopback address accepts in addition to loopback names.
	AllowedHosts []string
	// RefuseUnknown refuses requests with fields or query parameters that nothing reads. Otherwise, Logger gets their names; it may be nil.
	RefuseUnknown bool
	Logger        *slog.Logger
	// Origins are those of web pages that may call the API.
	Origins []string
}

// Prefix is the base path of all routes.
const Prefix = "/v1"

// API serves the public API.
type API struct {
	cloud        *cloud.Cloud
	journal      *requestlog.Log
	limits       *rateLimits
	faults       *faults.Set
	date         Date
	table        *routeTable
	endpoints    map[endpointKey]endpoint
	noRoute      endpoint // answers requests for an unknown path
	noMethod     endpoint // answers requests for a path without such a method
	allowedHosts []string
	origins      []string
	// refuseUnknown and log are about fields that nothing reads.
	refuseUnknown bool
	log           unreadLog
	lastQuery     atomic.Pointer[parsedQuery]
	offers        atomic.Pointer[offer] // the latest
	shown         map[store.Kind]Shown
}

// routeTable is what all APIs share, because it takes a millisecond to make.
type routeTable struct {
	routes     []Route
	operations []faults.Operation
	known      []knownPath
	mux        *chi.Mux // finds routes; of a request for none, it calls API.noRoute or API.noMethod
}

var theRoutes = sync.OnceValue(func() *routeTable {
	t := &routeTable{routes: Routes(), mux: chi.NewRouter()}
	t.operations, t.known = operations(t.routes), knownPaths(t.routes)
	for _, route := range t.routes {
		t.mux.Method(route.Method, Prefix+route.Pattern, http.NotFoundHandler()) // never called
	}
	outside := func(of func(*API) endpoint) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			a := r.Context().Value(apiKey{}).(*API)
			a.serve(w, r, newRequest(), of(a))
		}
	}
	t.mux.NotFound(outside(func(a *API) endpoint { return a.noRoute }))
	t.mux.MethodNotAllowed(outside(func(a *API) endpoint { return a.noMethod }))
	return t
})

// apiKey is the key of the API in the context of a request for no route.
type apiKey struct{}

// New returns the API of a cloud.
func New(o Options) *API {
	return newAPI(o, newRateLimits(o.RateLimit), faults.NewSet(theRoutes().operations))
}

func newAPI(o Options, limits *rateLimits, rules *faults.Set) *API {
	table := theRoutes()
	routes := table.routes
	a := &API{
		cloud: o.Cloud, journal: o.Journal, date: o.Date, allowedHosts: o.AllowedHosts, origins: o.Origins,
		refuseUnknown: o.RefuseUnknown, log: unreadLog{Logger: o.Logger},
		limits: limits, table: table, endpoints: make(map[endpointKey]endpoint, len(routes)),
		faults: rules, shown: map[store.Kind]Shown{},
	}
	a.cloud.SetFaults(rules, func() cloud.FaultRules { return rules.Fork() })
	a.cloud.OnDrop(func(project int64) {
		limits.forget(project)
		rules.Forget(project)
	})
	for _, s := range a.ShownResources() {
		a.shown[s.Kind()] = s
	}
	for i := range routes {
		route := &routes[i]
		chain := a.chain(a.serveRoute, a.correlate, a.record, a.checkHost, a.limitRate, existsSince(since[route.OperationID]),
			a.authenticate, a.injectFaults)
		a.endpoints[endpointKey{route.Method, Prefix + route.Pattern}] = endpoint{route, chain}
	}
	// The route is resolved before the token: an unknown path is 404 without a valid token, too.
	outside := func(problem func(*Request, []string) error) endpoint {
		answer := func(w http.ResponseWriter, r *Request) {
			writeError(w, r, problem(r, nearest(table.known, r.HTTP.URL.Path)))
		}
		return endpoint{&Route{}, a.chain(answer, a.correlate, a.record, a.checkHost, a.limitRate)}
	}
	a.noRoute = outside(func(_ *Request, near []string) error { return cloud.ErrNoRoute(near...) })
	a.noMethod = outside(func(r *Request, near []string) error { return cloud.ErrMethodNotAllowed(r.HTTP.Method, near...) })
	return a
}

// Fork returns the API of a fork of the cloud, with the fork's fault rules, and a copy of the rate limits.
func (a *API) Fork(c *cloud.Cloud, j *requestlog.Log) *API {
	o := Options{Cloud: c, Journal: j, Date: a.date, AllowedHosts: a.allowedHosts, Origins: a.origins, RefuseUnknown: a.refuseUnknown,
		Logger: a.log.Logger}
	return newAPI(o, a.limits.fork(), c.Faults().(*faults.Set))
}

// endpointKey has the pattern with Prefix.
type endpointKey struct{ method, pattern string }

// endpoint is a route with its chain.
type endpoint struct {
	route *Route
	serve Handler
}

// ServeHTTP implements http.Handler. It looks up the route by itself: chi would copy the request, to add the parts of its path.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(a.origins) > 0 && a.crossOrigin(w, r) {
		return
	}
	req := newRequest()
	path := r.URL.Path
	if r.URL.RawPath != "" {
		path = r.URL.RawPath
	}
	e, ok := a.find(req, r.Method, path)
	if !ok {
		// Programs add slashes to the paths of the real API (n8n-nodes-hetznercloud).
		if plain := strings.TrimRight(slashes.ReplaceAllString(path, "/"), "/"); plain != path {
			req.path.Reset()
			e, ok = a.find(req, r.Method, plain)
		}
	}
	if !ok {
		requests.Put(req)
		a.table.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), apiKey{}, a)))
		return
	}
	a.serve(w, r, req, e)
}

var slashes = regexp.MustCompile("//+")

// find returns the endpoint of a path, and notes the parts of the path in the request.
func (a *API) find(req *Request, method, path string) (e endpoint, ok bool) {
	e, ok = a.endpoints[endpointKey{method, a.table.mux.Find(req.path, method, path)}]
	return e, ok
}

// Handler answers a request.
type Handler func(w http.ResponseWriter, r *Request)

// Middleware wraps a Handler.
type Middleware func(next Handler) Handler

// chain wraps a handler so that the first middleware sees the request first.
func (a *API) chain(h Handler, middlewares ...Middleware) Handler {
	for _, middleware := range slices.Backward(middlewares) {
		h = middleware(h)
	}
	return h
}

// serve answers a request with a chain.
func (a *API) serve(w http.ResponseWriter, r *http.Request, req *Request, e endpoint) {
	*req = Request{HTTP: r, Route: e.route, path: req.path, api: a, date: a.date, arrived: a.cloud.Now(), values: &headerValues{}}
	req.writer.ResponseWriter = w
	e.serve(&req.writer, req)
	// A panic skips this: another goroutine may still use the request.
	requests.Put(req)
}

var requests = sync.Pool{New: func() any { return &Request{path: chi.NewRouteContext()} }}

// newRequest returns a request without anything but the memory for the parts of its path.
func newRequest() *Request {
	r := requests.Get().(*Request)
	r.path.Reset()
	return r
}

// serveRoute is the end of the chain: it parses the query, runs the operation and writes what it returns.
func (a *API) serveRoute(w http.ResponseWriter, r *Request) {
	if err := r.parseQuery(); err != nil {
		writeError(w, r, err)
		return
	}
	if err := r.checkParameters(); err != nil {
		writeError(w, r, err)
		return
	}
	resp, err := r.Route.Handle(r)
	if err != nil {
		writeError(w, r, err)
		return
	}
	if resp.Created != 0 {
		r.resource = resp.Created
	}
	writeResponse(w, r, resp)
}
