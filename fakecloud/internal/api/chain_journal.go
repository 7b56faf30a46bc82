package api

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/requestlog"
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
			if len(r.HTTP.RequestURI) > requestlog.MaxField {
				// They are parts of the request line, all of which would stay in memory.
				e.Method, e.Path, e.Query = strings.Clone(e.Method), strings.Clone(e.Path), strings.Clone(e.Query)
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

// redact returns a query without the values of parameters whose names say that they are secrets. What is
// much longer than an entry of the journal keeps is not looked at.
func redact(query string) string {
	query = query[:min(len(query), requestlog.MaxField+1)]
	for at := 0; at < len(query); {
		pair, _, _ := strings.Cut(query[at:], "&")
		name, value, _ := strings.Cut(pair, "=")
		if value != "" && isSecret(name) {
			query = query[:at] + name + "=REDACTED" + query[at+len(pair):]
			pair = name + "=REDACTED"
		}
		at += len(pair) + 1
	}
	return query
}

func isSecret(name string) bool {
	switch name {
	case "name", "label_selector", "page", "per_page", "sort", "status", "type", "id": // most of what clients send
		return false
	}
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	return secretParameter.MatchString(name)
}
