package house

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unwritten matches the files that size.txt does not count: pages, data of tests, and files that programs write.
var unwritten = regexp.MustCompile(`\.(md|sum|mod|png|svg|json|jsonl|txt)$|/testdata/`)

// No part of the repository has more lines than size.txt allows: a feature pays for itself.
func TestTheHouseDoesNotGrow(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	for line := range strings.Lines(read(t, "scripts", "house", "size.txt")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var part string
		var limit [3]int
		if _, err := fmt.Sscan(line, &part, &limit[0], &limit[1], &limit[2]); err != nil {
			t.Fatalf("size.txt: %q: must be a folder and three numbers: %v", line, err)
		}
		out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", part, ":!"+part+"/doors").Output()
		if err != nil || len(out) == 0 {
			t.Fatalf("git ls-files %s: %v, %d bytes", part, err, len(out))
		}
		var lines [3]int
		for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			kind := 2
			switch {
			case strings.HasSuffix(name, "_test.go"):
				kind = 1
			case path.Ext(name) == ".go":
				kind = 0
			case unwritten.MatchString(name):
				continue
			}
			text, err := os.ReadFile(filepath.Join(root, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // deleted, and not committed yet
				t.Fatal(err)
			}
			lines[kind] += bytes.Count(text, []byte("\n"))
		}
		for i, what := range []string{"Go code", "tests", "other files"} {
			t.Logf("%s: %d of %d lines of %s", part, lines[i], limit[i], what)
			if lines[i] > limit[i] {
				t.Errorf("%s has %d lines of %s, more than the %d of scripts/house/size.txt: delete some, or take them from another part",
					part, lines[i], what, limit[i])
			}
		}
	}
}
