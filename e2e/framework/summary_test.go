package framework

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

func TestTheSummaryListsEverySpecInTheOrderOfTheSource(t *testing.T) {
	t.Parallel()
	spec := func(file string, line int, container, text string, state types.SpecState, took time.Duration) types.SpecReport {
		return types.SpecReport{
			ContainerHierarchyTexts:     []string{container},
			ContainerHierarchyLocations: []types.CodeLocation{{FileName: file, LineNumber: 1}},
			ContainerHierarchyLabels:    [][]string{{"a", "b"}},
			LeafNodeType:                types.NodeTypeIt, LeafNodeText: text, LeafNodeLocation: types.CodeLocation{FileName: file,
				LineNumber: line},
			State: state, RunTime: took,
		}
	}
	labelled := func(s types.SpecReport, labels ...string) types.SpecReport {
		s.LeafNodeLabels = labels
		return s
	}
	found := func(s types.SpecReport, message string) types.SpecReport {
		s.Failure.Message = message
		return s
	}
	report := types.Report{
		RunTime: 61*time.Second + 300*time.Millisecond, SuiteConfig: types.SuiteConfig{ParallelTotal: 2, RandomSeed: 42},
		SpecialSuiteFailureReasons: []string{"Suite Timeout Elapsed"},
		SpecReports: types.SpecReports{
			{LeafNodeType: types.NodeTypeBeforeSuite, State: types.SpecStatePassed},
			{LeafNodeType: types.NodeTypeAfterSuite, State: types.SpecStateFailed, Failure: types.Failure{Message: "no\nwhere"}},
			spec("b.go", 9, "Service", "second | of its table", types.SpecStateTimedout, time.Second),
			spec("b.go", 5, "Service", "first", types.SpecStatePassed, 12340*time.Millisecond),
			spec("c.go", 5, "Route", "skipped", types.SpecStateSkipped, 0),
			labelled(spec("c.go", 6, "Route", "of another cluster", types.SpecStateSkipped, 0), RealNodes),
			labelled(spec("c.go", 7, "Route", "of another CCM", types.SpecStateSkipped, 0), Needs(NodeRoutes, Repair)...),
			found(spec("c.go", 8, "Route", "found out", types.SpecStateSkipped, time.Second), "unknown | here\nmore"),
			spec("a.go", 5, "Node", "of another file", types.SpecStatePassed, 0),
		},
	}
	want := `# 3 specs in 1m1s, 2 passed, 1 timedout, 3 skipped

other on embedded, 2 at a time, seed 42.

**Suite Timeout Elapsed**

**AfterSuite failed: no**

## Node

| result | seconds | spec | labels |
|---|--:|---|---|
| passed | 0.0 | of another file | a, b |

## Service

| result | seconds | spec | labels |
|---|--:|---|---|
| passed | 12.3 | first | a, b |
| **timedout** | 1.0 | second \| of its table | a, b |

## Route

| result | seconds | spec | labels |
|---|--:|---|---|
| not on embedded: needs real nodes: runs with E2E_CLUSTER=kind | 0.0 | of another cluster | a, b, real-nodes |
| unsupported: lacks routes | 0.0 | of another CCM | a, b, needs-routes, needs-repair |
| skipped: unknown \| here | 1.0 | found out | a, b |
`
	other := CCMDescription{Name: "other", Lacks: map[Feature]string{NodeRoutes: ""}}
	if got := summary(report, other, Embedded); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	run := runOf(report, other, Embedded)
	var results []speclist.Result
	for _, s := range run.Specs {
		results = append(results, s.Result)
	}
	if want := []speclist.Result{"passed", "passed", "failed", "not here", "unsupported", "skipped"}; !slices.Equal(results, want) {
		t.Errorf("got %q, want %q", results, want)
	}
}

func TestFailuresAreListedWithTheirPlaceAndReason(t *testing.T) {
	t.Parallel()
	failed := func(line int, message string) types.Failure {
		return types.Failure{
			Message: message, Location: types.CodeLocation{FileName: "a.go", LineNumber: line},
			TimelineLocation: types.TimelineLocation{Time: time.Date(2026, 11, 21, 8, 7, 31, 702e6, time.UTC)},
		}
	}
	report := types.Report{SpecReports: types.SpecReports{
		{LeafNodeType: types.NodeTypeIt, LeafNodeText: "passes", State: types.SpecStatePassed},
		{LeafNodeType: types.NodeTypeIt, ContainerHierarchyTexts: []string{"Service"}, LeafNodeText: "fails", State: types.SpecStateFailed,
			Failure: failed(7, "expected\n    <int>: 1\n")},
		{LeafNodeType: types.NodeTypeAfterSuite, State: types.SpecStatePanicked, Failure: failed(9, "long"+strings.Repeat("\n.", 42))},
	}}
	want := `failed: Service fails
    a.go:7, at Nov 21 08:07:31.702
    expected
        <int>: 1
panicked: AfterSuite
    a.go:9, at Nov 21 08:07:31.702
    long
` + strings.Repeat("    .\n", 7) + `    and 35 lines more, in the report
`
	if got := failures(report, ourCCM(t)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := failures(types.Report{SpecReports: report.SpecReports[:1]}, ourCCM(t)); got != "" {
		t.Errorf("of a report without a failure: %q", got)
	}
}

func TestAKnownGapDoesNotFailARunAndEveryOtherFailureDoes(t *testing.T) {
	t.Parallel()
	spec := func(text string, state types.SpecState) types.SpecReport {
		return types.SpecReport{LeafNodeType: types.NodeTypeIt, LeafNodeText: text, State: state, Failure: types.Failure{Message: "no"}}
	}
	report := types.Report{SpecReports: types.SpecReports{
		spec("is a gap", types.SpecStateFailed), spec("is closed", types.SpecStatePassed), spec("hangs", types.SpecStateTimedout),
		spec("broke", types.SpecStateFailed), spec("works", types.SpecStatePassed),
	}}
	ccm := ourCCM(t)
	ccm.KnownGaps = []Gap{{Reason: "because", Specs: []string{"is a gap", "is closed", "hangs"}}}
	run := runOf(report, ccm, Embedded)
	var results []speclist.Result
	for _, s := range run.Specs {
		results = append(results, s.Result)
	}
	if want := []speclist.Result{"failed", "failed", "known gap", "gap closed", "passed"}; !slices.Equal(results, want) {
		t.Errorf("got %q, want %q", results, want)
	}
	want := "known gap: is a gap\n    because\ngap closed: is closed\n    remove it from knownGaps in the CCM's file\n"
	if got := gaps(run); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	text := failures(report, ccm)
	if strings.Contains(text, "is a gap") || !strings.Contains(text, "failed: broke") || !strings.Contains(text, "timedout: hangs") {
		t.Errorf("failures:\n%s", text)
	}
	report.SpecReports, report.SpecialSuiteFailureReasons = report.SpecReports[:2], []string{"Suite Timeout Elapsed"}
	if text := failures(report, ccm); text != "the suite: Suite Timeout Elapsed\n" {
		t.Errorf("of a suite that ended early: %q", text)
	}
	if run := runOf(report, ccm, Embedded); run.Incomplete != "Suite Timeout Elapsed" {
		t.Errorf("incomplete: %q", run.Incomplete)
	}
}
