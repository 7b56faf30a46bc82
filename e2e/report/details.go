// Package report turns the results of the suite into evidence for readers: a page, badges, and a console that shows no more than a screen
// of each failure.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// Limits of the details of a spec.
const (
	noteLength    = 2000
	notesKept     = 20
	messageLength = 20_000
)

// DetailsOf returns the details of a spec from Ginkgo's report.
func DetailsOf(s types.SpecReport) speclist.Details {
	d := speclist.Details{Source: place(s.LeafNodeLocation), Begin: s.StartTime}
	if n := len(s.ContainerHierarchyLocations); n > 0 {
		d.Container = place(s.ContainerHierarchyLocations[n-1])
	}
	for _, e := range s.SpecEvents {
		if e.SpecEventType.Is(types.SpecEventByStart) {
			d.Steps = append(d.Steps, speclist.Step{At: since(s.StartTime, e.TimelineLocation.Time), Text: e.Message})
		}
	}
	state := ""
	for _, e := range s.ReportEntries {
		switch text := Redact(e.StringRepresentation()); {
		case e.Name == speclist.FigureEntry:
			if f, ok := figure(e); ok {
				d.Figures = append(d.Figures, f)
			}
		case e.Name == stateEntry && s.Failed():
			state = text
		case laneOf(e.Name) != "" || e.Name == stateEntry:
		case len(d.Notes) < notesKept:
			d.Notes = append(d.Notes, speclist.Note{Name: e.Name, Text: short(text, noteLength)})
			if f, ok := lost(e.Name, text); ok {
				d.Figures = append(d.Figures, f)
			}
		}
	}
	if s.Failed() {
		d.Failure = failure(s)
		d.Failure.State = short(state, messageLength)
	}
	return d
}

func failure(s types.SpecReport) *speclist.Failure {
	messages := []string{s.FailureMessage()}
	for _, more := range s.AdditionalFailures {
		messages = append(messages, "and then: "+more.Failure.Message)
	}
	f := &speclist.Failure{
		At: since(s.StartTime, s.Failure.TimelineLocation.Time), Place: place(s.FailureLocation()),
		Message: short(Redact(strings.TrimRight(strings.Join(messages, "\n\n"), "\n")), messageLength),
	}
	f.Timeline, f.LeftOut = timeline(s)
	return f
}

// figure decodes a report entry. Its value is one of Go in the process that made it, and JSON in all others.
func figure(e types.ReportEntry) (f speclist.Figure, ok bool) {
	text, err := json.Marshal(e.GetRawValue())
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	return f, err == nil && f.Name != ""
}

// load matches the report entries of framework.Load about a rolling change.
var load = regexp.MustCompile(`^\d+ answered, (\d+) lost`)

// lost returns the figure that a report entry about traffic contains.
func lost(name, text string) (speclist.Figure, bool) {
	found := load.FindStringSubmatch(text)
	if name != "requests during the change" && name != "requests during the rolling update" || found == nil {
		return speclist.Figure{}, false
	}
	n, err := strconv.Atoi(found[1])
	return speclist.Figure{Name: speclist.LostInARollingChange, Unit: "requests", Value: float64(n)}, err == nil
}

func since(begin, t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return t.Sub(begin).Round(time.Millisecond).Seconds()
}

// place returns file:line, from the root of the repository that the file belongs to.
func place(l types.CodeLocation) string {
	if l.FileName == "" {
		return ""
	}
	file := filepath.ToSlash(l.FileName)
	if root := moduleRoot(filepath.Dir(l.FileName)); root != "" && filepath.IsAbs(l.FileName) {
		if below, err := filepath.Rel(root, l.FileName); err == nil {
			file = filepath.ToSlash(below)
		}
	}
	return fmt.Sprintf("%s:%d", file, l.LineNumber)
}

// moduleRoot returns the folder with the go.mod that a folder belongs to, "" if it belongs to no module. Of modules within each other, it
// is the outermost one: that of the repository.
func moduleRoot(folder string) (root string) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return ""
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			root = folder
		}
		above := filepath.Dir(folder)
		if above == folder {
			return root
		}
		folder = above
	}
}

// short cuts a text that is longer than n bytes, and says so.
func short(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= n {
		return text
	}
	cut := strings.ToValidUTF8(text[:n], "")
	return fmt.Sprintf("%s… (%d bytes more)", cut, len(text)-len(cut))
}

// secrets match texts that must not leave a run: tokens that an API is called with, those of Hetzner's API, and private keys.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(?i)(\bbearer\s+)[\w.~+/=-]+`),
	regexp.MustCompile(`()\b[A-Za-z0-9]{64}\b`),
	regexp.MustCompile(`(-----BEGIN [A-Z ]*PRIVATE KEY-----)[\w+/=\\\s]+`),
}

// digest matches a SHA-256 in hex. It is as long as a token, but no secret.
var digest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Redact removes secrets. The suite does not control the output of specs and CCMs.
func Redact(text string) string {
	for _, secret := range secrets {
		text = secret.ReplaceAllStringFunc(text, func(found string) string {
			if digest.MatchString(found) {
				return found
			}
			return secret.ReplaceAllString(found, "${1}REDACTED")
		})
	}
	if token := os.Getenv("HCLOUD_TOKEN"); len(token) >= 8 {
		text = strings.ReplaceAll(text, token, "REDACTED")
	}
	return text
}

// Bound shortens the timelines of a run's failures so that all of them have at most so many lines. Those with fewer lines than the
// others keep them.
func Bound(runs []speclist.Run, lines int) {
	var all []*speclist.Failure
	for _, r := range runs {
		for i := range r.Specs {
			if f := r.Specs[i].Failure; f != nil {
				all = append(all, f)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *speclist.Failure) int { return cmp.Compare(len(a.Timeline), len(b.Timeline)) })
	for i, f := range all {
		part := lines / (len(all) - i)
		if more := len(f.Timeline) - part; more > 0 {
			f.Timeline = latest(f.Timeline, part)
			f.LeftOut += more
		}
		f.State = short(f.State, 50*part) // it may take about as much of the page
		lines -= len(f.Timeline)
	}
}
