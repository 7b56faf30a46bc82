package cluster_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster"
)

// childEnv makes the test binary a process that holds a control plane until it is
// told to end, for tests about ends that no test survives itself.
const childEnv = "CLUSTER_TEST_CHILD"

func child() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		fmt.Println("failed", err)
		return 1
	}
	if _, err := c.Run(cluster.Command{Name: "second", Path: "/bin/sh", Args: []string{"-c", "cat & cat"}}); err != nil {
		fmt.Println("failed", err)
		return 1
	}
	fmt.Println("started")
	switch os.Getenv(childEnv) {
	case "panics":
		panic("a bug in a test")
	case "exits":
		return 3
	}
	<-ctx.Done()
	if err := c.Stop(); err != nil {
		fmt.Println("failed", err)
		return 1
	}
	return 0
}

// below lists the processes with the folder in their command line.
func below(folder string) []string {
	out, err := exec.Command("ps", "-Ao", "pid=,command=").Output()
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, folder) {
			found = append(found, line)
		}
	}
	return found
}

// files lists what is in the folder.
func files(folder string) []string {
	found, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		return []string{err.Error()}
	}
	return found
}

func TestNothingIsLeftHoweverTheProcessEnds(t *testing.T) {
	programs(t)
	end := func(signal syscall.Signal) func(*exec.Cmd) error {
		return func(cmd *exec.Cmd) error { return cmd.Process.Signal(signal) }
	}
	wait := func(*exec.Cmd) error { return nil }
	for name, test := range map[string]struct {
		mode string
		end  func(*exec.Cmd) error
		code int
	}{
		"by Ctrl-C":            {mode: "waits", end: end(syscall.SIGINT), code: 0},
		"by SIGKILL":           {mode: "waits", end: end(syscall.SIGKILL), code: -1},
		"by a panic":           {mode: "panics", end: wait, code: 2},
		"by os.Exit too early": {mode: "exits", end: wait, code: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, ctx, folder := NewWithT(t), patience(t), t.TempDir()
			cmd := exec.CommandContext(ctx, os.Args[0])
			cmd.Env = append(os.Environ(), childEnv+"="+test.mode, "TMPDIR="+folder)
			out, err := cmd.StdoutPipe()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(cmd.Start()).To(Succeed())
			lines := bufio.NewReader(out)
			line, err := lines.ReadString('\n')
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(line).To(Equal("started\n"))
			if test.mode == "waits" {
				g.Expect(files(folder)).NotTo(BeEmpty(), "the test looks in the right place")
				g.Expect(len(below(folder))).To(BeNumerically(">=", 4), "janitor, etcd, kube-apiserver, kube-controller-manager")
			}
			g.Expect(test.end(cmd)).To(Succeed())
			rest, err := io.ReadAll(lines)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(rest)).To(BeEmpty())
			err = cmd.Wait()
			g.Expect(cmd.ProcessState.ExitCode()).To(Equal(test.code), "%v", err)
			g.Eventually(func() []string { return below(folder) }).WithContext(ctx).Should(BeEmpty())
			g.Eventually(func() []string { return files(folder) }).WithContext(ctx).Should(BeEmpty())
		})
	}
}

func TestAStartThatIsCancelledLeavesNothing(t *testing.T) {
	assets := programs(t)
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	g, ctx := NewWithT(t), patience(t)
	start, cancel := context.WithCancel(ctx)
	result := make(chan error, 1)
	go func() {
		c, err := cluster.Start(start, cluster.Options{Programs: assets})
		if err == nil {
			err = errors.Join(errors.New("it started"), c.Stop())
		}
		result <- err
	}()
	g.Eventually(func() []string {
		noted, _ := filepath.Glob(filepath.Join(folder, "*", "pids", "kube-apiserver"))
		return noted
	}).WithContext(ctx).ShouldNot(BeEmpty())
	cancel()
	g.Eventually(result).WithContext(ctx).Should(Receive(MatchError(context.Canceled)))
	g.Expect(files(folder)).To(BeEmpty())
	g.Expect(below(folder)).To(BeEmpty())
}

// withProgram returns a copy of a folder with the control plane's programs, where a shell script replaces one of them.
func withProgram(t *testing.T, programs, name, script string) string {
	t.Helper()
	dir := t.TempDir()
	for _, other := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"} {
		if err := os.Symlink(filepath.Join(programs, other), filepath.Join(dir, other)); err != nil {
			t.Fatal(err)
		}
	}
	at := filepath.Join(dir, name)
	if err := errors.Join(os.Remove(at), os.WriteFile(at, []byte("#!/bin/sh\n"+script), 0o700)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAStartThatFailsShowsTheLogAndLeavesNothing(t *testing.T) {
	assets := programs(t)
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	for program, want := range map[string]string{"kube-apiserver": "kube-apiserver", "kube-controller-manager": "exit status 1"} {
		g := NewWithT(t)
		broken := withProgram(t, assets, program, "[ \"$1\" = --help ] && exit 0\necho a reason that a person can read\nexit 1\n")
		_, err := cluster.Start(patience(t), cluster.Options{Programs: broken})
		g.Expect(err).To(MatchError(And(ContainSubstring("a reason that a person can read"), ContainSubstring(want))))
		g.Expect(files(folder)).To(BeEmpty())
		g.Expect(below(folder)).To(BeEmpty())
	}
}
