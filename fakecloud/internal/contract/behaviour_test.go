package contract

import (
	"bytes"
	"errors"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	behaviourTable = "testdata/behaviour"
	behaviourPage  = "../../../out/BEHAVIOUR.md"
	assertionList  = "testdata/clients.tsv"
	moduleRoot     = "../.."
)

func rulesForTest(t *testing.T) []Rule {
	t.Helper()
	rules, err := ReadRules(behaviourTable)
	if err != nil {
		t.Fatal(err)
	}
	if len(rules) == 0 {
		t.Fatalf("%s has no rules", behaviourTable)
	}
	return rules
}

func assertionsForTest(t *testing.T) []Assertion {
	t.Helper()
	assertions, err := ReadAssertions(assertionList)
	if err != nil {
		t.Fatal(err)
	}
	if len(assertions) == 0 {
		t.Fatalf("%s has no assertions", assertionList)
	}
	return assertions
}

// TestTheTableOfBehaviourHasEachSentenceOfTheDocument fails if the document has changed, so that a person reads the sentence.
// Sentences about fields may be missing.
func TestTheTableOfBehaviourHasEachSentenceOfTheDocument(t *testing.T) {
	t.Parallel()
	document := ForTest(t)
	known := make(map[string]Rule)
	for _, rule := range rulesForTest(t) {
		key := rule.Operation + " " + rule.ID
		if _, twice := known[key]; twice {
			t.Errorf("%s: %s is in the table twice", rule.Topic, key)
		}
		known[key] = rule
	}
	seen := make(map[string]bool)
	for _, sentence := range document.Sentences() {
		key := sentence.Operation + " " + sentence.ID
		if _, ok := known[key]; !ok {
			t.Errorf("the table lacks %s: %s", key, sentence.Text)
		}
		seen[key] = true
	}
	for _, sentence := range document.FieldSentences() {
		seen[sentence.Operation+" "+sentence.ID] = true
	}
	for key, rule := range known {
		if !seen[key] {
			t.Errorf("%s: the document no longer says %s: %s", rule.Topic, key, rule.Says)
		}
	}
}

// source is a test file: what a guard can name.
type source struct {
	path     string // relative to the root of the module
	literals map[string]bool
}

// sourcesOfTests returns the file of each test function of the module.
func sourcesOfTests(t *testing.T) map[string]*source {
	t.Helper()
	functions := make(map[string]*source)
	err := filepath.WalkDir(moduleRoot, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(moduleRoot, path)
		found := &source{path: filepath.ToSlash(relative), literals: make(map[string]bool)}
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				value, err := strconv.Unquote(literal.Value)
				found.literals[value] = err == nil
			}
			return true
		})
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") &&
				f.Name.Name != "TestMain" {
				if functions[f.Name.Name] != nil {
					t.Errorf("two tests have the name %s: a guard could mean either", f.Name.Name)
				}
				functions[f.Name.Name] = found
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return functions
}

func TestTheTestsOfTheTableOfBehaviourExist(t *testing.T) {
	t.Parallel()
	functions := sourcesOfTests(t)
	rules := rulesForTest(t)
	for i, a := range assertionsForTest(t) {
		rules = append(rules, Rule{Operation: assertionList, ID: strconv.Itoa(i + 1), Says: a.Says, Guard: a.Guard})
	}
	for _, rule := range rules {
		for _, test := range rule.Tests() {
			name, part, _ := strings.Cut(test, "/")
			switch file := functions[name]; {
			case file == nil:
				t.Errorf("%s %s: no test has the name %q", rule.Operation, rule.ID, name)
			case part != "" && !file.literals[part]:
				t.Errorf("%s %s: %s has no case %q", rule.Operation, rule.ID, file.path, part)
			}
		}
	}
}

// TestASentenceThatClientsDenyNamesTheirAssertion fails if the table calls a sentence denied, and the list of assertions does not.
func TestASentenceThatClientsDenyNamesTheirAssertion(t *testing.T) {
	t.Parallel()
	assertions := assertionsForTest(t)
	for _, rule := range rulesForTest(t) {
		words, denied := strings.CutPrefix(rule.Guard, "clients deny it: ")
		if denied && !slices.ContainsFunc(assertions, func(a Assertion) bool { return a.Says == words && a.Document != "" }) {
			t.Errorf("%s %s: %s has no assertion against the document with the words %q", rule.Operation, rule.ID, assertionList, words)
		}
	}
}

func TestThePageOfBehaviour(t *testing.T) {
	t.Parallel()
	functions := sourcesOfTests(t)
	var page bytes.Buffer
	err := WriteBehaviour(&page, rulesForTest(t), assertionsForTest(t), func(test string) string {
		if file := functions[test]; file != nil {
			return file.path
		}
		return ""
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"and 0 are not tested.", "\n## Servers\n", "](" + sourceOf +
		"internal/contract/behaviour_zones_test.go)"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if flag.Lookup("update").Value.String() == "true" {
		err := errors.Join(os.MkdirAll(filepath.Dir(behaviourPage), 0o755), os.WriteFile(behaviourPage, page.Bytes(), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestATextIsSplitIntoSentences(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                                    nil,
		"One. Two.":                           {"One.", "Two."},
		"One\nline.\n\nNo full stop":          {"One line.", "No full stop"},
		"Names, e.g. `a.b`, or i.e. B. Next.": {"Names, e.g. `a.b`, or i.e. B.", "Next."},
		"See [the page](https://x.example). More.":                                     {"See the page.", "More."},
		"**Bold** (as here.) `code` follows.":                                          {"Bold (as here.)", "`code` follows."},
		"Either:\n- one\n  line\n- two":                                                {"Either:", "one line", "two"},
		"#### Head\n\n| A | B |\n| --- | --- |\n| `1` | [x](y) |\n| 2 | z |\n\nAfter.": {"| `1` | x |", "| 2 | z |", "After."},
	} {
		if got := split(text); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestARuleHasTestsOrAReason(t *testing.T) {
	t.Parallel()
	for guard, want := range map[string][]string{
		"TestA":                       {"TestA"},
		"TestA/a case + TestB":        {"TestA/a case", "TestB"},
		"no behaviour: introduction":  nil,
		"left out: DIFFERENCES":       nil,
		"not tested: yet":             nil,
		"not a reason that is listed": {"not a reason that is listed"},
	} {
		if got := (Rule{Guard: guard}).Tests(); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", guard, got, want)
		}
	}
	if _, err := readTopic(strings.NewReader("create_server\t0123\t\tTestA\n"), "servers"); err == nil {
		t.Error("a line without words is accepted")
	}
}
