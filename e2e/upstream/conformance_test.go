package upstream

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"
)

// spec returns the report of a spec.
func spec(name string, state types.SpecState, message string) types.SpecReport {
	return types.SpecReport{LeafNodeType: types.NodeTypeIt, LeafNodeText: name, State: state, Failure: types.Failure{Message: message}}
}

func run(specs ...types.SpecReport) []types.Report { return []types.Report{{SpecReports: specs}} }

func TestEachResultIsNamed(t *testing.T) {
	t.Parallel()
	gaps := []Gap{{Spec: "UDP", Reason: "no UDP"}, {Spec: "UDP again", Reason: "the first counts"}}
	for _, test := range []struct {
		spec types.SpecReport
		want Line
	}{
		{spec("TCP works", types.SpecStatePassed, ""), Line{"TCP works", Pass, ""}},
		{spec("TCP works", types.SpecStateFailed, "x"), Line{"TCP works", Failed, ""}},
		{spec("TCP works", types.SpecStateTimedout, "x"), Line{"TCP works", Failed, ""}},
		{spec("UDP again works", types.SpecStateFailed, "x"), Line{"UDP again works", Unsupported, "no UDP"}},
		{spec("UDP works", types.SpecStatePassed, ""), Line{"UDP works", Lucky, "no UDP"}},
		{spec("needs gce", types.SpecStateSkipped, "only for gce\nstack"), Line{"needs gce", Unsupported, "skips itself: only for gce"}},
	} {
		lines, err := Judge(run(test.spec, spec("not selected", types.SpecStateSkipped, ""), spec("later", types.SpecStatePending, "")),
			gaps)
		if err != nil || !slices.Equal(lines, []Line{test.want}) {
			t.Errorf("%s: got %v, %v; want %v", test.spec.LeafNodeText, lines, err, test.want)
		}
	}
}

func TestARunWithoutResultsIsAnError(t *testing.T) {
	t.Parallel()
	if lines, err := Judge(run(spec("not selected", types.SpecStateSkipped, "")), nil); err == nil {
		t.Errorf("got %v", lines)
	}
	setup := types.SpecReport{LeafNodeType: types.NodeTypeSynchronizedBeforeSuite, State: types.SpecStateFailed,
		Failure: types.Failure{Message: "no node is ready"}}
	if lines, err := Judge(run(setup, spec("a", types.SpecStatePassed, "")), nil); err == nil ||
		!strings.Contains(err.Error(), "no node is ready") {
		t.Errorf("got %v, %v", lines, err)
	}
}

func TestOnlyWhatIsWorseFailsARun(t *testing.T) {
	t.Parallel()
	before := Page([]Line{{"a | b", Pass, ""}, {"c", Lucky, "no UDP"}, {"d", Unsupported, "no UDP"}, {"e", Failed, ""}, {"f", Pass, ""}})
	for name, test := range map[string]struct {
		now  []Line
		want []string
	}{
		"the same":     {[]Line{{"a | b", Pass, ""}, {"c", Lucky, "no UDP"}, {"d", Unsupported, "no UDP"}, {"f", Pass, ""}}, nil},
		"better":       {[]Line{{"a | b", Pass, ""}, {"d", Pass, ""}, {"e", Pass, ""}, {"f", Pass, ""}}, nil},
		"no more luck": {[]Line{{"a | b", Pass, ""}, {"c", Unsupported, "no UDP"}, {"f", Pass, ""}}, nil},
		"failed":       {[]Line{{"a | b", Failed, ""}, {"f", Pass, ""}}, []string{"a | b: failed"}},
		"fails with a reason": {[]Line{{"a | b", Unsupported, "none"}, {"f", Pass, ""}},
			[]string{"a | b: passed before, now: unsupported"}},
		"did not run":            {[]Line{{"a | b", Pass, ""}}, []string{"f: passed before, and did not run"}},
		"a new spec that passes": {[]Line{{"a | b", Pass, ""}, {"f", Pass, ""}, {"g", Pass, ""}}, nil},
	} {
		if got := Worse(before, test.now); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
	if got := Worse("", []Line{{"a", Pass, ""}}); got != nil {
		t.Errorf("the first run: %q", got)
	}
}

func TestUpdateWritesThePageAlsoWhenSomethingFailed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	data, err := json.Marshal(run(spec("a", types.SpecStatePassed, ""), spec("b", types.SpecStateFailed, "x")))
	if err != nil {
		t.Fatal(err)
	}
	report, gaps, page := file("report.json", string(data)), file("gaps.yaml", "- {spec: c, reason: none}\n"), filepath.Join(dir, "page.md")
	var out strings.Builder
	if err := Update(&out, report, gaps, page); err == nil || !strings.Contains(err.Error(), "b: failed") {
		t.Errorf("got %v", err)
	}
	if got := out.String(); got != "2 specs: 1 pass, 0 pass by luck, 0 are unsupported, 1 failed\n" {
		t.Errorf("printed %q", got)
	}
	written, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(written), "| b | failed |  |\n") {
		t.Errorf("the page: %s, %v", written, err)
	}
	if err := Update(&out, report, file("gaps.yaml", "- {spec: b, reson: none}\n"), page); err == nil {
		t.Error("accepts an unknown field")
	}
}

// TestEveryGapIsOnThePage fails when a newer Kubernetes has renamed a spec, so that its reason is lost.
func TestEveryGapIsOnThePage(t *testing.T) {
	t.Parallel()
	gaps, err := ReadGaps("unsupported.yaml")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join("..", "CONFORMANCE.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range gaps {
		if g.Reason == "" || !strings.Contains(string(page), cell(g.Spec)) {
			t.Errorf("%q has no reason, or is on no line of the page", g.Spec)
		}
	}
	if strings.Contains(string(page), "| failed |") {
		t.Error("the page has a spec that failed: mend the cause")
	}
}
