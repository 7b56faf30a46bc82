package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestWhatRunsOnGitHubIsPinned allows actions of others by their commit only. Other mistakes in workflows, actionlint finds.
func TestWhatRunsOnGitHubIsPinned(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil {
		t.Fatal(err)
	}
	pinned := regexp.MustCompile(`^\s*(- )?uses: (\./\S+|[\w.-]+/[\w./-]+@[0-9a-f]{40} # \S+)$`)
	setting := regexp.MustCompile(`^\s*(if|[\w-]*[^n]): `) // not run
	looked := 0
	for _, path := range append(paths, "../../fakecloud/action.yml", "../../e2e/action.yml") {
		for line := range strings.SplitSeq(read(t, "scripts", "house", path), "\n") {
			if strings.Contains(line, "uses: ") && !strings.HasPrefix(strings.TrimSpace(line), "#") {
				looked++
				if !pinned.MatchString(line) {
					t.Errorf("%s: %s: name a commit, and its version behind #", path, line)
				}
			}
			if strings.Contains(line, "${{ inputs.") && !setting.MatchString(line) {
				t.Errorf("%s: an input is a part of a script, which it can change: give it by env: %s", path, line)
			}
		}
	}
	if looked < 15 {
		t.Errorf("%d actions are used, want at least 15", looked)
	}
}

// GitHub makes no event for more than three tags that are pushed together.
func TestTheTagThatReleasesIsPushedAloneAndLast(t *testing.T) {
	t.Parallel()
	pushes := regexp.MustCompile(`(?m)^git push origin ([^#\n]*)`).FindAllStringSubmatch(read(t, "CONTRIBUTING.md"), -1)
	for i, push := range pushes {
		refs := strings.Fields(push[1])
		if last := i == len(pushes)-1; len(refs) > 3 || last != slices.Equal(refs, []string{"v1.2.3"}) {
			t.Errorf("%s: at most three tags go together, and v1.2.3 goes alone and last", push[0])
		}
	}
	if len(pushes) < 2 || !strings.Contains(read(t, ".github", "workflows", "release.yml"), `tags: ["v[0-9]*"]`) {
		t.Errorf("%d pushes, or another trigger of the release", len(pushes))
	}
}

func TestHelpOfMakeFitsATerminal(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "make", "-s", "-C", "../..", "help").Output()
	for line := range strings.Lines(string(out)) {
		if len([]rune(line)) > 101 {
			t.Errorf("longer than 100 columns: %s", line)
		}
	}
	if lines := strings.Count(string(out), "\n"); err != nil || lines < 30 {
		t.Errorf("%v: %d lines of help", err, lines)
	}
}

// TestTheActionRunsTheSuite runs the script of e2e/action.yml with a make that says what it got.
func TestTheActionRunsTheSuite(t *testing.T) {
	t.Parallel()
	var action struct {
		Inputs map[string]struct{ Default string }
		Runs   struct {
			Steps []struct {
				Run string
				Env map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "e2e", "action.yml")), &action); err != nil {
		t.Fatal(err)
	}
	bin, workspace := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		filepath.Join(bin, "make"):              "#!/bin/sh\nprintf '%s\\n' \"$@\" \"$E2E_CLUSTER\" \"$E2E_OUT\"\n",
		filepath.Join(workspace, "my ccm.yaml"): "",
	} {
		syscall.ForkLock.RLock() // a process that is being started would hold the program open for writing
		err := os.WriteFile(name, []byte(text), 0o700)
		if syscall.ForkLock.RUnlock(); err != nil {
			t.Fatal(err)
		}
	}
	values := strings.NewReplacer("${{ inputs.ccm }}", "my ccm.yaml", "${{ inputs.cluster }}", action.Inputs["cluster"].Default,
		"${{ inputs.labels }}", "", "${{ inputs.shard }}", "", "${{ runner.temp }}", "/tmp")
	printed := ""
	for _, s := range action.Runs.Steps {
		cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", s.Run)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GITHUB_ACTION_PATH=/action/e2e", "GITHUB_WORKSPACE="+workspace)
		for name, v := range s.Env {
			cmd.Env = append(cmd.Env, name+"="+values.Replace(v))
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		printed += string(out)
	}
	resolved, err := filepath.EvalSymlinks(workspace)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{"-C", "/action/e2e/..", "e2e", "CCM=" + resolved + "/my ccm.yaml", "embedded", "/tmp/e2e", ""}, "\n")
	if printed != want {
		t.Errorf("make got\n%s\nwant\n%s", printed, want)
	}
}

// TestScriptsNeedNothingThatMacOSLacks looks for features of bash after 3.2 and options of GNU's tools. Releases are made on Linux.
func TestScriptsNeedNothingThatMacOSLacks(t *testing.T) {
	t.Parallel()
	lacks := regexp.MustCompile(`(?m)^[^#\n]*(\b(mapfile|readarray|coproc|nproc|flock|sha256sum|declare -[An]|local -n|wait -n|` +
		`date -d|readlink -f|xargs -r|grep -P|read [a-z-]* ?-t)\b|sed -i |[\s;|(]timeout [0-9]|\$\{\w+(,,|\^\^|@)|\|&|&>>)`)
	arrays := regexp.MustCompile(`[^+]"\$\{(\w+)\[@\]\}"`) // fails where the array is empty
	paths, err := filepath.Glob("../*.sh")
	if err != nil || len(paths) < 20 {
		t.Fatalf("%v: %v", paths, err)
	}
	for _, path := range append(paths, "../../.ci/run", "../../Makefile") {
		if slices.Contains([]string{"release.sh", "publish.sh"}, filepath.Base(path)) {
			continue
		}
		text := read(t, "scripts", "house", path)
		for _, found := range lacks.FindAllString(text, -1) {
			t.Errorf("%s: %q", path, found)
		}
		for _, found := range arrays.FindAllStringSubmatch(text, -1) {
			t.Errorf("%s: the array %s, if it is empty: write ${%[2]s[@]+\"${%[2]s[@]}\"}", path, found[1])
		}
	}
}
