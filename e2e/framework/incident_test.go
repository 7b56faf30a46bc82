package framework

import (
	"testing"

	"github.com/onsi/ginkgo/v2/types"
)

func TestTheReportCardSaysWhatACCMSurvives(t *testing.T) {
	t.Parallel()
	spec := func(text string, state types.SpecState, message string, labels ...string) types.SpecReport {
		return types.SpecReport{
			LeafNodeType: types.NodeTypeIt, LeafNodeText: text, State: state, Failure: types.Failure{Message: message},
			LeafNodeLabels: labels,
		}
	}
	good := spec("locks", types.SpecStatePassed, "", Incident)
	good.ReportEntries = types.ReportEntries{{Name: Incident, Value: types.WrapEntryValue("10 in 5 s")}}
	report := types.Report{SpecReports: types.SpecReports{
		good,
		spec("an empty list", types.SpecStateFailed, "during the incident, node node-2 was deleted\nmore", Incident),
		spec("certificates", types.SpecStateSkipped, "", append(Needs(ManagedCertificates), Incident)...),
		spec("left out by a focus", types.SpecStateSkipped, "", Incident),
		spec("something else", types.SpecStatePassed, ""),
	}}
	other := CCMDescription{Name: "other", Lacks: map[Feature]string{ManagedCertificates: ""}}
	want := `# Report card: other survives 1 of 3 incidents

| incident | result | calls to the API in it |
|---|---|---|
| an empty list | **failed**: during the incident, node node-2 was deleted |  |
| certificates | lacks what it needs: [managed-certificates] |  |
| locks | survived | 10 in 5 s |
`
	if got := reportCard(report, other, Embedded); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	report.SpecReports = report.SpecReports[4:]
	if got := reportCard(report, other, Embedded); got != "" {
		t.Errorf("without an incident: %s", got)
	}
}
