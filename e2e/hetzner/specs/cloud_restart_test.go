package specs

import (
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

var _ = Describe("A cluster whose cloud is killed and started again", framework.Alone(), Label(framework.RealNodes, framework.FakeOnly,
	framework.Dataplane, "lifecycle"), func() {
	It("keeps its servers, nodes and load balancers, and completes the creation of a server", func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{})
		workers, address := serveWeb(ctx, env)
		servers := env.Nodes.Servers(ctx)
		uids := nodeUIDs(ctx, env, servers)
		before := env.LoadBalancers.Of(ctx, "web")
		load := env.Traffic.Load(ctx, address, framework.Port)
		name := env.Nodes.Name("ordered")
		ordered := env.Servers.Order(ctx, name)
		from := time.Now()

		env.Cloud.Restart(ctx)
		action, _, err := env.Cloud.Client.Action.GetByID(ctx, ordered.Action.ID)
		Expect(err).NotTo(HaveOccurred())
		Expect(action).NotTo(BeNil(), "the action of the creation is gone")
		if action.Status != hcloud.ActionStatusSuccess {
			env.Cloud.Wait(ctx, action)
		}
		env.Nodes.AwaitJoined(ctx, name)
		env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, workers.Names()...)
		AddReportEntry("time from the death of the cloud until a server ordered before has joined", time.Since(from).String())
		load.AwaitAnswers(ctx, time.Now(), 10)

		now := env.Nodes.Servers(ctx)
		for name, server := range servers {
			Expect(now).To(HaveKey(name))
			Expect(now[name].ID).To(Equal(server.ID), name)
			Expect(env.Servers.PrivateIP(ctx, now[name])).To(Equal(server.PrivateNet[0].IP.String()), name)
			Expect(env.Nodes.Get(ctx, name).UID).To(Equal(uids[name]), name)
		}
		after := env.LoadBalancers.Of(ctx, "web")
		Expect(after.ID).To(Equal(before.ID))
		Expect(hetzner.Settings(after)).To(Equal(hetzner.Settings(before)))
		env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(workers.Names()...))
	})
})
