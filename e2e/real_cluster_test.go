package e2e

import (
	"maps"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
)

var _ = Describe("A whole cluster", framework.Needs(framework.Routes), framework.Alone(), Label(framework.RealNodes, framework.FakeOnly, framework.Dataplane, "lifecycle"), func() {
	It("comes back when all servers are reset at once, and the CCM has nothing to write", func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		workers := env.Workers(ctx, 2)
		env.CreateService(ctx, "web", local)
		address := env.AwaitServed(ctx, "web")
		env.AwaitTargets(ctx, "web", framework.Healthy(workers.Names()...))
		env.AwaitStill(ctx, 2)
		routes, servers := env.Routes(ctx), env.NodeServers(ctx)
		uids := map[string]types.UID{}
		for name := range servers {
			uids[name] = env.Node(ctx, name).UID
		}
		writes, from := env.CCMWrites(), time.Now()

		env.ResetServers(ctx, slices.Collect(maps.Values(servers))...)
		for _, n := range env.AwaitBack(ctx, from) {
			Expect(n.UID).To(Equal(uids[n.Name]))
			Expect(n.Spec.ProviderID).To(Equal(env.ProviderID(servers[n.Name])))
			delete(uids, n.Name)
		}
		Expect(uids).To(BeEmpty(), "nodes that are gone")
		env.AwaitPodsBack(ctx, "web", from)
		env.AwaitTargets(ctx, "web", framework.Healthy(workers.Names()...))
		env.AwaitAnsweringNodes(ctx, address, framework.Port, workers.Names()...)
		AddReportEntry("from the reset of all servers until all is back", time.Since(from).String())

		By("asking the pods of one node from another")
		here, there := env.AwaitPod(ctx, "web", workers[0].Name), env.AwaitPod(ctx, "web", workers[1].Name)
		answer, err := env.FetchAnswer(ctx, here, there.Status.PodIP)
		Expect(err).NotTo(HaveOccurred())
		Expect(answer.Node).To(Equal(there.Spec.NodeName))

		env.AwaitStill(ctx, 2)
		Expect(env.Routes(ctx)).To(Equal(routes))
		Expect(env.CCMWrites()).To(Equal(writes), "nothing had changed")
	})
})
