package report

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A repository that imports the specs has their sources in Go's module cache, and its own specs next to it.
func TestTheSourcesOfImportedSpecsAreFound(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module x\n", "own_test.go": "own", "README.md": "theirs"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files := ModuleOf(root)
	for name, want := range map[string]string{"own_test.go": "own", "README.md": "theirs", "e2e/report/source_test.go": "package report"} {
		if text, err := fs.ReadFile(files, name); err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("%s: %q, %v", name, text[:min(20, len(text))], err)
		}
	}
	if _, err := fs.ReadFile(files, "none.go"); !os.IsNotExist(err) {
		t.Errorf("a file that is not there: %v", err)
	}
}
