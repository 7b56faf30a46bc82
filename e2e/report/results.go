package report

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/reporters"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// Incident labels specs that rehearse an incident. It is also the name of the note that says how many calls the CCM made in it.
const Incident = "incident"

// failureLines is how many lines of a failure's message Results shows.
const failureLines = 8

// Results returns the end of a run's log: how many specs ended how, the report card of the incidents, the known gaps, and for each failure
// its place and reason.
func Results(r speclist.Run) string {
	var b strings.Builder
	counts := map[speclist.Result]int{}
	for _, s := range r.Specs {
		counts[s.Result]++
	}
	ran := len(r.Specs) - counts[speclist.NotHere] - counts[speclist.Unsupported] - counts[speclist.Skipped]
	fmt.Fprintf(&b, "%d specs in %s", ran, time.Duration(r.Seconds*float64(time.Second)).Round(time.Second))
	for _, result := range []speclist.Result{speclist.Passed, speclist.GapClosed, speclist.Failed, speclist.KnownGap,
		speclist.NotExercised, speclist.Skipped, speclist.Unsupported, speclist.NotHere} {
		if n := counts[result]; n > 0 {
			fmt.Fprintf(&b, ", %d %s", n, result)
		}
	}
	fmt.Fprintf(&b, "; %s on %s, %d at a time, seed %d\n", r.CCM, r.Cluster, r.Processes, r.Seed)
	b.WriteString(card(r))
	for _, s := range r.Specs {
		switch s.Result {
		case speclist.KnownGap:
			fmt.Fprintf(&b, "known gap: %s\n    %s\n", s.Name, s.Reason)
		case speclist.GapClosed:
			fmt.Fprintf(&b, "gap closed: %s\n    remove it from knownGaps in the CCM's file\n", s.Name)
		}
	}
	for _, s := range append(slices.Clone(r.Outside), r.Specs...) {
		if s.Result == speclist.Failed {
			failed(&b, s)
		}
	}
	if r.Incomplete != "" {
		fmt.Fprintf(&b, "incomplete: %s\n", r.Incomplete)
	}
	return b.String()
}

func failed(b *strings.Builder, s speclist.Spec) {
	fmt.Fprintf(b, "failed: %s\n", s.Name)
	if s.Failure == nil {
		fmt.Fprintf(b, "    %s\n", s.Reason)
		return
	}
	at := s.Begin.Add(time.Duration(s.Failure.At * float64(time.Second)))
	fmt.Fprintf(b, "    %s, at %s\n", s.Failure.Place, at.Format(time.StampMilli))
	lines := strings.Split(strings.TrimRight(s.Failure.Message, "\n"), "\n")
	for _, line := range lines[:min(len(lines), failureLines)] {
		b.WriteString("    " + line + "\n")
	}
	if more := len(lines) - failureLines; more > 0 {
		fmt.Fprintf(b, "    and %d lines more, in the report\n", more)
	}
}

// card returns the results of the specs about incidents as a table, or "" if the run has no such specs.
func card(r speclist.Run) string {
	var rows strings.Builder
	survived, lost := 0, 0
	for _, s := range r.Specs {
		if !slices.Contains(s.Labels, Incident) || s.Result == speclist.NotHere || s.Result == speclist.Unsupported {
			continue
		}
		calls := ""
		for _, note := range s.Notes {
			if note.Name == Incident {
				calls = note.Text
			}
		}
		verdict := fmt.Sprintf("**%s**: %s", s.Result, s.Reason)
		switch s.Result {
		case speclist.Passed, speclist.GapClosed:
			survived++
			verdict = "survived"
		case speclist.Failed, speclist.KnownGap:
			lost++
		}
		fmt.Fprintf(&rows, "| %s | %s | %s |\n", cell(strings.TrimPrefix(s.Name, s.Group+" ")), cell(verdict), cell(calls))
	}
	if rows.Len() == 0 {
		return ""
	}
	return fmt.Sprintf("\n# Report card: %s survives %d of %d incidents\n\n", r.CCM, survived, survived+lost) +
		"| incident | result | calls to the API in it |\n|---|---|---|\n" + rows.String() + "\n"
}

// cell makes the first line of a text fit into a cell of a table.
func cell(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.ReplaceAll(line, "|", `\|`)
}

// JUnit returns a run as JUnit's XML. A known gap is a skipped test there, since it does not fail the run.
func JUnit(r speclist.Run) ([]byte, error) {
	suite := reporters.JUnitTestSuite{
		Name: r.CCM + " on " + r.Cluster, Time: r.Seconds, Timestamp: r.Time.UTC().Format("2006-01-02T15:04:05"),
	}
	for _, s := range append(slices.Clone(r.Outside), r.Specs...) {
		c := reporters.JUnitTestCase{Name: s.Name, Classname: s.Group, Status: string(s.Result), Time: s.Seconds}
		switch s.Result {
		case speclist.Passed, speclist.GapClosed:
		case speclist.Failed:
			c.Failure = &reporters.JUnitFailure{Message: s.Reason, Type: "failed"}
			if s.Failure != nil {
				c.Failure.Description = s.Failure.Place + "\n" + s.Failure.Message
			}
			suite.Failures++
		default:
			c.Skipped = &reporters.JUnitSkipped{Message: strings.TrimSuffix(string(s.Result)+": "+s.Reason, ": ")}
			suite.Skipped++
		}
		suite.TestCases = append(suite.TestCases, c)
	}
	suite.Tests = len(suite.TestCases)
	text, err := xml.MarshalIndent(reporters.JUnitTestSuites{
		Tests: suite.Tests, Failures: suite.Failures, Disabled: suite.Skipped, Time: suite.Time,
		TestSuites: []reporters.JUnitTestSuite{suite},
	}, "", "  ")
	return append([]byte(xml.Header), text...), err
}
