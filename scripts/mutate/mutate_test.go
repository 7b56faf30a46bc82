package main

import (
	"errors"
	"go/parser"
	"go/token"
	"maps"
	"math"
	"os"
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
	out, err := in.instrument("p.go", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.ParseFile(token.NewFileSet(), "p.go", out, 0); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := string(out)
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
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing", want)
		}
	}
	if len(in.mutants) != 12 || t.Failed() {
		t.Errorf("%d mutants, want 12:\n%s", len(in.mutants), text)
	}
}

func TestANamedMutantIsFoundExactlyOnce(t *testing.T) {
	t.Parallel()
	all, err := parseNamed("# a comment\n\n= no assignment\nf\n- a = b\n! TestF\n\n= another call\nT.m\n- g(a,\n- 1)\n+ REVERTED || " +
		"OLD\n! TestF\n! TestG\nf\n- defer g(1)\n")
	if err != nil || len(all) != 2 || len(all[1].judges) != 2 || len(all[1].changes) != 2 {
		t.Fatal(all, err)
	}
	method := "package q\n\nfunc (t *T[K]) m() bool { return true }\nfunc (t *T) m() bool {\n\treturn g( // a comment\n\t\ta, 1,\n\t)\n}\n"
	texts, changed := map[string]string{"p.go": sample, "q.go": method}, map[string]string{}
	for i := range all {
		if err := all[i].apply(7, texts, changed); err != nil {
			t.Error(err)
		}
	}
	for file, want := range map[string]string{"p.go": "\t\t // a comment\n\t\tg(a)\n\t}\n\t\n",
		"q.go": "\treturn mutant(7) || g( // a comment\n\t\ta, 1,\n\t)\n"} {
		if !strings.Contains(changed[file], want) {
			t.Errorf("%s lacks %q:\n%s", file, want, changed[file])
		}
	}
	for _, c := range []codeChange{{function: "f", old: []string{"}"}}, {function: "g", old: []string{"a = b"}},
		{function: "m", old: []string{"true"}}, {function: "g", old: []string{"3"}, with: []string{"fmt.Sprint(OLD)"}}} {
		if err := (&namedMutant{changes: []codeChange{c}}).apply(1, texts, changed); err == nil {
			t.Errorf("%v does not fit: no error", c)
		}
	}
	for _, wrong := range []string{"f\n", "= x\nf\n- a\n", "= x\n- a\n! T\n", "= x\nf\n- a\ng\n! T\n"} {
		if _, err := parseNamed(wrong); err == nil {
			t.Errorf("%q: no error", wrong)
		}
	}
}

// The lists name functions of the CCM, and parts of them, which change.
func TestTheListsFitTheCode(t *testing.T) {
	t.Parallel()
	original, err := sources("../../ccm")
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
		together := maps.Clone(original) // reverted.txt is applied as a whole
		for i, m := range all {
			if list == "named.txt" {
				together = maps.Clone(original)
			}
			if err := m.apply(i+1, together, map[string]string{}); err != nil {
				t.Errorf("%s: %v", list, err)
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

// The folder of -prepare is all that the pieces need, and together they try what one run tries.
func TestPiecesTryWhatOneRunTries(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, text := range map[string]string{
		"go.mod": "module example.org/p\n\ngo 1.26\n",
		"p/sign.go": "package p\n\nfunc Sign(n int) int {\n\tif n < 0 {\n\t\treturn -1\n\t}\n" +
			"\tif n > 9 {\n\t\treturn 9\n\t}\n\treturn n\n}\n",
		"p/sign_test.go": "package p\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestSign(t *testing.T) {\n" +
			"\tif os.Getenv(\"BROKEN\") != \"\" || Sign(-5) != -1 || Sign(5) != 5 {\n\t\tt.Fatal()\n\t}\n}\n",
	} {
		if err := errors.Join(os.MkdirAll("p", 0o755), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	ctx := t.Context()
	whole, err := (&mutation{folder: "p", jobs: 2}).measure(ctx, "", "1/1")
	if err != nil || whole == 0 || whole == 100 {
		t.Fatalf("%.1f %% noticed, %v, want some and not all", whole, err)
	}
	folder := t.TempDir()
	if err := (&mutation{folder: "p", jobs: 2, tmp: folder}).prepare(ctx); err != nil {
		t.Fatal(err)
	}
	p, err := (&mutation{tmp: folder}).read()
	if err != nil {
		t.Fatal(err)
	}
	noticed := 0.0
	for i, piece := range []string{"1/3", "2/3", "3/3"} {
		score, err := (&mutation{folder: "p", jobs: 1}).measure(ctx, folder, piece)
		if err != nil {
			t.Fatal(err)
		}
		noticed += score * float64(len(p.Mutants)*(i+1)/3-len(p.Mutants)*i/3)
	}
	if got := noticed / float64(len(p.Mutants)); math.Abs(got-whole) > 1e-9 {
		t.Errorf("the pieces notice %.1f %%, want %.1f", got, whole)
	}
	if _, err := (&mutation{folder: "p"}).measure(ctx, folder, "4/3"); err == nil {
		t.Error("piece 4/3: no error")
	}
	t.Setenv("BROKEN", "1")
	if _, err := (&mutation{folder: "p"}).measure(ctx, folder, "1/3"); err == nil {
		t.Error("the tests fail without a mutant: no error")
	}
}
