// Package journal describes the requests that a cloud has answered, so that a test can check what a client did and
// how often.
package journal

import (
	"context"
	"time"
)

// Journal has the latest requests of a cloud, in its own process (fakecloud.Cloud.Journal) or another one
// (remote.Client.Journal). The methods may be called from several goroutines. The errors of a cloud in another
// process are those of the connection; a cloud in this process returns only the documented ones.
type Journal interface {
	// Entries returns the entries that match, oldest first.
	Entries(ctx context.Context, f Filter) ([]Entry, error)
	// Count returns the number of entries that match.
	Count(ctx context.Context, f Filter) (int, error)
	// Last returns the Seq of the latest entry, or 0 if there was none. Use it as Filter.Since to select later entries.
	Last(ctx context.Context) (uint64, error)
	// Await waits until at least n entries match and returns all that match. If the context is done first, it returns
	// the entries that match at that time, and the context's error.
	Await(ctx context.Context, f Filter, n int) ([]Entry, error)
	// Reset removes all entries. It does not restart the numbers: an earlier Since stays valid.
	Reset(ctx context.Context) error
}

// Entry is one request and its answer.
type Entry struct {
	// Seq numbers the entries in the order of the answers. The first is 1.
	Seq uint64 `json:"seq"`
	// Time is when the request arrived, on the cloud's clock.
	Time time.Time `json:"time"`
	// Duration is the time until the answer, on the cloud's clock.
	Duration time.Duration `json:"duration_ns"`
	// CorrelationID is the answer's header X-Correlation-Id.
	CorrelationID string `json:"correlation_id"`
	Method        string `json:"method"`
	// Route is the pattern, such as /servers/{id}. It is empty if no route matched.
	Route string `json:"route"`
	// Operation is the operationId of the API document, such as create_server.
	Operation string `json:"operation"`
	// ResourceID is the id in the path, or the id of the resource that the request created, even if the client did not
	// get the answer. It is 0 if there is none, such as for a list. Ids are unique in a cloud, also across kinds.
	ResourceID int64  `json:"resource_id,omitempty"`
	Path       string `json:"path"`
	Query      string `json:"query,omitempty"`
	// Status is the status that the client got, or 0 if the connection was dropped.
	Status int `json:"status"`
	// Handled is the status of the operation if a fault rule kept the answer from the client. For example, a write with
	// a lost answer has Status 0 and Handled 201.
	Handled int `json:"handled_status,omitempty"`
	// ErrorCode is the code of an error of the API.
	ErrorCode string `json:"error_code,omitempty"`
	// Fault has the names of the fault rules that took the request, separated by commas.
	Fault string `json:"fault,omitempty"`
	// UnknownFields has the names of the fields and query parameters that nothing reads, separated by commas: at most 20 of the body.
	UnknownFields string `json:"unknown_fields,omitempty"`
	// Project is the id of the token's project, or 0 if the token is not valid.
	Project int64 `json:"project,omitempty"`
	// Client is the User-Agent.
	Client string `json:"client"`
	// Remote is the client's address.
	Remote   string `json:"remote"`
	BytesIn  int64  `json:"bytes_in"`
	BytesOut int64  `json:"bytes_out"`
}
