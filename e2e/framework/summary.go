package framework

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

// SummaryFile is the name of the summary in the folder that EnvOut names.
const SummaryFile = "specs.md"

// WriteSummary writes a table of all specs that were run, with how each ended and how long it took,
// into the folder that EnvOut names; without one it does nothing.
func WriteSummary(report types.Report) error {
	out := os.Getenv(EnvOut)
	if out == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(out, SummaryFile), []byte(summary(report)), 0o644)
}

// summary renders a report as Markdown: the same order whatever the order in which specs have run.
func summary(report types.Report) string {
	specs := report.SpecReports.WithLeafNodeType(types.NodeTypeIt)
	specs = slices.DeleteFunc(slices.Clone(specs), func(s types.SpecReport) bool { return s.State == types.SpecStateSkipped })
	slices.SortStableFunc(specs, func(a, b types.SpecReport) int {
		return cmp.Or(
			cmp.Compare(a.FileName(), b.FileName()),
			slices.Compare(lines(a), lines(b)),
			cmp.Compare(a.LeafNodeText, b.LeafNodeText),
		)
	})
	counts := map[types.SpecState]int{}
	for _, s := range specs {
		counts[s.State]++
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %d specs in %s", len(specs), report.RunTime.Round(time.Second))
	for _, state := range []types.SpecState{
		types.SpecStatePassed, types.SpecStateFailed, types.SpecStatePanicked, types.SpecStateTimedout,
		types.SpecStateInterrupted, types.SpecStateAborted, types.SpecStatePending,
	} {
		if n := counts[state]; n > 0 {
			fmt.Fprintf(&b, ", %d %s", n, state)
		}
	}
	fmt.Fprintf(&b, "\n\n%d at a time, seed %d.\n", report.SuiteConfig.ParallelTotal, report.SuiteConfig.RandomSeed)
	for _, reason := range report.SpecialSuiteFailureReasons {
		fmt.Fprintf(&b, "\n**%s**\n", reason)
	}
	for _, s := range report.SpecReports { // BeforeSuite and the like
		if s.LeafNodeType != types.NodeTypeIt && s.Failed() {
			fmt.Fprintf(&b, "\n**%s %s: %s**\n", s.LeafNodeType, s.State, cell(s.FailureMessage()))
		}
	}
	heading := ""
	for _, s := range specs {
		if h := strings.Join(s.ContainerHierarchyTexts, " "); h != heading {
			heading = h
			fmt.Fprintf(&b, "\n## %s\n\n| result | seconds | spec | labels |\n|---|--:|---|---|\n", h)
		}
		result := s.State.String()
		if s.Failed() {
			result = "**" + result + "**"
		}
		fmt.Fprintf(&b, "| %s | %.1f | %s | %s |\n", result, s.RunTime.Seconds(), cell(s.LeafNodeText), strings.Join(s.Labels(), ", "))
	}
	return b.String()
}

// lines are where the spec's containers and the spec are in their file.
func lines(s types.SpecReport) []int {
	var all []int
	for _, l := range s.ContainerHierarchyLocations {
		all = append(all, l.LineNumber)
	}
	return append(all, s.LeafNodeLocation.LineNumber)
}

// cell makes a text fit into a cell of a table.
func cell(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return strings.ReplaceAll(line, "|", `\|`)
}
