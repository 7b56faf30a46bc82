package requestlog

import (
	"net/http"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// matches reports whether a filter selects an entry.
func matches(f *journal.Filter, e *journal.Entry) bool {
	return matchesRequest(f, e) && matchesAnswer(f, e)
}

func matchesRequest(f *journal.Filter, e *journal.Entry) bool {
	return (f.Method == "" || strings.EqualFold(f.Method, e.Method)) &&
		(f.Route == "" || matchRoute(f.Route, e.Route)) &&
		(f.Path == "" || f.Path == e.Path) &&
		(f.Operation == "" || f.Operation == e.Operation) &&
		(f.ResourceID == 0 || f.ResourceID == e.ResourceID) &&
		(f.Client == "" || strings.Contains(e.Client, f.Client)) &&
		(f.Project == 0 || f.Project == e.Project) &&
		(!f.Writes || e.Method != http.MethodGet && e.Method != http.MethodHead)
}

func matchesAnswer(f *journal.Filter, e *journal.Entry) bool {
	return e.Seq > f.Since &&
		(f.Status == 0 || f.Status == e.Status) &&
		(f.ErrorCode == "" || f.ErrorCode == e.ErrorCode) &&
		(f.Fault == "" || f.Fault == e.Fault) &&
		(!f.Errors || e.Status == 0 || e.Status >= 400) &&
		(!f.Dropped || e.Status == 0)
}

func matchRoute(pattern, route string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(route, prefix)
	}
	return pattern == route
}
