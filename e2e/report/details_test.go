package report

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func entry(name string, value any) types.ReportEntry {
	return types.ReportEntry{Name: name, Value: types.WrapEntryValue(value)}
}

func step(after time.Duration, text string) types.SpecEvent {
	at := types.TimelineLocation{Time: noon.Add(after)}
	return types.SpecEvent{SpecEventType: types.SpecEventByStart, Message: text, TimelineLocation: at}
}

func failedSpec(entries ...types.ReportEntry) types.SpecReport {
	return types.SpecReport{
		LeafNodeType: types.NodeTypeIt, LeafNodeText: "fails", State: types.SpecStateFailed,
		StartTime: noon, EndTime: noon.Add(30 * time.Second), RunTime: 30 * time.Second,
		LeafNodeLocation: types.CodeLocation{FileName: "service_test.go", LineNumber: 7},
		Failure: types.Failure{
			Message: "expected\n    true\n", Location: types.CodeLocation{FileName: "service_test.go", LineNumber: 9},
			TimelineLocation: types.TimelineLocation{Time: noon.Add(29*time.Second + 500*time.Millisecond)},
		},
		ReportEntries: entries,
	}
}

func TestDetailsHaveStepsFiguresAndNotes(t *testing.T) {
	t.Parallel()
	s := types.SpecReport{
		State: types.SpecStatePassed, StartTime: noon, EndTime: noon.Add(time.Minute),
		// An entry that a function makes, in a table below another container.
		LeafNodeLocation: types.CodeLocation{FileName: "fault_test.go", LineNumber: 72},
		ContainerHierarchyLocations: []types.CodeLocation{
			{FileName: "fault_test.go", LineNumber: 90}, {FileName: "fault_test.go", LineNumber: 165},
		},
		SpecEvents: types.SpecEvents{
			step(0, "creating"), {SpecEventType: types.SpecEventNodeEnd, Message: "not a step"}, step(1500*time.Millisecond, "changing"),
		},
		ReportEntries: types.ReportEntries{
			entry(speclist.FigureEntry, speclist.Figure{Name: speclist.TimeToFirstTraffic, Unit: "s", Value: 1.5}),
			entry(speclist.FigureEntry, "not a figure"),
			entry("requests during the change", "120 answered, 3 lost, which began …"),
			entry("requests of the stream", "120 answered, each within 3ms"),
			entry("the cloud's state", "servers: []"),
			entry("long", strings.Repeat("ü", 4*noteLength)),
		},
	}
	// In another process, values are what JSON makes of them.
	var elsewhere types.SpecReport
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(text, &elsewhere)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []types.SpecReport{s, elsewhere} {
		d := DetailsOf(s)
		if d.Source != "fault_test.go:72" || d.Container != "fault_test.go:165" {
			t.Errorf("declared at %s, in %s", d.Source, d.Container)
		}
		if want := []speclist.Step{{At: 0, Text: "creating"}, {At: 1.5, Text: "changing"}}; !slices.Equal(d.Steps, want) {
			t.Errorf("steps: %v", d.Steps)
		}
		if want := []speclist.Figure{{Name: speclist.TimeToFirstTraffic, Unit: "s", Value: 1.5},
			{Name: speclist.LostInARollingChange, Unit: "requests", Value: 3}}; !slices.Equal(d.Figures, want) {
			t.Errorf("figures: %v", d.Figures)
		}
		if len(d.Notes) != 3 || d.Notes[0].Text != "120 answered, 3 lost, which began …" || len(d.Notes[2].Text) > noteLength+30 ||
			!strings.HasSuffix(d.Notes[2].Text, "ü… (14000 bytes more)") {
			t.Errorf("notes: %v", d.Notes)
		}
		if d.Failure != nil || !d.Begin.Equal(noon) {
			t.Errorf("got %+v", d)
		}
	}
}

func TestAFailureHasOneTimeline(t *testing.T) {
	t.Parallel()
	// The CCM's clock is that of another zone than the spec's, and klog does not say which.
	s := failedSpec(
		entry("log of spec-001-ccm-1", `  a line before the first time
I1126 12:00:01.500000   99 node.go:7] "starts"
E1126 12:00:02.000000   99 node.go:9] "fails"
goroutine 1:

	main.main()
`),
		entry("log of spec-001-ccm-2", `time=2026-11-26T13:00:01.75+01:00 level=INFO msg=slog
{"ts":1795694401800.5,"msg":"JSON"}
{"level":"info","ts":1795694401.9}
2026/11/26 12:00:03 Go's own
`),
		entry("requests of the CCM", "12:00:01.601 GET /servers\n"), // which are among these
		entry("requests to the cloud", "12:00:01.600 GET    /v1/servers → 200   spec\n"),
		entry("the cloud's state", "- one\n"),
		entry("cluster", `# nodes
- name: node-1
  at: 12:00:00

# services
[]

11:59:50 Normal Node/x Of: another spec
11:59:59 Normal Node/node-1 Ready: yes
12:00:02 Warning Service/web SyncFailed: no
second line
`),
		entry("a note", "text"),
	)
	s.StartTime, s.EndTime = s.StartTime.In(time.FixedZone("", 5*3600)), s.EndTime.In(time.FixedZone("", 5*3600))
	f := DetailsOf(s).Failure
	var got []string
	for _, l := range f.Timeline {
		text, _ := l.MarshalText()
		got = append(got, string(text))
	}
	want := []string{
		"-1.000 events 11:59:59 Normal Node/node-1 Ready: yes",
		"1.500 log [spec-001-ccm-1]   a line before the first time",
		"1.500 log [spec-001-ccm-1] I1126 12:00:01.500000   99 node.go:7] \"starts\"",
		"1.600 requests 12:00:01.600 GET    /v1/servers → 200   spec",
		"1.750 log [spec-001-ccm-2] time=2026-11-26T13:00:01.75+01:00 level=INFO msg=slog",
		"1.801 log [spec-001-ccm-2] {\"ts\":1795694401800.5,\"msg\":\"JSON\"}",
		"1.900 log [spec-001-ccm-2] {\"level\":\"info\",\"ts\":1795694401.9}",
		"2.000 log [spec-001-ccm-1] E1126 12:00:02.000000   99 node.go:9] \"fails\"",
		"2.000 log [spec-001-ccm-1] goroutine 1:",
		"2.000 log [spec-001-ccm-1] \tmain.main()",
		"2.000 events 12:00:02 Warning Service/web SyncFailed: no",
		"2.000 events second line",
		"3.000 log [spec-001-ccm-2] 2026/11/26 12:00:03 Go's own",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if f.At != 29.5 || f.Place != "service_test.go:9" || f.Message != "expected\n    true" || f.State != "- one\n" || f.LeftOut != 0 {
		t.Errorf("got %+v", f)
	}
}

func TestTheRequestsOfEveryCloudAreInTheTimeline(t *testing.T) {
	t.Parallel()
	d := DetailsOf(failedSpec(entry("requests of the CCM", strings.Repeat("12:00:01.600 GET /servers → 200\n", timelineLines))))
	if f := d.Failure; len(d.Notes) > 0 || len(f.Timeline) != timelineLines || f.Timeline[0].Lane != speclist.Requests {
		t.Errorf("got %d lines and the notes %v", len(f.Timeline), d.Notes)
	}
}

func TestTimesWithoutADateAreThoseNearestToTheSpec(t *testing.T) {
	t.Parallel()
	newYear := clock{begin: time.Date(2026, 12, 31, 23, 59, 58, 0, time.UTC), end: time.Date(2027, 1, 1, 0, 0, 30, 0, time.UTC)}
	tokyo := clock{begin: noon.In(time.FixedZone("", 9*3600)), end: noon.Add(time.Minute)}
	for _, c := range []struct {
		clock clock
		line  string
		want  time.Time
	}{
		{newYear, "I0101 00:00:01.000000 1 x] ", time.Date(2027, 1, 1, 0, 0, 1, 0, time.UTC)},
		{newYear, "I1231 23:59:59.000000 1 x] ", time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)},
		{newYear, "00:00:01.000 GET", time.Date(2027, 1, 1, 0, 0, 1, 0, time.UTC)},
		{newYear, "23:59:59.000 GET", time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)},
		{tokyo, "21:00:01.000 GET", noon.Add(time.Second)},
		{tokyo, "12:00:01 Normal", noon.Add(time.Second)},
		{tokyo, "I1126 21:00:01.000000 1 x] ", noon.Add(time.Second)},
	} {
		if got, ok := c.clock.timeOf(c.line); !ok || !got.Equal(c.want) {
			t.Errorf("%s: got %v, %v, want %v", c.line, got, ok, c.want)
		}
	}
	for _, line := range []string{"", "I1399 00:00:01.000000 1 x] ", "goroutine 7", "25:61:61 GET", "at 12:00:00", `{"ts":"soon"}`} {
		if got, ok := tokyo.timeOf(line); ok {
			t.Errorf("%s: has the time %v", line, got)
		}
	}
}

func TestATimelineIsBoundAndFair(t *testing.T) {
	t.Parallel()
	var log, events strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&log, "I1126 12:00:%02d.%06d 1 x] %s\n", i/50, i, strings.Repeat("x", 1000))
	}
	events.WriteString("# nodes\n- name: a\n\n12:00:01 Normal Node/a Ready: yes\n12:00:02 Normal Node/b Ready: yes\n")
	f := DetailsOf(failedSpec(entry("log of the CCM", log.String()), entry("cluster", events.String()))).Failure
	seen := map[speclist.Lane]int{}
	for _, l := range f.Timeline {
		seen[l.Lane]++
		if len(l.Text) > lineLength+30 {
			t.Errorf("a line of %d bytes", len(l.Text))
		}
	}
	if seen[speclist.Log] != timelineLines-2 || seen[speclist.Events] != 2 || f.LeftOut != 602 {
		t.Errorf("%v, %d left out", seen, f.LeftOut)
	}
	if last := f.Timeline[len(f.Timeline)-1].Text; !strings.Contains(last, "12:00:19.000999") {
		t.Errorf("the last line is %.40s", last)
	}

	var requests strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&requests, "12:00:%02d.%03d GET /v1/servers → 200\n", i/50, i)
	}
	f = DetailsOf(failedSpec(entry("log of the CCM", log.String()), entry("requests to the cloud", requests.String()))).Failure
	seen = map[speclist.Lane]int{}
	for _, l := range f.Timeline {
		seen[l.Lane]++
	}
	if seen[speclist.Log] != timelineLines/2 || seen[speclist.Requests] != timelineLines/2 {
		t.Errorf("of two lanes with as many lines: %v", seen)
	}

	failures := func(lengths ...int) (runs []speclist.Run) {
		for _, n := range lengths {
			spec := speclist.Spec{Details: speclist.Details{Failure: &speclist.Failure{Timeline: make([]speclist.Line, n)}}}
			for i := range n {
				spec.Failure.Timeline[i].Lane = speclist.Log
			}
			runs = append(runs, speclist.Run{Specs: []speclist.Spec{spec, {}}})
		}
		return runs
	}
	runs := failures(200, 10, 200, 200)
	Bound(runs, 310)
	var kept []int
	for _, r := range runs {
		kept = append(kept, len(r.Specs[0].Failure.Timeline), r.Specs[0].Failure.LeftOut)
	}
	if want := []int{100, 100, 10, 0, 100, 100, 100, 100}; !slices.Equal(kept, want) {
		t.Errorf("kept and left out: %v, want %v", kept, want)
	}
}

func TestSecretsAreNotInTheReport(t *testing.T) {
	const own = "a-token-of-another-form"
	t.Setenv("HCLOUD_TOKEN", own)
	token := strings.Repeat("aB3", 21) + "x"
	digest := strings.Repeat("0a", 32)
	secret := "token " + token + "\nAuthorization: Bearer abc.def\n" + own +
		"\n-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----\n-----BEGIN PRIVATE KEY-----\nMIIE"
	s := failedSpec(entry("log of the CCM", digest+"\n"+secret), entry("requests to the cloud", secret),
		entry("cluster", "12:00:00 Normal Node/a "+secret), entry("note", secret))
	s.Failure.Message = secret
	text, err := json.Marshal(DetailsOf(s))
	if err != nil {
		t.Fatal(err)
	}
	for _, leaked := range []string{token, "abc.def", own, "MHcC", "MIIE"} {
		if strings.Contains(string(text), leaked) {
			t.Errorf("%q is in %s", leaked, text)
		}
	}
	if !strings.Contains(string(text), "-----END EC PRIVATE KEY-----") {
		t.Errorf("what follows a key is gone: %s", text)
	}
	if !strings.Contains(string(text), digest) {
		t.Errorf("the digest of an image is taken for a token: %s", text)
	}
}

func TestPlacesAreThoseInTheRepository(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "e2e"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"go.mod", "e2e/go.mod"} { // a module within another
		if err := os.WriteFile(filepath.Join(root, name), []byte("module x\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{
		filepath.Join(root, "e2e", "a_test.go"): "e2e/a_test.go:7", "example.org/x/e2e/a_test.go": "example.org/x/e2e/a_test.go:7", "": "",
		filepath.Join(t.TempDir(), "b_test.go"): "",
	} {
		got := place(types.CodeLocation{FileName: file, LineNumber: 7})
		if want == "" && file != "" {
			want = filepath.ToSlash(file) + ":7"
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", file, got, want)
		}
	}
}

func FuzzTimeline(f *testing.F) {
	f.Add("I1126 12:00:01.500000 1 x] y", "12:00:01.600 GET /", "12:00:02 Warning a b", int64(0))
	f.Add("time=2026-11-26T13:00:01.75+01:00 x\n{\"ts\":1795694401800.5}", "\xff", "# nodes", int64(-62135596800))
	f.Fuzz(func(t *testing.T, log, requests, cluster string, begin int64) {
		s := failedSpec(entry("log of the CCM", log), entry("requests to the cloud", requests), entry("cluster", cluster))
		s.StartTime = time.Unix(begin%1e11, 0)
		s.EndTime = s.StartTime.Add(time.Minute)
		d := DetailsOf(s)
		if n := len(d.Failure.Timeline); n > timelineLines {
			t.Fatalf("%d lines", n)
		}
		if !slices.IsSortedFunc(d.Failure.Timeline, func(a, b speclist.Line) int { return int(max(-1, min(1, a.At-b.At))) }) {
			t.Fatalf("not by time: %v", d.Failure.Timeline)
		}
		text, err := json.Marshal(d)
		if err == nil {
			err = json.Unmarshal(text, &speclist.Details{})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}
