package framework

import (
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

func TestTheSummaryListsEverySpecInTheOrderOfTheSource(t *testing.T) {
	t.Parallel()
	spec := func(file string, line int, container, text string, state types.SpecState, took time.Duration) types.SpecReport {
		return types.SpecReport{
			ContainerHierarchyTexts: []string{container}, ContainerHierarchyLocations: []types.CodeLocation{{FileName: file, LineNumber: 1}},
			ContainerHierarchyLabels: [][]string{{"a", "b"}},
			LeafNodeType:             types.NodeTypeIt, LeafNodeText: text, LeafNodeLocation: types.CodeLocation{FileName: file, LineNumber: line},
			State: state, RunTime: took,
		}
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
			spec("a.go", 5, "Node", "of another file", types.SpecStatePassed, 0),
		},
	}
	want := `# 3 specs in 1m1s, 2 passed, 1 timedout

2 at a time, seed 42.

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
`
	if got := summary(report); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
