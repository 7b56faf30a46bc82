package framework

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/report"
)

// Incident labels specs that rehearse an incident. Their results are the report card.
const Incident = report.Incident

// RecordIncident adds to the report card how many calls the program made in the incident of the spec. A rate by the hour would mean
// nothing: specs shorten the CCM's periods.
func RecordIncident(calls int, lasted time.Duration) {
	AddReportEntry(Incident, ReportEntryVisibilityFailureOrVerbose, fmt.Sprintf("%d in %.0f s", calls, lasted.Seconds()))
}
