package framework

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// declaredFeatures returns the features that features.go declares by their Go names, and fails the test for one that has no sentence.
func declaredFeatures(t *testing.T) map[string]Feature {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "features.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]Feature{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Feature" {
			return true
		}
		name := spec.Names[0].Name
		value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = Feature(value)
		if !strings.HasPrefix(spec.Doc.Text(), name+": ") {
			t.Errorf("%s has no sentence that begins with its name and a colon", name)
		}
		return true
	})
	return all
}

func TestEveryFeatureIsListedAndExplainedAndASpecNeedsIt(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../hetzner/specs/*_test.go")
	generic, _ := filepath.Glob("../conformance/*.go") // the pattern is right
	files = append(files, generic...)
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no specs: %v", err)
	}
	var source strings.Builder
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	declared := declaredFeatures(t)
	if len(declared) == 0 || len(declared) != len(Features()) {
		t.Errorf("features.go declares %d features, Features() has %d", len(declared), len(Features()))
	}
	for name, feature := range declared {
		if !slices.Contains(Features(), feature) {
			t.Errorf("Features() lacks %s", name)
		}
		if !strings.Contains(source.String(), "framework."+name) {
			t.Errorf("no spec needs %s", name)
		}
	}
}
