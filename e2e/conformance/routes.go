package conformance

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
)

// The route controller of k8s.io/cloud-provider works at once when nodes change, and then at most every ten seconds:
// specs with several changes of nodes may take that long.
var _ = Describe("A route", framework.Needs(framework.NodeRoutes), Label(Conformance, framework.OwnCloud, "route"), func() {
	var env *framework.Env
	BeforeEach(func(ctx SpecContext) {
		env = framework.NewEnv(ctx, framework.Options{})
		framework.Capability[cloud.Router](env)
	})

	// servers makes nodes and waits for exactly their routes.
	servers := func(ctx context.Context, names ...string) []cloud.Server {
		GinkgoHelper()
		all := env.Servers.CreateAll(ctx, names...)
		env.Routes.AwaitExactly(ctx, all...)
		return all
	}

	It("leads to each node's pods through its server, and the node has a network then"+routing, func(ctx SpecContext) {
		servers(ctx, "node-1", "node-2")
		env.CCM.AwaitIdle(ctx)
		for _, name := range []string{"node-1", "node-2"} {
			env.Nodes.Await(ctx, name, func(g Gomega, n *corev1.Node) {
				g.Expect(n.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeNetworkUnavailable),
					HaveField("Status", corev1.ConditionFalse))))
			})
		}
	})

	It("goes with its node, and no other does"+routesOf, func(ctx SpecContext) {
		all := servers(ctx, "node-1", "node-2")
		env.Nodes.Crash(ctx, env.Nodes.Simulated("node-1"))
		env.Servers.Delete(ctx, all[0])
		env.Nodes.AwaitGone(ctx, "node-1")
		env.Routes.AwaitExactly(ctx, all[1])
	})

	It("follows a node that was deleted and has registered again with another pod range"+routing, func(ctx SpecContext) {
		server := servers(ctx, "node-1")[0]
		was, old := env.Nodes.Get(ctx, "node-1"), env.Routes.Of(ctx, "node-1", server)
		env.Nodes.Delete(ctx, "node-1")
		env.Nodes.Simulated("node-1").RestartKubelet()
		env.Nodes.Await(ctx, "node-1", func(g Gomega, n *corev1.Node) { g.Expect(n.UID).NotTo(Equal(was.UID)) })
		Expect(env.Routes.Of(ctx, "node-1", server)).NotTo(Equal(old))
		env.Routes.AwaitExactly(ctx, server)
	})

	It("is left alone if its destination is outside of the cluster's pod range"+routesOf, func(ctx SpecContext) {
		all := servers(ctx, "node-1", "node-2")
		foreign := []cloud.Route{
			{Destination: netip.MustParsePrefix("172.20.0.0/16"), Server: all[0].ID},
			{Destination: netip.MustParsePrefix("10.245.0.0/24"), Server: all[1].ID},
		}
		for _, r := range foreign {
			env.Routes.Add(ctx, r)
		}
		gone := env.Servers.Create(ctx, "node-3")
		env.Routes.Await(ctx, append(foreign, env.Routes.Of(ctx, "node-1", all[0]), env.Routes.Of(ctx, "node-2", all[1]),
			env.Routes.Of(ctx, "node-3", gone))...)
		env.Nodes.Crash(ctx, env.Nodes.Simulated("node-3"))
		env.Servers.Delete(ctx, gone)
		left := append(foreign, env.Routes.Of(ctx, "node-1", all[0]), env.Routes.Of(ctx, "node-2", all[1]))
		env.Routes.Await(ctx, left...)
		env.CCM.AwaitIdle(ctx)
		env.Routes.Await(ctx, left...)
	})

	It("is not made for a node of another provider"+routing, func(ctx SpecContext) {
		all := servers(ctx, "node-1")
		env.Nodes.Start(ctx, node.Spec{Name: "dedicated", ProviderID: framework.OtherPrefix + "1"})
		env.Nodes.AwaitPodCIDR(ctx, "dedicated")
		env.CCM.AwaitIdle(ctx)
		env.Routes.AwaitExactly(ctx, all...)
	})

	It("is removed if it is within the pod range and belongs to no node"+routesOf, func(ctx SpecContext) {
		all := servers(ctx, "node-1")
		env.Routes.Add(ctx, cloud.Route{Destination: framework.OtherRange(env.Nodes.Get(ctx, "node-1"), 128), Server: all[0].ID})
		env.Routes.AwaitExactly(ctx, all...)
		env.CCM.AwaitIdle(ctx)
		env.Routes.AwaitExactly(ctx, all...)
	})

	It("is made again after it was deleted in the cloud"+routing, func(ctx SpecContext) {
		all := servers(ctx, "node-1")
		env.Routes.Delete(ctx, env.Routes.Of(ctx, "node-1", all[0]))
		env.Routes.AwaitExactly(ctx, all...)
	})

	It("is there for each of many nodes that come and go at once"+routing, func(ctx SpecContext) {
		all := servers(ctx, "node-1", "node-2", "node-3", "node-4")
		for i := range 2 {
			env.Nodes.Crash(ctx, env.Nodes.Simulated(fmt.Sprintf("node-%d", i+1)))
			env.Servers.Delete(ctx, all[i])
		}
		more := env.Servers.CreateAll(ctx, "node-5", "node-6")
		env.Routes.AwaitExactly(ctx, append(all[2:], more...)...)
	})

	It("stays when the CCM starts anew"+restart, func(ctx SpecContext) {
		all := servers(ctx, "node-1")
		env.CCM.Crash(ctx)
		env.CCM.Start(ctx, framework.CCMOptions{})
		env.CCM.AwaitIdle(ctx)
		env.Routes.AwaitExactly(ctx, all...)
	})

	DescribeTable("is made, and later removed, although for the first writes", framework.Needs(framework.FaultTolerance),
		framework.Long, Label(framework.FakeOnly, "fault"), func(ctx SpecContext, effect cloud.Effect) {
			first := servers(ctx, "node-1")[0]
			writes := cloud.Fault{Calls: cloud.Writes, About: cloud.AboutRoutes, First: 2, Effect: effect}
			fault := env.Faults.Add(ctx, writes)
			second := env.Servers.Create(ctx, "node-2")
			fault.Await(ctx, 1)
			env.Routes.AwaitExactly(ctx, first, second)
			fault.Remove(ctx)

			fault = env.Faults.Add(ctx, writes)
			env.Nodes.Delete(ctx, "node-1")
			fault.Await(ctx, 1)
			env.Routes.AwaitExactly(ctx, second)
		}, entries(routing, append(slices.Clone(failures), lostAnswer, conflict)...))

	DescribeTable("stays while for reads about servers", framework.Needs(framework.CarefulDeletion),
		Label(framework.FakeOnly, "fault"), func(ctx SpecContext, effect cloud.Effect) {
			first := servers(ctx, "node-1")[0]
			env.CCM.AwaitIdle(ctx)
			fault := env.Faults.Add(ctx, cloud.Fault{Calls: cloud.Reads, About: cloud.AboutServers, Effect: effect})
			route := env.Routes.Of(ctx, "node-1", first)
			stays := func() { GinkgoHelper(); Expect(env.Routes.List(ctx)).To(ConsistOf(route)) }
			fault.Await(ctx, 3, stays)
			env.CCM.AwaitIdle(ctx)
			stays()
			fault.Remove(ctx)
			env.Routes.Delete(ctx, route) // it works again: the route controller compares periodically
			env.Routes.AwaitExactly(ctx, first)
		}, entries(routesOf, append(slices.Clone(failures), emptyLists)...))
})
