package conformance

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
)

var _ = Describe("A node", Label(Conformance, "node"), func() {
	It("gets its server's provider ID, addresses, type, region and zone, and loses the taint that keeps pods away"+metadata,
		framework.BringsNodes(), func(ctx SpecContext) {
			env := framework.NewEnv(ctx, framework.Options{})
			name := env.Nodes.Name("node")
			server := env.Servers.Create(ctx, name)
			env.Nodes.AwaitJoined(ctx, name) // which takes minutes while several nodes join on a busy computer
			n := env.Nodes.AwaitInitialized(ctx, name)
			Expect(n.Spec.ProviderID).To(Equal(server.ProviderID))
			framework.ExpectHostName(n, server.Name)
			for _, a := range server.Addresses { // a CCM may write them in a second request, and show more
				env.Nodes.Await(ctx, name, func(g Gomega, n *corev1.Node) { g.Expect(n.Status.Addresses).To(ContainElement(a)) })
			}
			region, zone := env.Topology(server)
			expectLabel(n, server.Type, corev1.LabelInstanceTypeStable)
			expectLabel(n, region, corev1.LabelTopologyRegion)
			expectLabel(n, zone, corev1.LabelTopologyZone)
		})

	It("stays tainted and without a provider ID while it has no server, and is initialized as soon as there is one"+metadata,
		Label(framework.OwnCloud), func(ctx SpecContext) {
			env := framework.NewEnv(ctx, framework.Options{
				Spec: framework.NodeSpec(func(node.Server, *node.Spec) bool { return false }),
			})
			env.Nodes.Start(ctx, node.Spec{Name: "late"})
			n := env.Nodes.ExpectStays(ctx, "late", 4)
			Expect(n).To(framework.HaveTaint(node.TaintUninitialized))
			Expect(n.Spec.ProviderID).To(BeEmpty())

			server := env.Servers.Create(ctx, "late")
			Expect(env.Nodes.AwaitInitialized(ctx, "late").Spec.ProviderID).To(Equal(server.ProviderID))
		})

	It("is matched by its provider ID although another server has its name"+metadata, Label(framework.OwnCloud), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, framework.Options{
			Spec: framework.NodeSpec(func(node.Server, *node.Spec) bool { return false }), NoCCM: true,
		})
		decoy := env.Servers.Create(ctx, "worker-1")
		server := env.Servers.Create(ctx, "host-1")
		env.Nodes.Start(ctx, node.Spec{Name: "worker-1", ProviderID: server.ProviderID})
		env.CCM.Start(ctx, framework.CCMOptions{})
		n := env.Nodes.AwaitInitialized(ctx, "worker-1")
		Expect(n.Spec.ProviderID).To(Equal(server.ProviderID), "the decoy is %s", decoy.ID)
		for _, a := range server.Addresses {
			env.Nodes.Await(ctx, "worker-1", func(g Gomega, n *corev1.Node) { g.Expect(n.Status.Addresses).To(ContainElement(a)) })
		}
		framework.ExpectHostName(n, "host-1")
	})

	It("is initialized anew after it was deleted and has registered again"+metadata, Label(framework.OwnCloud), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, framework.Options{})
		server := env.Nodes.Create(ctx, "node-1")[0]
		was := env.Nodes.Get(ctx, "node-1")
		env.Nodes.Delete(ctx, "node-1")
		env.Nodes.Simulated("node-1").RestartKubelet()
		env.Nodes.Await(ctx, "node-1", func(g Gomega, n *corev1.Node) { g.Expect(n.UID).NotTo(Equal(was.UID)) })
		Expect(env.Nodes.AwaitInitialized(ctx, "node-1").Spec.ProviderID).To(Equal(server.ProviderID))
	})

	DescribeTable("is left as it is, and initialized when the cloud has recovered, while for reads about servers",
		framework.Needs(framework.FaultTolerance), framework.Long, Label(framework.OwnCloud, framework.FakeOnly, "fault"),
		func(ctx SpecContext, effect cloud.Effect) {
			env := framework.NewEnv(ctx, framework.Options{NoCCM: true})
			server := env.Servers.Create(ctx, "node-1")
			before := env.Nodes.Await(ctx, "node-1", func(Gomega, *corev1.Node) {})
			fault := env.Faults.Add(ctx, cloud.Fault{Calls: cloud.Reads, About: cloud.AboutServers, Effect: effect})
			env.CCM.Start(ctx, framework.CCMOptions{})
			fault.Await(ctx, 2)
			Consistently(func(g Gomega) {
				during := env.Nodes.Get(ctx, "node-1")
				g.Expect(during).To(framework.HaveTaint(node.TaintUninitialized))
				g.Expect(during.Spec.ProviderID).To(BeEmpty())
			}).WithContext(ctx).WithTimeout(framework.Current().QuietTime()).Should(Succeed())

			fault.Remove(ctx)
			n := env.Nodes.AwaitInitialized(ctx, "node-1")
			Expect(n.UID).To(Equal(before.UID), "the node was deleted and registered again")
			Expect(n.Spec.ProviderID).To(Equal(server.ProviderID))
		}, entries(metadata, outages...))
})

// expectLabel checks that a node has a value in a label, unless it is left open.
func expectLabel(n *corev1.Node, value, key string) {
	GinkgoHelper()
	if value != "" {
		Expect(n.Labels).To(HaveKeyWithValue(key, value))
	}
}
