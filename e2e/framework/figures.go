package framework

import (
	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// RecordFigure adds something that the spec has measured to its report, and returns the value. The report page compares figures of the
// same name between CCMs; those that it lists for every run are constants of package speclist, such as speclist.TimeToFirstTraffic.
func RecordFigure[N int | float64](name, unit string, value N) N {
	AddReportEntry(speclist.FigureEntry, ReportEntryVisibilityNever, Offset(1),
		speclist.Figure{Name: name, Unit: unit, Value: float64(value)})
	return value
}

// recordRequests records how many requests the CCM sent during the spec, if the cloud counts them.
func (e *Env) recordRequests() {
	if e.Recorded() {
		RecordFigure(speclist.RequestsOfTheSpec, "requests", e.CCM.Requests())
	}
}

// leftOut counts specs that this cluster can run, but that the run left out.
func leftOut(specs types.SpecReports, ccm CCMDescription, kind ClusterKind) (n int) {
	for _, s := range specs.WithLeafNodeType(types.NodeTypeIt).WithState(types.SpecStateSkipped) {
		if result, _ := outcome(s, ccm, kind); result == "" {
			n++
		}
	}
	return n
}
