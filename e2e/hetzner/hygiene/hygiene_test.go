// Package hygiene proves that a run of the end-to-end suite leaves nothing behind, however it ends.
// Its test runs parts of the suite with scripts/e2e.sh. It takes minutes and runs only if `make e2e-hygiene` starts it.
package hygiene

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

const (
	// patience is a time limit for a busy host.
	patience = 3 * time.Minute
	// succeeded is the part of specs.json that only the successful run has.
	succeeded = `"result": "passed"`
)

// end describes how a run ends.
type end struct {
	focus string
	flags []string
	env   []string
	// signal is sent to the script when load balancers are up; to all the processes that a terminal would
	// send it to, or to the script alone.
	signal syscall.Signal
	toAll  bool
	// says must be in the summary. If empty, no process is left that could write a summary or delete a compiler's files.
	says string
}

func TestNothingIsLeftHoweverTheSuiteEnds(t *testing.T) {
	if os.Getenv("E2E_HYGIENE") == "" {
		t.Skip("takes minutes: `make e2e-hygiene` runs it")
	}
	if runtime.GOOS != "linux" {
		t.Skip("looks for what is left in /proc, which only Linux has")
	}
	const aLoadBalancer = "gets a load balancer whose address answers"
	// This one has three load balancers, and is busy for a while with them.
	const manyLoadBalancers = "catches up with what changed while it was down"
	const interrupted = `"incomplete": "Interrupted by User"`
	for name, e := range map[string]end{
		"with success": {focus: aLoadBalancer, says: succeeded},
		"with a spec that fails, as the CCM does nothing": {focus: "names every mistake at once", env: []string{"E2E_CCM=/bin/false"},
			says: `"result": "failed"`},
		"in the middle, because the time is up": {focus: aLoadBalancer, env: []string{"E2E_CCM=/bin/false"},
			flags: []string{"--timeout=15s"}, says: `"incomplete": "Suite Timeout Elapsed"`},
		"by Ctrl-C":                         {focus: manyLoadBalancers, signal: syscall.SIGINT, toAll: true, says: interrupted},
		"by a SIGTERM to the script alone":  {focus: manyLoadBalancers, signal: syscall.SIGTERM, says: interrupted},
		"by a SIGKILL to all its processes": {focus: manyLoadBalancers, signal: syscall.SIGKILL, toAll: true},
	} {
		t.Run(name, func(t *testing.T) { e.run(t) }) // one at a time: they share addresses
	}
}

func (e *end) run(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	// Everything that belongs to the run has one of these paths in its command line or environment.
	mark := t.TempDir()
	out, temporary := filepath.Join(mark, "out"), filepath.Join(mark, "tmp")
	g.Expect(os.Mkdir(temporary, 0o700)).To(Succeed())
	checkout, err := filepath.Abs("../../..")
	g.Expect(err).NotTo(HaveOccurred())
	before := gitStatus(g, checkout)

	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(checkout, "scripts/e2e.sh"), e.flags...)
	cmd.Env = append(os.Environ(), "E2E_CLUSTER=embedded", "E2E_OUT="+out, "TMPDIR="+temporary, "FOCUS="+e.focus, "LABELS=",
		"PROCS=2", "E2E_OFFSET=12") // which keeps these runs apart from others on this host
	cmd.Env = append(cmd.Env, e.env...)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Minute // of what holds the output open
	g.Expect(cmd.Start()).To(Succeed())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the script printed:\n%s", output.String())
		}
	})
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	if e.signal != 0 {
		g.Eventually(func() (string, error) {
			if len(ended) > 0 {
				return "", StopTrying("the suite ended before a load balancer was up")
			}
			return logs(out), nil
		}).WithContext(ctx).WithTimeout(patience).Should(ContainSubstring("Created load balancer"))
		g.Expect(processes(mark)).NotTo(BeEmpty(), "the test does not see the suite's processes")
		e.send(g, cmd.Process.Pid, mark)
	}
	g.Eventually(ended).WithContext(ctx).WithTimeout(patience).Should(Receive(&err))
	if e.says == succeeded {
		g.Expect(err).NotTo(HaveOccurred())
	} else {
		g.Expect(err).To(HaveOccurred())
	}

	// The janitors outlive the suite by a moment. Open ports would be those of a process that is left.
	g.Eventually(func() []string { return processes(mark) }).WithContext(ctx).WithTimeout(patience).Should(BeEmpty(), "processes are left")
	clusters, err := filepath.Glob(filepath.Join(temporary, "ccm-from-scratch-*"))
	g.Expect(clusters, err).To(BeEmpty(), "folders of control planes are left")
	if e.says == "" {
		_ = os.Remove(filepath.Join(checkout, "e2e", "hetzner", "specs", "specs.test")) // which ginkgo compiles there, and git ignores
		return
	}
	g.Expect(filepath.Glob(filepath.Join(temporary, "*"))).To(BeEmpty(), "temporary files are left")
	g.Expect(gitStatus(g, checkout)).To(Equal(before), "the checkout has changed")
	summary, err := os.ReadFile(filepath.Join(out, "specs.json"))
	g.Expect(string(summary), err).To(ContainSubstring(e.says))
	g.Expect(filepath.Join(out, "junit.xml")).To(BeARegularFile())
}

// send sends the signal as its sender would.
func (e *end) send(g *WithT, script int, mark string) {
	switch {
	case e.signal == syscall.SIGKILL:
		// Each process gets it, since none can pass it on. The janitors do not: they have other sessions, where neither a terminal's end
		// nor a cancelled job reaches them.
		for _, p := range processes(mark) {
			pid, err := strconv.Atoi(strings.Fields(p)[0])
			g.Expect(err).NotTo(HaveOccurred())
			if !strings.Contains(p, "janitor") {
				_ = syscall.Kill(pid, e.signal) // it may have ended
			}
		}
	case e.toAll:
		g.Expect(syscall.Kill(-script, e.signal)).To(Succeed())
	default:
		g.Expect(syscall.Kill(script, e.signal)).To(Succeed())
	}
}

// processes lists the processes with the folder in their command line or environment.
func processes(folder string) []string {
	var found []string
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range all {
		command, _ := os.ReadFile(filepath.Join(p, "cmdline"))
		environment, _ := os.ReadFile(filepath.Join(p, "environ"))
		if bytes.Contains(command, []byte(folder)) || bytes.Contains(environment, []byte(folder)) {
			found = append(found, filepath.Base(p)+" "+string(bytes.ReplaceAll(command, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// logs returns the logs of the CCMs so far.
func logs(out string) string {
	var all bytes.Buffer
	paths, _ := filepath.Glob(filepath.Join(out, "control-plane-*", "spec-*-ccm-*.log"))
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		all.Write(text)
	}
	return all.String()
}

func gitStatus(g *WithT, checkout string) string {
	out, err := exec.Command("git", "-C", checkout, "status", "--porcelain", "--ignored").Output()
	g.Expect(err).NotTo(HaveOccurred())
	return string(out)
}
