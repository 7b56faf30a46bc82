package recording

import (
	"fmt"
	"io"
	"strings"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
)

// Report is the result of [Verify].
type Report struct {
	Target    string `json:"target"`
	Exchanges int    `json:"exchanges"`
	Replayed  int    `json:"replayed"`
	// CutOff is set if the last line of the recording was not complete.
	CutOff bool `json:"cut_off"`
	// Operations are how many exchanges of each operation were replayed. As in Replayed, undecided ones are not among them.
	Operations    map[string]int `json:"operations"`
	NotReplayable []Skipped      `json:"not_replayable"`
	// Undecided are the writes that the simulation refused until an action ended, if the recording does not prove that it ran.
	Undecided   []Skipped    `json:"undecided"`
	Differences []Difference `json:"differences"`
}

// Skipped is an exchange that was not replayed, or not decided.
type Skipped struct {
	Seq    int    `json:"seq"`
	Method string `json:"method"`
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// What differs.
const (
	DiffLocked     = "locked" // the simulation refuses a request that succeeded while an action ran
	DiffStatus     = "status"
	DiffCode       = "error code"
	DiffMissing    = "missing field"    // the simulation lacks it
	DiffAdditional = "additional field" // the recording lacks it
	DiffType       = "type"
	DiffNull       = "null"
	DiffValue      = "value" // of an enumeration
	DiffReference  = "reference"
	DiffEntries    = "entries"
	DiffOrder      = "order"
	DiffHeader     = "header"
	DiffAction     = "action"
)

// Difference is one place where an answer of the simulation differs from the recording.
type Difference struct {
	Seq       int    `json:"seq"`
	Method    string `json:"method"`
	Route     string `json:"route"` // the pattern, such as /servers/{id}
	What      string `json:"what"`
	Place     string `json:"place"` // such as server.public_net.ipv4, or the name of a header
	Recording string `json:"recording"`
	Fake      string `json:"fake"`
}

// Write writes the report as text. Equal differences of the same operation have one line.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d exchanges with %s, %d replayed, %d not, %d undecided\n",
		r.Exchanges, r.Target, r.Replayed, len(r.NotReplayable), len(r.Undecided))
	if r.CutOff {
		b.WriteString("the last line is not complete and was left out: the recorder was killed while it wrote\n")
	}
	for _, s := range r.NotReplayable {
		fmt.Fprintf(&b, "  not replayed: #%d %s %s: %s\n", s.Seq, wire.Printable(s.Method), wire.Printable(s.Path), s.Reason)
	}
	for _, s := range r.Undecided {
		fmt.Fprintf(&b, "  undecided: #%d %s %s: %s\n", s.Seq, wire.Printable(s.Method), wire.Printable(s.Path), s.Reason)
	}
	type group struct {
		Difference
		n int
	}
	var groups []*group
	known := map[Difference]*group{}
	for _, d := range r.Differences {
		key := d
		key.Seq = 0
		if known[key] == nil {
			known[key] = &group{Difference: d}
			groups = append(groups, known[key])
		}
		known[key].n++
	}
	fmt.Fprintf(&b, "%d differences\n", len(r.Differences))
	for _, g := range groups {
		fmt.Fprintf(&b, "  #%d %s %s: %s", g.Seq, g.Method, g.Route, g.What)
		if g.Place != "" {
			fmt.Fprintf(&b, " at %s", wire.Printable(g.Place))
		}
		fmt.Fprintf(&b, ": recording %s, simulation %s", wire.Printable(g.Recording), wire.Printable(g.Fake))
		if g.n > 1 {
			fmt.Fprintf(&b, " (%d times)", g.n)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
