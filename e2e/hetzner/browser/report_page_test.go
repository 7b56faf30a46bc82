package browser

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/onsi/ginkgo/v2/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/report"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// lost is the spec that fails for one of the CCMs.
const lost = "Service keeps its targets while the API answers 503"

const nodeSource = `package e2e

var _ = Describe("Node", func() {
	It("becomes Ready", func(ctx SpecContext) {
		By("ordering a server")
		env.Servers.Create(ctx, "node-1")
	})
})
`

// promises are what the canned runs are about.
var promises = []string{
	"Node becomes Ready", "Node keeps its provider ID after a power cycle", "Node leaves with its server, and no other does",
	"Service gets a load balancer whose address answers from outside of the cluster", lost, "Service is deleted with its load balancer",
	"Service loses no request while its nodes are replaced", "Service has one write for a deleted node",
	"Service uses a certificate of the user",
	"Route is there for each node", "Route comes back when a user deletes it", "Route does not take what belongs to others",
	"Incident an empty list of servers", "Incident a token that is revoked for a while", "Incident load balancers that are locked",
}

// cannedFailure is Ginkgo's report of a spec with a hostile log.
func cannedFailure() speclist.Details {
	entry := func(name, text string) types.ReportEntry {
		return types.ReportEntry{Name: name, Value: types.WrapEntryValue(text)}
	}
	step := func(at time.Duration, text string) types.SpecEvent {
		where := types.TimelineLocation{Time: noon.Add(at)}
		return types.SpecEvent{SpecEventType: types.SpecEventByStart, Message: text, TimelineLocation: where}
	}
	return report.DetailsOf(types.SpecReport{
		State: types.SpecStateFailed, StartTime: noon, EndTime: noon.Add(12 * time.Second),
		LeafNodeLocation: types.CodeLocation{FileName: "e2e/gone_test.go", LineNumber: 7},
		Failure: types.Failure{
			Message: "targets of the load balancer\nExpected\n    <[]string | len:1>: [\"node-2\"]\nto consist of\n" +
				"    <[]string | len:2>: [\"node-1\", \"node-2\"]",
			Location:         types.CodeLocation{FileName: "e2e/gone_test.go", LineNumber: 21},
			TimelineLocation: types.TimelineLocation{Time: noon.Add(11 * time.Second)},
		},
		SpecEvents: types.SpecEvents{
			step(0, "creating a Service"), step(4*time.Second, "making the API answer 503"), step(9*time.Second, "ending the incident"),
		},
		ReportEntries: types.ReportEntries{
			entry("log of the CCM", `I1126 12:00:01.200000   99 service.go:80] "Ensuring load balancer" service="default/web"
I1126 12:00:04.300000   99 node.go:41] "List of servers is refreshed" servers=2
E1126 12:00:04.600000   99 inventory.go:97] "Cannot list servers" err="service unavailable (503)"
W1126 12:00:04.900000   99 service.go:121] "Removing target of an unknown server" server="node-1"
I1126 12:00:05.200000   99 x.go:1] </script><img src=x onerror="document.title='owned'"><script>document.title='owned'</script>
goroutine 1 [running]:
I1126 12:00:09.800000   99 service.go:80] "Ensuring load balancer" service="default/web"
`),
			entry("requests to the cloud", `12:00:01.250 POST   /v1/load_balancers → 201   ccm
12:00:04.550 GET    /v1/servers → 503 unavailable api-down ccm
12:00:04.950 POST   /v1/load_balancers/1/actions/remove_target → 201   ccm
12:00:09.900 GET    /v1/servers → 200   ccm
`),
			entry("cluster", "# nodes\n[]\n\n12:00:02 Normal Service/web EnsuredLoadBalancer: Ensured load balancer\n"+
				"12:00:05 Warning Service/web UpdatedTargets: 1 of 2 targets are left\n"),
		},
	})
}

// cannedRuns are two CCMs on two kinds of clusters.
func cannedRuns() (runs []speclist.Run) {
	for _, ccm := range []string{"ccm-from-scratch", "another-ccm"} {
		for _, cluster := range []string{"embedded", "kind"} {
			r := speclist.Run{CCM: ccm, Cluster: cluster, Time: noon}
			for i, name := range promises {
				group, _, _ := strings.Cut(name, " ")
				s := speclist.Spec{Name: name, Group: group, Result: speclist.Passed, Seconds: 2 + float64(i)/2}
				s.Labels = []string{strings.ToLower(group), "own-cloud"}
				s.Begin, s.Source = noon, fmt.Sprintf("e2e/%s_test.go:%d", strings.ToLower(group), 4+i)
				s.Steps = []speclist.Step{{At: 0, Text: "ordering a server"}, {At: 1.5, Text: "waiting for its node"}}
				s.Figures = []speclist.Figure{{Name: speclist.RequestsOfTheSpec, Unit: "requests", Value: float64(10 + i)}}
				cannedResult(&s, ccm, cluster)
				r.Specs = append(r.Specs, s)
			}
			runs = append(runs, r)
		}
	}
	return runs
}

func cannedResult(s *speclist.Spec, ccm, cluster string) {
	other := ccm == "another-ccm"
	switch {
	case other && s.Name == lost:
		s.Result, s.Reason, s.Seconds, s.Details = speclist.Failed, "targets of the load balancer", 12, cannedFailure()
	case other && (strings.Contains(s.Name, "certificate") || cluster == "kind" && s.Name == "Incident an empty list of servers"):
		s.Result, s.Reason, s.Details = speclist.Unsupported, "[uploaded-certificates]", speclist.Details{}
	case other && strings.Contains(s.Name, "comes back"):
		s.Result, s.Reason = speclist.KnownGap, "it compares routes with the cloud once an hour"
	case other && strings.Contains(s.Name, "locked"):
		s.Result, s.Reason = speclist.NotExercised, "no request met the fault; seen: GET /servers"
	case other && strings.Contains(s.Name, "belongs to others"):
		s.Result = speclist.GapClosed
	case strings.Contains(s.Name, "revoked"):
		s.Notes = []speclist.Note{
			{Name: "incident", Text: "31 in 12 s"}, {Name: "requests during and after the incident", Text: "240 answered, 0 lost"},
		}
	case strings.Contains(s.Name, "outside of the cluster") && !other:
		s.Figures = append(s.Figures, speclist.Figure{Name: speclist.TimeToFirstTraffic, Unit: "s", Value: 1.5})
	case strings.Contains(s.Name, "loses no request"):
		s.Figures = append(s.Figures, speclist.Figure{Name: speclist.LostInARollingChange, Unit: "requests"},
			speclist.Figure{Name: "something else", Unit: "pods", Value: 7})
	case cluster == "kind" && s.Name == "Incident an empty list of servers":
		s.Result, s.Reason, s.Details = speclist.NotHere, "needs a cloud of its own: runs with E2E_CLUSTER=embedded", speclist.Details{}
	}
}

// openReport opens the page of runs as a file, as a user does.
func openReport(t *testing.T, runs []speclist.Run, o report.Options, hash string) *shownReport {
	t.Helper()
	p := Open(t, pictures)
	if o.Root == nil {
		o.Root = fstest.MapFS{"e2e/node_test.go": {Data: []byte(nodeSource)}}
	}
	folder := t.TempDir()
	if err := report.Write(folder, runs, o); err != nil {
		t.Fatal(err)
	}
	s := &shownReport{Page: p, address: (&url.URL{Scheme: "file", Path: filepath.Join(folder, report.File)}).String()}
	s.Go(s.address + hash)
	t.Cleanup(s.checkQuiet)
	return s
}

type shownReport struct {
	*Page
	address string
}

// checkQuiet fails if the console has an error, or if the page sent a request.
func (s *shownReport) checkQuiet() {
	s.Helper()
	s.CheckConsole()
	if loaded := Eval[[]string](s.Page, "performance.getEntriesByType('resource').map(e => e.name)"); len(loaded) > 0 {
		s.Errorf("the page has loaded %q", loaded)
	}
}

func (s *shownReport) press(keys string) {
	s.Helper()
	Do(s.Page, "press a key", chromedp.KeyEvent(keys))
}

func (s *shownReport) rows(n int) {
	s.Helper()
	s.Await(fmt.Sprintf("show %d rows", n), fmt.Sprintf("document.querySelectorAll('.matrix th[scope=row]').length === %d", n))
}

const atFocus = "document.activeElement.innerText.trim()"

func TestTheReportShowsEachPromiseOfEachCCM(t *testing.T) {
	s := openReport(t, cannedRuns(), report.Options{}, "")
	s.rows(len(promises))
	s.Sees(
		"another-ccm", "embedded", "11 of 13 passed", "15 of 15 passed", "unsupported", "lacks uploaded-certificates", "known gap",
		"once an hour", "gap closed", "not exercised", "seen: GET /servers", "not here", "15 promises of 15",
	)
	cells := Eval[[]string](s.Page, "[...[...document.querySelectorAll('.matrix th[scope=row]')].find(e => e.innerText.includes('503'))"+
		".parentElement.querySelectorAll('td .state')].map(e => e.innerText)")
	if want := []string{"passed", "passed", "failed", "failed"}; !slices.Equal(cells, want) {
		t.Errorf("the row of the failed promise has %q, want %q", cells, want)
	}
	s.Look("report")
	s.Appear(390, 844, false)
	s.Await("fit on a phone", "document.documentElement.scrollWidth <= innerWidth")
	s.CheckAccessibility("matrix on a phone")
}

func TestPromisesThatDidNotRunAreFolded(t *testing.T) {
	run := cannedRuns()[1]
	slices.SortStableFunc(run.Specs, func(a, b speclist.Spec) int { // as in a run on kind, the report begins with them
		return strings.Compare(string(a.Result), string(b.Result))
	})
	s := openReport(t, []speclist.Run{run}, report.Options{}, "")
	s.rows(len(promises) - 1)
	const item = "document.querySelector('.not-here li').checkVisibility()"
	s.Await("hide them", "!"+item)
	s.Click("1 promise did not run here")
	s.Sees("needs a cloud of its own: runs with E2E_CLUSTER=embedded make e2e")
	s.Look("report-not-here")
	s.Fill("Search", "empty list")
	s.rows(0)
	s.Await("show what was searched for", item)
}

func TestAFailureIsExplainedOnOneTimeline(t *testing.T) {
	s := openReport(t, cannedRuns(), report.Options{}, "#spec="+url.PathEscape(lost))
	s.Sees(
		"to consist of", "e2e/gone_test.go:21, after 11 s", "Step: making the API answer 503", "The spec failed",
		"Removing target of an unknown server", "remove_target", "1 of 2 targets are left", "The file was not there",
		"goroutine 1 [running]", "onerror=",
	)
	// The lines of the timeline in their order, each in its lane.
	got := Eval[[]string](s.Page, `[...document.querySelectorAll('.timeline tbody tr')].map(tr => [...tr.children].map(e => e.innerText.trim().slice(0, 12)).join('|'))`)
	want := []string{
		"0.00|Step: creati", "1.20|I1126 12:00:||", "1.25||12:00:01.250|", "2.00|||12:00:02 Nor", "4.00|Step: making",
		"4.30|I1126 12:00:||", "4.55||12:00:04.550|", "4.60|E1126 12:00:||", "4.90|W1126 12:00:||", "4.95||12:00:04.950|",
		"5.00|||12:00:05 War", "5.20|I1126 12:00:||", "9.00|Step: ending", "9.80|I1126 12:00:||", "9.90||12:00:09.900|",
		"11.00|The spec fai",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	s.Await("mark what is wrong", "document.querySelectorAll('.trouble').length === 3")
	s.Look("report-failure")
	s.Appear(390, 844, false)
	s.Await("fit on a phone", "document.getElementById('detail').scrollWidth <= innerWidth")
	s.CheckAccessibility("a failure on a phone")
	s.Picture("report-failure-phone")
	s.Appear(1280, 900, false)
	if title := Eval[string](s.Page, "document.title"); title != "Conformance of cloud-controller-managers" {
		t.Errorf("a log has changed the page: its title is %q", title)
	}
	s.Await("run nothing of a log", "!document.querySelector('#detail img, #detail script, main img')")

	s.Click("ccm-from-scratch on kind")
	s.Sees("waiting for its node")
	s.Await("show no failure", "!document.getElementById('detail').innerText.includes('to consist of')")
	s.Sees("14 of the CCM to the cloud")
	s.Click("Close")
	s.Await("close", "document.getElementById('detail').hidden")
	s.Click("becomes Ready")
	s.Sees("from e2e/node_test.go:4")
	s.Click("Show 4 lines")
	s.Sees(`   5      By("ordering a server")`)
	s.CheckLightAndDark("a spec with its source")
}

func TestTheReportIsFilteredByTheKeyboard(t *testing.T) {
	s := openReport(t, cannedRuns(), report.Options{}, "")
	s.rows(len(promises))
	s.press("/")
	s.Await("search", "document.activeElement.type === 'search'")
	s.press(kb.Backspace) // the test's keyboard types the slash, which a real one does not
	s.press("targets 503")
	s.rows(1)
	s.Await("be in the address", "location.hash.includes('text=targets%20503')")
	s.press(kb.Tab)
	s.press("failed") // a select chooses what is typed
	s.Await("choose the result", "location.hash.includes('result=failed')")
	s.rows(1)
	address := Eval[string](s.Page, "location.href")
	seen := map[string]bool{}
	for range 12 {
		s.press(kb.Tab)
		seen[Eval[string](s.Page, atFocus)] = true
		if strings.HasPrefix(Eval[string](s.Page, atFocus), "keeps its targets") {
			break
		}
	}
	for _, want := range []string{"No filter", "keeps its targets while the API answers 503"} {
		if !seen[want] {
			t.Errorf("Tab does not reach %q: %v", want, seen)
		}
	}
	s.press(kb.Enter)
	s.Await("move the focus to the details", "document.activeElement.id === 'detail'")
	s.Sees("to consist of")
	s.press(kb.Escape)
	s.Await("give it back", atFocus+".startsWith('keeps its targets')")

	s.Click("No filter")
	s.rows(len(promises))
	s.Fill("CCM", "ccm-from-scratch")
	s.Await("hide the other CCM", "document.querySelectorAll('.matrix thead tr:last-child th').length === 2")
	s.Fill("Cluster", "kind")
	s.Await("hide the other cluster", "document.querySelectorAll('.matrix thead tr:last-child th').length === 1")
	s.Fill("Label", "route")
	s.rows(3)
	s.Click("No filter")
	s.Fill("Result", "different")
	s.rows(6)
	Eval[chromedp.Void](s.Page, "document.querySelector('.matrix th a').focus()")
	before := Eval[string](s.Page, atFocus)
	s.press(kb.ArrowDown)
	if Eval[string](s.Page, atFocus) == before {
		t.Error("the arrow does not lead to the next row")
	}
	s.press(kb.ArrowUp)
	s.Await("lead back", fmt.Sprintf("%s === %q", atFocus, before))

	s.Go("about:blank")
	s.Go(address) // a link to what was filtered
	s.rows(1)
	s.Await("restore the filters", "document.querySelector('[type=search]').value === 'targets 503' && "+
		"document.querySelector('[data-key=result]').value === 'failed'")
}

func TestIncidentsAndBudgetsHaveTheirOwnSections(t *testing.T) {
	s := openReport(t, cannedRuns(), report.Options{}, "")
	s.Click("Incidents")
	s.Sees(
		"ccm-from-scratch on embedded survives 3 of 3 incidents", "another-ccm on kind survives 1 of 1 incidents", "survived",
		"calls to the API: 31 in 12 s", "requests of users: 240 answered, 0 lost", "no request met the fault",
	)
	s.Look("report-incidents")
	s.Click("Budgets")
	row := func(figure string) []string {
		return Eval[[]string](s.Page, fmt.Sprintf(`[...[...document.querySelectorAll('tbody tr')].find(tr => tr.firstChild.innerText === %q).querySelectorAll('td')]
			.map(e => e.innerText)`, figure))
	}
	for figure, want := range map[string][]string{
		speclist.TimeToFirstTraffic:   {"1.5 s", "1.5 s", "not measured in this run", "not measured in this run"},
		speclist.LostInARollingChange: {"0 requests", "0 requests", "0 requests", "0 requests"},
		speclist.RequestsAtRest:       slices.Repeat([]string{"not measured in this run"}, 4),
		"something else":              slices.Repeat([]string{"7 pods"}, 4),
	} {
		if got := row(figure); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", figure, got, want)
		}
	}
	s.Look("report-budgets")
	s.Click("1.5 s")
	s.Sees(speclist.TimeToFirstTraffic)
	s.Await("open the spec", "document.querySelector('#detail h2').innerText.includes('answers from outside')")
	s.Click("Close")
	s.Click("◐")
	s.Await("be dark", "getComputedStyle(document.documentElement).colorScheme === 'dark'")
}

func TestTwoRunsAreCompared(t *testing.T) {
	before := cannedRuns()[2]
	before.Time = noon.Add(-24 * time.Hour)
	for i, s := range before.Specs {
		switch {
		case s.Name == lost:
			before.Specs[i].Result, before.Specs[i].Details = speclist.Passed, speclist.Details{}
		case strings.Contains(s.Name, "becomes Ready"):
			before.Specs[i].Result, before.Specs[i].Reason = speclist.Failed, "no server"
		case strings.Contains(s.Name, "power cycle"):
			before.Specs[i].Seconds = 0.5
		case strings.Contains(s.Name, "there for each node"):
			before.Specs[i].Seconds = s.Seconds / 1.5
		}
	}
	s := openReport(t, cannedRuns(), report.Options{Compare: []report.Other{{Name: "yesterday", Run: before}}}, "")
	s.Sees("1 newly failing, 1 newly passing, 1 slower")
	changed := func(section string) []string {
		return Eval[[]string](s.Page, fmt.Sprintf(`[...document.querySelectorAll('main section')].filter(e => e.innerText.startsWith(%q))
			.flatMap(e => [...e.querySelectorAll('tbody th')].map(th => th.innerText))`, section))
	}
	for section, want := range map[string]string{"Newly failing": lost, "Newly passing": promises[0], "Slower": promises[1]} {
		if got := changed(section); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: got %q, want %q", section, got, want)
		}
	}
	s.Fill("Slower by a factor of", "1.2")
	s.Sees("2 slower")
	s.Look("report-compare")
	s.Fill("After", "0")
	s.Sees("Other changes")

	// A file is chosen on the page itself.
	folder := t.TempDir()
	before.Specs[2].Result = speclist.Failed
	text, err := json.Marshal([]speclist.Run{before})
	if err != nil {
		t.Fatal(err)
	}
	choose := func(name, text string) {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		Do(s.Page, "choose the file", chromedp.SetUploadFiles(chromedp.CSS("input[type=file]"), []string{path}))
	}
	for name, wrong := range map[string]string{
		"broken.json": "{", "other.json": `{"ccm": "x"}`, "no-name.json": `[{"ccm":"x","cluster":"y","specs":[{"name":1,"result":"passed","seconds":1}]}]`,
		"labels.json": `[{"ccm":"x","cluster":"y","specs":[{"name":"a","result":"passed","seconds":1,"labels":"x"}]}]`,
	} {
		choose(name, wrong)
		s.Sees(name + " was not loaded")
	}
	choose("yesterday.json", string(text))
	s.Sees("yesterday.json is loaded")
	s.Sees("1 newly failing, 2 newly passing")
	if got, want := changed("Newly passing"), []string{promises[0], promises[2]}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	s.Click(lost)
	s.Sees("another-ccm on embedded (yesterday.json, 2026-11-25 12:00)")
}

func TestAReportWithoutResultsIsShown(t *testing.T) {
	s := openReport(t, nil, report.Options{}, "#view=compare")
	s.Sees("No run has left results yet.")
	s = openReport(t, []speclist.Run{{CCM: "new", Cluster: "kind", Incomplete: "BeforeSuite failed"}}, report.Options{}, "")
	s.Sees("Incomplete: BeforeSuite failed")
	for _, view := range []string{"Incidents", "Budgets", "Compare", "Matrix"} {
		s.Click(view)
		s.CheckLightAndDark("no results, " + view)
	}
}
