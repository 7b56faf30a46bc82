package contract_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// constructs matches the functions that make an error of the API, or add a mistake to one.
	constructs = regexp.MustCompile(`(^|\.)(Err[A-Z]\w*|errInput|say|fail|unfit|add)$`)
	quoted     = regexp.MustCompile("\"(\\\\.|[^\"\\\\])*\"|`[^`]*`")
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
	for _, dir := range []string{"api", "bind", "cloud"} {
		more, _ := filepath.Glob("../" + dir + "/*.go")
		files = append(files, more...)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		file, failed := parser.ParseFile(token.NewFileSet(), name, text, 0)
		if err != nil || failed != nil || strings.HasSuffix(name, "_test.go") || filepath.Base(name) == "errors.go" {
			continue
		}
		function := ""
		ast.Inspect(file, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncDecl); ok {
				function = f.Name.Name
			}
			call, ok := n.(*ast.CallExpr)
			if !ok || !constructs.Match(text[call.Pos()-1:call.Lparen-1]) {
				return true
			}
			if texts := quoted.FindAllString(string(text[call.Lparen:call.End()]), -1); texts != nil {
				key := filepath.Base(filepath.Dir(name)) + "." + function + "\t" + strings.Join(texts, " ")
				if support[key] == "" {
					t.Errorf("refusals.tsv lacks %q: add what supports it, or accept the request", key)
				} else {
					support[key] = "seen"
				}
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
