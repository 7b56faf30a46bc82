package e2e

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
)

// The MachineDeployment is the documented example, with its server types, its user data and its names.
var _ = Describe("Machines of the example", framework.Needs(framework.NodeRoutes, framework.NodeSelector), Ordered, framework.BringsNodes(), Label(framework.RealNodes, framework.Dataplane, "machine"), func() {
	const pool = "workers"
	var (
		env     *framework.Env
		names   []string
		address string
	)
	// answer waits until these Machines, and nothing else, are healthy targets with routes, and answer.
	answer := func(ctx SpecContext, n int) {
		GinkgoHelper()
		names = env.Machines.Await(ctx, pool, n)
		env.LoadBalancers.AwaitTargets(ctx, "web", framework.Healthy(names...))
		address = env.Traffic.AwaitServed(ctx, "web")
		env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, names...)
		for _, name := range names {
			server, _, err := env.Cloud.Client.Server.GetByName(ctx, name)
			Expect(err).NotTo(HaveOccurred())
			Expect(env.Routes.List(ctx)).To(ContainElement(env.Routes.Of(ctx, name, server)))
		}
	}

	BeforeAll(func(ctx SpecContext) {
		env = framework.NewEnv(ctx, suite, framework.Options{Pods: func(set *appsv1.DaemonSet) {
			set.Spec.Template.Spec.Affinity, set.Spec.Template.Spec.NodeSelector = nil, map[string]string{"example.org/pool": pool}
		}})
		env.Machines.Start(ctx)
		env.Services.Create(ctx, "web", local, func(s *corev1.Service) {
			s.Annotations[framework.Annotation+"node-selector"] = "example.org/pool=" + pool
		})
	})

	It("become nodes, routes and targets that answer", func(ctx SpecContext) {
		env.Machines.Create(ctx, env.Machines.Example("../ccm/machine/examples/hetzner-machinedeployment.yaml"))
		answer(ctx, 2)
	})

	It("are as many as kubectl scale wants", func(ctx SpecContext) {
		env.Machines.Scale(ctx, pool, 3)
		answer(ctx, 3)
		env.Machines.Scale(ctx, pool, 1)
		answer(ctx, 1)
	})

	It("are replaced when someone deletes their server", func(ctx SpecContext) {
		gone := names[0]
		server, _, err := env.Cloud.Client.Server.GetByName(ctx, gone)
		Expect(err).NotTo(HaveOccurred())
		env.Servers.Delete(ctx, server)
		env.Nodes.AwaitGone(ctx, gone)
		answer(ctx, 1)
		Expect(names).NotTo(ContainElement(gone))
	})

	It("are replaced without a lost request when their server type changes", func(ctx SpecContext) {
		before := names
		load, begin := env.Traffic.Load(ctx, address, framework.Port), time.Now()
		env.Machines.Change(ctx, pool, func(d *v1alpha1.MachineDeployment) { env.Machines.SetServerType(d, otherType) })
		answer(ctx, 1)
		load.AwaitAnswers(ctx, time.Now(), 20)
		Expect(load.Since(ctx, begin, "during the change").Lost).To(BeEmpty())
		Expect(names).NotTo(ContainElements(before))
		server, _, err := env.Cloud.Client.Server.GetByName(ctx, names[0])
		Expect(err).NotTo(HaveOccurred())
		Expect(server.ServerType.Name).To(Equal(otherType))
	})

	It("leave no server, node and route when the MachineDeployment is deleted", func(ctx SpecContext) {
		server, _, err := env.Cloud.Client.Server.GetByName(ctx, names[0])
		Expect(err).NotTo(HaveOccurred())
		route := env.Routes.Of(ctx, names[0], server)
		env.Machines.Delete(ctx, pool)
		Expect(serverNames(ctx, env)).NotTo(ContainElement(names[0]))
		env.Nodes.AwaitGone(ctx, names[0])
		Eventually(func() []string { return env.Routes.List(ctx) }).WithContext(ctx).WithTimeout(framework.Timeout).WithPolling(framework.Polling).
			ShouldNot(ContainElement(route))
	})
})
