package framework

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// SummaryFile is the name of the summary in the folder that EnvOut names.
const SummaryFile = "specs.md"

// FailuresFile is the name of the file next to the summary that says what failed and why. A run without a failure does not
// write it.
const FailuresFile = "failures.txt"

// GapsFile is the name of the file next to the summary that says which known gaps the CCM still has, and which are
// closed. A run without one does not write it.
const GapsFile = "known-gaps.txt"

// WriteSummary writes a table of all specs with their results and times into the folder EnvOut, as Markdown and as JSON
// (package speclist). Without that folder it does nothing.
func WriteSummary(report types.Report) error {
	out := os.Getenv(EnvOut)
	if out == "" || report.SuiteConfig.DryRun { // as in the preview of Shard
		return nil
	}
	ccm, err := LoadCCM()
	if err != nil {
		return err
	}
	return writeSummary(out, report, ccm, CurrentKind(), os.Getenv(EnvShard))
}

func writeSummary(out string, report types.Report, ccm CCMDescription, kind ClusterKind, shard string) (err error) {
	run := runOf(report, ccm, kind)
	run.Shard = shard
	for name, text := range map[string]string{
		FailuresFile: failures(report, ccm), GapsFile: gaps(run), ReportCardFile: reportCard(report, ccm, kind),
	} {
		if text != "" {
			err = errors.Join(err, os.WriteFile(filepath.Join(out, name), []byte(text), 0o644))
		}
	}
	return errors.Join(err,
		os.WriteFile(filepath.Join(out, SummaryFile), []byte(summary(report, ccm, kind)), 0o644),
		run.Write(out),
		writePage(out, run),
	)
}

// runOf returns the results of a report.
func runOf(report types.Report, ccm CCMDescription, kind ClusterKind) speclist.Run {
	run := speclist.Run{CCM: ccm.Name, Cluster: string(kind), Time: report.StartTime, LeftOut: leftOut(report.SpecReports, ccm, kind)}
	if len(report.SpecialSuiteFailureReasons) > 0 {
		run.Incomplete = report.SpecialSuiteFailureReasons[0]
	}
	for _, s := range report.SpecReports {
		if s.LeafNodeType != types.NodeTypeIt && s.Failed() {
			run.Incomplete = cmp.Or(run.Incomplete, s.LeafNodeType.String()+" "+s.State.String())
		}
	}
	for _, s := range chosen(report, ccm, kind) {
		result, reason := outcome(s, ccm, kind)
		if result == "" {
			continue // pending
		}
		run.Specs = append(run.Specs, speclist.Spec{
			Name: s.FullText(), Group: strings.Join(s.ContainerHierarchyTexts[:min(1, len(s.ContainerHierarchyTexts))], ""), Result: result,
			Reason: redacted(reason), Seconds: s.RunTime.Round(time.Millisecond).Seconds(), Labels: s.Labels(), Details: details(s),
		})
	}
	return bounded(run)
}

// outcome returns the result of a spec and the reason, or "" if the spec was not chosen.
func outcome(s types.SpecReport, ccm CCMDescription, kind ClusterKind) (speclist.Result, string) {
	gap, known := ccm.gap(s.FullText())
	switch {
	case s.State == types.SpecStatePassed && known:
		return speclist.GapClosed, gap
	case s.State == types.SpecStatePassed:
		return speclist.Passed, ""
	case s.State == types.SpecStateFailed && known:
		return speclist.KnownGap, gap
	case s.Failed():
		return speclist.Failed, firstLine(s.FailureMessage())
	case s.State != types.SpecStateSkipped:
		return "", ""
	}
	// The label filter, too, leaves out specs that cannot run, without giving a reason.
	labels := s.Labels()
	if reason := notHere(labels, kind, kind != Existing); reason != "" {
		return speclist.NotHere, reason
	}
	if missing := ccm.missing(labels); len(missing) > 0 {
		return speclist.Unsupported, fmt.Sprint(missing)
	}
	switch reason := firstLine(s.Failure.Message); {
	case strings.HasPrefix(reason, notExercised):
		return speclist.NotExercised, strings.TrimPrefix(reason, notExercised)
	case strings.HasPrefix(reason, unsupportedCloud):
		return speclist.Unsupported, strings.TrimPrefix(reason, unsupportedPrefix)
	case reason != "":
		return speclist.Skipped, reason
	}
	return "", ""
}

// chosen returns the specs of a report in the order of the source, without those that can run here but were left out by
// a focus or a filter.
func chosen(report types.Report, ccm CCMDescription, kind ClusterKind) types.SpecReports {
	specs := report.SpecReports.WithLeafNodeType(types.NodeTypeIt)
	specs = slices.DeleteFunc(slices.Clone(specs), func(s types.SpecReport) bool {
		result, _ := outcome(s, ccm, kind)
		return s.State == types.SpecStateSkipped && result == ""
	})
	slices.SortStableFunc(specs, func(a, b types.SpecReport) int {
		return cmp.Or(
			cmp.Compare(a.FileName(), b.FileName()),
			slices.Compare(lines(a), lines(b)),
			cmp.Compare(a.LeafNodeText, b.LeafNodeText),
		)
	})
	return specs
}

// shown returns the result of a spec for a table.
func shown(s types.SpecReport, ccm CCMDescription, kind ClusterKind) string {
	result, reason := outcome(s, ccm, kind)
	switch result {
	case speclist.Unsupported:
		return "unsupported: lacks " + strings.Trim(reason, "[]")
	case speclist.NotHere:
		return "not on " + string(kind) + ": " + reason
	case speclist.Skipped:
		return "skipped: " + strings.TrimPrefix(reason, unsupportedPrefix)
	case speclist.KnownGap:
		return "known gap: " + reason
	case speclist.GapClosed:
		return "passed: gap closed"
	case speclist.Failed:
		return "**" + s.State.String() + "**"
	}
	return s.State.String()
}

// summary renders a report as Markdown, in the order of the source.
func summary(report types.Report, ccm CCMDescription, kind ClusterKind) string {
	specs := chosen(report, ccm, kind)
	counts := map[types.SpecState]int{}
	ran := 0
	for _, s := range specs {
		counts[s.State]++
		if s.State != types.SpecStateSkipped {
			ran++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %d specs in %s", ran, report.RunTime.Round(time.Second))
	for _, state := range []types.SpecState{
		types.SpecStatePassed, types.SpecStateFailed, types.SpecStatePanicked, types.SpecStateTimedout,
		types.SpecStateInterrupted, types.SpecStateAborted, types.SpecStatePending, types.SpecStateSkipped,
	} {
		if n := counts[state]; n > 0 {
			fmt.Fprintf(&b, ", %d %s", n, state)
		}
	}
	fmt.Fprintf(&b, "\n\n%s on %s, %d at a time, seed %d.\n", ccm.Name, kind, report.SuiteConfig.ParallelTotal,
		report.SuiteConfig.RandomSeed)
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
		fmt.Fprintf(&b, "| %s | %.1f | %s | %s |\n", cell(shown(s, ccm, kind)), s.RunTime.Seconds(), cell(s.LeafNodeText),
			strings.Join(s.Labels(), ", "))
	}
	return b.String()
}

// failureLines is how many lines of a failure's message failures shows.
const failureLines = 8

// failures returns what failed, where and why, without known gaps; "" if nothing failed. It is the end of a run's log.
func failures(report types.Report, ccm CCMDescription) string {
	var b strings.Builder
	for _, reason := range report.SpecialSuiteFailureReasons {
		fmt.Fprintf(&b, "the suite: %s\n", reason)
	}
	for _, s := range report.SpecReports {
		if _, known := ccm.gap(s.FullText()); !s.Failed() || known && s.State == types.SpecStateFailed {
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n", s.State, cmp.Or(s.FullText(), s.LeafNodeType.String()))
		fmt.Fprintf(&b, "    %s, at %s\n", s.FailureLocation(), s.Failure.TimelineLocation.Time.Format(time.StampMilli))
		lines := strings.Split(strings.TrimRight(s.FailureMessage(), "\n"), "\n")
		for _, line := range lines[:min(len(lines), failureLines)] {
			b.WriteString("    " + line + "\n")
		}
		if more := len(lines) - failureLines; more > 0 {
			fmt.Fprintf(&b, "    and %d lines more, in the report\n", more)
		}
	}
	return b.String()
}

// gaps returns which known gaps of the CCM failed again, and which are closed; "" if there are none.
func gaps(run speclist.Run) string {
	var b strings.Builder
	for _, s := range run.Specs {
		switch s.Result {
		case speclist.KnownGap:
			fmt.Fprintf(&b, "known gap: %s\n    %s\n", s.Name, s.Reason)
		case speclist.GapClosed:
			fmt.Fprintf(&b, "gap closed: %s\n    remove it from knownGaps in the CCM's file\n", s.Name)
		}
	}
	return b.String()
}

// lines returns the line numbers of the spec's containers and of the spec.
func lines(s types.SpecReport) []int {
	var all []int
	for _, l := range s.ContainerHierarchyLocations {
		all = append(all, l.LineNumber)
	}
	return append(all, s.LeafNodeLocation.LineNumber)
}

// cell makes a text fit into a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(firstLine(text), "|", `\|`)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
