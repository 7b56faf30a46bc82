package apicall

import (
	"context"
	"sync/atomic"
)

// purpose names the controller that needs a request, and the reason. The metric shows it, and the rate limit's
// reserve depends on it.
type purpose struct {
	controller, name string
	// Periodic work can wait: nothing is different, and it comes again later.
	Periodic bool
	token    *workToken
}

// workToken is the token of the first answer to one piece of work, such as a sync.
type workToken struct{ first atomic.Pointer[string] }

// read notes the token of a successful request.
func (w *workToken) read(token string) {
	if w != nil {
		w.first.CompareAndSwap(nil, &token)
	}
}

// mayWrite reports whether the work may write with the token: an answer to another token may be about another project.
func (w *workToken) mayWrite(token string) bool {
	if w == nil {
		return true
	}
	first := w.first.Load()
	return first == nil || *first == token
}

// The controllers: values of the metric's label.
const (
	ControllerNode       = "node"
	ControllerLifecycle  = "node-lifecycle"
	ControllerService    = "service"
	ControllerRoute      = "route"
	ControllerComparison = "comparison"
	controllerNone       = "none" // the check at the start
)

type purposeKey struct{}

// Urgently marks the requests of a controller that acts on a change in the cluster. Work inside other work
// keeps the purpose of the outer one.
func Urgently(ctx context.Context, controller, name string) context.Context {
	return withPurpose(ctx, purpose{controller: controller, name: name})
}

// Periodically marks the requests of work that is repeated without a change. Below the reserve of the rate
// limit, its reads are held back.
func Periodically(ctx context.Context, controller, name string) context.Context {
	return withPurpose(ctx, purpose{controller: controller, name: name, Periodic: true})
}

func withPurpose(ctx context.Context, p purpose) context.Context {
	if _, set := ctx.Value(purposeKey{}).(purpose); set {
		return ctx
	}
	p.token = &workToken{}
	return context.WithValue(ctx, purposeKey{}, p)
}

// waiting marks the questions about an action: their number depends on the cloud's speed.
func waiting(ctx context.Context) context.Context {
	p := PurposeOf(ctx)
	p.name, p.Periodic = "action", false
	return context.WithValue(ctx, purposeKey{}, p)
}

// PurposeOf returns the purpose of the requests with this context.
func PurposeOf(ctx context.Context) purpose {
	p, set := ctx.Value(purposeKey{}).(purpose)
	if !set {
		return purpose{controller: controllerNone, name: "check"}
	}
	return p
}
