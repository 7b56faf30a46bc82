package house

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rooms says which others a package of ccm/internal may import. The linter knows the rest (depguard in .golangci.yml).
var rooms = map[string][]string{
	"nodeinfo":     {},
	"event":        {},
	"plan":         {"nodeinfo", "event"},
	"apicall":      {},
	"gone":         {},
	"inventory":    {"apicall", "gone", "nodeinfo", "plan"},
	"node":         {"apicall", "event", "inventory", "nodeinfo"},
	"route":        {"apicall", "inventory", "nodeinfo", "plan"},
	"loadbalancer": {"apicall", "event", "gone", "inventory", "nodeinfo", "plan"},
	"resync":       {"apicall", "event", "gone", "loadbalancer", "node", "nodeinfo", "plan", "route"},
	"ccmtest":      {"nodeinfo"},
	"proof":        {}, // its packages may import what they prove
}

func TestEachRoomOfTheCCMImportsOnlyWhatItMay(t *testing.T) {
	t.Parallel()
	const internal = "github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/"
	files, err := filepath.Glob(filepath.Join("..", "..", "ccm", "internal", "*", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	looked := map[string]bool{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		// Not by go list: go test repeats a result until a file that the test reads changes.
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		room := filepath.Base(filepath.Dir(path))
		allowed, known := rooms[room]
		if looked[room] = true; !known {
			t.Errorf("rooms lacks %s", room)
		}
		for _, i := range file.Imports {
			if other, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), internal); ours && !slices.Contains(allowed, other) {
				t.Errorf("%s imports %s: must be one of %q", path, other, allowed)
			}
		}
	}
	if len(looked) < len(rooms)-1 { // proof is a folder of packages
		t.Errorf("%d packages were looked at, want %d", len(looked), len(rooms)-1)
	}
}

func TestTheMapOfTheCCMIsComplete(t *testing.T) {
	t.Parallel()
	folder := filepath.Join("..", "..", "ccm")
	text, err := os.ReadFile(filepath.Join(folder, "doc.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"internal/*", "*.go"} {
		paths, _ := filepath.Glob(filepath.Join(folder, pattern)) // the pattern is right
		for _, path := range paths {
			name, _ := filepath.Rel(folder, path)
			if !strings.HasSuffix(name, "_test.go") && name != "doc.go" && !strings.Contains(string(text), name) {
				t.Errorf("the map in ccm/doc.go lacks %s", name)
			}
		}
	}
}
