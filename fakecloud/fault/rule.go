// Package fault holds the rules by which a cloud misbehaves on purpose, at the one place that every
// request passes.
//
// A rule says which requests it is about (method, route, resource, client, …), which of those it
// takes (the first, every n-th, some by chance) and what it does to them. Rules are asked in the
// order in which they were added. The delays of all rules that take a request add up; the first that
// takes it with another effect is the last that is asked, so that the rules after it do not count
// the request.
//
// Rules see the requests that have passed the rate limit and authentication and whose route exists;
// the answers 429, 401 and 404 of those before are not theirs to change.
package fault

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// Rule is one way in which a cloud misbehaves. Of the fields that select requests the empty ones
// select all.
type Rule struct {
	// Name is how the journal and the list of rules call it. It must be unique; "" gets one.
	Name string `json:"name"`

	// Method is an HTTP method.
	Method string `json:"method,omitempty"`
	// Route is a pattern of the API, as /servers/{id}, or with a * at its end the beginning of some:
	// /load_balancers/{id}/actions/* .
	Route string `json:"route,omitempty"`
	// Path is the path of one resource without the base path, as /servers/42.
	Path string `json:"path,omitempty"`
	// Operation is an operationId of the API document, as create_server.
	Operation string `json:"operation,omitempty"`
	// Resource is a kind of resource, as load_balancer, with all its operations.
	Resource string `json:"resource,omitempty"`
	// Writes leaves GET and HEAD alone.
	Writes bool `json:"writes,omitempty"`
	// Client is a part of the User-Agent.
	Client string `json:"client,omitempty"`
	// Token and Project are those of the request.
	Token   string `json:"token,omitempty"`
	Project int64  `json:"project,omitempty"`

	// First takes the first n of the selected requests, Every each n-th, From and To (which may be
	// left out) a range of them, counted from 1.
	First int `json:"first,omitempty"`
	Every int `json:"every,omitempty"`
	From  int `json:"from,omitempty"`
	To    int `json:"to,omitempty"`
	// Probability takes a request by chance, between 0 (which stands for always) and 1. The same
	// Seed takes the same of a sequence of requests.
	Probability float64 `json:"probability,omitempty"`
	Seed        uint64  `json:"seed,omitempty"`
	// Max ends the rule after that many requests.
	Max int `json:"max,omitempty"`

	Effect Effect `json:"effect"`
}

// Kind is what kind of effect a rule has.
type Kind string

// The kinds of effects.
const (
	// APIError answers with an error of the API: Code, and if set Message and Status.
	KindAPIError Kind = "api_error"
	// KindHTTPStatus answers with a Status that no API made, as a proxy on the way would: Body, if
	// set, is sent as JSON if it is JSON, and as ContentType or HTML otherwise.
	KindHTTPStatus Kind = "http_status"
	// KindLatency only makes the answer take Latency, on the cloud's clock.
	KindLatency Kind = "latency"
	// KindDrop closes the connection without an answer. Go's HTTP client repeats a GET by itself
	// when that happens on a connection that it has used before.
	KindDrop Kind = "drop"
	// KindReset is KindDrop with a TCP reset.
	KindReset Kind = "reset"
	// KindCutBody sends the answer's header with the right Content-Length, then Bytes of the body
	// (half of it if 0), then closes the connection. The request has been carried out.
	KindCutBody Kind = "cut_body"
	// KindFailAction makes the actions that the request starts fail with Code and Message.
	KindFailAction Kind = "fail_action"
	// KindHangAction makes the actions that the request starts never end, and hold their locks,
	// unless somebody has the cloud's hanging actions resumed.
	KindHangAction Kind = "hang_action"
	// KindExhaustRateLimit takes what the project has left of its rate limit and answers 429. Where
	// the limit is off, only this request is refused.
	KindExhaustRateLimit Kind = "exhaust_rate_limit"
)

// Effect is what happens to a request that a rule takes.
type Effect struct {
	Kind Kind `json:"kind"`
	// After lets the request be carried out first, and then keeps the answer from the client (or
	// delays it): what was written is written, but the client cannot know. For api_error,
	// http_status, latency, drop and reset.
	After bool `json:"after,omitempty"`
	// Latency delays the answer, also of the other kinds.
	Latency Duration `json:"latency,omitempty"`

	Code        cloud.Code `json:"code,omitempty"`
	Message     string     `json:"message,omitempty"`
	Status      int        `json:"status,omitempty"`
	Body        string     `json:"body,omitempty"`
	ContentType string     `json:"content_type,omitempty"`
	Bytes       int        `json:"bytes,omitempty"`
}

// Duration is a time.Duration that is written as "250ms" in JSON.
type Duration time.Duration

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("duration %.64s: want a string such as \"250ms\"", b)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("duration %.64q: want a number with a unit, such as 250ms or 1m30s", s)
	}
	*d = Duration(v)
	return nil
}

// Call is what rules know of a request.
type Call struct {
	Method, Route, Operation, Resource, Path string
	Client, Token                            string
	Project                                  int64
}

func (r *Rule) matches(c *Call) bool {
	return (r.Method == "" || r.Method == c.Method) &&
		(r.Route == "" || matchRoute(r.Route, c.Route)) &&
		(r.Path == "" || r.Path == c.Path) &&
		(r.Operation == "" || r.Operation == c.Operation) &&
		(r.Resource == "" || r.Resource == c.Resource) &&
		(!r.Writes || isWrite(c.Method)) &&
		(r.Client == "" || strings.Contains(c.Client, r.Client)) &&
		(r.Token == "" || r.Token == c.Token) &&
		(r.Project == 0 || r.Project == c.Project)
}

func isWrite(method string) bool { return method != "GET" && method != "HEAD" }

func matchRoute(pattern, route string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(route, prefix)
	}
	return pattern == route
}

// takes tells whether the rule takes the n-th of the requests that it selects, leaving chance aside.
func (r *Rule) takes(n uint64) bool {
	return (r.First == 0 || n <= uint64(r.First)) &&
		(r.Every == 0 || n%uint64(r.Every) == 0) &&
		(r.From == 0 || n >= uint64(r.From)) &&
		(r.To == 0 || n <= uint64(r.To))
}

// ResourceOf returns the kind of resource that a route is about, from the first part of its path.
func ResourceOf(route string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(route, "/"), "/")
	return strings.TrimSuffix(first, "s")
}
