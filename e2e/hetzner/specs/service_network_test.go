package specs

import (
	"net/netip"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

func privateAddresses(lb *hcloud.LoadBalancer) []string {
	var all []string
	for _, n := range lb.PrivateNet {
		all = append(all, n.IP.String())
	}
	return all
}

var _ = Describe("A Service in a private network", Label("service", "dataplane"), func() {
	var env *hetzner.Env

	BeforeEach(func(ctx SpecContext) { env = hetzner.NewEnv(ctx, hetzner.Options{}) })

	It("is served by nodes without public addresses, without an annotation", framework.Needs(framework.PrivateNodes),
		Label(framework.OwnCloud), func(ctx SpecContext) {
			for _, name := range []string{"node-1", "node-2"} {
				env.Servers.Create(ctx, name, publicNet(false, false))
				env.Nodes.AwaitInitialized(ctx, name)
			}
			env.Services.Create(ctx, "web")
			address := env.Traffic.AwaitServed(ctx, "web")
			lb := env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2"))
			Expect(lb.Targets).To(HaveEach(HaveField("UsePrivateIP", BeTrue())))
			Expect(address).To(Equal(lb.PublicNet.IPv4.IP.String()))
			env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, "node-1", "node-2")

			By("adding a node with public addresses, which does not change the others")
			env.Nodes.Create(ctx, "node-3")
			lb = env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2", "node-3"))
			Expect(lb.Targets).To(ContainElements(HaveField("UsePrivateIP", BeTrue()), HaveField("UsePrivateIP", BeTrue()),
				HaveField("UsePrivateIP", BeFalse())))
			env.CCM.ExpectNoServiceWrites(ctx)
		})

	It("reaches its nodes through their private addresses with use-private-ip", framework.Needs(framework.PrivateNetwork),
		Label(framework.OwnCloud), func(ctx SpecContext) {
			env.Nodes.Create(ctx, "node-1", "node-2")
			env.Services.Create(ctx, "web", annotate(map[string]string{"use-private-ip": "true"}))
			env.Traffic.AwaitServed(ctx, "web")
			lb := env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2"))
			Expect(lb.Targets).To(HaveEach(HaveField("UsePrivateIP", BeTrue())))
			Expect(lb.PrivateNet).To(HaveLen(1))
		})

	It("has no public address with disable-public-network and use-private-ip", framework.Needs(framework.PrivateNetwork),
		Label(framework.OwnCloud), func(ctx SpecContext) {
			env.Nodes.Create(ctx, "node-1")
			env.Services.Create(ctx, "web", annotate(map[string]string{"disable-public-network": "true", "use-private-ip": "true"}))
			lb := env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1"))
			Expect(lb.PublicNet.Enabled).To(BeFalse())
			Expect(lb.PrivateNet).To(HaveLen(1))
			env.Traffic.AwaitAnswer(ctx, "web", lb.PrivateNet[0].IP.String(), framework.Port)
		})

	It("can be private only and public again: no public address, private targets, and answers inside the network",
		framework.Needs(framework.PrivateNetwork, framework.PrivateOnly, framework.SettingUpdates, framework.IPMode),
		Label(framework.OwnCloud), func(ctx SpecContext) {
			env.Nodes.Create(ctx, "node-1", "node-2")
			env.Services.Create(ctx, "web", annotate(map[string]string{"disable-public-network": "true"}))
			lb := env.LoadBalancers.Of(ctx, "web")
			Expect(lb.PublicNet.Enabled).To(BeFalse())
			Expect(lb.PrivateNet).To(HaveLen(1))
			private := lb.PrivateNet[0].IP.String()
			vip := corev1.LoadBalancerIPModeVIP
			Expect(env.Services.Get(ctx,
				"web").Status.LoadBalancer.Ingress).To(Equal([]corev1.LoadBalancerIngress{{IP: private, IPMode: &vip}}))
			lb = env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2"))
			Expect(lb.Targets).To(HaveEach(HaveField("UsePrivateIP", BeTrue())))
			env.Traffic.AwaitAnsweringNodes(ctx, private, framework.Port, "node-1", "node-2")
			public := lb.PublicNet.IPv4.IP.String()
			Expect(env.Traffic.Closed(ctx, public, framework.Port)).To(BeTrue())

			By("opening it to the public")
			env.Services.Update(ctx, "web", annotate(map[string]string{"disable-public-network": ""}))
			env.Traffic.AwaitAnswer(ctx, "web", public, framework.Port)
			env.Services.Await(ctx, "web", func(g Gomega, s *corev1.Service) {
				g.Expect(s.Status.LoadBalancer.Ingress).To(ContainElements(HaveField("IP", public), HaveField("IP", private)))
			})
			env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
				g.Expect(lb.Targets).To(HaveEach(HaveField("UsePrivateIP", BeFalse())))
			})

			By("closing it again")
			env.Services.Update(ctx, "web", annotate(map[string]string{"disable-public-network": "true"}))
			env.Services.Await(ctx, "web", func(g Gomega, s *corev1.Service) {
				g.Expect(s.Status.LoadBalancer.Ingress).To(HaveExactElements(HaveField("IP", private)))
			})
			Expect(env.Traffic.Closed(ctx, public, framework.Port)).To(BeTrue())
			env.Traffic.AwaitAnsweringNodes(ctx, private, framework.Port, "node-1", "node-2")
		})

	It("reaches all nodes through their private addresses with the annotation, those without a public one included",
		framework.Needs(framework.PrivateNetwork, framework.PrivateNodes, framework.SettingUpdates), Label(framework.OwnCloud),
		func(ctx SpecContext) {
			env.Servers.Create(ctx, "inside", publicNet(false, false))
			env.Nodes.AwaitInitialized(ctx, "inside")
			env.Nodes.Create(ctx, "outside")
			env.Services.Create(ctx, "web")
			address := env.Traffic.AwaitServed(ctx, "web")

			env.Services.Update(ctx, "web", annotate(map[string]string{"use-private-ip": "true"}))
			env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
				g.Expect(lb.Targets).To(And(HaveLen(2), HaveEach(HaveField("UsePrivateIP", BeTrue()))))
			})
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("inside", "outside"))
			env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, "inside", "outside")
		})

	It("changes to private targets one by one, without a request that fails",
		framework.Needs(framework.PrivateNetwork, framework.SettingUpdates, framework.SmoothTargets), Label(framework.OwnCloud),
		func(ctx SpecContext) {
			env.Nodes.Create(ctx, "node-1", "node-2")
			env.Services.Create(ctx, "web")
			address := env.Traffic.AwaitServed(ctx, "web")
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2"))
			load := env.Traffic.Load(ctx, address, framework.Port)
			env.Services.Update(ctx, "web", annotate(map[string]string{"use-private-ip": "true"}))
			env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
				g.Expect(lb.Targets).To(HaveEach(HaveField("UsePrivateIP", BeTrue())))
			})
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2"))
			load.ExpectUndisturbed(ctx)
		})

	It("gives the load balancer the private address that was asked for", framework.Needs(framework.PrivateAddress),
		Label(framework.OwnCloud), func(ctx SpecContext) {
			env.Services.Create(ctx, "web", annotate(map[string]string{"private-ipv4": "10.0.0.77"}))
			Expect(privateAddresses(env.LoadBalancers.Of(ctx, "web"))).To(ConsistOf("10.0.0.77"))
			env.Services.Update(ctx, "web", annotate(map[string]string{"private-ipv4": "10.0.0.78"}))
			env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
				g.Expect(privateAddresses(lb)).To(ConsistOf("10.0.0.78"))
			})
			env.Services.Await(ctx, "web", func(g Gomega, s *corev1.Service) {
				g.Expect(s.Status.LoadBalancer.Ingress).To(ContainElement(HaveField("IP", "10.0.0.78")))
			})
			env.CCM.ExpectNoServiceWrites(ctx)
		})

	It("takes the load balancer's private address from the subnet that was asked for", framework.Needs(framework.PrivateAddress),
		Label(framework.OwnCloud), func(ctx SpecContext) {
			env.Cloud.Do(ctx)(env.Cloud.Client.Network.AddSubnet(ctx, env.Cloud.Network,
				hcloud.NetworkAddSubnetOpts{Subnet: hcloud.NetworkSubnet{
					Type: hcloud.NetworkSubnetTypeCloud, IPRange: hetzner.IPNet("10.0.9.0/24"), NetworkZone: hetzner.NetworkZone}}))
			env.Services.Create(ctx, "web", annotate(map[string]string{"private-subnet-ip-range": "10.0.9.0/24"}))
			lb := env.LoadBalancers.Of(ctx, "web")
			Expect(lb.PrivateNet).To(HaveLen(1))
			Expect(hetzner.IPNet("10.0.9.0/24").Contains(lb.PrivateNet[0].IP)).To(BeTrue(), "%s", lb.PrivateNet[0].IP)
		})

	It("shows pods the client's address with the PROXY protocol", framework.Needs(framework.ProxyProtocol), func(ctx SpecContext) {
		env.Nodes.Workers(ctx, 1)
		env.Pods.SetProxyProtocol("web", true)
		env.Services.Create(ctx, "web", annotate(map[string]string{"uses-proxyprotocol": "true"}))
		address := env.Traffic.AwaitServed(ctx, "web")
		from := netip.MustParseAddr(env.Traffic.OutsideAddress())
		answer, err := env.Traffic.GetURL(ctx, env.Traffic.Client(framework.ClientOptions{From: from}),
			framework.URL("http", address, framework.Port))
		Expect(err).NotTo(HaveOccurred())
		Expect(answer.ProxyProtocol).To(Equal(1))
		Expect(netip.MustParseAddrPort(answer.Client).Addr()).To(Equal(from))
		Expect(netip.MustParseAddrPort(answer.Peer).Addr()).NotTo(Equal(from), "the connection itself is the load balancer's")
	})

	It("has the IP mode Proxy while it has the PROXY protocol, which can be switched off",
		framework.Needs(framework.ProxyProtocol, framework.IPMode, framework.SettingUpdates), func(ctx SpecContext) {
			env.Nodes.Workers(ctx, 1)
			env.Pods.SetProxyProtocol("web", true)
			env.Services.Create(ctx, "web", annotate(map[string]string{"uses-proxyprotocol": "true"}))
			address := env.Traffic.AwaitServed(ctx, "web")
			ipMode := func() corev1.LoadBalancerIPMode {
				return *env.Services.Get(ctx, "web").Status.LoadBalancer.Ingress[0].IPMode
			}
			Expect(ipMode()).To(Equal(corev1.LoadBalancerIPModeProxy))

			By("switching it off")
			env.Pods.SetProxyProtocol("web", false)
			env.Services.Update(ctx, "web", annotate(map[string]string{"uses-proxyprotocol": ""}))
			Eventually(func(g Gomega) {
				answer, err := env.Traffic.Get(ctx, address, framework.Port)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(answer.ProxyProtocol).To(BeZero())
				g.Expect(ipMode()).To(Equal(corev1.LoadBalancerIPModeVIP))
			}).WithContext(ctx).Should(Succeed())
		})

	It("has no private settings without HCLOUD_NETWORK, and says so when they are asked for", framework.Needs(framework.SettingEvents),
		Label(framework.OwnCloud), func(ctx SpecContext) {
			Expect(env.CCM.Stop(ctx)).To(Succeed())
			env.CCM.Start(ctx, framework.CCMOptions{
				Env:  map[string]string{"HCLOUD_NETWORK": ""},
				Args: []string{"--configure-cloud-routes=false", "--allocate-node-cidrs=false"},
			})
			env.Services.Create(ctx, "web", annotate(map[string]string{"use-private-ip": "true"}))
			env.Services.AwaitEvent(ctx, "web", "InvalidSettings",
				And(ContainSubstring("use-private-ip"), ContainSubstring("HCLOUD_NETWORK")))
			Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())
			env.Services.Update(ctx, "web", annotate(map[string]string{"use-private-ip": ""}))
			Expect(env.LoadBalancers.Of(ctx, "web").PrivateNet).To(BeEmpty())
		})
})
