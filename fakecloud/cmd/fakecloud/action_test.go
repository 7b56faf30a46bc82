package main

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// job is a job of a CI that runs the step of action.yml, with files instead of the runner's.
type job struct {
	*testing.T
	temp string
	env  []string
}

// newJob returns a job that gives inputs to the action. The others have the defaults of action.yml.
func newJob(t *testing.T, inputs map[string]string) *job {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("bash is another system's there")
	}
	text := must(os.ReadFile("../../action.yml"))(t)
	var action struct {
		Inputs map[string]struct{ Default string }
		Runs   struct {
			Steps []struct {
				Run string
				Env map[string]string
			}
		}
	}
	check(t, yaml.Unmarshal(text, &action))
	if len(action.Runs.Steps) != 1 || action.Runs.Steps[0].Run != `"$GITHUB_ACTION_PATH/action.sh"` {
		t.Fatalf("action.yml has other steps: %+v", action.Runs.Steps)
	}
	j := &job{T: t, temp: t.TempDir()}
	j.env = append(os.Environ(), "TEST_RUN_FAKECLOUD=1", "HCLOUD_TOKEN=", "FAKECLOUD_STATE_FILE=", "RUNNER_TEMP="+j.temp,
		"GITHUB_PATH="+j.file("path"), "GITHUB_ENV="+j.file("env"), "GITHUB_OUTPUT="+j.file("output"),
		"RELEASES_URL=file://"+j.file("releases"))
	value := regexp.MustCompile(`^\$\{\{ inputs\.([a-z-]+) \}\}$`)
	used := map[string]bool{}
	for variable, v := range action.Runs.Steps[0].Env {
		name := value.FindStringSubmatch(v)
		if name == nil {
			t.Fatalf("action.yml: %s is %s", variable, v)
		}
		used[name[1]] = true
		given, ok := inputs[name[1]]
		if !ok {
			given = action.Inputs[name[1]].Default
		}
		j.env = append(j.env, variable+"="+given)
	}
	for name := range maps.Keys(action.Inputs) {
		if !used[name] {
			t.Errorf("action.yml does not use its input %s", name)
		}
	}
	t.Cleanup(func() {
		_, _ = j.bash(`"$RUNNER_TEMP/fakecloud/bin/fakecloud" stop --state-file "$RUNNER_TEMP/fakecloud/server.json"`)
	})
	return j
}

func (j *job) file(name string) string { return filepath.Join(j.temp, name) }

func (j *job) bash(script string, env ...string) (string, error) {
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir, cmd.Env = j.temp, slices.Concat(j.env, env)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// action runs the step.
func (j *job) action(env ...string) (string, error) {
	j.Helper()
	script := must(filepath.Abs("../../action.sh"))(j)
	return j.bash(quote(script), env...)
}

// later runs a step that comes after the action.
func (j *job) later(script string) string {
	j.Helper()
	var env []string
	for line := range strings.Lines(j.read("env")) {
		env = append(env, strings.TrimSpace(line))
	}
	out, err := j.bash("PATH="+quote(strings.TrimSpace(j.read("path")))+":$PATH; "+script, env...)
	if err != nil {
		j.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

func (j *job) read(name string) string {
	j.Helper()
	text := must(os.ReadFile(j.file(name)))(j)
	return string(text)
}

// release makes a release whose program is that of the test.
func (j *job) release(version string, sum func([]byte) string) {
	j.Helper()
	program := must(os.ReadFile(program()))(j)
	name := fmt.Sprintf("fakecloud-%s-%s", runtime.GOOS, runtime.GOARCH)
	folder := filepath.Join(j.file("releases"), version)
	check(j, os.MkdirAll(folder, 0o700))
	for name, text := range map[string][]byte{name: program, "SHA256SUMS": []byte("0  other\n" + sum(program) + "  " + name + "\n")} {
		check(j, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
}

func checksum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

func TestAJobGetsACloudFromTheAction(t *testing.T) {
	t.Parallel()
	j := newJob(t, map[string]string{"version": "v0.1.0", "projects": "auto", "args": "--token=mine --speed=60"})
	j.release("v0.1.0", checksum)
	if out, err := j.action("HCLOUD_TOKEN=" + strings.Repeat("r", 64)); err != nil ||
		!strings.Contains(out, "::warning::HCLOUD_TOKEN looks like") || !strings.Contains(out, "running") {
		t.Fatalf("%v\n%s", err, out)
	}
	outputs := regexp.MustCompile(`^endpoint=(http://127\.0\.0\.1:\d+/v1)\ncontrol=(http://127\.0\.0\.1:\d+)\n$`).FindStringSubmatch(j.read("output"))
	if outputs == nil || !strings.HasPrefix(j.read("env"), "HCLOUD_ENDPOINT="+outputs[1]+"\nHCLOUD_TOKEN=mine\n") {
		t.Fatalf("%s\n%s", j.read("output"), j.read("env"))
	}
	for path, say := range map[string]string{"/rate_limit": `"limit": 0`, "/clock": `"speed": 60`, "/profile": "realistic"} {
		if body := get(t, outputs[2]+path); !strings.Contains(body, say) {
			t.Errorf("%s: %s, want %s", path, body, say)
		}
	}
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, outputs[1]+"/servers", nil))(t)
	req.Header.Set("Authorization", "Bearer job-1") // of a project of its own
	if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	if out := j.later(`fakecloud status --markdown`); !strings.Contains(out, "| list_servers | 1 | 0 | 0 |") {
		t.Errorf("the summary: %s", out)
	}
	if out := j.later(`fakecloud stop`); out != "stopped\n" {
		t.Errorf("stop: %s", out)
	}
}

func TestTheActionCompilesItsOwnFiles(t *testing.T) {
	t.Parallel()
	j := newJob(t, nil)
	if out, err := j.action(); err != nil || !strings.Contains(j.read("env"), "HCLOUD_TOKEN=fakecloud") {
		t.Fatalf("%v\n%s", err, out)
	}
	if out := j.later(`fakecloud env`); !strings.HasPrefix(out, "export HCLOUD_ENDPOINT=http") {
		t.Errorf("%s", out)
	}
}

func TestTheActionRefusesWhatItCannotTrust(t *testing.T) {
	t.Parallel()
	j := newJob(t, map[string]string{"version": "v0.1.0"})
	j.release("v0.1.0", func([]byte) string { return checksum(nil) })
	if out, err := j.action(); err == nil || !strings.Contains(out, "its checksum is not in SHA256SUMS") {
		t.Errorf("a wrong checksum: %v\n%s", err, out)
	}
	j = newJob(t, nil)
	few := t.TempDir()
	for _, name := range []string{"mkdir", "dirname"} {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(few, name))
		}
		check(t, err)
	}
	script := must(filepath.Abs("../../action.sh"))(t)
	if out, err := j.bash("PATH=" + quote(few) + "; . " + quote(script)); err == nil || !strings.Contains(out, "Go is not installed") {
		t.Errorf("without Go: %v\n%s", err, out)
	}
	j = newJob(t, map[string]string{"args": "--actions=soon", "version": "v0.1.0"})
	j.release("v0.1.0", checksum)
	if out, err := j.action(); err == nil || !strings.Contains(out, "must be instant") {
		t.Errorf("a wrong flag: %v\n%s", err, out)
	}
}
