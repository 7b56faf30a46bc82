package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// leavesOut matches comments that say what the simulation lacks.
var leavesOut = regexp.MustCompile(`Left out:|[Nn]ot modelled`)

// TestTheDifferencesAreComplete compares the links of DIFFERENCES.md with the files whose comments say that something is left out.
func TestTheDifferencesAreComplete(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "DIFFERENCES.md"))
	if err != nil {
		t.Fatal(err)
	}
	var linked []string
	for _, m := range regexp.MustCompile(`\]\(([^):#]+)(?:#[^)]*)?\)`).FindAllStringSubmatch(string(page), -1) {
		linked = append(linked, m[1])
	}
	found := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil || !leavesOut.Match(text) {
			return err
		}
		found++
		name, err := filepath.Rel(root, path)
		if name = filepath.ToSlash(name); err == nil && !slices.Contains(linked, name) {
			t.Errorf("%s leaves something out: DIFFERENCES.md must link it and say what", name)
		}
		return err
	})
	if err != nil || found < 20 {
		t.Errorf("%d files leave something out, want at least 20: %v", found, err)
	}
}
