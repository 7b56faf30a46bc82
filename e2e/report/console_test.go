package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/onsi/ginkgo/v2/reporters"
	"github.com/onsi/ginkgo/v2/types"
)

// printed returns what Ginkgo prints of a report while it runs.
func printed(report types.Report, color bool) string {
	var b bytes.Buffer
	r := reporters.NewDefaultReporter(types.ReporterConfig{NoColor: !color, SilenceSkips: true}, &b)
	r.SuiteWillBegin(report)
	for _, s := range report.SpecReports {
		r.DidRun(s)
	}
	r.SuiteDidEnd(report)
	return b.String()
}

func loudFailure(i int) types.SpecReport {
	entry := func(name string) types.ReportEntry {
		return types.ReportEntry{
			Name: name, Visibility: types.ReportEntryVisibilityFailureOrVerbose,
			Value: types.WrapEntryValue(strings.Repeat("a line of a log\n------------------------------\n", 500)),
		}
	}
	return types.SpecReport{
		LeafNodeType: types.NodeTypeIt, LeafNodeText: fmt.Sprintf("fails loudly %d", i), State: types.SpecStateFailed,
		LeafNodeLocation: types.CodeLocation{FileName: "a_test.go", LineNumber: 7}, RunTime: time.Second, RunningInParallel: true,
		CapturedGinkgoWriterOutput: strings.Repeat("what the spec wrote\n", 100), CapturedStdOutErr: strings.Repeat("more\n", 100),
		Failure: types.Failure{
			Message:  "expected\n    <int>: 1\nto equal\n    <int>: 2\n" + strings.Repeat("a line of the message\n", 300) + "the end",
			Location: types.CodeLocation{FileName: "a_test.go", LineNumber: 9}, FailureNodeType: types.NodeTypeIt,
		},
		ReportEntries: types.ReportEntries{entry("log of spec-001-ccm-1"), entry("cluster"), entry("the cloud's state")},
	}
}

func TestTheConsoleShowsAtMostAScreenOfEachFailure(t *testing.T) {
	t.Parallel()
	passed := types.SpecReport{
		LeafNodeType: types.NodeTypeIt, LeafNodeText: "passes", State: types.SpecStatePassed, RunningInParallel: true,
	}
	report := types.Report{SuiteDescription: "the suite", SpecReports: types.SpecReports{passed, passed}}
	const failures = 100
	for i := range failures {
		report.SpecReports = append(report.SpecReports, loudFailure(i), passed, passed)
	}
	for _, color := range []bool{false, true} {
		all := printed(report, color)
		var out, log bytes.Buffer
		if err := Console(&out, iotest.HalfReader(strings.NewReader(all)), &log); err != nil {
			t.Fatal(err)
		}
		if log.String() != all {
			t.Errorf("the log has %d bytes, want all %d", log.Len(), len(all))
		}
		text := out.String()
		lines := strings.Count(text, "\n")
		if before := strings.Count(all, "\n"); before < 300_000 || lines > failures*24+20 {
			t.Errorf("%d lines became %d, want at most 24 for each failure", before, lines)
		}
		plain := colours.ReplaceAllString(text, "")
		for i := range failures {
			if want := fmt.Sprintf("fails loudly %d\n", i); !strings.Contains(plain, want) {
				t.Errorf("%q is not shown", want)
			}
		}
		for want, n := range map[string]int{
			"    <int>: 2\n": failures, "In [It] at: a_test.go:9": failures, "lines more: they are in the report": failures,
			"a line of a log": 0, "what the spec wrote": 0, "the end": 0, "Summarizing 100 Failures": 1, "[FAIL] ": failures,
			"Ran 302 of": 1,
		} {
			if got := strings.Count(plain, want); got != n {
				t.Errorf("%q is shown %d times, want %d", want, got, n)
			}
		}
		if got := strings.Count(plain, "•"); got != 302 {
			t.Errorf("%d dots, want one for each spec", got)
		}
		if t.Failed() {
			t.Log(plain[:min(len(plain), 3000)])
			return
		}
	}
}

func TestTheConsoleChangesNothingElse(t *testing.T) {
	t.Parallel()
	short := loudFailure(1)
	short.Failure.Message, short.ReportEntries, short.CapturedStdOutErr, short.CapturedGinkgoWriterOutput = "no", nil, "", ""
	for name, text := range map[string]string{
		"a run without a failure": printed(types.Report{SuiteDescription: "s", SpecReports: types.SpecReports{
			{LeafNodeType: types.NodeTypeIt, State: types.SpecStatePassed, LeafNodeText: "x"}}}, true),
		"what is not Ginkgo's":     strings.Repeat("compiling\n\n", 50) + "no end of the line",
		"a delimiter in the text":  "------------------------------\nhello\n" + strings.Repeat("a line\n", 100),
		"no text":                  "",
		"dots and then an error":   "••S•\nexit status 1\n",
		"half a failure at an end": "------------------------------\n• [FAILED] [1.0 seconds]\nwhy",
	} {
		for _, in := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
			var out bytes.Buffer
			if err := Console(&out, in, io.Discard); err != nil || out.String() != text {
				t.Errorf("%s: %v, got\n%q\nwant\n%q", name, err, out.String(), text)
			}
		}
	}
}

// TestDotsAreShownAtOnce shows that a user sees that the suite is alive.
func TestDotsAreShownAtOnce(t *testing.T) {
	t.Parallel()
	in, ginkgo := io.Pipe()
	screen, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- Console(out, in, io.Discard)
		_ = out.Close()
	}()
	for _, dot := range []string{"•", "\x1b[36mS\x1b[0m", "•"} {
		if _, err := io.WriteString(ginkgo, dot); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(dot))
		if _, err := io.ReadFull(screen, got); err != nil || string(got) != dot {
			t.Fatalf("%q, %v", got, err)
		}
	}
	_ = ginkgo.Close()
	rest, err := io.ReadAll(screen)
	if err != nil || len(rest) > 0 || <-done != nil {
		t.Errorf("at the end: %q, %v", rest, err)
	}
}

func TestAFullDiskEndsTheConsoleWithAnError(t *testing.T) {
	t.Parallel()
	_, full := io.Pipe()
	_ = full.CloseWithError(io.ErrShortWrite)
	if err := Console(io.Discard, strings.NewReader("a line\n"), full); err == nil || !strings.Contains(err.Error(), "is the disk full?") {
		t.Errorf("got %v", err)
	}
}

func FuzzConsole(f *testing.F) {
	short := loudFailure(1)
	short.ReportEntries, short.CapturedStdOutErr = short.ReportEntries[:1], "x"
	short.ReportEntries[0].Value = types.WrapEntryValue("a line\n")
	f.Add(printed(types.Report{SpecReports: types.SpecReports{short}}, true), 7)
	f.Add("------------------------------\n• [FAILED]\n  Timeline >>\nx", 1)
	f.Fuzz(func(t *testing.T, text string, cut int) {
		var whole, parts, log bytes.Buffer
		if err := Console(&whole, strings.NewReader(text), &log); err != nil || log.String() != text {
			t.Fatalf("%v; the log differs", err)
		}
		cut = min(max(cut, 0), len(text))
		in := io.MultiReader(strings.NewReader(text[:cut]), strings.NewReader(text[cut:]))
		if err := Console(&parts, in, io.Discard); err != nil || parts.String() != whole.String() {
			t.Fatalf("%v; cut at %d it shows\n%q\ninstead of\n%q", err, cut, parts.String(), whole.String())
		}
	})
}
