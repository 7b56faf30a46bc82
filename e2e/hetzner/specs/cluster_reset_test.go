package specs

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

var _ = Describe("A whole cluster", framework.Needs(framework.NodeRoutes), framework.Alone(), Label(framework.RealNodes, framework.FakeOnly,
	framework.Dataplane, "lifecycle"), func() {
	It("comes back as it was after a reset of all servers at once", func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{})
		workers, address := serveWeb(ctx, env)
		routes, servers := env.Routes.List(ctx), env.Nodes.Servers(ctx)
		uids := nodeUIDs(ctx, env, servers)
		before, from := hetzner.Settings(env.LoadBalancers.Of(ctx, "web")), time.Now()

		env.Servers.Reset(ctx, slices.Collect(maps.Values(servers))...)
		for _, n := range env.Nodes.AwaitRestarted(ctx, from) {
			Expect(n.UID).To(Equal(uids[n.Name]))
			Expect(n.Spec.ProviderID).To(Equal(env.Servers.ProviderID(servers[n.Name])))
			delete(uids, n.Name)
		}
		Expect(uids).To(BeEmpty(), "some nodes are gone")
		env.Pods.AwaitRestarted(ctx, "web", from)
		env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(workers.Names()...))
		env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, workers.Names()...)
		AddReportEntry("time from the reset of all servers until everything is back", time.Since(from).String())

		By("asking the pods of one node from another")
		here, there := env.Pods.Await(ctx, "web", workers[0].Name), env.Pods.Await(ctx, "web", workers[1].Name)
		answer, err := env.Pods.FetchAnswer(ctx, here, there.Status.PodIP)
		Expect(err).NotTo(HaveOccurred())
		Expect(answer.Node).To(Equal(there.Spec.NodeName))

		env.CCM.AwaitIdle(ctx)
		Expect(env.Routes.List(ctx)).To(Equal(routes))
		Expect(hetzner.Settings(env.LoadBalancers.Of(ctx, "web"))).To(Equal(before))
	})
})

// serveWeb creates the Service web and returns the two workers that serve it, and its address, when the cluster is at rest.
func serveWeb(ctx context.Context, env *hetzner.Env) (workers hetzner.Workers, address string) {
	GinkgoHelper()
	workers = env.Nodes.Workers(ctx, 2)
	env.Services.Create(ctx, "web", local)
	address = env.Traffic.AwaitServed(ctx, "web")
	env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(workers.Names()...))
	env.CCM.AwaitIdle(ctx)
	return workers, address
}

// nodeUIDs returns the UIDs of the servers' Nodes, by name.
func nodeUIDs(ctx context.Context, env *hetzner.Env, servers map[string]*hcloud.Server) map[string]types.UID {
	GinkgoHelper()
	uids := map[string]types.UID{}
	for name := range servers {
		uids[name] = env.Nodes.Get(ctx, name).UID
	}
	return uids
}
