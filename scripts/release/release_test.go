// Package release tests scripts/release.sh and scripts/publish.sh without compiling what they release.
package release

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// shell runs a script in a folder and returns all that it prints.
func shell(t *testing.T, folder, script string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{"-euc", script}, args...)...)
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func must(t *testing.T, folder, script string, args ...string) {
	t.Helper()
	if out, err := shell(t, folder, script, args...); err != nil {
		t.Fatalf("%s: %v: %s", script, err, out)
	}
}

// repository makes a repository with the script, a change log and a tag. The module e2e/hetzner requires a release of the root module.
func repository(t *testing.T, changelog, tag, hetzner string) string {
	t.Helper()
	checkout, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	must(t, folder, `mkdir -p scripts e2e/hetzner fakecloud/gomegacloud
for script in release publish tool progress need; do cp "$0/$script.sh" scripts; done
printf %s "$1" >CHANGELOG.md && printf %s "$2" | tee go.mod fakecloud/gomegacloud/go.mod >e2e/hetzner/go.mod
sed -i.orig "s|^require (|&\n\tgithub.com/ccm-from-scratch/ccm-from-scratch $4|" e2e/hetzner/go.mod && rm e2e/hetzner/go.mod.orig
git init -q && git add . && git -c user.name=t -c user.email=t@example.org -c commit.gpgsign=false commit -qm all
for module in "" e2e/ fakecloud/ fakecloud/gomegacloud/; do git tag "$module$3"; done`, checkout, changelog, goMod, tag, hetzner)
	return folder
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
	out, err := shell(t, folder, "scripts/release.sh --check v1.2.3")
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
	const same, empty = ": must be a tag of the same commit", "## [1.2.3]\n\n## [1.2.2]\n\n- something\n"
	for name, c := range map[string]struct{ log, tag, hetzner, script, want string }{
		"no version":          {script: "scripts/release.sh --check", want: "usage"},
		"a malformed version": {script: "scripts/release.sh --check 1.2.3", want: "must be a version"},
		"a leading zero":      {script: "scripts/release.sh --check v1.02.3", want: "must be a version"},
		"no tag":              {script: "scripts/release.sh --check v1.2.4", want: "there is no such tag"},
		"another fakecloud": {tag: "v1.2.2", hetzner: "v1.2.2", script: "scripts/release.sh --check v1.2.2",
			want: "go.mod requires fakecloud v1.2.3, must be v1.2.2"},
		"another root in a module that is not released": {hetzner: "v1.2.2",
			want: "e2e/hetzner/go.mod requires github.com/ccm-from-scratch/ccm-from-scratch v1.2.2, must be v1.2.3"},
		"not in the log":                  {log: "## [1.2.2]\n\n- something\n", want: "CHANGELOG.md"},
		"empty in the log":                {log: empty, want: "CHANGELOG.md"},
		"files of an earlier run":         {script: "mkdir -p out/release/v1.2.3; scripts/release.sh v1.2.3", want: "exists"},
		"no tag of gomegacloud":           {script: deleted("fakecloud/gomegacloud"), want: "fakecloud/gomegacloud/v1.2.3" + same},
		"no tag of fakecloud":             {script: deleted("fakecloud"), want: "fakecloud/v1.2.3" + same},
		"no tag of the conformance suite": {script: deleted("e2e"), want: "e2e/v1.2.3" + same},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := repository(t, cmp.Or(c.log, changelog), cmp.Or(c.tag, "v1.2.3"), cmp.Or(c.hetzner, "v1.2.3"))
			out, err := shell(t, folder, cmp.Or(c.script, "scripts/release.sh --check v1.2.3"))
			if err == nil || !strings.Contains(out, c.want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// deleted makes a release without the tag of a module.
func deleted(module string) string {
	return "git tag -d " + module + "/v1.2.3 && scripts/release.sh v1.2.3"
}
