//go:build !windows

package proxy_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/doors/proxy"
)

func TestTheStatusIsThatOfTheCommand(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -TERM $$": 143} {
		if status, err := proxy.Exec(exec.Command("sh", "-c", command)); status != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", command, status, err, want)
		}
	}
	for command, want := range map[string]int{"no-such-command": 127, "./no-such-file": 127, "./testdata": 126} {
		if status, err := proxy.Exec(exec.Command(command)); status != want || err == nil {
			t.Errorf("%s: %d, %v, want %d", command, status, err, want)
		}
	}
}

// TestMain runs a command with Exec, for the test that sends signals.
func TestMain(m *testing.M) {
	if script := os.Getenv("TEST_EXEC"); script != "" {
		cmd := exec.Command("sh", "-c", script)
		cmd.Stdout = os.Stdout
		status, _ := proxy.Exec(cmd)
		os.Exit(status)
	}
	os.Exit(m.Run())
}

func TestSignalsReachTheCommand(t *testing.T) {
	t.Parallel()
	for _, s := range []struct {
		name   string
		signal syscall.Signal
	}{{"TERM", syscall.SIGTERM}, {"INT", syscall.SIGINT}, {"HUP", syscall.SIGHUP}, {"USR1", syscall.SIGUSR1}} {
		// A child can catch a signal that this process catches, even if the process began with it ignored, as below nohup or as a job
		// in the background. After signal.Stop it is ignored again, and signal.Ignored does not say so.
		caught := make(chan os.Signal, 1)
		signal.Notify(caught, s.signal)
		defer signal.Stop(caught)
		self := exec.Command(os.Args[0])
		self.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // without a terminal
		// It ends with the second signal, so that the first one ended nothing else.
		self.Env = append(os.Environ(), "TEST_EXEC=n=0; trap 'n=$((n+1)); echo got $n; [ $n = 2 ] && exit 9' "+s.name+
			"; echo ready; while :; do sleep 0.01; done")
		out, err := self.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := self.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		var text strings.Builder
		for range 2 {
			line, _ := lines.ReadString('\n')
			text.WriteString(line)
			_ = self.Process.Signal(s.signal)
		}
		rest, _ := io.ReadAll(lines)
		text.Write(rest)
		_ = self.Wait()
		if got := self.ProcessState.ExitCode(); got != 9 || text.String() != "ready\ngot 1\ngot 2\n" {
			t.Errorf("%s: exit status %d\n%s", s.name, got, text.String())
		}
	}
}
