package framework

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/probe"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/report"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// WriteSummary writes the results of all specs into the folder EnvOut, with the page, the badge and the junit.xml that come from them.
// Without that folder it does nothing.
func WriteSummary(r types.Report) error {
	out := os.Getenv(EnvOut)
	if out == "" || r.SuiteConfig.DryRun { // as in the preview of Shard
		return nil
	}
	ccm, err := LoadCCM()
	if err != nil {
		return err
	}
	run := runOf(r, ccm, CurrentKind())
	run.Shard = os.Getenv(EnvShard)
	return report.WriteRun(out, run)
}

// runOf returns the results of a report.
func runOf(r types.Report, ccm CCMDescription, kind ClusterKind) speclist.Run {
	run := speclist.Run{
		CCM: ccm.Name, Cluster: string(kind), Time: r.StartTime, LeftOut: leftOut(r.SpecReports, ccm, kind),
		Seconds: r.RunTime.Round(time.Millisecond).Seconds(), Processes: r.SuiteConfig.ParallelTotal, Seed: r.SuiteConfig.RandomSeed,
	}
	for _, reason := range r.SpecialSuiteFailureReasons {
		run.Outside = append(run.Outside, speclist.Spec{Name: "the suite", Result: speclist.Failed, Reason: reason})
	}
	for _, s := range r.SpecReports {
		spec := speclist.Spec{
			Name: s.FullText(), Group: strings.Join(s.ContainerHierarchyTexts[:min(1, len(s.ContainerHierarchyTexts))], ""),
			Seconds: s.RunTime.Round(time.Millisecond).Seconds(), Labels: s.Labels(), Details: report.DetailsOf(s),
		}
		if s.LeafNodeType == types.NodeTypeIt {
			var reason string
			if spec.Result, reason = outcome(s, ccm, kind); spec.Result != "" { // else it is pending, or left out by a focus or a filter
				spec.Reason = report.Redact(reason)
				run.Specs = append(run.Specs, spec)
			}
		} else if s.Failed() {
			spec.Name, spec.Result = s.LeafNodeType.String()+" "+s.State.String(), speclist.Failed
			spec.Reason = report.Redact(firstLine(s.FailureMessage()))
			run.Outside = append(run.Outside, spec)
		}
	}
	if len(run.Outside) > 0 {
		first := run.Outside[0]
		run.Incomplete = first.Name
		if first.Failure == nil {
			run.Incomplete = first.Reason
		}
	}
	speclist.Sort(run.Specs)
	return run
}

// outcome returns the result of a spec and the reason, or "" if the spec was not chosen.
func outcome(s types.SpecReport, ccm CCMDescription, kind ClusterKind) (speclist.Result, string) {
	gap, known := ccm.gap(s.FullText())
	switch {
	case s.State == types.SpecStatePassed && known:
		return speclist.GapClosed, gap
	case s.State == types.SpecStatePassed:
		return speclist.Passed, ""
	case s.State == types.SpecStateFailed && known && !strings.HasPrefix(gap, probe.Unexplained):
		return speclist.KnownGap, gap
	case s.State == types.SpecStateFailed && known: // the probe's reason says less than the failure
		return speclist.KnownGap, firstLine(s.FailureMessage())
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
	case strings.HasPrefix(reason, unsupportedCloud), strings.HasPrefix(reason, otherCloud):
		return speclist.Unsupported, strings.TrimPrefix(reason, unsupportedPrefix)
	case reason != "":
		return speclist.Skipped, reason
	}
	return "", ""
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}
