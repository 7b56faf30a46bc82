package api

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

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
				ResourceID: r.resourceID(), Path: r.HTTP.URL.Path, Query: redact(r.HTTP.URL.RawQuery),
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

// secretParameter matches the names of query parameters that hold a secret. The API has none: clients that
// send one send it by mistake, or mean another API.
var secretParameter = regexp.MustCompile(`(?i)token|secret|passw|pwd|credential|auth|bearer|api[-_.]?key|signature`)

// redact returns a query without the values of parameters whose names say that they are secrets.
func redact(query string) string {
	if query == "" || !secretParameter.MatchString(query) && !strings.Contains(query, "%") {
		return query
	}
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil {
			plain = name
		}
		if value != "" && secretParameter.MatchString(plain) {
			pairs[i] = name + "=REDACTED"
		}
	}
	return strings.Join(pairs, "&")
}
