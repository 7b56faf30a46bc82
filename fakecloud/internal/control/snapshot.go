package control

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/faults"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/strictjson"
)

// lineRate is the kind of the lines of a snapshot about rate limits.
const lineRate = "rate_limit"

// saveAlso adds the fault rules and what is left of the rate limits to the cloud's snapshots.
func (c *Controller) saveAlso() {
	c.Cloud.SaveAlso(
		cloud.Extra{
			Kind: cloud.LineFault, Values: func() []any { return values(c.API.Faults().Save()) }, Changed: c.API.Faults().Changed,
		},
		cloud.Extra{Kind: lineRate, Values: func() []any { return values(c.API.SaveRates()) }},
	)
}

func values[T any](all []T) []any {
	out := make([]any, len(all))
	for i, v := range all {
		out[i] = v
	}
	return out
}

// Restore replaces what the cloud has by a snapshot. An error names the line; then nothing has changed.
func (c *Controller) Restore(r io.Reader) error {
	snapshot, err := c.Cloud.ReadSnapshot(r)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	return c.restore(snapshot)
}

// UseDisk lets the cloud go on from what a disk has, and save its changes there.
func (c *Controller) UseDisk(d cloud.Disk) error {
	snapshot, err := c.Cloud.ReadDisk(d)
	if err != nil {
		return fmt.Errorf("state: %w", err)
	}
	if err := c.restore(snapshot); err != nil {
		return err
	}
	c.Cloud.Settle() // what became due meanwhile: the first answer must show it as done
	return c.Cloud.Sync()
}

func (c *Controller) restore(snapshot *cloud.Snapshot) (err error) {
	var rules []faults.Saved
	var rates []api.SavedRate
	for _, line := range snapshot.Extra {
		switch line.Kind {
		case cloud.LineFault:
			rules, err = appendLine(rules, line.Data)
		case lineRate:
			rates, err = appendLine(rates, line.Data)
		default:
			err = fmt.Errorf("kind %.64q: is not known", line.Kind)
		}
		if err != nil {
			return fmt.Errorf("snapshot: line %d: %s: %w", line.Number, line.Kind, err)
		}
	}
	set, err := c.API.Faults().Load(rules)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	c.API.Faults().Take(set) // before a client's next request
	c.Cloud.Restore(snapshot)
	c.API.LoadRates(rates)
	return nil
}

func appendLine[T any](all []T, data []byte) ([]T, error) {
	var v T
	err := strictjson.Decode(data, &v)
	return append(all, v), err
}

func getSnapshot(c *Controller, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	_ = c.Cloud.Save(w) // the client may be gone
}

// maxSnapshot is the size of the largest allowed snapshot in a request, in bytes: that of some 500,000 servers.
const maxSnapshot = 1 << 30

func putSnapshot(c *Controller, w http.ResponseWriter, r *http.Request) {
	body := &steadyBody{ReadCloser: http.MaxBytesReader(w, r.Body, c.maxSnapshot), connection: http.NewResponseController(w)}
	if server, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
		body.limit = server.ReadTimeout
	}
	c.serve(func(c *Controller, r *http.Request) (any, error) {
		err := c.Restore(body)
		switch {
		case err == nil:
			return getClock(c, r)
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, statusError{http.StatusRequestTimeout, fmt.Errorf("snapshot: nothing arrived for %v; send it again", body.limit)}
		}
		if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
			err = statusError{http.StatusRequestEntityTooLarge, fmt.Errorf("snapshot: must have at most %d bytes, but has more; "+
				"start a cloud with it: fakecloud --snapshot FILE", large.Limit)}
		}
		return nil, err
	}).ServeHTTP(w, r)
}

// steadyBody is a body that may take any time as a whole. It fails if nothing arrives in the time that others have for a whole request.
type steadyBody struct {
	io.ReadCloser
	connection *http.ResponseController
	limit      time.Duration // 0 is none
}

// Read implements io.Reader.
func (b *steadyBody) Read(p []byte) (int, error) {
	if b.limit > 0 {
		_ = b.connection.SetReadDeadline(time.Now().Add(b.limit)) // a recorder has no deadline
	}
	return b.ReadCloser.Read(p)
}
