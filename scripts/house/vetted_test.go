package house

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The tests of a module that the linter looks at run without go vet, and only those.
func TestEveryModuleIsVettedOnce(t *testing.T) {
	find := func(file, pattern string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("%s has no line like %s: correct this test", file, pattern)
		}
		return string(found[1])
	}
	unvetted := find("scripts/test.sh", `(?m)^vetted=" (.*) "$`)
	linted := find("scripts/lint.sh", `(?m)^for module in (.*); do$`)
	if unvetted != linted {
		t.Errorf("scripts/test.sh tests %q without go vet, scripts/lint.sh runs vet on %q: make them the same", unvetted, linted)
	}
}
