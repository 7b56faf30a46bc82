package api

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/requestlog"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// record adds each request to the journal after its answer, even if the connection was dropped.
func (a *API) record(next Handler) Handler {
	if a.journal == nil {
		return next
	}
	return func(w http.ResponseWriter, r *Request) {
		var began time.Time
		if a.journal.Observed() {
			began, r.writer.details = time.Now(), &requestlog.Details{}
		}
		defer func() {
			e := &journal.Entry{
				Time: r.arrived, Duration: a.cloud.Clock().Since(r.arrived), CorrelationID: r.CorrelationID,
				Method: r.HTTP.Method, Route: r.Route.Pattern, Operation: r.Route.OperationID,
				ResourceID: r.resourceID(), Path: r.withoutToken(r.HTTP.URL.Path),
				Query:  r.withoutToken(redact(r.HTTP.URL.RawQuery)),
				Status: r.writer.status, Handled: r.Handled, ErrorCode: r.ErrorCode, Fault: r.Fault,
				UnknownFields: strings.Join(r.unread, ", "),
				Client:        first(r.HTTP.Header["User-Agent"]), Remote: r.HTTP.RemoteAddr,
				BytesIn: r.writer.bytesIn, BytesOut: r.writer.bytesOut,
			}
			if len(r.HTTP.RequestURI) > requestlog.MaxField {
				// Without copies, these parts would keep the whole request line in memory.
				e.Method, e.Path, e.Query = strings.Clone(e.Method), strings.Clone(e.Path), strings.Clone(e.Query)
			}
			if r.known {
				e.Project = r.token.Project
			}
			details := r.writer.details
			if details != nil {
				details.Took = time.Since(began)
				if token := r.bearer(); len(token) >= cloud.MinSecretToken {
					details.Remove(token)
				}
			}
			a.journal.AddDetailed(e, details)
		}()
		next(w, r)
	}
}

// withoutToken removes the request's token from a part of its URL, where a client has put it by mistake. It may be none that the cloud
// knows; the journal removes those.
func (r *Request) withoutToken(text string) string {
	if token := r.bearer(); len(token) >= cloud.MinSecretToken {
		return strings.ReplaceAll(text, token, redacted)
	}
	return text
}

const redacted = "REDACTED"

// secretParameter matches the names of query parameters that hold a secret. The API has no such parameter: a client sends
// one by mistake.
var secretParameter = regexp.MustCompile(`(?i)token|secret|passw|pwd|credential|auth|bearer|key|user[-_.]?data|signature`)

// redact removes the values of secret parameters from a query. It drops the part that is too long for the journal.
func redact(query string) string {
	query = query[:min(len(query), requestlog.MaxField+1)]
	for at := 0; at < len(query); {
		pair, _, _ := strings.Cut(query[at:], "&")
		name, value, _ := strings.Cut(pair, "=")
		if value != "" && isSecret(name) {
			query = query[:at] + name + "=" + redacted + query[at+len(pair):]
			pair = name + "=" + redacted
		}
		at += len(pair) + 1
	}
	return query
}

func isSecret(name string) bool {
	switch name {
	case "name", "label_selector", "page", "per_page", "sort", "status", "type", "id": // the usual parameters
		return false
	}
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	return secretParameter.MatchString(name)
}
