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

// step is a command of a transcript and what it prints.
type step struct{ command, want string }

// transcript returns the steps of the console blocks below a heading.
func transcript(t *testing.T, heading string) (steps []step) {
	t.Helper()
	text, err := os.ReadFile("../../fakecloud/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(section, -1) {
		continued := false
		for line := range strings.Lines(block[1]) {
			command, ok := strings.CutPrefix(line, "$ ")
			switch last := len(steps) - 1; {
			case ok:
				steps = append(steps, step{command: command})
			case continued:
				steps[last].command += line
			default:
				steps[last].want += line
			}
			last := &steps[len(steps)-1]
			continued = last.want == "" && (strings.Count(last.command, "'")%2 == 1 || strings.HasSuffix(last.command, "|\n"))
		}
	}
	return steps
}

// start starts the program as `make run` does, on free ports, and returns the line that it prints for a shell.
func start(t *testing.T) (export string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "fakecloud.exe")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../../fakecloud", "-o", program,
		"./cmd/fakecloud").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), program, "--data-plane", "--listen", "127.0.0.1:0", "--control", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	export, err = bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(export, "export HCLOUD_ENDPOINT=") {
		t.Fatalf("the program printed %q: %v", export, err)
	}
	return export
}

// shell is a bash that runs one command after the other.
type shell struct {
	in  io.Writer
	out *bufio.Reader
}

func newShell(t *testing.T) *shell {
	t.Helper()
	// The test's context ends before its clean-up, which needs the shell to end what runs in its background.
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
		if line == end+"\n" {
			return out.String()
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
	shell.run(t, start(t))
	shell.run(t, `curl() { command curl -sS "$@"; }`) // without a terminal, curl would print its progress
	address := regexp.MustCompile(`"ip":"[0-9.]+"`)
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
				break
			}
			// The server starts, and the load balancer gets its address, some seconds later.
			if creates || time.Now().After(deadline) {
				t.Fatalf("$ %sprinted\n%s\nThe README says\n%s", step.command, got, want)
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
}
