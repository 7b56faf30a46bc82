package conformance

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
)

var _ = Describe("A node whose server", Label(Conformance, "lifecycle"), func() {
	if framework.CurrentKind() != framework.KindCluster { // where "A server's life" shows it, with a server of its own
		It("is off is tainted and stays, until the server is on again"+shutdown,
			framework.Needs(framework.ShutdownTaint), framework.Alone(), func(ctx SpecContext) {
				env := framework.NewEnv(ctx, framework.Options{})
				workers := env.Nodes.Workers(ctx, 2)
				name, server := workers[0].Name, workers[0].Server
				was := env.Nodes.AwaitReady(ctx, name, true)

				env.Servers.PowerOff(ctx, server)
				DeferCleanup(func(ctx SpecContext) { env.Nodes.AwaitReady(ctx, name, true) })
				env.Nodes.AwaitReady(ctx, name, false) // after the grace period of kube-controller-manager, 8 s
				env.Nodes.Await(ctx, name, func(g Gomega, n *corev1.Node) { g.Expect(n).To(framework.HaveTaint(node.TaintShutdown)) })
				n := env.Nodes.ExpectStays(ctx, name, 3)
				Expect(n.UID).To(Equal(was.UID))
				Expect(n).To(framework.HaveTaint(node.TaintShutdown))

				env.Servers.PowerOn(ctx, server)
				env.Nodes.AwaitReady(ctx, name, true)
				n = env.Nodes.Await(ctx, name, func(g Gomega, n *corev1.Node) {
					g.Expect(n).NotTo(framework.HaveTaint(node.TaintShutdown))
				})
				Expect(n.UID).To(Equal(was.UID))
				Expect(env.Nodes.Get(ctx, workers[1].Name)).NotTo(framework.HaveTaint(node.TaintShutdown))
			})
	}

	It("was deleted is deleted, and no other node"+exists, Label(framework.OwnCloud), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, framework.Options{})
		servers := env.Nodes.Create(ctx, "node-1", "node-2", "node-3")
		env.Nodes.Crash(ctx, env.Nodes.Simulated("node-3")) // NotReady, but its server exists
		env.Servers.Delete(ctx, servers[0])
		env.Nodes.AwaitGone(ctx, "node-1")
		Expect(env.Nodes.Get(ctx, "node-2")).NotTo(BeNil())
		env.Nodes.ExpectStays(ctx, "node-3", 3)
	})

	It("was deleted while it was off is deleted"+exists, framework.Needs(framework.ShutdownTaint), Label(framework.OwnCloud),
		func(ctx SpecContext) {
			env := framework.NewEnv(ctx, framework.Options{})
			server := env.Nodes.Create(ctx, "node-1")[0]
			env.Servers.PowerOff(ctx, server)
			env.Nodes.Crash(ctx, env.Nodes.Simulated("node-1"))
			env.Nodes.Await(ctx, "node-1", func(g Gomega, n *corev1.Node) { g.Expect(n).To(framework.HaveTaint(node.TaintShutdown)) })
			env.Servers.Delete(ctx, server)
			env.Nodes.AwaitGone(ctx, "node-1")
		})

	It("runs is neither tainted nor deleted while it is NotReady"+exists, Label(framework.OwnCloud), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, framework.Options{})
		env.Nodes.Create(ctx, "node-1")
		env.Nodes.Crash(ctx, env.Nodes.Simulated("node-1"))
		n := env.Nodes.ExpectStays(ctx, "node-1", 4)
		Expect(n).NotTo(framework.HaveTaint(node.TaintShutdown))
		env.Nodes.Simulated("node-1").PowerOn()
		env.Nodes.AwaitReady(ctx, "node-1", true)
	})

	It("was renamed stays while the server is off"+exists, framework.Needs(framework.ShutdownTaint), Label(framework.OwnCloud),
		func(ctx SpecContext) {
			env := framework.NewEnv(ctx, framework.Options{})
			server := env.Nodes.Create(ctx, "node-1")[0]
			env.Servers.Rename(ctx, server, "renamed")
			env.Servers.PowerOff(ctx, server)
			env.Nodes.Crash(ctx, env.Nodes.Simulated("node-1"))
			env.Nodes.Await(ctx, "node-1", func(g Gomega, n *corev1.Node) { g.Expect(n).To(framework.HaveTaint(node.TaintShutdown)) })
			env.Nodes.ExpectStays(ctx, "node-1", 3)
		})

	DescribeTable("runs stays while it is NotReady, and for reads about servers",
		framework.Needs(framework.CarefulDeletion), Label(framework.OwnCloud, framework.FakeOnly, "fault"),
		func(ctx SpecContext, effect cloud.Effect) {
			env := framework.NewEnv(ctx, framework.Options{NoCCM: true})
			server := env.Servers.Create(ctx, "node-1")
			env.CCM.Start(ctx, framework.CCMOptions{Args: framework.OnlyNodes})
			was := env.Nodes.AwaitInitialized(ctx, "node-1")
			fault := env.Faults.Add(ctx, cloud.Fault{Calls: cloud.Reads, About: cloud.AboutServers, Effect: effect})
			env.Nodes.Crash(ctx, env.Nodes.Simulated("node-1"))
			stays := func() {
				GinkgoHelper()
				Expect(env.Nodes.Get(ctx, "node-1")).NotTo(BeNil(), "the node was deleted although nothing says that its server is gone")
			}
			fault.Await(ctx, 3, stays) // a CCM may try a call twice before it has failed finally
			n := env.Nodes.Get(ctx, "node-1")
			Expect(n.UID).To(Equal(was.UID))
			Expect(n.Spec.ProviderID).To(Equal(was.Spec.ProviderID))
			Expect(n.Status.Addresses).To(Equal(was.Status.Addresses))
			Expect(n).NotTo(framework.HaveTaint(node.TaintShutdown))

			env.Servers.Delete(ctx, server)
			fault.Remove(ctx)
			env.Nodes.AwaitGone(ctx, "node-1")
		}, entries(exists, append(slices.Clone(failures), emptyLists)...))
})
