package framework

import (
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

// Incident labels specs that rehearse an incident. Their results are the report card.
const Incident = "incident"

// ReportCardFile is the name of the report card, next to the summary. A run without a spec about an incident does not write it.
const ReportCardFile = "incidents.md"

// RecordIncident adds to the report card how many calls the program made in the incident of the spec. There is no rate by the hour, since
// the periods of the CCM are shortened in specs.
func RecordIncident(calls int, lasted time.Duration) {
	AddReportEntry(Incident, ReportEntryVisibilityFailureOrVerbose, fmt.Sprintf("%d in %.0f s", calls, lasted.Seconds()))
}

// reportCard renders the results of the specs about incidents; "" if none ran.
func reportCard(report types.Report, ccm CCMDescription, kind ClusterKind) string {
	var rows strings.Builder
	survived, all := 0, 0
	for _, s := range chosen(report, ccm, kind) {
		result, reason := outcome(s, ccm, kind)
		if !slices.Contains(s.Labels(), Incident) || result == speclist.NotHere {
			continue
		}
		calls := ""
		for _, e := range s.ReportEntries {
			if e.Name == Incident {
				calls = e.StringRepresentation()
			}
		}
		verdict := string(result)
		all++
		switch result {
		case speclist.Passed, speclist.GapClosed:
			survived++
			verdict = "survived"
		case speclist.Unsupported:
			verdict = "lacks what it needs: " + reason
		default:
			verdict = fmt.Sprintf("**%s**: %s", verdict, reason)
		}
		fmt.Fprintf(&rows, "| %s | %s | %s |\n", cell(s.LeafNodeText), cell(verdict), cell(calls))
	}
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("# Report card: %s survives %d of %d incidents\n\n| incident | result | calls to the API in it |\n|---|---|---|\n%s",
		ccm.Name, survived, all, rows.String())
}
