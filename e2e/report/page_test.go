package report

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

const specsFile = `package e2e

import . "github.com/onsi/ginkgo/v2"

var _ = Describe("Service", func() {
	It("works", func() {
		By("creating")
	})
	DescribeTable("has settings",
		func(n int) {},
		Entry("one", 1),
		Entry("two", 2),
	)
	DescribeTable("has more", func(n int) {}, more())
	DescribeTable("has the same", func(n int) {}, more())
})

func more() []TableEntry {
	return []TableEntry{Entry("three", 3)}
}
`

func TestTheSourceOfASpecIsItsCall(t *testing.T) {
	t.Parallel()
	at := func(source string) speclist.Spec { return speclist.Spec{Details: speclist.Details{Source: source}} }
	entry := func(line, container int) speclist.Spec {
		const file = "e2e/service_test.go:"
		return speclist.Spec{Details: speclist.Details{Source: file + strconv.Itoa(line), Container: file + strconv.Itoa(container)}}
	}
	got := readSources(fstest.MapFS{
		"e2e/service_test.go": {Data: []byte(specsFile)}, "e2e/broken_test.go": {Data: []byte("package")},
		"secret.txt": {Data: []byte("x\n")},
	}, []speclist.Run{{Specs: []speclist.Spec{entry(6, 5), entry(11, 9), entry(12, 9), entry(19, 14), entry(19, 15),
		entry(7, 5), entry(6, 99), at("e2e/service_test.go:99"), at("e2e/broken_test.go:1"), at("e2e/gone_test.go:1"), at("secret.txt:1"),
		at("../e2e/service_test.go:6"), at("/etc/passwd.go:1"), at("")}}})
	table := "DescribeTable(\"has settings\",\n    func(n int) {},\n    Entry(\"one\", 1),\n    Entry(\"two\", 2),\n)\n"
	want := map[string]string{
		"e2e/service_test.go:6": "It(\"works\", func() {\n    By(\"creating\")\n})\n", "e2e/service_test.go:9": table,
		"e2e/service_test.go:14": "DescribeTable(\"has more\", func(n int) {}, more())\n",
		"e2e/service_test.go:15": "DescribeTable(\"has the same\", func(n int) {}, more())\n",
	}
	if a, b := asJSON(t, got), asJSON(t, want); a != b {
		t.Errorf("got\n%s\nwant\n%s", a, b)
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var pageData = regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`)

// dataOf returns what a page shows.
func dataOf(t *testing.T, page []byte) (data struct {
	Runs []struct {
		speclist.Run
		Label string
	}
	Compare bool
	Sources map[string]string
}) {
	t.Helper()
	found := pageData.FindSubmatch(page)
	if found == nil {
		t.Fatalf("the page has no data:\n%.2000s", page)
	}
	if err := json.Unmarshal(found[1], &data); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestThePageHasItsDataAndNoAddressOfAnotherHost(t *testing.T) {
	t.Parallel()
	hostile := "</script><script>alert(1)</script><!-- {{data}} {{script}} \u2028 \xff"
	run := speclist.Run{CCM: hostile, Cluster: "embedded", Time: noon, Specs: []speclist.Spec{{
		Name: hostile, Result: speclist.Failed, Reason: hostile, Details: DetailsOf(failedSpec(entry("log of the CCM", hostile))),
	}}}
	other := Other{Name: "last week", Run: speclist.Run{CCM: "ours", Cluster: "kind"}}
	root := fstest.MapFS{"service_test.go": {Data: []byte("package x\n\n\n\n\n\nvar _ = It(\"</script>\")\n")}}
	page, err := Page([]speclist.Run{run}, Options{Compare: []Other{other}, Root: root})
	if err != nil {
		t.Fatal(err)
	}
	data := dataOf(t, page)
	if len(data.Runs) != 2 || data.Runs[0].CCM != strings.ToValidUTF8(hostile, "\uFFFD") || data.Runs[1].Label != "last week" ||
		!data.Compare || data.Runs[0].Specs[0].Failure.Timeline[0].Lane != speclist.Log ||
		!strings.Contains(data.Sources["service_test.go:7"], "</script>") {
		t.Errorf("got %+v", data)
	}
	rest := strings.Replace(string(page), string(pageData.Find(page)), "", 1)
	if n := strings.Count(rest, "</script>"); n != 1 {
		t.Errorf("%d scripts end apart from the data, want the program alone", n)
	}
	if found := regexp.MustCompile(`(?i)https?://|//[a-z]+\.|@import|url\(|\bfetch\(|XMLHttpRequest|\{\{`).FindString(rest); found != "" {
		t.Errorf("the page contains %q", found)
	}
	for _, want := range []string{"default-src 'none'", "script-src 'sha256-", "style-src 'sha256-", `<html lang="en">`} {
		if !strings.Contains(rest, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
}

// TestThePageOfManyFailuresIsNotHuge makes the worst page: each spec of four columns has failed, with as long a log as is kept.
func TestThePageOfManyFailuresIsNotHuge(t *testing.T) {
	t.Parallel()
	log := strings.Repeat(strings.Repeat(`I1126 12:00:01.000000   99 node.go:7] "synced" node="node-1" `, 2)+"\n", 500)
	details := DetailsOf(failedSpec(entry("log of the CCM", log), entry("the cloud's state", log)))
	var runs []speclist.Run
	for i := range 4 {
		r := speclist.Run{CCM: fmt.Sprint("ccm-", i), Cluster: "kind", Time: noon}
		for j := range 400 {
			d, f := details, *details.Failure
			d.Failure = &f
			r.Specs = append(r.Specs, speclist.Spec{Name: fmt.Sprint("spec ", j), Result: speclist.Failed, Details: d})
		}
		runs = append(runs, r)
	}
	page, err := Page(runs, Options{})
	if err != nil || len(page) > 6e6 {
		t.Errorf("%v, %d bytes", err, len(page))
	}
	t.Logf("the page has %.1f MB", float64(len(page))/1e6)
	if n := len(runs[3].Specs[399].Failure.Timeline); n != timelineLines {
		t.Errorf("the page has shortened the runs that it was given: to %d lines", n)
	}
	if n := len(dataOf(t, page).Runs[3].Specs[399].Failure.Timeline); n != MostLines/1600 {
		t.Errorf("%d lines of each failure, want an equal part", n)
	}
}

func TestThePageAndTheBadgesAreWritten(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	ran := []speclist.Spec{{Name: "a", Result: speclist.Passed}}
	runs := []speclist.Run{{CCM: "My CCM/1", Cluster: "kind", Specs: ran}, {CCM: "ours", Cluster: "embedded", Specs: ran, LeftOut: 3}}
	if err := Write(folder, runs, Options{}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*"))
	want := []string{filepath.Join(folder, "badge-My-CCM-1-kind.svg"), filepath.Join(folder, File)}
	if err != nil || !slices.Equal(files, want) {
		t.Errorf("got %v, %v, want %v", files, err, want)
	}
	if err := Write(filepath.Join(folder, "missing"), runs, Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("into a folder that does not exist: %v", err)
	}
}

func TestABadgeSaysHowMuchPassed(t *testing.T) {
	t.Parallel()
	run := func(results ...speclist.Result) (r speclist.Run) {
		r.CCM, r.Cluster, r.Time = `a <b> & "c"`, "kind", noon
		for _, result := range results {
			r.Specs = append(r.Specs, speclist.Spec{Result: result})
		}
		return r
	}
	broken := run(speclist.Passed)
	broken.Incomplete = "BeforeSuite failed"
	for _, c := range []struct {
		run         speclist.Run
		value, fill string
	}{
		{run(speclist.Passed, speclist.GapClosed, speclist.NotHere, speclist.Skipped, speclist.NotExercised), "2 of 2", green},
		{run(speclist.Passed, speclist.Unsupported), "1 of 1", green},
		{run(speclist.Passed, speclist.KnownGap), "1 of 2", yellow},
		{run(speclist.Passed, speclist.KnownGap, speclist.Failed), "1 of 3", red},
		{run(speclist.NotHere), "0 of 0, incomplete", grey},
		{broken, "1 of 1, incomplete", grey},
	} {
		got := Badge(c.run)
		decoder := xml.NewDecoder(strings.NewReader(got))
		var texts []string
		for {
			token, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in\n%s", err, got)
			}
			if text, ok := token.(xml.CharData); ok && strings.TrimSpace(string(text)) != "" {
				texts = append(texts, string(text))
			}
		}
		if len(texts) != 3 || texts[1] != "conformance" || texts[2] != c.value || !strings.HasPrefix(texts[0], `a <b> & "c" on kind, 2026-11-26: `) ||
			!strings.Contains(got, c.fill) {
			t.Errorf("%v: got\n%s", c.value, got)
		}
	}
}

func FuzzPage(f *testing.F) {
	f.Add([]byte(`[{"ccm":"x","specs":[{"name":"a","failure":{"timeline":["1.0 log x"]}}]}]`))
	f.Add([]byte(`{"ccm":"x","specs":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		runs, err := speclist.Parse(text)
		if err != nil {
			return
		}
		page, err := Page(runs, Options{Root: fstest.MapFS{}})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(dataOf(t, page).Runs); got != len(runs) {
			t.Fatalf("the page has %d runs of %d", got, len(runs))
		}
		for _, r := range runs {
			_ = Badge(r)
		}
	})
}
