package control

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/faults"
)

// The lines that the API adds to the snapshot of a cloud.
const (
	lineFault = "fault"
	lineRate  = "rate_limit"
)

// Save writes a snapshot of the cloud, with the fault rules and what is left of the rate limits. Its error is that of the writer.
func (c *Controller) Save(w io.Writer) error {
	var extra []cloud.SnapshotLine
	add := func(kind string, v any) {
		data, err := json.Marshal(v)
		if err != nil { // their fields are numbers and texts
			panic("control: " + err.Error())
		}
		extra = append(extra, cloud.SnapshotLine{Kind: kind, Data: data})
	}
	for _, rule := range c.API.Faults().Save() {
		add(lineFault, rule)
	}
	for _, rate := range c.API.SaveRates() {
		add(lineRate, rate)
	}
	return c.Cloud.Save(w, extra)
}

// Restore replaces what the cloud has by a snapshot. An error names the line; then nothing has changed.
func (c *Controller) Restore(r io.Reader) error {
	snapshot, err := c.Cloud.ReadSnapshot(r)
	if err != nil {
		return fmt.Errorf("snapshot: %w", err)
	}
	var rules []faults.Saved
	var rates []api.SavedRate
	for _, line := range snapshot.Extra {
		switch line.Kind {
		case lineFault:
			rules, err = appendLine(rules, line.Data)
		case lineRate:
			rates, err = appendLine(rates, line.Data)
		default:
			err = fmt.Errorf("kind %.64q: is not known", line.Kind)
		}
		if err != nil {
			return fmt.Errorf("snapshot: line %d: %w", line.Number, err)
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
	err := strict(data, &v)
	return append(all, v), err
}

func getSnapshot(c *Controller, w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	_ = c.Save(w) // the client may be gone
}

func putSnapshot(c *Controller, r *http.Request) (any, error) {
	if err := c.Restore(r.Body); err != nil {
		return nil, err
	}
	return getClock(c, r)
}
