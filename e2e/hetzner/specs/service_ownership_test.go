package specs

import (
	"net"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

var _ = Describe("A Service's load balancer", Label("service", "dataplane"), func() {
	Context("that was changed in the cloud", framework.Needs(framework.Repair), func() {
		var (
			env     *hetzner.Env
			workers hetzner.Workers
			address string
			lb      *hcloud.LoadBalancer
		)

		BeforeEach(func(ctx SpecContext) {
			env = hetzner.NewEnv(ctx, hetzner.Options{})
			workers = env.Nodes.Workers(ctx, 2)
			env.Services.Create(ctx, "web")
			address = env.Traffic.AwaitServed(ctx, "web")
			lb = env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(workers.Names()...))
		})

		It("gets back a target that was removed", func(ctx SpecContext) {
			env.Cloud.Do(ctx)(env.Cloud.Client.LoadBalancer.RemoveServerTarget(ctx, lb, workers[0].Server))
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(workers.Names()...))
			env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, workers.Names()...)
		})

		It("gets back a service that was removed, and an event says so", framework.Needs(framework.Events), func(ctx SpecContext) {
			env.Cloud.Do(ctx)(env.Cloud.Client.LoadBalancer.DeleteService(ctx, lb, framework.Port))
			Expect(env.Traffic.AwaitAnswer(ctx, "web", address, framework.Port).Port).To(BeEquivalentTo(framework.Port))
			env.Services.AwaitEvent(ctx, "web", "CloudLoadBalancerRepaired", Not(BeEmpty()))
		})

		It("gets back settings that were changed", func(ctx SpecContext) {
			// Without the annotation, any client may set the algorithm.
			env.Services.Update(ctx, "web", annotate(map[string]string{"algorithm-type": "round_robin"}))
			env.CCM.AwaitIdle(ctx)
			env.Cloud.Do(ctx)(env.Cloud.Client.LoadBalancer.ChangeAlgorithm(ctx, lb, hcloud.LoadBalancerChangeAlgorithmOpts{
				Type: hcloud.LoadBalancerAlgorithmTypeLeastConnections}))
			elsewhere := 31999
			env.Cloud.Do(ctx)(env.Cloud.Client.LoadBalancer.UpdateService(ctx, lb, framework.Port, hcloud.LoadBalancerUpdateServiceOpts{
				DestinationPort: &elsewhere}))
			env.LoadBalancers.Await(ctx, "web", func(g Gomega, now *hcloud.LoadBalancer) {
				g.Expect(now.Algorithm).To(Equal(lb.Algorithm))
				g.Expect(now.Services).To(Equal(lb.Services))
			})
			env.Traffic.AwaitAnswer(ctx, "web", address, framework.Port)
		})

		It("keeps services, targets and labels of others", framework.Needs(framework.KeepForeign), func(ctx SpecContext) {
			By("adding a listen port, targets by label and by address, and a label")
			listen, to := 9999, int(env.Services.Get(ctx, "web").Spec.Ports[0].NodePort)
			env.Cloud.Do(ctx)(env.Cloud.Client.LoadBalancer.AddService(ctx, lb, hcloud.LoadBalancerAddServiceOpts{
				Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &listen, DestinationPort: &to}))
			env.Cloud.Do(ctx)(env.Cloud.Client.LoadBalancer.AddLabelSelectorTarget(ctx, lb,
				hcloud.LoadBalancerAddLabelSelectorTargetOpts{Selector: "role=spare"}))
			env.Cloud.Do(ctx)(env.Cloud.Client.LoadBalancer.AddIPTarget(ctx, lb,
				hcloud.LoadBalancerAddIPTargetOpts{IP: net.ParseIP("192.0.2.7")}))
			now := env.LoadBalancers.Of(ctx, "web")
			now.Labels["team"] = "edge"
			_, _, err := env.Cloud.Client.LoadBalancer.Update(ctx, now, hcloud.LoadBalancerUpdateOpts{Labels: now.Labels})
			Expect(err).NotTo(HaveOccurred())
			env.CCM.ExpectNoServiceWrites(ctx)

			By("changing the Service's own port")
			env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Ports[0].Port = 9090 })
			env.Traffic.AwaitAnswer(ctx, "web", address, 9090)
			env.Traffic.AwaitAnswer(ctx, "web", address, listen)
			env.LoadBalancers.Await(ctx, "web", func(g Gomega, now *hcloud.LoadBalancer) {
				g.Expect(hetzner.ListenPorts(now)).To(ConsistOf(9090, listen))
				g.Expect(now.Labels).To(HaveKeyWithValue("team", "edge"))
				g.Expect(now.Targets).To(ContainElements(
					HaveField("Type", hcloud.LoadBalancerTargetTypeLabelSelector), HaveField("Type", hcloud.LoadBalancerTargetTypeIP)))
			})
		})
	})

	It("loses a target that is a server without a node", Label(framework.OwnCloud), framework.Needs(framework.Repair),
		func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{
				// A server that boots no kubelet.
				Spec: func(s node.Server) (node.Spec, bool) { return node.Spec{}, s.Name != "stranger" },
			})
			names := env.Nodes.Workers(ctx, 2).Names()
			env.Services.Create(ctx, "web")
			lb := env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names...))
			stranger := env.Servers.Create(ctx, "stranger")
			env.Cloud.Do(ctx)(env.Cloud.Client.LoadBalancer.AddServerTarget(ctx, lb,
				hcloud.LoadBalancerAddServerTargetOpts{Server: stranger}))
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names...))
		})

	It("is adopted by its name with its address and its other ports if it exists before the Service",
		framework.Needs(framework.AdoptByName, framework.KeepForeign, framework.Events), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			env.Nodes.Workers(ctx, 1)
			listen, to := 9999, 31999
			mine := env.LoadBalancers.Create(ctx, env.Unique("front"), func(o *hcloud.LoadBalancerCreateOpts) {
				o.Labels = map[string]string{"team": "edge"}
				o.Services = []hcloud.LoadBalancerCreateOptsService{{
					Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &listen, DestinationPort: &to}}
			})
			env.Services.Create(ctx, "web", annotate(map[string]string{"name": mine.Name, "keep-on-delete": "false"}))
			Expect(env.Traffic.AwaitServed(ctx, "web")).To(Equal(mine.PublicNet.IPv4.IP.String()))
			env.Services.AwaitEvent(ctx, "web", "AdoptedCloudLoadBalancer", ContainSubstring(mine.Name))
			Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
			lb := env.LoadBalancers.Of(ctx, "web")
			Expect(hetzner.ListenPorts(lb)).To(ConsistOf(framework.Port, listen))
			Expect(lb.Labels).To(HaveKeyWithValue("team", "edge"))
			env.CCM.ExpectNoServiceWrites(ctx)

			By("deleting the Service, which owns the load balancer now")
			env.Services.Delete(ctx, "web")
			env.Services.AwaitGone(ctx, "web")
			Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())
		})

	It("follows the nodes, and outlives the Service, after Terraform has replaced all of its labels",
		framework.Needs(framework.AdoptByName, framework.Repair), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			names := env.Nodes.Workers(ctx, 2).Names()
			theirs := map[string]string{"managed-by": "terraform"}
			mine := env.LoadBalancers.Create(ctx, env.Unique("front"), func(o *hcloud.LoadBalancerCreateOpts) { o.Labels = theirs })
			env.Services.Create(ctx, "web", annotate(map[string]string{"name": mine.Name}))
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names...))
			_, _, err := env.Cloud.Client.LoadBalancer.Update(ctx, mine, hcloud.LoadBalancerUpdateOpts{Labels: theirs})
			Expect(err).NotTo(HaveOccurred())
			env.Cloud.Do(ctx)(env.Cloud.Client.LoadBalancer.RemoveServerTarget(ctx, mine, env.Nodes.Servers(ctx)[names[0]]))
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names...))
			env.Services.Delete(ctx, "web")
			env.Services.AwaitGone(ctx, "web")
			Expect(env.LoadBalancers.List(ctx)).To(HaveExactElements(HaveField("ID", mine.ID)))
		})

	It("is adopted by the label with the Service's UID, whatever its name is", framework.Needs(framework.AdoptByLabel),
		Label(framework.OwnCloud), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true})
			service := env.Services.Create(ctx, "web")
			mine := env.LoadBalancers.Create(ctx, "from-a-backup", func(o *hcloud.LoadBalancerCreateOpts) {
				o.Labels = map[string]string{framework.Current().CCM.OwnerLabel: string(service.UID)}
			})
			env.CCM.Start(ctx, framework.CCMOptions{})
			env.Nodes.Create(ctx, "node-1")
			Expect(env.Traffic.AwaitServed(ctx, "web")).To(Equal(mine.PublicNet.IPv4.IP.String()))
			Expect(env.LoadBalancers.List(ctx)).To(HaveExactElements(HaveField("Name", "from-a-backup")))
		})

	It("is not taken from another Service: the second Service waits and says why", framework.Needs(framework.OneOwner),
		func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			env.Nodes.Workers(ctx, 1)
			name := env.Unique("front")
			env.Services.Create(ctx, "first", annotate(map[string]string{"name": name}))
			address := env.Traffic.AwaitServed(ctx, "first")
			lb := env.LoadBalancers.Of(ctx, "first")

			env.Services.Create(ctx, "second", annotate(map[string]string{"name": name}))
			env.Services.AwaitEvent(ctx, "second", "CloudLoadBalancerOwnedByAnother", And(
				ContainSubstring(name), ContainSubstring(string(env.Services.Get(ctx, "first").UID))))
			Expect(env.Services.Get(ctx, "second").Status.LoadBalancer.Ingress).To(BeEmpty())
			all := env.LoadBalancers.List(ctx)
			Expect(all).To(HaveLen(1))
			Expect(hetzner.Settings(all[0])).To(Equal(hetzner.Settings(lb)))
			env.Traffic.AwaitAnswer(ctx, "first", address, framework.Port)

			By("freeing the name")
			env.Services.Delete(ctx, "first")
			env.Traffic.AwaitServed(ctx, "second")
			Expect(env.LoadBalancers.List(ctx)).To(HaveExactElements(HaveField("Name", name)))
		})

	It("outlives its Service while it is protected against deletion", framework.Needs(framework.Events), func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{})
		env.Nodes.Workers(ctx, 1)
		env.Services.Create(ctx, "web")
		address := env.Traffic.AwaitServed(ctx, "web")
		lb := env.LoadBalancers.Of(ctx, "web")
		protect := func(on bool) {
			GinkgoHelper()
			env.Cloud.Do(ctx)(env.Cloud.Client.LoadBalancer.ChangeProtection(ctx, lb, hcloud.LoadBalancerChangeProtectionOpts{Delete: &on}))
		}
		protect(true)
		env.Services.Delete(ctx, "web")
		event := env.Services.AwaitEvent(ctx, "web", "CloudLoadBalancerProtected", ContainSubstring("protected against deletion"))
		Expect(event.Type).To(Equal(corev1.EventTypeWarning))
		Expect(env.Services.Get(ctx, "web").Finalizers).NotTo(BeEmpty(), "the Service must wait for its load balancer")
		env.Traffic.AwaitAnswer(ctx, "web", address, framework.Port)
		Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))

		protect(false)
		env.Services.AwaitGone(ctx, "web")
		Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())
	})

	It("is shared by Services, passes from one to the next, and goes with the last", framework.Needs(framework.Sharing, framework.Events),
		func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			env.Nodes.Workers(ctx, 1)
			share := annotate(map[string]string{"name": env.Unique("front"), "shared": "true"})
			env.Services.Create(ctx, "first", share)
			address := env.Traffic.AwaitServed(ctx, "first")
			lb := env.LoadBalancers.Of(ctx, "first")

			env.Services.Create(ctx, "second", share,
				func(s *corev1.Service) {
					s.Spec.Ports = []corev1.ServicePort{framework.ServicePort(8081), framework.ServicePort(framework.Port)}
				})
			Expect(env.Services.AwaitIngress(ctx, "second")).To(Equal(address))
			env.Traffic.AwaitAnswer(ctx, "second", address, 8081)
			env.Services.AwaitEvent(ctx, "second", "PortTaken",
				And(ContainSubstring("Port 8080"), ContainSubstring(string(env.Services.Get(ctx, "first").UID))))
			env.Traffic.AwaitAnswer(ctx, "first", address, framework.Port)
			env.CCM.ExpectNoServiceWrites(ctx)

			By("deleting the owner")
			env.Services.Delete(ctx, "first")
			env.Services.AwaitGone(ctx, "first")
			env.Traffic.AwaitAnswer(ctx, "second", address, 8081)
			env.Traffic.AwaitAnswer(ctx, "second", address, framework.Port)
			Expect(env.LoadBalancers.List(ctx)).To(HaveExactElements(HaveField("ID", lb.ID)))
			env.Services.Delete(ctx, "second")
			env.Services.AwaitGone(ctx, "second")
			Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())
		})

	It("is lent to the Service by its ID, and given back with all that was on it",
		framework.Needs(framework.Lending, framework.KeepForeign), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			env.Nodes.Workers(ctx, 1)
			listen, to := 9999, 31999
			lent := env.LoadBalancers.Create(ctx, env.Unique("front"), func(o *hcloud.LoadBalancerCreateOpts) {
				o.Labels = map[string]string{"team": "edge"}
				o.Services = []hcloud.LoadBalancerCreateOptsService{{
					Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &listen, DestinationPort: &to}}
				o.Targets = []hcloud.LoadBalancerCreateOptsTarget{{Type: hcloud.LoadBalancerTargetTypeLabelSelector,
					LabelSelector: hcloud.LoadBalancerCreateOptsTargetLabelSelector{Selector: "role=spare"}}}
			})
			env.Services.Create(ctx, "web", annotate(map[string]string{"adopt": strconv.FormatInt(lent.ID, 10)}))
			Expect(env.Traffic.AwaitServed(ctx, "web")).To(Equal(lent.PublicNet.IPv4.IP.String()))
			lb := env.LoadBalancers.Of(ctx, "web")
			Expect(lb.Name).To(Equal(lent.Name))
			Expect(hetzner.ListenPorts(lb)).To(ConsistOf(framework.Port, listen))
			env.CCM.ExpectNoServiceWrites(ctx)

			env.Services.Delete(ctx, "web")
			env.Services.AwaitGone(ctx, "web")
			back, _, err := env.Cloud.Client.LoadBalancer.GetByID(ctx, lent.ID)
			Expect(err).NotTo(HaveOccurred())
			Expect(back).NotTo(BeNil())
			Expect(hetzner.ListenPorts(back)).To(ConsistOf(listen))
			Expect(back.Labels).To(HaveKeyWithValue("team", "edge"))
			Expect(back.Labels).NotTo(HaveKey(framework.Current().CCM.OwnerLabel))
			Expect(back.Targets).To(ContainElement(HaveField("Type", hcloud.LoadBalancerTargetTypeLabelSelector)))
		})

	It("has the Primary IP that the Service names, also after the Service was made anew", Label(framework.OwnCloud),
		framework.Needs(framework.Lending, framework.SettingEvents), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			env.Nodes.Create(ctx, "node-1")
			env.Services.Create(ctx, "web", annotate(map[string]string{"primary-ipv4": "edge"}))
			env.Services.AwaitEvent(ctx, "web", "InvalidSettings",
				And(ContainSubstring("primary-ipv4"), ContainSubstring("does not exist")))
			Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())

			By("making the Primary IP")
			result, _, err := env.Cloud.Client.PrimaryIP.Create(ctx, hcloud.PrimaryIPCreateOpts{
				Name: "edge", Type: hcloud.PrimaryIPTypeIPv4, Location: hetzner.Location, AutoDelete: new(false)})
			Expect(err).NotTo(HaveOccurred())
			address := result.PrimaryIP.IP.String()
			Expect(env.Traffic.AwaitServed(ctx, "web")).To(Equal(address))

			env.Services.Delete(ctx, "web")
			env.Services.AwaitGone(ctx, "web")
			env.Services.Create(ctx, "web", annotate(map[string]string{"primary-ipv4": "edge"}))
			Expect(env.Traffic.AwaitServed(ctx, "web")).To(Equal(address))
		})

	It("is kept without its Service, and gives the next one its address", framework.Needs(framework.Retention, framework.AdoptByName,
		framework.KeepForeign, framework.Events), func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{})
		env.Nodes.Workers(ctx, 1)
		name := env.Unique("front")
		env.Services.Create(ctx, "web", annotate(map[string]string{
			"name": name, "keep-on-delete": "true", "labels": "team=edge", "delete-protection": "true",
		}))
		address := env.Traffic.AwaitServed(ctx, "web")
		lb := env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
			g.Expect(lb.Labels).To(HaveKeyWithValue("team", "edge"))
			g.Expect(lb.Protection.Delete).To(BeTrue())
		})
		env.CCM.ExpectNoServiceWrites(ctx)

		env.Services.Delete(ctx, "web")
		env.Services.AwaitGone(ctx, "web")
		kept, _, err := env.Cloud.Client.LoadBalancer.GetByID(ctx, lb.ID)
		Expect(err).NotTo(HaveOccurred())
		Expect(kept).NotTo(BeNil())
		Expect(kept.Services).To(BeEmpty(), "the node ports may belong to another Service")
		Expect(kept.Labels).NotTo(HaveKey(framework.Current().CCM.OwnerLabel))
		Expect(kept.Labels).To(HaveKeyWithValue("team", "edge"))

		By("creating another Service that asks for it")
		env.Services.Create(ctx, "next", annotate(map[string]string{"name": name, "delete-protection": "false", "keep-on-delete": "false"}))
		Expect(env.Traffic.AwaitServed(ctx, "next")).To(Equal(address))
		env.LoadBalancers.Await(ctx, "next", func(g Gomega, lb *hcloud.LoadBalancer) { g.Expect(lb.Protection.Delete).To(BeFalse()) })
		env.Services.Delete(ctx, "next")
		env.Services.AwaitGone(ctx, "next")
		Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())
	})

	It("survives its Service if its owner label was removed", framework.Needs(framework.Release), Label(framework.OwnCloud),
		func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			env.Nodes.Create(ctx, "node-1") // by this server, a CCM that starts sees that its token belongs to the cluster's project
			env.Services.Create(ctx, "web")
			lb := env.LoadBalancers.Of(ctx, "web")
			By("deleting the Service while the CCM is down, after removing the label")
			Expect(env.CCM.Stop(ctx)).To(Succeed())
			_, _, err := env.Cloud.Client.LoadBalancer.Update(ctx, lb,
				hcloud.LoadBalancerUpdateOpts{Labels: map[string]string{"team": "edge"}})
			Expect(err).NotTo(HaveOccurred())
			env.Services.Delete(ctx, "web")
			env.CCM.Start(ctx, framework.CCMOptions{})
			env.Services.AwaitGone(ctx, "web")
			Expect(env.LoadBalancers.List(ctx)).To(HaveExactElements(HaveField("ID", lb.ID)))
		})
})
