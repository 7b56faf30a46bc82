package report

import (
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// aRun has a spec of each result, and an incident of each kind.
func aRun() speclist.Run {
	begin := time.Date(2026, 11, 21, 8, 7, 30, 0, time.UTC)
	incident := []string{Incident}
	return speclist.Run{
		CCM: "other", Cluster: "embedded", Seconds: 61.3, Processes: 2, Seed: 42, Time: begin,
		Specs: []speclist.Spec{
			{Name: "Service fails", Group: "Service", Result: speclist.Failed, Reason: "expected", Details: speclist.Details{Begin: begin,
				Failure: &speclist.Failure{At: 1.702, Place: "a.go:7", Message: "expected <a>\n    <int>: 1" + strings.Repeat("\n.", 42)}}},
			{Name: "Service works", Group: "Service", Result: speclist.Passed, Seconds: 2},
			{Name: "a gap", Result: speclist.KnownGap, Reason: "because"},
			{Name: "a | closed gap", Result: speclist.GapClosed, Labels: incident},
			{Name: "An incident locks", Group: "An incident", Result: speclist.Passed, Labels: incident,
				Details: speclist.Details{Notes: []speclist.Note{{Name: Incident, Text: "10 in 5 s"}}}},
			{Name: "an empty list", Result: speclist.NotExercised, Reason: "no request", Labels: incident},
			{Name: "certificates", Result: speclist.Unsupported, Reason: "[managed-certificates]", Labels: incident},
			{Name: "elsewhere", Result: speclist.NotHere, Reason: "needs pods", Labels: incident},
		},
	}
}

func TestResultsSayWhatARunHasShown(t *testing.T) {
	t.Parallel()
	want := "6 specs in 1m1s, 2 passed, 1 gap closed, 1 failed, 1 known gap, 1 not exercised, 1 unsupported, 1 not here; " +
		"other on embedded, 2 at a time, seed 42\n" + `
# Report card: other survives 2 of 2 incidents

| incident | result | calls to the API in it |
|---|---|---|
| a \| closed gap | survived |  |
| locks | survived | 10 in 5 s |
| an empty list | **not exercised**: no request |  |

known gap: a gap
    because
gap closed: a | closed gap
    remove it from knownGaps in the CCM's file
failed: Service fails
    a.go:7, at Nov 21 08:07:31.702
    expected <a>
        <int>: 1
` + strings.Repeat("    .\n", 6) + `    and 36 lines more, in the report
`
	if got := Results(aRun()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := Results(speclist.Run{CCM: "other", Cluster: "kind", Incomplete: "BeforeSuite failed"}); got !=
		"0 specs in 0s; other on kind, 0 at a time, seed 0\nincomplete: BeforeSuite failed\n" {
		t.Errorf("of a run without a spec:\n%s", got)
	}
}

func TestJUnitHasTheResultsOfTheRun(t *testing.T) {
	t.Parallel()
	text, err := JUnit(aRun())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<testsuites tests="8" disabled="4" errors="0" failures="1" time="61.3">`, `timestamp="2026-11-21T08:07:30"`,
		`<testcase name="Service works" classname="Service" status="passed" time="2"></testcase>`,
		`<failure message="expected" type="failed">a.go:7&#xA;expected &lt;a&gt;&#xA;    &lt;int&gt;: 1`,
		`<skipped message="known gap: because"></skipped>`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
}
