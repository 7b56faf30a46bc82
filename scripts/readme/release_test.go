package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	aRelease = regexp.MustCompile(`@latest|[@:]v0\.1\.0`)
	replaced = regexp.MustCompile(`-replace=(\S+)=(\S+)`)
)

// TestBeforeARelease runs what a page that names a release says to do until there is one.
func TestBeforeARelease(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("downloads modules")
	}
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed, which the pages use")
	}
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	n, pages := map[string]int{}, map[string]bool{}
	for _, b := range blocks(t) {
		pages[b.page] = true
		if b.says == "run by TestBeforeARelease" {
			n[b.page]++
			outside := t.TempDir()
			if err := os.Symlink(checkout, filepath.Join(outside, "ccm-from-scratch")); err != nil {
				t.Fatal(err)
			}
			beforeARelease(t, b, checkout, outside)
		}
	}
	for page := range pages {
		text, err := os.ReadFile(filepath.Join(checkout, page))
		if err != nil {
			t.Fatal(err)
		}
		if aRelease.Match(text) && n[page] == 0 {
			t.Errorf("%s names a release: say what to do until there is one, in a block that this test runs", page)
		}
	}
	if n["fakecloud/INSTALL.md"] != 3 || n["e2e/PORTING.md"] != 1 {
		t.Errorf("other blocks were run: %v", n)
	}
}

// beforeARelease runs a block in the checkout, or in a module next to it that imports what the block replaces.
func beforeARelease(t *testing.T, b block, checkout, outside string) {
	t.Helper()
	dir, bin, check := checkout, filepath.Join(outside, "bin"), `"$GOBIN/fakecloud" --version`
	text := b.text
	if m := replaced.FindStringSubmatch(text); m != nil {
		dir = filepath.Join(outside, strings.Repeat("user/", strings.Count(m[2], "../")))
		imported := map[string]string{"e2e": "/suite", "fakecloud": "/fakecloudtest", "gomegacloud": ""}[filepath.Base(m[1])]
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		source := "package user\n\nimport _ \"" + m[1] + imported + "\"\n"
		if err := os.WriteFile(filepath.Join(dir, "user_test.go"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, "go mod init") {
			text = "go mod init example.com/user\n" + text
		}
		check = "go list -deps -test . && go list tool"
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-euc", text+check)
	cmd.Dir, cmd.Env = dir, slices.Concat(os.Environ(), []string{"GOWORK=off", "GOBIN=" + bin})
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s:%d: %v:\n%s", b.page, b.line, err, out)
	}
	if dir == checkout && !strings.Contains(string(out), filepath.Join(bin, "fakecloud")) {
		t.Errorf("%s:%d: it does not say where the program is:\n%s", b.page, b.line, out)
	}
}
