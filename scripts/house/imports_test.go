package house

import (
	"path/filepath"
	"regexp"
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
	internal := regexp.MustCompile(`"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/(.+)"`)
	files, err := filepath.Glob(filepath.Join("..", "..", "ccm", "internal", "*", "*.go"))
	if err != nil || len(files) < 2*len(rooms) {
		t.Fatalf("only %d files: %v", len(files), err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text := read(t, "scripts", "house", path)
		room := filepath.Base(filepath.Dir(path))
		if rooms[room] == nil {
			t.Errorf("rooms lacks %s", room)
		}
		for _, i := range internal.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(rooms[room], i[1]) {
				t.Errorf("%s imports %s: must be one of %q", path, i[1], rooms[room])
			}
		}
	}
}

func TestTheMapOfTheCCMIsComplete(t *testing.T) {
	t.Parallel()
	folder := filepath.Join("..", "..", "ccm")
	text := read(t, "ccm", "doc.go")
	for _, pattern := range []string{"internal/*", "*.go"} {
		paths, _ := filepath.Glob(filepath.Join(folder, pattern)) // the pattern is right
		for _, path := range paths {
			name, _ := filepath.Rel(folder, path)
			if !strings.HasSuffix(name, "_test.go") && name != "doc.go" && !strings.Contains(text, name) {
				t.Errorf("the map in ccm/doc.go lacks %s", name)
			}
		}
	}
}
