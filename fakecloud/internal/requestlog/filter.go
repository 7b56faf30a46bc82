package requestlog

import (
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// matches reports whether a filter selects an entry.
func matches(f *journal.Filter, e *journal.Entry) bool {
	return matchesRequest(f, e) && matchesAnswer(f, e)
}

func matchesRequest(f *journal.Filter, e *journal.Entry) bool {
	return (f.Method == "" || strings.EqualFold(f.Method, e.Method)) &&
		(f.Route == "" || wire.MatchRoute(f.Route, e.Route)) &&
		(f.Path == "" || f.Path == e.Path) &&
		(f.Operation == "" || f.Operation == e.Operation) &&
		(f.ResourceID == 0 || f.ResourceID == e.ResourceID) &&
		(f.Client == "" || strings.Contains(e.Client, f.Client)) &&
		(f.Project == 0 || f.Project == e.Project) &&
		(!f.Writes || wire.IsWrite(e.Method))
}

func matchesAnswer(f *journal.Filter, e *journal.Entry) bool {
	return e.Seq > f.Since &&
		(f.Status == 0 || f.Status == e.Status) &&
		(f.ErrorCode == "" || f.ErrorCode == e.ErrorCode) &&
		(f.Fault == "" || f.Fault == e.Fault) &&
		(!f.Errors || e.Status == 0 || e.Status >= 400) &&
		(!f.Dropped || e.Status == 0)
}
