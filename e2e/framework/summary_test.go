package framework

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/probe"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/report"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// resultsOf returns the result of each spec of a run.
func resultsOf(run speclist.Run) (all []string) {
	for _, s := range run.Specs {
		all = append(all, s.Name+": "+string(s.Result))
	}
	return all
}

func TestARunHasEverySpecInTheOrderOfTheSource(t *testing.T) {
	t.Parallel()
	spec := func(file string, line int, container, text string, state types.SpecState, took time.Duration) types.SpecReport {
		return types.SpecReport{
			ContainerHierarchyTexts:     []string{container},
			ContainerHierarchyLocations: []types.CodeLocation{{FileName: file, LineNumber: 1}},
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
	r := types.Report{
		RunTime: 61*time.Second + 300*time.Millisecond, SuiteConfig: types.SuiteConfig{ParallelTotal: 2, RandomSeed: 42},
		SpecialSuiteFailureReasons: []string{"Suite Timeout Elapsed"},
		SpecReports: types.SpecReports{
			{LeafNodeType: types.NodeTypeBeforeSuite, State: types.SpecStatePassed},
			{LeafNodeType: types.NodeTypeAfterSuite, State: types.SpecStateFailed, Failure: types.Failure{Message: "no\nwhere"}},
			found(spec("b.go", 9, "Service", "second | of its table", types.SpecStateTimedout, time.Second), "too late"),
			spec("b.go", 5, "Service", "first", types.SpecStatePassed, 12340*time.Millisecond),
			spec("c.go", 5, "Route", "left out", types.SpecStateSkipped, 0),
			labelled(spec("c.go", 6, "Route", "of another cluster", types.SpecStateSkipped, 0), RealNodes),
			labelled(spec("c.go", 7, "Route", "of another CCM", types.SpecStateSkipped, 0), Needs(NodeRoutes, Repair)...),
			found(spec("c.go", 8, "Route", "found out", types.SpecStateSkipped, time.Second), "unknown | here\nmore"),
			spec("a.go", 5, "Node", "of another file", types.SpecStatePassed, 0),
		},
	}
	other := CCMDescription{Name: "other", Lacks: map[Feature]string{NodeRoutes: ""}}
	run := runOf(r, other, Embedded)
	if got, want := resultsOf(run), []string{"Node of another file: passed", "Service first: passed",
		"Service second | of its table: failed", "Route of another cluster: not here", "Route of another CCM: unsupported",
		"Route found out: skipped"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	want := `3 specs in 1m1s, 2 passed, 1 failed, 1 skipped, 1 unsupported, 1 not here; other on embedded, 2 at a time, seed 42
failed: the suite
    Suite Timeout Elapsed
failed: AfterSuite failed
    :0, at Jan  1 00:00:00.000
    no
    where
failed: Service second | of its table
    :0, at Jan  1 00:00:00.000
    too late
incomplete: Suite Timeout Elapsed
`
	if got := strings.ReplaceAll(report.Results(run), "    , at", "    :0, at"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAKnownGapDoesNotFailARunAndEveryOtherFailureDoes(t *testing.T) {
	t.Parallel()
	spec := func(text string, state types.SpecState) types.SpecReport {
		return types.SpecReport{LeafNodeType: types.NodeTypeIt, LeafNodeText: text, State: state, Failure: types.Failure{Message: "no"}}
	}
	ccm := ourCCM(t)
	ccm.KnownGaps = []Gap{{Reason: "because", Specs: []string{"is a gap", "is closed", "hangs"}},
		{Reason: probe.Unexplained + ": Service", Specs: []string{"is new"}}}
	gap, closed, hangs, broke := spec("is a gap", types.SpecStateFailed), spec("is closed", types.SpecStatePassed),
		spec("hangs", types.SpecStateTimedout), spec("broke", types.SpecStateFailed)
	for _, c := range []struct {
		specs   types.SpecReports
		suite   []string
		results []string
		fails   bool
		says    string
	}{
		{types.SpecReports{gap, closed, spec("works", types.SpecStatePassed)}, nil, []string{"is a gap: known gap", "is closed: gap closed",
			"works: passed"}, false,
			"known gap: is a gap\n    because\ngap closed: is closed\n    remove it from knownGaps in the CCM's file\n"},
		{types.SpecReports{hangs}, nil, []string{"hangs: failed"}, true, "failed: hangs\n"},
		{types.SpecReports{broke, gap}, nil, []string{"broke: failed", "is a gap: known gap"}, true, "failed: broke\n"},
		{types.SpecReports{gap}, []string{"Suite Timeout Elapsed"}, []string{"is a gap: known gap"}, true,
			"incomplete: Suite Timeout Elapsed\n"},
		{types.SpecReports{gap, {LeafNodeType: types.NodeTypeBeforeSuite, State: types.SpecStatePanicked,
			Failure: types.Failure{Message: "no"}}}, nil, []string{"is a gap: known gap"}, true, "incomplete: BeforeSuite panicked\n"},
		{types.SpecReports{spec("is new", types.SpecStateFailed)}, nil, []string{"is new: known gap"}, false, "known gap: is new\n    no"},
	} {
		run := runOf(types.Report{SpecReports: c.specs, SpecialSuiteFailureReasons: c.suite}, ccm, Embedded)
		got, text := resultsOf(run), report.Results(run)
		if !slices.Equal(got, c.results) || run.Failed() != c.fails || !strings.Contains(text, c.says) {
			t.Errorf("got %q, failed %t, want %q, %t, and to read %q in\n%s", got, run.Failed(), c.results, c.fails, c.says, text)
		}
	}
}
