package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// step is a step of an action or of a workflow's job.
type step struct {
	Uses, Run, Shell string
	Env              map[string]string
}

// action is what the tests read of an action or a workflow.
type action struct {
	Inputs map[string]struct{ Default string }
	Runs   struct{ Steps []step }
	Jobs   map[string]struct {
		Uses  string
		Steps []step
	}
}

func readAction(t *testing.T, path string) (a action, text string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(b, &a); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return a, string(b)
}

// TestWhatRunsOnGitHubIsPinned allows actions of others by their commit only, and looks for mistakes in scripts.
func TestWhatRunsOnGitHubIsPinned(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil {
		t.Fatal(err)
	}
	paths = append(paths, "../../fakecloud/action.yml", "../../e2e/action.yml")
	pinned := regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40}$`)
	looked := 0
	for _, path := range paths {
		a, text := readAction(t, path)
		steps := a.Runs.Steps
		for _, job := range a.Jobs {
			steps = append(slices.Clone(steps), job.Steps...)
		}
		for _, s := range steps {
			looked++
			if s.Uses != "" && !pinned.MatchString(s.Uses) {
				t.Errorf("%s uses %s: name a commit", path, s.Uses)
			}
			if strings.Contains(s.Run, "${{ inputs.") {
				t.Errorf("%s: an input is a part of a script, which it can change: give it by env\n%s", path, s.Run)
			}
			plain := regexp.MustCompile(`\$\{\{.*?\}\}`).ReplaceAllString(s.Run, "x")
			if out, err := exec.CommandContext(t.Context(), "bash", "-n", "-c", plain).CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s\n%s", path, err, out, s.Run)
			}
		}
		for name := range a.Inputs {
			if !strings.Contains(text, "${{ inputs."+name+" }}") {
				t.Errorf("%s does not use its input %s", path, name)
			}
		}
	}
	if looked < 20 {
		t.Errorf("%d steps were read, want at least 20", looked)
	}
}

// fakeMake prints what it got.
const fakeMake = `#!/usr/bin/env bash
printf '%s\n' "$@" "$E2E_CLUSTER" "$E2E_OUT"
`

// TestTheActionRunsTheSuite runs the first script of e2e/action.yml with a make that says what it got.
func TestTheActionRunsTheSuite(t *testing.T) {
	t.Parallel()
	a, _ := readAction(t, "../../e2e/action.yml")
	scripts := slices.DeleteFunc(a.Runs.Steps, func(s step) bool { return s.Run == "" })
	bin, workspace, folder := t.TempDir(), t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		filepath.Join(bin, "make"):              fakeMake,
		filepath.Join(workspace, "my ccm.yaml"): "",
	} {
		if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(folder, "e2e")
	values := strings.NewReplacer("${{ inputs.ccm }}", "my ccm.yaml", "${{ inputs.cluster }}", a.Inputs["cluster"].Default,
		"${{ inputs.labels }}", "", "${{ inputs.shard }}", "", "${{ runner.temp }}", folder)
	var printed string
	for _, s := range scripts {
		cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", s.Run)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GITHUB_ACTION_PATH=/action/e2e", "GITHUB_WORKSPACE="+workspace,
			"RUNNER_TEMP="+folder)
		for name, v := range s.Env {
			cmd.Env = append(cmd.Env, name+"="+values.Replace(v))
		}
		b, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, b)
		}
		printed += string(b)
	}
	resolved, err := filepath.EvalSymlinks(workspace)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{"-C", "/action/e2e/..", "e2e", "CCM=" + resolved + "/my ccm.yaml", "embedded", out, ""}, "\n")
	if printed != want {
		t.Errorf("make got\n%s\nwant\n%s", printed, want)
	}
}

// TestATagThatReleasesIsPushedAlone counts the tags of each push: GitHub makes no event for more than three that are pushed together.
func TestATagThatReleasesIsPushedAlone(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "grep", "-hoE", `git push origin [^#]*v1\.2\.3[^#(]*`, "--",
		"*.md", "*.yml", "*.sh").Output()
	if err != nil {
		t.Fatalf("no page says how a release is pushed: %v", err)
	}
	last := ""
	for push := range strings.Lines(string(out)) {
		refs := strings.Fields(push)[3:]
		if alone := slices.Equal(refs, []string{"v1.2.3"}); len(refs) > 3 || slices.Contains(refs, "v1.2.3") && !alone {
			t.Errorf("%spushes %d tags: at most three go together, and v1.2.3 goes alone", push, len(refs))
		}
		last = strings.Join(refs, " ")
	}
	if last != "v1.2.3" {
		t.Errorf("v1.2.3 must be pushed last: the workflow needs the other tags")
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
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range lacks.FindAllString(string(text), -1) {
			t.Errorf("%s: %q", path, found)
		}
		for _, found := range arrays.FindAllStringSubmatch(string(text), -1) {
			t.Errorf("%s: the array %s, if it is empty: write ${%[2]s[@]+\"${%[2]s[@]}\"}", path, found[1])
		}
	}
}
