// Package fault describes how a cloud misbehaves on purpose. A [Rule] selects requests and has an [Effect] on them:
//
//	cloud.Faults().Add(ctx, fault.Rule{
//		Method: "POST", Route: "/load_balancers", First: 1,
//		Effect: fault.LoseAnswer(),
//	})
//
// A rule selects requests by method, route, resource, client and so on, and takes some of them: the first, every
// n-th, some by chance. Each request meets the rules in the order in which they were added. The delays of all
// rules that take it add up. The first rule that takes it with another effect ends the search: later rules do not count
// the request.
//
// Rules see requests that have passed the rate limit and authentication and whose route exists. They cannot change
// the answers 429, 401 and 404 of those earlier steps.
package fault

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rules are the fault rules of a cloud, in its own process (fakecloud.Cloud.Faults) or another one
// (remote.Client.Faults). The methods may be called from several goroutines. The errors of a cloud in another
// process include those of the connection; a cloud in this process returns only the documented ones.
type Rules interface {
	// Add adds a rule after the existing ones and returns it in the form in which it is used, with a name. The
	// error lists everything that is wrong with the rule and the values that it could have. It is ErrExists if
	// another rule has the name.
	Add(ctx context.Context, r Rule) (Rule, error)
	// Remove removes a rule and reports whether it existed.
	Remove(ctx context.Context, name string) (bool, error)
	// Clear removes all rules.
	Clear(ctx context.Context) error
	// List returns all rules in the order in which requests meet them.
	List(ctx context.Context) ([]Status, error)
	// Get returns one rule and reports whether it exists.
	Get(ctx context.Context, name string) (Status, bool, error)
	// Await returns when a rule has been applied n times in all. The error is ErrNotFound if there is no such
	// rule, or the context's, with the rule's state at that time.
	Await(ctx context.Context, name string, n uint64) (Status, error)
}

var (
	// ErrExists is the error of adding a rule whose name another rule has.
	ErrExists = errors.New("a fault rule of that name exists")
	// ErrNotFound is the error of waiting for a rule that does not exist or has been removed.
	ErrNotFound = errors.New("no such fault rule")
)

// Status is a rule and its counters.
type Status struct {
	Rule
	// Matched counts the requests that the rule selected, Applied those that it took.
	Matched uint64 `json:"matched"`
	Applied uint64 `json:"applied"`
}

// Rule is one way in which a cloud misbehaves. Of the fields that select requests, the empty ones select all. Route,
// Operation and Resource take the names of the API document; a name that does not exist is an error. A name has at most 128 bytes, the body
// of an effect 1 MiB, and each other text 1 KiB.
type Rule struct {
	// Name identifies the rule, also in the journal. It must be unique. If empty, the cloud chooses one.
	Name string `json:"name"`

	// Method is an HTTP method.
	Method string `json:"method,omitempty"`
	// Route is a pattern of the API such as /servers/{id}. With a * at its end it is a prefix:
	// /load_balancers/{id}/actions/* .
	Route string `json:"route,omitempty"`
	// Path is the path of one resource without the base path, such as /servers/42.
	Path string `json:"path,omitempty"`
	// Operation is an operationId of the API document, such as create_server.
	Operation string `json:"operation,omitempty"`
	// Resource is a kind of resource such as load_balancer. It selects all operations of the kind.
	Resource string `json:"resource,omitempty"`
	// Writes selects all methods except GET and HEAD.
	Writes bool `json:"writes,omitempty"`
	// Client is a part of the User-Agent.
	Client string `json:"client,omitempty"`
	// Token is the token of the request.
	Token string `json:"token,omitempty"`
	// Project is the id of the token's project.
	Project int64 `json:"project,omitempty"`

	// First takes the first n of the selected requests.
	First int `json:"first,omitempty"`
	// Every takes each n-th of the selected requests.
	Every int `json:"every,omitempty"`
	// From and To take a range of the selected requests, counted from 1. Each of them may be left out.
	From int `json:"from,omitempty"`
	To   int `json:"to,omitempty"`
	// Probability takes a selected request by chance. It is between 0 and 1, and 0 means always.
	Probability float64 `json:"probability,omitempty"`
	// Seed makes Probability reproducible: the same seed takes the same requests of a sequence.
	Seed uint64 `json:"seed,omitempty"`
	// Max ends the rule after that many requests that it took.
	Max int `json:"max,omitempty"`

	// Effect is what happens to a request that the rule takes. It is required.
	Effect Effect `json:"effect"`
}

// Kind is the kind of an effect.
type Kind string

// The kinds of effects.
const (
	// KindAPIError answers with an error of the API: Code, and optionally Message and Status.
	KindAPIError Kind = "api_error"
	// KindHTTPStatus answers as a proxy in front of the API would: with Status and Body. The content type is
	// ContentType; if empty, it is JSON for a body that is JSON, and HTML otherwise.
	KindHTTPStatus Kind = "http_status"
	// KindLatency only delays the answer by Latency, on the cloud's clock.
	KindLatency Kind = "latency"
	// KindDrop closes the connection without an answer. Go's HTTP client repeats a GET by itself when this happens
	// on a connection that it has used before.
	KindDrop Kind = "drop"
	// KindReset is KindDrop with a TCP reset.
	KindReset Kind = "reset"
	// KindCutBody carries the request out, sends the answer's header with the right Content-Length and the first
	// Bytes of the body (half of it if 0), and closes the connection.
	KindCutBody Kind = "cut_body"
	// KindFailAction makes the actions that the request starts fail with Code and Message.
	KindFailAction Kind = "fail_action"
	// KindSlowAction makes the actions that the request starts take Duration each, on the cloud's clock, or Times as long as they would.
	KindSlowAction Kind = "slow_action"
	// KindHangAction makes the actions that the request starts run, and hold their locks, until the cloud's hanging
	// actions are resumed.
	KindHangAction Kind = "hang_action"
	// KindSlowGuest makes the guest of a server take Duration to shut down, after the action that asks it to, if no hypervisor has it.
	KindSlowGuest Kind = "slow_guest"
	// KindIgnoreShutdown makes the guest of a server ignore the shutdown: the action succeeds, and the server runs on.
	KindIgnoreShutdown Kind = "ignore_shutdown"
	// KindStayOff lets a server stay off although the actions that create and start it succeed.
	KindStayOff Kind = "stay_off"
	// KindEmpty answers reads as if the project owned nothing, as in an incident of the API or with the token of another
	// project: lists are empty, and no resource is found. The rule takes no writes.
	KindEmpty Kind = "empty"
	// KindHide answers reads as if Server did not exist. The rule takes no writes.
	KindHide Kind = "hide"
	// KindExhaustRateLimit uses up the project's rate limit and answers 429. If there is no limit, it refuses only
	// this request.
	KindExhaustRateLimit Kind = "exhaust_rate_limit"
)

// Effect is what happens to a request that a rule takes. The functions of this package, such as [APIError], return
// the usual ones. A field that its kind does not use must be empty.
type Effect struct {
	Kind Kind `json:"kind"`
	// After carries the request out first and then keeps the answer from the client or delays it. What was written
	// is written, but the client cannot know. It is for api_error, http_status, latency, drop and reset.
	After bool `json:"after,omitempty"`
	// Latency delays the answer, for each kind. It is at most 24h.
	Latency Duration `json:"latency,omitempty"`

	// Code is the error code. It is one of the API document for api_error, and any word in snake_case for fail_action.
	Code string `json:"code,omitempty"`
	// Message is the error message.
	Message string `json:"message,omitempty"`
	// Status is the HTTP status. For api_error, 0 is that of the code.
	Status int `json:"status,omitempty"`
	// Body and ContentType are the answer of http_status.
	Body        string `json:"body,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	// Duration is how long actions take with slow_action, and guests with slow_guest: more than 0, at most 24h.
	Duration Duration `json:"duration,omitempty"`
	// Times is how many times as long actions take with slow_action, instead of Duration: 2 to 1000.
	Times int `json:"times,omitempty"`
	// Server is the name or id of the server that hide hides. It need not exist.
	Server string `json:"server,omitempty"`
	// Bytes is the length of the part that cut_body sends.
	Bytes int `json:"bytes,omitempty"`
}

// Duration is a time.Duration that is written as "250ms" in JSON and on the command line.
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It reads what time.ParseDuration reads, and whole days before it: 1d, 1d12h.
func (d *Duration) UnmarshalText(text []byte) error {
	var v time.Duration
	rest := string(text)
	days, after, ok := strings.Cut(rest, "d")
	n, err := strconv.ParseUint(days, 10, 16) // 65,535 days fit
	if ok && err == nil {
		v, rest = time.Duration(n)*24*time.Hour, after
	}
	if !ok || err != nil || rest != "" {
		hours, err := time.ParseDuration(rest)
		if err != nil || v > 0 && (hours < 0 || v+hours < v) {
			return fmt.Errorf("duration %.64q: must be a number with a unit, such as 250ms, 1m30s or 1d", text)
		}
		v += hours
	}
	*d = Duration(v)
	return nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("duration %.64s: must be a string such as \"250ms\"", b)
	}
	return d.UnmarshalText([]byte(s))
}
