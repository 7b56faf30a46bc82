// Package release tests scripts/release.sh and scripts/publish.sh without compiling what they release.
package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository makes a repository with the script, a change log and a tag. The module e2e/hetzner requires a release of the root module.
func repository(t *testing.T, changelog, tag, hetzner string) string {
	t.Helper()
	folder := t.TempDir()
	hetznerMod := strings.Replace(goMod, "require (\n", "require (\n\tgithub.com/ccm-from-scratch/ccm-from-scratch "+hetzner+"\n", 1)
	files := map[string][]byte{"CHANGELOG.md": []byte(changelog), "go.mod": []byte(goMod), "e2e/hetzner/go.mod": []byte(hetznerMod),
		"fakecloud/gomegacloud/go.mod": []byte(goMod)}
	for _, script := range []string{"release.sh", "publish.sh", "tool.sh", "progress.sh", "need.sh"} {
		text, err := os.ReadFile("../" + script)
		if err != nil {
			t.Fatal(err)
		}
		files["scripts/"+script] = text
	}
	for name, text := range files {
		name = filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "."}, {"-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false", "commit", "-qm",
			"all"}, {"tag", tag}, {"tag", "e2e/" + tag}, {"tag", "fakecloud/" + tag},
		{"tag", "fakecloud/gomegacloud/" + tag},
	} {
		if out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", folder}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	return folder
}

// release runs the script and returns all that it prints.
func release(t *testing.T, folder string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(folder, "scripts/release.sh"), args...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

const changelog = `# Changelog

## [Unreleased]

## [1.2.3] - 2026-11-22

### Added

- something

## [1.2.2]

[1.2.3]: https://example.org
`

const goMod = `module github.com/ccm-from-scratch/ccm-from-scratch

go 1.26.0

require (
	example.com/other v0.1.0
	github.com/ccm-from-scratch/ccm-from-scratch/fakecloud v1.2.3
)
`

func TestACheckNamesEveryStepAndMakesNothing(t *testing.T) {
	t.Parallel()
	folder := repository(t, changelog, "v1.2.3", "v1.2.3")
	out, err := release(t, folder, "--check", "v1.2.3")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	position := 0
	for _, step := range []string{
		"+ git clone", "checkout --quiet v1.2.3", "ARCH=amd64 arm64 TAG=v1.2.3", "scripts/image.sh", "+ programs",
		"ccm/chart --version 1.2.3 --app-version v1.2.3", "fakecloud/chart --version 1.2.3 --app-version v1.2.3",
		"+ manifest", "+ behaviour", "+ write_notes", "+ checksums", "+ mv", "nothing was made",
	} {
		i := strings.Index(out[position:], step)
		if i < 0 {
			t.Fatalf("no %q after\n%s\nin\n%s", step, out[:position], out)
		}
		position += i
	}
	if _, err := os.Stat(filepath.Join(folder, "out")); !os.IsNotExist(err) {
		t.Errorf("a check has made files: %v", err)
	}
}

// The message has to name what is wrong.
func TestAReleaseThatCannotBeMadeIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ log, tag, hetzner, arguments, want string }{
		"no version":          {changelog, "v1.2.3", "v1.2.3", "", "usage"},
		"a malformed version": {changelog, "v1.2.3", "v1.2.3", "1.2.3", "must be a version"},
		"a leading zero":      {changelog, "v1.2.3", "v1.2.3", "v1.02.3", "must be a version"},
		"no tag":              {changelog, "v1.2.3", "v1.2.3", "v1.2.4", "there is no such tag"},
		"another fakecloud":   {changelog, "v1.2.2", "v1.2.2", "v1.2.2", "go.mod requires fakecloud v1.2.3, must be v1.2.2"},
		"another root in a module that is not released": {changelog, "v1.2.3", "v1.2.2", "v1.2.3",
			"e2e/hetzner/go.mod requires github.com/ccm-from-scratch/ccm-from-scratch v1.2.2, must be v1.2.3"},
		"not in the log":   {"## [1.2.2]\n\n- something\n", "v1.2.3", "v1.2.3", "v1.2.3", "CHANGELOG.md"},
		"empty in the log": {"## [1.2.3]\n\n## [1.2.2]\n\n- something\n", "v1.2.3", "v1.2.3", "v1.2.3", "CHANGELOG.md"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := release(t, repository(t, c.log, c.tag, c.hetzner), append([]string{"--check"}, strings.Fields(c.arguments)...)...)
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	folder := repository(t, changelog, "v1.2.3", "v1.2.3")
	if err := os.MkdirAll(filepath.Join(folder, "out/release/v1.2.3"), 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := release(t, folder, "v1.2.3"); err == nil || !strings.Contains(out, "exists") {
		t.Errorf("files of an earlier run: %v: %s", err, out)
	}
	for _, module := range []string{"fakecloud/gomegacloud", "fakecloud", "e2e"} { // the script looks in the other order
		if out, err := exec.CommandContext(t.Context(), "git", "-C", folder, "tag", "-d", module+"/v1.2.3").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		out, err := release(t, folder, "v1.2.3")
		if err == nil || !strings.Contains(out, module+"/v1.2.3: must be a tag of the same commit") {
			t.Errorf("without the tag of %s: %v: %s", module, err, out)
		}
	}
}
