package api

import (
	"net/http"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// record writes each request into the journal when it has been answered, also when the handler
// ends by dropping the connection.
func (a *API) record(next Handler) Handler {
	if a.journal == nil {
		return next
	}
	return func(w http.ResponseWriter, r *Request) {
		defer func() {
			e := &journal.Entry{
				Time: r.arrived, Duration: a.cloud.Clock().Since(r.arrived), CorrelationID: r.CorrelationID,
				Method: r.HTTP.Method, Route: r.Route.Pattern, Operation: r.Route.OperationID,
				ResourceID: r.resourceID(), Path: r.HTTP.URL.Path, Query: r.HTTP.URL.RawQuery,
				Status: r.writer.status, Handled: r.Handled, ErrorCode: r.ErrorCode, Fault: r.Fault,
				Client: first(r.HTTP.Header["User-Agent"]), Remote: r.HTTP.RemoteAddr,
				BytesIn: r.writer.bytesIn, BytesOut: r.writer.bytesOut,
			}
			if r.known {
				e.Project = r.token.Project
			}
			a.journal.Add(e)
		}()
		next(w, r)
	}
}
