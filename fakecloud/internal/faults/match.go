package faults

import (
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
)

// Call describes a request to the rules.
type Call struct {
	Method, Route, Operation, Resource, Path string
	Client, Token                            string
	Project                                  int64
}

// matches reports whether a rule selects a request.
func matches(r *fault.Rule, c *Call) bool {
	return (r.Method == "" || r.Method == c.Method) &&
		(r.Route == "" || wire.MatchRoute(r.Route, c.Route)) &&
		(r.Path == "" || r.Path == c.Path) &&
		(r.Operation == "" || r.Operation == c.Operation) &&
		(r.Resource == "" || r.Resource == c.Resource) &&
		(!r.Writes || wire.IsWrite(c.Method)) &&
		(!readsOnly(r) || !wire.IsWrite(c.Method)) &&
		(r.Client == "" || strings.Contains(c.Client, r.Client)) &&
		(r.Token == "" || r.Token == c.Token) &&
		(r.Project == 0 || r.Project == c.Project)
}

// readsOnly reports whether the rule takes no writes because of its effect.
func readsOnly(r *fault.Rule) bool {
	return r.Effect.Kind == fault.KindEmpty || r.Effect.Kind == fault.KindHide
}

// takes reports whether the rule takes the n-th of its selected requests. It ignores the probability.
func takes(r *fault.Rule, n uint64) bool {
	return (r.First == 0 || n <= uint64(r.First)) &&
		(r.Every == 0 || n%uint64(r.Every) == 0) &&
		(r.From == 0 || n >= uint64(r.From)) &&
		(r.To == 0 || n <= uint64(r.To))
}

// ResourceOf returns the kind of resource of a route, from the first part of its path.
func ResourceOf(route string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(route, "/"), "/")
	return strings.TrimSuffix(first, "s")
}
