package specs

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

var _ = Describe("A recording of the CCM", Label("process", "service", "fake-only", framework.OwnCloud), func() {
	It("is replayed by another simulated cloud without a difference", func(ctx SpecContext) {
		if framework.Current().CCM.Name != framework.OurCCM {
			Skip("tests the recording, with one CCM")
		}
		env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true})
		env.Servers.Create(ctx, "node-1")
		env.Servers.Create(ctx, "node-2")

		program, dir := filepath.Join(GinkgoT().TempDir(), "fakecloud"), filepath.Join(GinkgoT().TempDir(), "recording")
		out, err := exec.CommandContext(ctx, "go", "build", "-o", program,
			"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/cmd/fakecloud").CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		record := exec.CommandContext(ctx, program, "record", "--target", env.Cloud.Fake.Endpoint(), "--listen", "127.0.0.1:0",
			"--out", dir)
		record.Stderr = GinkgoWriter
		printed, err := record.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(record.Start()).To(Succeed())
		DeferCleanup(func() { _ = record.Process.Kill() })
		line, err := bufio.NewReader(printed).ReadString('\n')
		Expect(err).NotTo(HaveOccurred())
		_, endpoint, _ := strings.Cut(strings.TrimSpace(line), "HCLOUD_ENDPOINT=")

		ccm := env.CCM.Start(ctx, framework.CCMOptions{Env: map[string]string{"HCLOUD_ENDPOINT": endpoint}})
		env.Nodes.AwaitInitialized(ctx, "node-1")
		env.Services.Create(ctx, "web")
		env.Traffic.AwaitServed(ctx, "web")
		env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2"))
		env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Ports[0].Port++ })
		env.CCM.AwaitIdle(ctx)
		env.Services.Delete(ctx, "web")
		env.Services.AwaitGone(ctx, "web")
		Expect(ccm.Stop(ctx)).To(Succeed())
		Expect(record.Process.Signal(os.Interrupt)).To(Succeed())
		Expect(record.Wait()).To(Succeed())

		verify, err := gexec.Start(exec.CommandContext(ctx, program, "verify", dir), GinkgoWriter, GinkgoWriter)
		Expect(err).NotTo(HaveOccurred())
		Eventually(verify).WithContext(ctx).Should(gexec.Exit(0))
	})
})
