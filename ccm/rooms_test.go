package ccm

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const internal = "github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/"

// rooms says which others a package of internal may import.
var rooms = map[string][]string{
	"nodeinfo":     {},
	"evidence":     {},
	"event":        {},
	"plan":         {"nodeinfo", "event"},
	"apicall":      {},
	"inventory":    {"evidence", "apicall", "nodeinfo", "plan"},
	"node":         {"apicall", "event", "inventory", "nodeinfo"},
	"route":        {"apicall", "inventory", "nodeinfo", "plan"},
	"loadbalancer": {"apicall", "event", "inventory", "nodeinfo", "plan"},
	"resync":       {"apicall", "event", "loadbalancer", "node", "nodeinfo", "route"},
	"ccmtest":      {"nodeinfo"},
	"proof":        {},
}

// sources calls do for each file of a folder that is not a test.
func sources(t *testing.T, folder string, do func(name string, file *ast.File)) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		do(name, file)
	}
}

func TestEachRoomImportsOnlyWhatItMay(t *testing.T) {
	t.Parallel()
	for room, allowed := range rooms {
		sources(t, filepath.Join("internal", room), func(name string, file *ast.File) {
			for _, i := range file.Imports {
				other, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), internal)
				if ours && !slices.Contains(allowed, other) {
					t.Errorf("%s imports %s: must be one of %q", name, other, allowed)
				}
			}
		})
	}
}

// Types of hcloud-go are fine.
func TestThePlanKnowsNoContextAndNoClient(t *testing.T) {
	t.Parallel()
	sources(t, "internal/plan", func(name string, file *ast.File) {
		for _, i := range file.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			if path == "context" || path == "net/http" || strings.HasPrefix(path, "k8s.io/client-go") {
				t.Errorf("%s imports %s", name, path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "hcloud" && strings.HasSuffix(s.Sel.Name, "Client") {
					t.Errorf("%s uses hcloud.%s", name, s.Sel.Name)
				}
			}
			return true
		})
	})
}

func TestTheMapIsComplete(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	folders, err := filepath.Glob("internal/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		if _, known := rooms[filepath.Base(folder)]; !known {
			t.Errorf("rooms lacks %s", folder)
		}
		if !strings.Contains(string(text), "\t"+folder+" ") {
			t.Errorf("the map in doc.go lacks %s", folder)
		}
	}
	sources(t, ".", func(name string, _ *ast.File) {
		if name != "doc.go" && !strings.Contains(string(text), name) {
			t.Errorf("the map in doc.go lacks %s", name)
		}
	})
}
