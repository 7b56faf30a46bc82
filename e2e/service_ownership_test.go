package e2e

import (
	"net"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

var _ = Describe("A Service's load balancer", Label("service", "dataplane"), func() {
	Context("when somebody changes it behind the CCM's back", framework.Needs(framework.Repair), func() {
		var (
			env     *framework.Env
			workers framework.Workers
			address string
			lb      *hcloud.LoadBalancer
		)

		BeforeEach(func(ctx SpecContext) {
			env = framework.NewEnv(ctx, suite, framework.Options{})
			workers = env.Workers(ctx, 2)
			env.CreateService(ctx, "web")
			address = env.AwaitServed(ctx, "web")
			lb = env.AwaitTargets(ctx, "web", framework.Healthy(workers.Names()...))
		})

		It("is created again after it was deleted, and the Service shows its address", framework.Needs(framework.Events), func(ctx SpecContext) {
			result, _, err := env.HCloud.LoadBalancer.DeleteWithResult(ctx, lb)
			Expect(err).NotTo(HaveOccurred())
			env.Wait(ctx, result.Action)
			Expect(env.Closed(ctx, address, framework.Port)).To(BeTrue())
			env.AwaitService(ctx, "web", func(g Gomega, s *corev1.Service) {
				g.Expect(s.Status.LoadBalancer.Ingress).NotTo(BeEmpty())
				g.Expect(s.Status.LoadBalancer.Ingress[0].IP).NotTo(Equal(address))
			})
			env.AwaitServed(ctx, "web")
			Expect(env.LoadBalancers(ctx)).To(HaveExactElements(Not(HaveField("ID", lb.ID))))
			env.AwaitEvent(ctx, "web", "CloudLoadBalancerRepaired", Not(BeEmpty()))
		})

		It("gets back a target that was removed", func(ctx SpecContext) {
			env.Started(ctx)(env.HCloud.LoadBalancer.RemoveServerTarget(ctx, lb, workers[0].Server))
			env.AwaitTargets(ctx, "web", framework.Healthy(workers.Names()...))
			env.AwaitAnsweringNodes(ctx, address, framework.Port, workers.Names()...)
		})

		It("gets back a service that was removed", func(ctx SpecContext) {
			env.Started(ctx)(env.HCloud.LoadBalancer.DeleteService(ctx, lb, framework.Port))
			Expect(env.AwaitAnswer(ctx, "web", address, framework.Port).Port).To(BeEquivalentTo(framework.Port))
		})

		It("gets back settings that were changed", func(ctx SpecContext) {
			env.Started(ctx)(env.HCloud.LoadBalancer.ChangeAlgorithm(ctx, lb, hcloud.LoadBalancerChangeAlgorithmOpts{
				Type: hcloud.LoadBalancerAlgorithmTypeLeastConnections}))
			elsewhere := 31999
			env.Started(ctx)(env.HCloud.LoadBalancer.UpdateService(ctx, lb, framework.Port, hcloud.LoadBalancerUpdateServiceOpts{
				DestinationPort: &elsewhere}))
			env.AwaitLoadBalancer(ctx, "web", func(g Gomega, now *hcloud.LoadBalancer) {
				g.Expect(now.Algorithm).To(Equal(lb.Algorithm))
				g.Expect(now.Services).To(Equal(lb.Services))
			})
			env.AwaitAnswer(ctx, "web", address, framework.Port)
		})

		It("keeps services, targets and labels of others", framework.Needs(framework.KeepForeign), func(ctx SpecContext) {
			By("adding a listen port, targets by label and by address, and a label")
			listen, to := 9999, int(env.Service(ctx, "web").Spec.Ports[0].NodePort)
			env.Started(ctx)(env.HCloud.LoadBalancer.AddService(ctx, lb, hcloud.LoadBalancerAddServiceOpts{
				Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &listen, DestinationPort: &to}))
			env.Started(ctx)(env.HCloud.LoadBalancer.AddLabelSelectorTarget(ctx, lb, hcloud.LoadBalancerAddLabelSelectorTargetOpts{Selector: "role=spare"}))
			env.Started(ctx)(env.HCloud.LoadBalancer.AddIPTarget(ctx, lb, hcloud.LoadBalancerAddIPTargetOpts{IP: net.ParseIP("192.0.2.7")}))
			now := env.LoadBalancerOf(ctx, "web")
			now.Labels["team"] = "edge"
			_, _, err := env.HCloud.LoadBalancer.Update(ctx, now, hcloud.LoadBalancerUpdateOpts{Labels: now.Labels})
			Expect(err).NotTo(HaveOccurred())
			env.ExpectNoServiceWrites(ctx)

			By("changing what is the Service's own")
			env.UpdateService(ctx, "web", func(s *corev1.Service) { s.Spec.Ports[0].Port = 9090 })
			env.AwaitAnswer(ctx, "web", address, 9090)
			env.AwaitAnswer(ctx, "web", address, listen)
			env.AwaitLoadBalancer(ctx, "web", func(g Gomega, now *hcloud.LoadBalancer) {
				g.Expect(framework.ListenPorts(now)).To(ConsistOf(9090, listen))
				g.Expect(now.Labels).To(HaveKeyWithValue("team", "edge"))
				g.Expect(now.Targets).To(ContainElements(
					HaveField("Type", hcloud.LoadBalancerTargetTypeLabelSelector), HaveField("Type", hcloud.LoadBalancerTargetTypeIP)))
			})
		})
	})

	It("loses a server that is no node: targets of that type are the Service's", Label(framework.OwnCloud), framework.Needs(framework.Repair), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{
			// A server that boots no kubelet.
			Spec: func(s node.Server) (node.Spec, bool) { return node.Spec{}, s.Name != "stranger" },
		})
		names := env.Workers(ctx, 2).Names()
		env.CreateService(ctx, "web")
		lb := env.AwaitTargets(ctx, "web", framework.Healthy(names...))
		stranger := env.CreateServer(ctx, "stranger")
		env.Started(ctx)(env.HCloud.LoadBalancer.AddServerTarget(ctx, lb, hcloud.LoadBalancerAddServerTargetOpts{Server: stranger}))
		env.AwaitTargets(ctx, "web", framework.Healthy(names...))
	})

	It("that exists before the Service under its name is adopted with its address, and other ports stay", framework.Needs(framework.AdoptByName, framework.KeepForeign, framework.Events), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		env.Workers(ctx, 1)
		listen, to := 9999, 31999
		mine := env.CreateLoadBalancer(ctx, env.Unique("front"), func(o *hcloud.LoadBalancerCreateOpts) {
			o.Labels = map[string]string{"team": "edge"}
			o.Services = []hcloud.LoadBalancerCreateOptsService{{
				Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &listen, DestinationPort: &to}}
		})
		env.CreateService(ctx, "web", annotate(map[string]string{"name": mine.Name}))
		Expect(env.AwaitServed(ctx, "web")).To(Equal(mine.PublicNet.IPv4.IP.String()))
		env.AwaitEvent(ctx, "web", "AdoptedCloudLoadBalancer", ContainSubstring(mine.Name))
		Expect(env.LoadBalancers(ctx)).To(HaveLen(1))
		lb := env.LoadBalancerOf(ctx, "web")
		Expect(framework.ListenPorts(lb)).To(ConsistOf(framework.Port, listen))
		Expect(lb.Labels).To(HaveKeyWithValue("team", "edge"))
		env.ExpectNoServiceWrites(ctx)

		By("deleting the Service, whose load balancer it is now")
		env.DeleteService(ctx, "web")
		env.AwaitGone(ctx, "web")
		Expect(env.LoadBalancers(ctx)).To(BeEmpty())
	})

	It("that carries its UID is adopted, whatever its name is", framework.Needs(framework.AdoptByLabel), Label(framework.OwnCloud), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{NoCCM: true})
		service := env.CreateService(ctx, "web")
		mine := env.CreateLoadBalancer(ctx, "from-a-backup", func(o *hcloud.LoadBalancerCreateOpts) {
			o.Labels = map[string]string{env.Subject.OwnerLabel: string(service.UID)}
		})
		env.StartCCM(ctx, framework.CCMOptions{})
		env.CreateNodes(ctx, "node-1")
		Expect(env.AwaitServed(ctx, "web")).To(Equal(mine.PublicNet.IPv4.IP.String()))
		Expect(env.LoadBalancers(ctx)).To(HaveExactElements(HaveField("Name", "from-a-backup")))
	})

	It("that is another Service's is not taken: the second Service waits, and says why", framework.Needs(framework.OneOwner), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		env.Workers(ctx, 1)
		name := env.Unique("front")
		env.CreateService(ctx, "first", annotate(map[string]string{"name": name}))
		address := env.AwaitServed(ctx, "first")
		lb := env.LoadBalancerOf(ctx, "first")
		writes := env.CCMWritesTo(lb)

		env.CreateService(ctx, "second", annotate(map[string]string{"name": name}))
		env.AwaitEvent(ctx, "second", "CloudLoadBalancerOwnedByAnother", And(
			ContainSubstring(name), ContainSubstring(string(env.Service(ctx, "first").UID))))
		Expect(env.Service(ctx, "second").Status.LoadBalancer.Ingress).To(BeEmpty())
		Expect(env.CCMWritesTo(lb)).To(Equal(writes))
		Expect(env.LoadBalancers(ctx)).To(HaveLen(1))
		env.AwaitAnswer(ctx, "first", address, framework.Port)

		By("freeing the name")
		env.DeleteService(ctx, "first")
		env.AwaitServed(ctx, "second")
		Expect(env.LoadBalancers(ctx)).To(HaveExactElements(HaveField("Name", name)))
	})

	It("that is protected outlives its Service until the protection is lifted", framework.Needs(framework.Events), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		env.Workers(ctx, 1)
		env.CreateService(ctx, "web")
		address := env.AwaitServed(ctx, "web")
		lb := env.LoadBalancerOf(ctx, "web")
		protect := func(on bool) {
			GinkgoHelper()
			env.Started(ctx)(env.HCloud.LoadBalancer.ChangeProtection(ctx, lb, hcloud.LoadBalancerChangeProtectionOpts{Delete: &on}))
		}
		protect(true)
		env.DeleteService(ctx, "web")
		event := env.AwaitEvent(ctx, "web", "CloudLoadBalancerProtected", ContainSubstring("protected against deletion"))
		Expect(event.Type).To(Equal(corev1.EventTypeWarning))
		Expect(env.Service(ctx, "web").Finalizers).NotTo(BeEmpty(), "the Service must wait for its load balancer")
		env.AwaitAnswer(ctx, "web", address, framework.Port)
		Expect(env.LoadBalancers(ctx)).To(HaveLen(1))

		protect(false)
		env.AwaitGone(ctx, "web")
		Expect(env.LoadBalancers(ctx)).To(BeEmpty())
	})

	It("can be taken away from its Service and survives it", framework.Needs(framework.Release), Label(framework.OwnCloud), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		env.CreateService(ctx, "web")
		lb := env.LoadBalancerOf(ctx, "web")
		By("deleting the Service while the CCM is down, after removing the label")
		Expect(env.CCM.Stop(ctx)).To(Succeed())
		_, _, err := env.HCloud.LoadBalancer.Update(ctx, lb, hcloud.LoadBalancerUpdateOpts{Labels: map[string]string{"team": "edge"}})
		Expect(err).NotTo(HaveOccurred())
		env.DeleteService(ctx, "web")
		env.StartCCM(ctx, framework.CCMOptions{})
		env.AwaitGone(ctx, "web")
		Expect(env.LoadBalancers(ctx)).To(HaveExactElements(HaveField("ID", lb.ID)))
		Expect(env.Journal.Count(fakecloud.JournalFilter{Client: env.Subject.UserAgent, Operation: "delete_load_balancer"})).To(BeZero())
	})
})
