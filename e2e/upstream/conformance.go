// Package upstream writes the page with the results of Kubernetes' own specs of load balancers and networking for the CCM on a kind cluster
// (e2e/CONFORMANCE.md), and finds specs that regressed since the last run.
package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/onsi/ginkgo/v2/types"
	"sigs.k8s.io/yaml"
)

// A Result is the outcome of a spec.
type Result string

// The results.
const (
	Pass Result = "pass"
	// Lucky is the result of a spec that passes, though the cloud does not support the tested feature.
	Lucky Result = "pass by luck"
	// Unsupported is the result of a spec that fails, since the cloud does not support the tested feature.
	Unsupported Result = "unsupported"
	Failed      Result = "failed"
)

// A Gap says why specs cannot be expected to pass.
type Gap struct {
	// Spec is a part of the specs' names.
	Spec string `json:"spec"`
	// Reason names the feature that the cloud lacks.
	Reason string `json:"reason"`
}

// A Line is the page's line about one spec.
type Line struct {
	Spec   string
	Result Result
	Reason string // of Lucky and Unsupported
}

// Update reads a run's JSON report and the list of gaps, writes the page and prints a summary to out. It returns an error if a spec
// fails without a reason, or is worse than on the page that was there.
func Update(out io.Writer, report, gaps, page string) error {
	data, err := os.ReadFile(report)
	if err != nil {
		return fmt.Errorf("reading the report: %w", err)
	}
	var reports []types.Report
	if err := json.Unmarshal(data, &reports); err != nil {
		return fmt.Errorf("reading the report %s: %w", report, err)
	}
	known, err := ReadGaps(gaps)
	if err != nil {
		return err
	}
	before, err := os.ReadFile(page)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reading the page of the last run: %w", err)
	}
	lines, err := Judge(reports, known)
	if err != nil {
		return err
	}
	if err := os.WriteFile(page, []byte(Page(lines)), 0o644); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	fmt.Fprintf(out, "%s\n", summary(lines))
	if worse := Worse(string(before), lines); len(worse) > 0 {
		return fmt.Errorf("%d specs are worse than expected; mend the cause, or add a reason to %s if the cloud lacks something:\n%s",
			len(worse), gaps, strings.Join(worse, "\n"))
	}
	return nil
}

// ReadGaps reads a list of gaps, as YAML.
func ReadGaps(path string) ([]Gap, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading what is unsupported: %w", err)
	}
	var gaps []Gap
	if err := yaml.UnmarshalStrict(data, &gaps); err != nil {
		return nil, fmt.Errorf("reading what is unsupported, %s: %w", path, err)
	}
	return gaps, nil
}

// Judge returns a line for each spec that ran, sorted by name. It returns an error if none did, or if something outside of specs
// has failed, such as the suite's preparation.
func Judge(reports []types.Report, gaps []Gap) ([]Line, error) {
	var lines []Line
	for _, r := range reports {
		for _, s := range r.SpecReports {
			switch {
			case s.LeafNodeType != types.NodeTypeIt:
				if s.Failed() {
					return nil, fmt.Errorf("the suite could not run its specs: %s: %s", s.LeafNodeType, s.FailureMessage())
				}
			case s.State == types.SpecStateSkipped && s.Failure.Message == "", s.State == types.SpecStatePending:
				// not selected
			default:
				lines = append(lines, judge(s, gaps))
			}
		}
	}
	if len(lines) == 0 {
		return nil, errors.New("no spec ran: the filter selects none")
	}
	slices.SortFunc(lines, func(a, b Line) int { return strings.Compare(a.Spec, b.Spec) })
	return lines, nil
}

// judge returns the line of one spec. The message of a spec that skips itself names the missing feature.
func judge(s types.SpecReport, gaps []Gap) Line {
	l := Line{Spec: s.FullText(), Result: Pass}
	if i := slices.IndexFunc(gaps, func(g Gap) bool { return strings.Contains(l.Spec, g.Spec) }); i >= 0 {
		l.Reason = gaps[i].Reason
	}
	switch {
	case s.State == types.SpecStateSkipped:
		l.Result, l.Reason = Unsupported, "skips itself: "+firstLine(s.Failure.Message)
	case s.Failed() && l.Reason == "":
		l.Result = Failed
	case s.Failed():
		l.Result = Unsupported
	case l.Reason != "":
		l.Result = Lucky
	}
	return l
}

// Worse returns a sentence for each spec that failed, and for each that passes on the page of an earlier run and does not now.
func Worse(page string, lines []Line) []string {
	var worse []string
	now := map[string]Result{}
	for _, l := range lines {
		now[l.Spec] = l.Result
		if l.Result == Failed {
			worse = append(worse, l.Spec+": failed")
		}
	}
	for _, row := range rows.FindAllStringSubmatch(page, -1) {
		spec, was := strings.ReplaceAll(row[1], `\|`, "|"), Result(row[2])
		is, ran := now[spec]
		switch {
		case was != Pass || is == Pass || is == Failed:
		case !ran:
			worse = append(worse, spec+": passed before, and did not run")
		default:
			worse = append(worse, fmt.Sprintf("%s: passed before, now: %s", spec, is))
		}
	}
	slices.Sort(worse)
	return worse
}

// rows matches the rows of the page's table.
var rows = regexp.MustCompile(`(?m)^\| ((?:\\\||[^|])+) \| ([a-z ]+) \| .*\|$`)

// summary returns the numbers of results.
func summary(lines []Line) string {
	count := map[Result]int{}
	for _, l := range lines {
		count[l.Result]++
	}
	return fmt.Sprintf("%d specs: %d pass, %d pass by luck, %d are unsupported, %d failed",
		len(lines), count[Pass], count[Lucky], count[Unsupported], count[Failed])
}

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"cell": cell, "summary": summary}).Parse(
	`# Kubernetes' own specs

` + "`make conformance`" +
		` writes this page. It runs two groups of Kubernetes' own specs against our CCM and the simulated cloud, on a kind
cluster whose nodes are servers of that cloud: all of load balancers (` + "`[Feature:LoadBalancer]`" +
		`), and those of networking that belong
to conformance (` + "`[sig-network] … [Conformance]`" + `). They come unchanged from k8s.io/kubernetes, in the release of
` + "`kind/nodeimage/modules/kubernetes/go.mod`" + `.

A spec is *unsupported* if the cloud lacks what it tests, in reality as here: ` + "`e2e/upstream/unsupported.yaml`" +
		` has the reasons. If such
a spec passes nevertheless, it is *pass by luck*. Every other spec that does not pass is *failed*, which ends the run with an error, as
does a spec that passes here and no longer passes in the run.

{{summary .}}.

| spec | result | reason |
|---|---|---|
{{range .}}| {{cell .Spec}} | {{.Result}} | {{cell .Reason}} |
{{end}}`))

// Page returns the page as Markdown.
func Page(lines []Line) string {
	var b strings.Builder
	if err := pageTemplate.Execute(&b, lines); err != nil {
		panic(err) // the template and its data are fixed
	}
	return b.String()
}

// cell makes a text the cell of a table.
func cell(text string) string { return strings.ReplaceAll(firstLine(text), "|", `\|`) }

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
