// Package readme runs the transcript of the section "A first look" of fakecloud/README.md, as a newcomer would.
package readme

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
)

// step is a command of a transcript and its output.
type step struct{ command, want string }

// transcript returns the steps of the console blocks below a heading.
func transcript(t *testing.T, heading string) (all []step) {
	t.Helper()
	text, err := os.ReadFile("../../fakecloud/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(section, -1) {
		all = append(all, steps(block[1])...)
	}
	return all
}

// steps returns the steps of a console block.
func steps(text string) (all []step) {
	continued := false
	for line := range strings.Lines(text) {
		command, ok := strings.CutPrefix(line, "$ ")
		switch last := len(all) - 1; {
		case ok:
			all = append(all, step{command: command})
		case continued:
			all[last].command += line
		default:
			all[last].want += line
		}
		last := &all[len(all)-1]
		continued = last.want == "" && (strings.Count(last.command, "'")%2 == 1 || strings.HasSuffix(last.command, "|\n") ||
			strings.HasSuffix(last.command, "\\\n"))
	}
	return all
}

// running is the program, its addresses, and the line that it prints for a shell.
type running struct{ program, export, address, control string }

// start starts the program as `make run` does, on free ports.
func start(t *testing.T) (r running) {
	t.Helper()
	r.program = filepath.Join(t.TempDir(), "fakecloud.exe")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../../fakecloud", "-o", r.program,
		"./cmd/fakecloud").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), r.program, "--data-plane", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	began := time.Now()
	in := bufio.NewReader(out)
	r.export, err = in.ReadString('\n')
	address, ok := strings.CutPrefix(r.export, "export HCLOUD_ENDPOINT=http://")
	control, err2 := in.ReadString('\n')
	_, at, ok2 := strings.Cut(strings.TrimSpace(control), "http://")
	if err != nil || err2 != nil || !ok || !ok2 {
		t.Fatalf("the program printed %q and %q: %v, %v", r.export, control, err, err2)
	}
	r.address, _, _ = strings.Cut(address, "/")
	r.control = at
	t.Logf("it serves %v after its start", time.Since(began))
	return r
}

// shell is a bash that runs one command after the other.
type shell struct {
	in  io.Writer
	out *bufio.Reader
}

func newShell(t *testing.T) *shell {
	t.Helper()
	// The test's context ends before its clean-up, where the shell ends its background jobs.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "bash")
	cmd.Dir = t.TempDir()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &shell{in, bufio.NewReader(out)}
	t.Cleanup(func() {
		_, _ = io.WriteString(in, "kill $(jobs -p); exit\n")
		_ = cmd.Wait()
	})
	return s
}

// run returns what a command prints.
func (s *shell) run(t *testing.T, command string) string {
	t.Helper()
	const end = "--- end of the command"
	if _, err := fmt.Fprintf(s.in, "{ %s\n} 2>&1 </dev/null; echo '%s'\n", command, end); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, out.String())
		}
		if last, ended := strings.CutSuffix(line, end+"\n"); ended { // also after a text without a line's end
			return out.String() + last
		}
		out.WriteString(strings.ReplaceAll(line, "\r\n", "\n"))
	}
}

// Other systems than Linux have one loopback address only: there, what listens on other addresses is left out.
func TestTheTranscriptOfTheSimulatedCloud(t *testing.T) {
	for _, program := range []string{"bash", "curl", "jq", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed, which the transcript uses", program)
		}
	}
	steps := transcript(t, "## A first look, command by command")
	if len(steps) < 8 || !strings.HasPrefix(steps[0].command, "make run") {
		t.Fatalf("the transcript is another one: %q", steps)
	}
	shell := newShell(t)
	shell.run(t, start(t).export)
	shell.run(t, `curl() { command curl -sS "$@"; }`) // without a terminal, curl would print its progress
	address := regexp.MustCompile(`"ip":"[0-9.]+"`)
	shown := steps[:1:1] // what runs, with what it has printed
	for _, step := range steps[1:] {
		want := step.want
		if runtime.GOOS != "linux" {
			if strings.Contains(step.command, "http.server") {
				t.Log("the rest needs addresses that only Linux has")
				break
			}
			want = address.ReplaceAllString(want, `"ip":"any"`)
		}
		creates := strings.Contains(step.command, " -d ")
		for deadline := time.Now().Add(time.Minute); ; {
			got := shell.run(t, step.command)
			if runtime.GOOS != "linux" {
				got = address.ReplaceAllString(got, `"ip":"any"`)
			}
			if got == want {
				ran := step
				ran.want = got
				shown = append(shown, ran)
				break
			}
			// The server starts, and the load balancer gets its address, some seconds later.
			if creates || time.Now().After(deadline) {
				t.Fatalf("$ %sprinted\n%s\nThe README says\n%s", step.command, got, want)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	if *update && len(shown) == len(steps) {
		if err := os.WriteFile(recordingFile, []byte(drawing(shown)), 0o644); err != nil { //nolint:gosec // a picture, for everybody
			t.Fatal(err)
		}
	}
}
