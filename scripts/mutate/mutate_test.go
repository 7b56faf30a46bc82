package main

import (
	"go/parser"
	"go/token"
	"maps"
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
