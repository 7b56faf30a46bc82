// Package shell tests the scripts that a newcomer's first commands run, with the shells of Debian, Alpine and macOS.
package shell

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// shells runs a test with each shell. bash 3.2 of macOS is not at hand; what all of these run, it runs.
func shells(t *testing.T, test func(t *testing.T, shell ...string)) {
	t.Helper()
	for _, shell := range []string{"dash", "busybox sh", "bash --posix"} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			words := strings.Fields(shell)
			if _, err := exec.LookPath(words[0]); err != nil {
				if os.Getenv("REQUIRE_SHELLS") != "" {
					t.Fatalf("%v: install it; REQUIRE_SHELLS is set", err)
				}
				t.Skipf("%s is not installed", words[0])
			}
			test(t, words...)
		})
	}
}

// checkout is a folder with the scripts of this one, a program, and its own cache.
type checkout struct{ folder, cache, tmp string }

// program prints its process, and ends with a signal.
const program = `package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	fmt.Println(os.Getpid(), os.Args[1:])
	if len(os.Args) > 1 {
		fmt.Println(<-signals)
	}
}
`

func newCheckout(t *testing.T) checkout {
	t.Helper()
	c := checkout{t.TempDir(), t.TempDir(), t.TempDir()}
	paths, err := filepath.Glob("../*.sh")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%v: %v", paths, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c.write(t, "scripts/"+filepath.Base(path), string(text))
	}
	c.write(t, "go.mod", "module example.org/newcomer\n\ngo 1.26.0\n")
	c.write(t, "program/main.go", program)
	c.write(t, "program/main_test.go", "package main\n\nimport \"testing\"\n\nfunc TestIt(*testing.T) {}\n")
	return c
}

func (c checkout) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(c.folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	// A process that a parallel test starts meanwhile would hold the file open for writing, so that it could not be run.
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(text), 0o700)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
}

func (c checkout) fifo(t *testing.T) string {
	t.Helper()
	name := filepath.Join(c.folder, "fifo")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// command returns a script's command. Settings come last, so that they count.
func (c checkout) command(ctx context.Context, shell []string, script string, args ...string) *exec.Cmd {
	words := append(append(shell[1:len(shell):len(shell)], filepath.Join(c.folder, "scripts", script)), args...)
	cmd := exec.CommandContext(ctx, shell[0], words...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "TMPDIR="+c.tmp, "XDG_CACHE_HOME="+c.cache,
		"GOCACHE="+goEnv("GOCACHE"))
	return cmd
}

func goEnv(name string) string {
	out, _ := exec.Command("go", "env", name).Output() // without go, no test begins
	return strings.TrimSpace(string(out))
}

// start starts a command in its own group and returns its first line of standard output.
func start(t *testing.T, cmd *exec.Cmd) (line string, rest *bufio.Reader) {
	t.Helper()
	cmd.Stderr = &bytes.Buffer{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	rest = bufio.NewReader(out)
	if line, err = rest.ReadString('\n'); err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args, err, cmd.Stderr)
	}
	return line, rest
}

// until reads up to a text.
func until(t *testing.T, from *bufio.Reader, text string) (all string) {
	t.Helper()
	for !strings.HasSuffix(all, text) {
		b, err := from.ReadByte()
		if err != nil {
			t.Fatalf("it ended before it said %q: %v: %s", text, err, all)
		}
		all += string(b)
	}
	return all
}

// A compiler that is silent for longer than a second ended the progress with the bash of macOS, and the compiler with it.
func TestProgressGoesOnAfterASilentSecond(t *testing.T) {
	t.Parallel()
	shells(t, func(t *testing.T, shell ...string) { progress(t, shell, false) })
}

func TestProgressOnATerminalIsOneLine(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("script"); err != nil || runtime.GOOS != "linux" {
		t.Skip("script of util-linux makes the terminal, and is not here: ", err)
	}
	shells(t, func(t *testing.T, shell ...string) { progress(t, shell, true) })
}

func progress(t *testing.T, shell []string, terminal bool) {
	c := newCheckout(t)
	fifo := c.fifo(t) // the compiler waits for a line that is sent once the clock has ticked
	compiler := `case $1 in
env) echo go1.26.0; echo ` + c.cache + ` ;;
list) seq 322 ;;
*) printf 'go: downloading example.com/a v1.0.0\nexample.com/a\nx.go:3:1: undefined: y\nexample.com/b' >&2
	read line <` + fifo + `; printf '/c\nlast' >&2; exit 3 ;;
esac`
	cmd := c.command(t.Context(), shell, "progress.sh", "compiling", "go", "build", "-v", "./x")
	pipe := cmd.StderrPipe
	if terminal {
		typed := exec.CommandContext(t.Context(), "script", "-qefc", strings.Join(cmd.Args, " "), "/dev/null")
		typed.Env = cmd.Env
		cmd, pipe = typed, typed.StdoutPipe
	}
	cmd.Env = append(cmd.Env, "PROGRESS_EVERY=0", c.path(t, "", map[string]string{"go": compiler}))
	out, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	from := bufio.NewReader(out)
	all := until(t, from, "so far")
	again := until(t, from, "of at most 322 packages compiled")
	if terminal {
		again = until(t, from, "so far")
	}
	if err := os.WriteFile(fifo, []byte("go on\n"), 0); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(from) // a terminal ends with an error
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("the command's status is lost: %v", err)
	}
	if terminal != (strings.Contains(again, "\r\x1b[K") && !strings.Contains(again, "\n")) {
		t.Errorf("from one report to the next: %q", again)
	}
	all += again + string(rest)
	for _, want := range []string{"2 of at most 322 packages compiled, 1 modules downloaded", "x.go:3:1: undefined: y", "last\n"} {
		if !strings.Contains(strings.ReplaceAll(all, "\r\n", "\n"), want) {
			t.Errorf("there is no %q in %q", want, all)
		}
	}
	begins := strings.HasPrefix(all, "compiling ... (Ctrl-C")
	if !begins || strings.Contains(all, "\x1e") || !terminal && !strings.Contains(all, "\nlast\n") {
		t.Errorf("got %q", all)
	}
}

// The program takes the place of the script, is compiled once, and is another one after a change.
func TestAProgramIsCompiledOnceAndGetsTheSignal(t *testing.T) {
	t.Parallel()
	shells(t, func(t *testing.T, shell ...string) {
		c := newCheckout(t)
		var before os.FileInfo
		for range 2 { // the second time, and while the first one runs
			cmd := c.command(t.Context(), shell, "gorun.sh", "program", "a b", "c")
			line, rest := start(t, cmd)
			if pid, args, _ := strings.Cut(line, " "); pid != strconv.Itoa(cmd.Process.Pid) || args != "[a b c]\n" {
				t.Fatalf("process %d: the program says %q", cmd.Process.Pid, line)
			}
			found, err := filepath.Glob(c.cache + "/*/programs/*/program/*")
			if err != nil || len(found) != 1 {
				t.Fatalf("there must be one program: %v, %v", found, err)
			}
			info, err := os.Stat(found[0])
			if err != nil {
				t.Fatal(err)
			}
			if before != nil && !os.SameFile(before, info) {
				t.Error("it was linked again")
			}
			before = info
			defer func() {
				_ = cmd.Process.Signal(syscall.SIGTERM)
				if end, err := rest.ReadString('\n'); end != "terminated\n" {
					t.Errorf("the signal was not the program's: %q, %v", end, err)
				}
				_ = cmd.Wait()
			}()
		}
		c.write(t, "program/main.go", strings.Replace(program, "Println(os.Getpid()", `Println("new"`, 1))
		if out, err := c.command(t.Context(), shell, "gorun.sh", "program").Output(); string(out) != "new []\n" {
			t.Errorf("after a change: %q, %v", out, err)
		}
	})
}

func TestACompileThatIsKilledLeavesNothing(t *testing.T) {
	t.Parallel()
	shells(t, func(t *testing.T, shell ...string) {
		c := newCheckout(t)
		c.write(t, "program/main.go", program+"// "+c.folder+"\n") // compiled for the first time
		fifo := c.fifo(t)
		// The compiler says that it works, and then waits for the end of a line.
		c.write(t, "slow", `#!/bin/sh
[ "$2" = -V=full ] || ! mkdir "`+c.folder+`/once" 2>/dev/null || { echo compiles >"`+fifo+`"; read line <"`+fifo+`"; }
exec "$@"
`)
		cmd := c.command(t.Context(), shell, "gorun.sh", "program", "wait")
		cmd.Env = append(cmd.Env, "GOFLAGS=-toolexec="+filepath.Join(c.folder, "slow"))
		out, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(fifo); err != nil || string(text) != "compiles\n" {
			t.Fatalf("%q, %v", text, err)
		}
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		stderr := bufio.NewReader(out)
		all := until(t, stderr, "compiling program: stopping")
		if err := os.WriteFile(fifo, []byte("\n"), 0); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(stderr)
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
			t.Errorf("%v: %s%s", err, all, rest)
		}
		left, _ := filepath.Glob(c.tmp + "/*")
		programs, _ := filepath.Glob(c.cache + "/*/programs/*/program/*")
		if len(left)+len(programs) > 0 {
			t.Errorf("left: %v %v; it says %s%s", left, programs, all, rest)
		}
	})
}

func TestTestsOfAModuleRun(t *testing.T) {
	t.Parallel()
	shells(t, func(t *testing.T, shell ...string) {
		c := newCheckout(t)
		out, err := c.command(t.Context(), shell, "test.sh", "--json", "program").CombinedOutput()
		if err != nil || !strings.Contains(string(out), `"Action":"pass","Package":"example.org/newcomer/program","Test":"TestIt"`) {
			t.Errorf("%v: %s", err, out)
		}
		c.write(t, "program/main_test.go", "package main\n\nfunc broken() { nothing() }\n")
		for _, folder := range []string{"program", "none"} {
			if out, err := c.command(t.Context(), shell, "test.sh", "--json", folder, "scripts").CombinedOutput(); err == nil {
				t.Errorf("%s: a failure is lost: %s", folder, out)
			}
		}
	})
}
