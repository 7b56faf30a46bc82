package framework

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/report"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

func TestARunHasWhatTheReportPageShows(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	spec := func(text string, state types.SpecState, labels ...string) types.SpecReport {
		return types.SpecReport{
			LeafNodeType: types.NodeTypeIt, LeafNodeText: text, State: state, StartTime: begin, EndTime: begin, LeafNodeLabels: labels,
		}
	}
	measured := spec("measures", types.SpecStatePassed)
	measured.ReportEntries = types.ReportEntries{{
		Name: speclist.FigureEntry, Value: types.WrapEntryValue(speclist.Figure{Name: speclist.TimeToFirstTraffic, Unit: "s", Value: 2}),
	}}
	result := types.Report{SpecReports: types.SpecReports{
		measured, spec("left out by a filter", types.SpecStateSkipped), spec("not here", types.SpecStateSkipped, RealNodes),
		{LeafNodeType: types.NodeTypeAfterSuite, State: types.SpecStateSkipped},
	}}
	for i := range 200 {
		failed := spec(fmt.Sprint("fails ", i), types.SpecStateFailed)
		failed.Failure.Message = "Authorization: Bearer abc.def"
		log := types.WrapEntryValue(strings.Repeat("12:00:00 a line\n", 200))
		failed.ReportEntries = types.ReportEntries{{Name: "log of the CCM", Value: log}}
		result.SpecReports = append(result.SpecReports, failed)
	}
	run := runOf(result, ourCCM(t), Embedded)
	if run.LeftOut != 1 {
		t.Errorf("%d specs were left out, want 1", run.LeftOut)
	}
	if err := report.WriteRun(t.TempDir(), run); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, s := range run.Specs {
		switch {
		case s.Result == speclist.Failed:
			lines += len(s.Failure.Timeline)
			if strings.Contains(s.Reason, "abc.def") {
				t.Fatalf("the reason has a secret: %s", s.Reason)
			}
		case s.Name == "measures" && (len(s.Figures) != 1 || s.Figures[0].Value != 2):
			t.Errorf("figures: %v", s.Figures)
		}
	}
	if lines != report.MostLines {
		t.Errorf("the failures have %d lines, want %d", lines, report.MostLines)
	}
}
