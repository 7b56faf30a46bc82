package main

import (
	"errors"
	"go/parser"
	"go/token"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const sample = `package p

func f(a, b int, names []string) bool {
	for _, n := range names {
		if n == "" || len(n) > a && g(b) {
			continue
		}
		a = b // a comment
		g(a)
	}
	defer g(1)
	defer cancel()
	timer.Stop()
	if a > 3 && g(a) {
		klog.V(2).InfoS("what no test sees")
	}
	panic("no")
}

func g(a int) bool { return a <= 3 }
`

func TestEachMutantIsASmallChange(t *testing.T) {
	t.Parallel()
	in := &instrumenter{}
	out, err := in.instrument("p.go", sample)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "p.go", out, 0); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		`if (mutant(4) != ((!mutant(5) && (n == "")) || (!mutant(6) && (`, // the condition, and both operands of ||
		`(mutant(7) || (((mutant(9) && len(n) == a) || (len(n) > a))))`,   // an operand of &&, and its limit
		`if !mutant(10) { continue }`,
		`if !mutant(2) { a = b } // a comment`,
		`if !mutant(3) { g(a) }`,
		`if !mutant(1) { defer g(1) }`,
		"\tdefer cancel()\n\ttimer.Stop()\n\tif a > 3 && g(a) {\n\t\tklog.V(2).InfoS(\"what no test sees\")\n\t}\n\tpanic(\"no\")\n",
		`return (mutant(11) != ((!(mutant(12) && a == 3) && (a <= 3))))`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if len(in.mutants) != 12 || t.Failed() {
		t.Errorf("%d mutants, want 12:\n%s", len(in.mutants), out)
	}
}

func TestANamedMutantIsASwitchOfItsFunction(t *testing.T) {
	t.Parallel()
	all, err := parseNamed("# a comment\n\n= no assignment\nf\n- a = b\n! TestF\n\n= another call\nT.m\n- g( a,\n- 1,\n+ true || OLD\n" +
		"! TestF\n! TestG\nf\n- defer g(1)\nf\n- panic(\"no\")\n+ return false\n\n= nothing\nT.n\n- g(1)\n! TestF\n")
	if err != nil || len(all) != 3 || len(all[1].judges) != 2 || len(all[1].changes) != 3 {
		t.Fatal(all, err)
	}
	other := "package q\n\nfunc (t *T[K]) m() bool { return true }\n" +
		"func (t *T) m() (ok bool, err error) {\n\treturn g( // a comment\n\t\ta, 1,\n\t)\n}\nfunc (T) n() { g(1) }\n"
	texts := []source{{"p.go", sample}, {"q.go", other}}
	changed, err := applyAll(all, texts)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"func f(a, b int, names []string) bool { if mutant(1) {\n\tfor _, n", // the whole body
		"\t\t // a comment\n\t\tg(a)\n\t}\n\tdefer g(1)\n",                   // without the assignment
		"panic(\"no return\") }; if mutant(2) {\n\tfor _, n",
		"\t\ta = b // a comment\n\t\tg(a)\n\t}\n\t\n\tdefer cancel()",
		"return false\n\npanic(\"no return\") };\n\tfor _, n", // the body without a mutant
		"if mutant(2) {\n\treturn true || g( // a comment\n\t\ta, 1,\n\t)\n\npanic(\"no return\") };\n\treturn g(",
		"func (T) n() { if mutant(3) {  \nreturn }; g(1) }",
	} {
		if !strings.Contains(changed["p.go"]+changed["q.go"], want) {
			t.Errorf("%q is missing:\n%s\n%s", want, changed["p.go"], changed["q.go"])
		}
	}
	for _, c := range []codeChange{{function: "f", old: "}"}, {function: "g", old: "a = b"}, {function: "m", old: "true"},
		{function: "g"}} {
		if _, err := applyAll([]namedMutant{{changes: []codeChange{c}}}, texts); err == nil {
			t.Errorf("%v does not fit: no error", c)
		}
	}
	for _, wrong := range []string{"f\n", "= x\nf\n- a\n", "= x\n- a\n! T\n", "= x\nf\n- a\ng\n! T\n"} {
		if _, err := parseNamed(wrong); err == nil {
			t.Errorf("%q: no error", wrong)
		}
	}
}

// The lists name functions of the CCM, and parts of them. Both change.
func TestTheListsFitTheCode(t *testing.T) {
	t.Parallel()
	texts, err := (&mutation{folder: "../../ccm"}).sources()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{"named.txt", "reverted.txt"} {
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		all, err := parseNamed(string(text))
		if err != nil || len(all) == 0 {
			t.Errorf("%s: %d mutants, %v", list, len(all), err)
		}
		changed, err := applyAll(all, texts)
		if err != nil {
			t.Errorf("%s: %v", list, err)
		}
		for file, text := range changed {
			if _, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution); err != nil {
				t.Errorf("%s: the Go of a mutant: %v", list, err)
			}
		}
	}
}

// A regression that passes without the fix that it guards guards nothing: `make sim-reverted` checks those of the list.
func TestEachRegressionOfTheSimulationHasItsFixInTheList(t *testing.T) {
	t.Parallel()
	list, err := os.ReadFile("reverted.txt")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../../ccm/internal/proof/sim/regression_test.go")
	if err != nil {
		t.Fatal(err)
	}
	names := func(text []byte, pattern string) (all []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			all = append(all, string(m[1]))
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	played, guarded := names(source, `(?m)^\t\t"([^"]+)": \{`), names(list, `(?m)^! TestRegressions/(.+)$`)
	if len(played) == 0 || !slices.Equal(played, guarded) {
		t.Errorf("the simulation plays %q, and reverted.txt names %q", played, guarded)
	}
}

// goTo goes to a module with these files.
func goTo(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	files["go.mod"] = "module example.org/p\n\ngo 1.26\n"
	for name, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// The folder of -prepare is all that the pieces need, and together they try what one run tries.
func TestPiecesTryWhatOneRunTries(t *testing.T) {
	goTo(t, map[string]string{
		"p/sign.go": "package p\n\nfunc Sign(n int) int {\n\tif n < 0 {\n\t\treturn -1\n\t}\n" +
			"\tif n > 9 {\n\t\treturn 9\n\t}\n\treturn n\n}\n",
		"p/sign_test.go": "package p\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestSign(t *testing.T) {\n" +
			"\tif os.Getenv(\"BROKEN\") != \"\" || Sign(-5) != -1 || Sign(5) != 5 {\n\t\tt.Fatal()\n\t}\n}\n",
	})
	ctx := t.Context()
	folder := t.TempDir()
	m := &mutation{folder: "p", jobs: 2, tmp: folder}
	trials, err := m.drawnTrials(ctx, false, "1/1")
	whole := m.score(ctx, trials)
	if err != nil || whole == 0 || whole == 100 {
		t.Fatalf("%.1f %% noticed, %v, want some and not all", whole, err)
	}
	noticed, tried := 0.0, 0
	for _, piece := range []string{"1/3", "2/3", "3/3"} {
		some, err := (&mutation{folder: "p", tmp: folder}).drawnTrials(ctx, true, piece)
		if err != nil {
			t.Fatal(err)
		}
		tried += len(some)
		noticed += m.score(ctx, some) * float64(len(some))
	}
	if got := noticed / float64(len(trials)); tried != len(trials) || math.Abs(got-whole) > 1e-9 {
		t.Errorf("the pieces try %d mutants and notice %.1f %%, want %d and %.1f", tried, got, len(trials), whole)
	}
	if _, err := m.drawnTrials(ctx, true, "4/3"); err == nil {
		t.Error("piece 4/3: no error")
	}
	t.Setenv("BROKEN", "1")
	if _, err := m.drawnTrials(ctx, true, "1/3"); err == nil {
		t.Error("the tests fail without a mutant: no error")
	}
}

// The package other has no mutants. Its test alone judges those of p.
func TestTheTestsOfOtherPackagesJudge(t *testing.T) {
	goTo(t, map[string]string{
		"p/p.go":                 "package p\n\nfunc IsNegative(n int) bool { return n < 0 }\n",
		"p/p_test.go":            "package p\n\nimport \"testing\"\n\nfunc TestNothing(*testing.T) {}\n",
		"p/internal/q/q_test.go": "package q\n\nimport \"testing\"\n\nfunc TestNothing(t *testing.T) { t.Fatal() }\n",
		"other/other_test.go": "package other\n\nimport (\n\t\"testing\"\n\n\t\"example.org/p/p\"\n)\n\nfunc TestOther(t *testing.T) {\n" +
			"\tif !p.IsNegative(-5) || p.IsNegative(0) {\n\t\tt.Fatal()\n\t}\n}\n",
		"list": "= zero is negative\nIsNegative\n- n < 0\n+ n <= 0\n! p.TestNothing\n\n" +
			"= two tests\nIsNegative\n- n < 0\n+ n > 0\n! TestNothing\n",
	})
	for judges, want := range map[string]float64{"p": 0, "other": 100, "p,other": 100} {
		m := &mutation{folder: "p", judges: judges, tmp: t.TempDir()}
		trials, err := m.drawnTrials(t.Context(), false, "1/1")
		if err != nil {
			t.Fatal(err)
		}
		if got := m.score(t.Context(), trials); len(trials) != 2 || got != want {
			t.Errorf("judged by %q: %.1f %% of %d mutants are noticed, want %.1f of 2", judges, got, len(trials), want)
		}
	}
	m := &mutation{folder: "p", tmp: t.TempDir()}
	trials, err := m.namedTrials(t.Context(), "list", "zero")
	if err != nil || len(trials) != 1 || m.score(t.Context(), trials) != 0 {
		t.Errorf("a test without a look at the mutant notices it: %v, %v", trials, err)
	}
	for _, only := range []string{"no such name", "two tests"} {
		if _, err := m.namedTrials(t.Context(), "list", only); err == nil {
			t.Errorf("%s: no error", only)
		}
	}
}
