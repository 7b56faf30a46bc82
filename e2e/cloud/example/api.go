package example

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
)

// account is the only account, and root is how its paths begin.
const (
	account = "demo"
	root    = "/accounts/"
)

// endpoint is a method and a path of the API.
type endpoint struct {
	// pattern is that of http.ServeMux, below the account.
	pattern string
	about   string
	// list is the field of the answer that is a list, if it is one.
	list string
	// missing makes the error for a path to an object that does not exist.
	missing func(string, ...any) *Error
	do      func(*Cloud, *http.Request) (status int, answer any, err error)
}

// endpoints are all of the API.
var endpoints = []endpoint{
	{"GET /instances", AboutInstances, "instances", nil, listInstances},
	{"POST /instances", AboutInstances, "", nil, createInstance},
	{"GET /instances/{id}", AboutInstances, "", instanceNotFound, getInstance},
	{"PATCH /instances/{id}", AboutInstances, "", instanceNotFound, changeInstance},
	{"DELETE /instances/{id}", AboutInstances, "", instanceNotFound, deleteInstance},
	{"GET /load-balancers", AboutLoadBalancers, "load_balancers", nil, listLoadBalancers},
	{"POST /load-balancers", AboutLoadBalancers, "", nil, createLoadBalancer},
	{"GET /load-balancers/{name}", AboutLoadBalancers, "", loadBalancerNotFound, getLoadBalancer},
	{"DELETE /load-balancers/{name}", AboutLoadBalancers, "", loadBalancerNotFound, deleteLoadBalancer},
	{"GET /listeners", AboutLoadBalancers, "listeners", nil, listListeners},
	{"POST /listeners", AboutLoadBalancers, "", nil, createListener},
	{"PUT /listeners/{listener}/backends", AboutLoadBalancers, "", listenerNotFound, setBackends},
	{"DELETE /listeners/{listener}", AboutLoadBalancers, "", listenerNotFound, deleteListener},
	{"GET /routes", AboutRoutes, "routes", nil, listRoutes},
	{"PUT /routes/{prefix...}", AboutRoutes, "", routeNotFound, setRoute},
	{"DELETE /routes/{prefix...}", AboutRoutes, "", routeNotFound, deleteRoute},
}

// Handler returns the API.
func (c *Cloud) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, e := range endpoints {
		method, path, _ := strings.Cut(e.pattern, " ")
		mux.HandleFunc(method+" "+root+"{account}"+path, func(w http.ResponseWriter, r *http.Request) { c.serve(e, w, r) })
	}
	unknown := endpoint{pattern: "unknown path", do: func(_ *Cloud, r *http.Request) (int, any, error) {
		return 0, nil, unknownPath("the API does not have %s %s: compare it with the list of the package", r.Method, r.URL.Path)
	}}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { c.serve(unknown, w, r) })
	return mux
}

// Path follows the address in the API's endpoint.
const Path = root + account

// serve answers a request: it is recorded, may meet a fault, is authenticated, and done.
func (c *Cloud) serve(e endpoint, w http.ResponseWriter, r *http.Request) {
	q := Request{
		Time: c.options.Now(), Method: r.Method, Path: strings.TrimPrefix(r.URL.Path, Path), UserAgent: r.UserAgent(), Kind: e.pattern,
		About: e.about, ID: c.idOf(r), list: e.list, missing: e.missing,
	}
	seq, effect, status := c.journal.begin(q), c.faults.meet(q), 0
	defer func() { c.journal.end(seq, status, effect) }()
	if effect != "" && effect != LoseAnswer && effect != HangAfter {
		if status = c.misbehave(effect, q, w, r); status == 0 {
			panic(http.ErrAbortHandler) // the server closes the connection
		}
		return
	}
	var body any
	status, body = c.do(e, r)
	if effect == HangAfter {
		c.misbehave(effect, q, w, r)
	}
	if effect == LoseAnswer || effect == HangAfter {
		panic(http.ErrAbortHandler)
	}
	answer(w, status, body)
}

// idOf returns the ID of the instance or load balancer that a path names.
func (c *Cloud) idOf(r *http.Request) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := r.PathValue("name")
	if l, ok := c.listeners[r.PathValue("listener")]; ok {
		name = l.LoadBalancer
	}
	if b, ok := c.balancers[name]; ok {
		return b.ID
	}
	return r.PathValue("id")
}

// do carries out a request.
func (c *Cloud) do(e endpoint, r *http.Request) (status int, body any) {
	var err error
	switch {
	case r.Header.Get("Authorization") != "Bearer "+c.options.Token:
		err = unauthorized(`the token is missing or wrong: send the header "Authorization: Bearer" with the token of the account`)
	case r.PathValue("account") != account && e.about != "":
		err = forbidden("the token is not of the account %q: the endpoint ends with %s", r.PathValue("account"), Path)
	default:
		status, body, err = e.do(c, r)
	}
	if err == nil {
		return status, body
	}
	var known *Error
	if !errors.As(err, &known) {
		known = internal("%v: see the log of the cloud", err)
	}
	return known.Status, map[string]any{"error": known}
}

// answer writes JSON and returns the status.
func answer(w http.ResponseWriter, status int, body any) int {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
	return status
}

// refuse writes an error and returns its status.
func refuse(w http.ResponseWriter, e *Error) int {
	return answer(w, e.Status, map[string]any{"error": e})
}

// most is the most bytes that a body may have.
const most = 1 << 20

// decode reads a body of one JSON object.
func decode[T any](body io.Reader) (in T, err error) {
	text, err := io.ReadAll(io.LimitReader(body, most+1))
	switch {
	case err != nil:
		return in, badRequest("cannot read the body: %v", err)
	case len(text) > most:
		return in, badRequest("the body has more than %d bytes: send less", most)
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return in, badRequest("the body is not the JSON that is expected: %v; send one object with the fields of the documentation", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return in, badRequest("the body continues after the JSON object: send one object")
	}
	return in, nil
}

// given returns an error if one of the fields, each a name and a value, is empty.
func given(fields ...string) error {
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] == "" {
			return badRequest("%s: is missing", fields[i])
		}
	}
	return nil
}

// one is an answer with one object.
func one[T any](status int, field string, object T, err error) (int, any, error) {
	return status, map[string]T{field: object}, err
}

// done is an answer without content.
func done(err error) (int, any, error) { return http.StatusOK, struct{}{}, err }

func listInstances(c *Cloud, _ *http.Request) (int, any, error) {
	return one(http.StatusOK, "instances", c.Instances(), nil)
}

func createInstance(c *Cloud, r *http.Request) (int, any, error) {
	in, err := decode[struct{ Name string }](r.Body)
	if err != nil {
		return 0, nil, err
	}
	i, err := c.CreateInstance(in.Name)
	return one(http.StatusCreated, "instance", i, err)
}

func getInstance(c *Cloud, r *http.Request) (int, any, error) {
	i, err := c.Instance(r.PathValue("id"))
	return one(http.StatusOK, "instance", i, err)
}

func changeInstance(c *Cloud, r *http.Request) (int, any, error) {
	in, err := decode[struct{ Name, State string }](r.Body)
	if err != nil {
		return 0, nil, err
	}
	if in.Name == "" && in.State == "" {
		return 0, nil, badRequest("name and state are missing: send at least one of them")
	}
	i, err := c.ChangeInstance(r.PathValue("id"), in.Name, in.State)
	return one(http.StatusOK, "instance", i, err)
}

func deleteInstance(c *Cloud, r *http.Request) (int, any, error) {
	return done(c.DeleteInstance(r.PathValue("id")))
}

func listLoadBalancers(c *Cloud, _ *http.Request) (int, any, error) {
	return one(http.StatusOK, "load_balancers", c.LoadBalancers(), nil)
}

func createLoadBalancer(c *Cloud, r *http.Request) (int, any, error) {
	in, err := decode[struct{ Name, Region string }](r.Body)
	if err != nil {
		return 0, nil, err
	}
	b, err := c.CreateLoadBalancer(in.Name, in.Region)
	return one(http.StatusCreated, "load_balancer", b, err)
}

func getLoadBalancer(c *Cloud, r *http.Request) (int, any, error) {
	b, err := c.LoadBalancer(r.PathValue("name"))
	return one(http.StatusOK, "load_balancer", b, err)
}

func deleteLoadBalancer(c *Cloud, r *http.Request) (int, any, error) {
	return done(c.DeleteLoadBalancer(r.PathValue("name")))
}

func listListeners(c *Cloud, r *http.Request) (int, any, error) {
	name := r.URL.Query().Get("load_balancer")
	if name != "" {
		if _, err := c.LoadBalancer(name); err != nil {
			return 0, nil, err
		}
	}
	return one(http.StatusOK, "listeners", c.Listeners(name), nil)
}

func createListener(c *Cloud, r *http.Request) (int, any, error) {
	in, err := decode[struct {
		LoadBalancer string `json:"load_balancer"`
		Port         uint16
		Backends     []netip.AddrPort
	}](r.Body)
	if err != nil {
		return 0, nil, err
	}
	if err := given("load_balancer", in.LoadBalancer); err != nil {
		return 0, nil, err
	}
	l, err := c.CreateListener(in.LoadBalancer, in.Port, in.Backends)
	return one(http.StatusCreated, "listener", l, err)
}

func setBackends(c *Cloud, r *http.Request) (int, any, error) {
	in, err := decode[struct{ Backends []netip.AddrPort }](r.Body)
	if err != nil {
		return 0, nil, err
	}
	if in.Backends == nil {
		return 0, nil, badRequest("backends: is missing: send [] to remove all of them")
	}
	l, err := c.SetBackends(r.PathValue("listener"), in.Backends)
	return one(http.StatusOK, "listener", l, err)
}

func deleteListener(c *Cloud, r *http.Request) (int, any, error) {
	return done(c.DeleteListener(r.PathValue("listener")))
}

func listRoutes(c *Cloud, _ *http.Request) (int, any, error) {
	return one(http.StatusOK, "routes", c.Routes(), nil)
}

func setRoute(c *Cloud, r *http.Request) (int, any, error) {
	p, err := prefixOf(r)
	if err != nil {
		return 0, nil, err
	}
	in, err := decode[struct{ Instance string }](r.Body)
	if err != nil {
		return 0, nil, err
	}
	if err := given("instance", in.Instance); err != nil {
		return 0, nil, err
	}
	route, err := c.SetRoute(p, in.Instance)
	return one(http.StatusOK, "route", route, err)
}

func deleteRoute(c *Cloud, r *http.Request) (int, any, error) {
	p, err := prefixOf(r)
	if err != nil {
		return 0, nil, err
	}
	return done(c.DeleteRoute(p, r.URL.Query().Get("instance")))
}

// prefixOf returns the prefix that a path names.
func prefixOf(r *http.Request) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(r.PathValue("prefix"))
	if err != nil {
		return p, badRequest("the path names no range of addresses: %v; write it as in /routes/10.244.1.0/24", err)
	}
	return p, nil
}

// Endpoint returns the endpoint of an API that is served at an address.
func Endpoint(address string) string { return fmt.Sprintf("http://%s%s", address, Path) }
