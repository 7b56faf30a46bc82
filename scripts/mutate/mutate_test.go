package main

import (
	"go/parser"
	"go/token"
	"os"
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
	all, err := parseNamed("# a comment\n\n= no assignment\np.go\n-\t\ta = b // a comment\n! TestF\n\n= another call\np.go\n-\t\tg(a)\n+\t\tg(b)\n! TestF\n! TestG\nq.go\n- a\n")
	if err != nil || len(all) != 2 || len(all[1].judges) != 2 || len(all[1].changes) != 2 {
		t.Fatal(all, err)
	}
	for i, want := range []string{"\t\t}\n\t\tg(a)\n", "\t\tg(b)\n"} {
		if got, err := all[i].changes[0].apply(sample); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v\n%s", all[i].name, err, got)
		}
	}
	twice := textChange{file: "p.go", old: []string{"}"}}
	if _, err := twice.apply(sample); err == nil {
		t.Error("lines that are there more than once: no error")
	}
	for _, wrong := range []string{"p.go\n", "= x\np.go\n- a\n", "= x\n- a\n! T\n", "= x\np.go\n- a\nq.go\n! T\n"} {
		if _, err := parseNamed(wrong); err == nil {
			t.Errorf("%q: no error", wrong)
		}
	}
}

// The lists name lines of the CCM's code, which changes.
func TestTheListsFitTheCode(t *testing.T) {
	for _, list := range []string{"named.txt", "reverted.txt"} {
		text, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		all, err := parseNamed(string(text))
		if err != nil || len(all) == 0 {
			t.Errorf("%s: %d mutants, %v", list, len(all), err)
		}
		together := map[string]string{} // reverted.txt is applied as a whole
		for i, m := range all {
			if list == "named.txt" {
				together = map[string]string{}
			}
			if err := m.apply("../../ccm", i+1, together); err != nil {
				t.Errorf("%s: %s: %v", list, m.name, err)
			}
		}
	}
}
