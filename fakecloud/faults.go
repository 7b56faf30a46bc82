package fakecloud

import (
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// Fault is a rule by which the cloud misbehaves: which requests it is about, which of those it
// takes, and what it does to them.
//
//	cloud.Faults().Add(fakecloud.Fault{
//		Method: "POST", Route: "/load_balancers", First: 1,
//		Effect: fakecloud.LoseAnswer(),
//	})
type Fault = fault.Rule

// FaultStatus is a fault rule and how many requests it has matched and been applied to.
type FaultStatus = fault.Status

// Faults is the rules of a cloud: Add, Remove, Clear, List, Get, and Await for the n-th application
// of one.
type Faults = fault.Set

// Effect is what a fault rule does to a request. The functions below return the usual ones.
type Effect = fault.Effect

// Faults returns the rules by which the cloud misbehaves; at first there are none.
func (c *Cloud) Faults() *Faults { return c.api.Faults() }

// APIError answers with an error of the API, by its code: "conflict", "locked", "server_error" …
func APIError(code string) Effect { return Effect{Kind: fault.KindAPIError, Code: cloud.Code(code)} }

// HTTPStatus answers with a status and a page that no API made, as a proxy on the way would.
func HTTPStatus(status int) Effect { return Effect{Kind: fault.KindHTTPStatus, Status: status} }

// Latency delays the answer on the cloud's clock. Any other effect has a Latency, too.
func Latency(d time.Duration) Effect {
	return Effect{Kind: fault.KindLatency, Latency: fault.Duration(d)}
}

// DropConnection closes the connection in place of carrying the request out.
func DropConnection() Effect { return Effect{Kind: fault.KindDrop} }

// ResetConnection is DropConnection with a TCP reset.
func ResetConnection() Effect { return Effect{Kind: fault.KindReset} }

// LoseAnswer carries the request out and then closes the connection: what was written is
// written, but the client cannot know.
func LoseAnswer() Effect { return Effect{Kind: fault.KindDrop, After: true} }

// CutBody carries the request out and sends only the first n bytes of the answer's body, or half of it if
// n is 0.
func CutBody(n int) Effect { return Effect{Kind: fault.KindCutBody, Bytes: n} }

// FailAction makes the actions that the request starts fail with a code, "" for action_failed.
func FailAction(code, message string) Effect {
	return Effect{Kind: fault.KindFailAction, Code: cloud.Code(code), Message: message}
}

// HangAction makes the actions that the request starts never end, unless [Cloud.ResumeActions] is called.
func HangAction() Effect { return Effect{Kind: fault.KindHangAction} }

// ExhaustRateLimit uses up the project's rate limit and answers 429.
func ExhaustRateLimit() Effect { return Effect{Kind: fault.KindExhaustRateLimit} }

// Duration is the type of an Effect's Latency: a time.Duration that is written as "250ms" in JSON.
type Duration = fault.Duration
