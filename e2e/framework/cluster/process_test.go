package cluster_test

import (
	"context"
	"crypto/rand"
	"os"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster"
)

func TestAProcessIsStoppedGentlyAndItsLogIsKept(t *testing.T) {
	t.Parallel()
	g, c, ctx := NewWithT(t), use(t), patience(t)
	p, err := c.Run(cluster.Command{
		Name: "gentle-" + rand.Text(), // its log goes on where the last one of the name ended
		Path: "/bin/sh", Env: []string{"GREETING=hello"},
		Args: []string{"-c", `trap 'echo goodbye; exit 0' TERM; echo $GREETING; while :; do sleep 0.01; done`},
	})
	g.Expect(err).NotTo(HaveOccurred())
	log := func() (string, error) { data, err := os.ReadFile(p.LogPath()); return string(data), err }
	g.Eventually(log).WithContext(ctx).Should(Equal("hello\n"))
	g.Expect(p.Err()).NotTo(HaveOccurred())
	g.Expect(p.Stop(ctx)).To(Succeed())
	g.Expect(p.Done()).To(BeClosed())
	g.Expect(p.Err()).NotTo(HaveOccurred())
	g.Expect(log()).To(Equal("hello\ngoodbye\n"))
	g.Expect(p.Kill()).To(Succeed(), "a process that has ended")
}

func TestAProcessThatDoesNotEndIsKilledWithItsChildren(t *testing.T) {
	t.Parallel()
	g, c, ctx := NewWithT(t), use(t), patience(t)
	mark := t.TempDir() // in the command lines, to find the processes
	p, err := c.Run(cluster.Command{
		Name: "stubborn", Path: "/bin/sh",
		Args: []string{"-c",
			`trap '' TERM; sh -c 'trap "" TERM; while :; do sleep 0.01; done' child "$0" & wait; while :; do sleep 0.01; done`, mark},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() []string { return below(mark) }).WithContext(ctx).Should(HaveLen(2))
	impatient, cancel := context.WithCancel(ctx)
	cancel()
	g.Expect(p.Stop(impatient)).To(MatchError(ContainSubstring("stubborn did not end when told to")))
	g.Expect(p.Err()).To(HaveOccurred())
	g.Eventually(func() []string { return below(mark) }).WithContext(ctx).Should(BeEmpty())
}

func TestANameIsUsedByOneProcessAtATime(t *testing.T) {
	t.Parallel()
	g, c := NewWithT(t), use(t)
	command := cluster.Command{Name: "only", Path: "/bin/cat", Args: []string{"/dev/zero"}}
	command.Path, command.Args = "/bin/sh", []string{"-c", "while :; do sleep 0.01; done"}
	first, err := c.Run(command)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = c.Run(command)
	g.Expect(err).To(MatchError(ContainSubstring("a process named only runs already")))
	g.Expect(first.Kill()).To(Succeed())
	second, err := c.Run(command)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second.PID()).NotTo(Equal(first.PID()))
	g.Expect(second.Kill()).To(Succeed())
	_, err = c.Run(cluster.Command{Name: "../outside", Path: "/bin/true"})
	g.Expect(err).To(HaveOccurred())
	_, err = c.Run(cluster.Command{Name: "missing", Path: "/no/such/program"})
	g.Expect(err).To(MatchError(os.ErrNotExist))
}
