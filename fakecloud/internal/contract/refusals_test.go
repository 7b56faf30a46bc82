package contract_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/contract"
)

var (
	// constructs matches the functions that make an error of the API, or add a mistake to one.
	constructs = regexp.MustCompile(`(^|\.)(Err[A-Z]\w*|errInput|say|fail|unfit|add)$`)
	quoted     = regexp.MustCompile("\"(\\\\.|[^\"\\\\])*\"|`[^`]*`")
	// sentence matches a text of a package whose functions return problems as texts.
	sentence = regexp.MustCompile("^[\"`].*[a-z%] [a-zA-Z'%(@].*")
)

// TestEachRefusalHasItsSupport compares the refusals of the code with refusals.tsv. A line has the function, the texts of the call that
// makes the error, and what supports it: the document (a sentence, a code, or a schema), a reference to what does not exist, logic, the
// product's documentation, a client, a thread, or nothing but our own choice.
func TestEachRefusalHasItsSupport(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("testdata/refusals.tsv")
	if err != nil {
		t.Fatal(err)
	}
	support := map[string]string{}
	for line := range strings.Lines(string(table)) {
		end := strings.LastIndexByte(line, '\t')
		support[line[:end]] = strings.TrimSpace(line[end:])
	}
	var files []string
	for _, dir := range []string{"api", "bind", "cloud", "dns", "store"} {
		more, _ := filepath.Glob("../" + dir + "/*.go")
		files = append(files, more...)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		file, failed := parser.ParseFile(token.NewFileSet(), name, text, 0)
		if err != nil || failed != nil || strings.HasSuffix(name, "_test.go") {
			continue
		}
		dir, function := filepath.Base(filepath.Dir(name)), ""
		note := func(texts []string) {
			key := dir + "." + function + "\t" + strings.Join(texts, " ")
			if support[key] == "" {
				t.Errorf("refusals.tsv lacks %q: add what supports it, or accept the request", key)
			} else {
				support[key] = "seen"
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncDecl); ok {
				function = f.Name.Name
			}
			if dir == "dns" || dir == "store" || filepath.Base(name) == "errors.go" {
				if text, ok := n.(*ast.BasicLit); ok && function != "" && sentence.MatchString(text.Value) {
					note([]string{text.Value})
				}
				return true
			}
			call, ok := n.(*ast.CallExpr)
			if !ok || !constructs.Match(text[call.Pos()-1:call.Lparen-1]) {
				return true
			}
			if texts := quoted.FindAllString(string(text[call.Lparen:call.End()]), -1); texts != nil {
				note(texts)
			}
			return true
		})
	}
	for key, why := range support {
		if why != "seen" {
			t.Errorf("refusals.tsv: %q is in no function: remove the line", key)
		}
	}
}

// thread is a repository and numbers of its threads.
var thread = regexp.MustCompile(`([A-Za-z][\w.-]*[a-z][\w.-]*) (?:issues? |pull requests? |#)(\d+(?:, \d+)*(?: and \d+)?)`)

// TestEachThreadOfACommentIsInATable fails if the code relies on a thread that no page or table names.
func TestEachThreadOfACommentIsInATable(t *testing.T) {
	t.Parallel()
	var tables []byte
	for name := range strings.FieldsSeq("ACTIONS DIFFERENCES COVERAGE INCIDENTS README") {
		page, _ := os.ReadFile("../../" + name + ".md") // without one, its threads are missing
		tables = append(tables, page...)
	}
	for name := range strings.FieldsSeq("clients refusals") {
		table, _ := os.ReadFile("testdata/" + name + ".tsv")
		tables = append(tables, table...)
	}
	files, _ := filepath.Glob("../*/*.go")
	for _, name := range slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, "_test.go") }) {
		file, _ := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		for _, c := range file.Comments {
			for _, m := range thread.FindAllStringSubmatch(strings.Join(strings.Fields(c.Text()), " "), -1) {
				for _, n := range regexp.MustCompile(`\d+`).FindAllString(m[2], -1) {
					if !regexp.MustCompile(regexp.QuoteMeta(m[1]) + `[^|\t\n]*\b` + n + `\b`).Match(tables) {
						t.Errorf("%s: %s %s is in no table", name, m[1], n)
					}
				}
			}
		}
	}
}

// TestABodyThatNoOperationTakesIsNamed sends one to each operation that takes none, by the document.
func TestABodyThatNoOperationTakesIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, op := range contract.ForTest(t).Operations() {
		if op.RequestSchema() != nil || op.Removed {
			continue
		}
		path := "/v1" + regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(op.Path, "4711")
		r := httptest.NewRequestWithContext(t.Context(), op.Method, path, strings.NewReader(`{"force": true}`))
		r.Header.Set("Authorization", "Bearer "+w.cloud.Token())
		answer := httptest.NewRecorder()
		w.cloud.Handler().ServeHTTP(answer, r)
		if got := answer.Header().Get("X-Fakecloud-Unknown-Fields"); got != "force" {
			t.Errorf("%s names %q", op.ID, got)
		}
	}
}
