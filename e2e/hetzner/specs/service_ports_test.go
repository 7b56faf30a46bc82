package specs

import (
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

var _ = Describe("A port of a Service", Label("service", "dataplane"), func() {
	var (
		env     *hetzner.Env
		names   []string
		address string
		conn    *framework.Connection
		stream  *framework.Stream
	)

	// Each spec changes a load balancer that serves on 8080 and 8081 while a client uses 8080.
	BeforeEach(func(ctx SpecContext) {
		env = hetzner.NewEnv(ctx, hetzner.Options{})
		names = env.Nodes.Workers(ctx, 2).Names()
		env.Services.Create(ctx, "web", func(s *corev1.Service) { s.Spec.Ports = append(s.Spec.Ports, framework.ServicePort(8081)) })
		address = env.Traffic.AwaitServed(ctx, "web")
		env.Traffic.AwaitAnswer(ctx, "web", address, 8081)
		env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names...))
		conn = env.Traffic.Connect(ctx, address, framework.Port)
		_, err := conn.Ask(ctx)
		Expect(err).NotTo(HaveOccurred())
		stream = env.Traffic.Stream(ctx, address, framework.Port)
	})

	// undisturbed checks that the change of another port has not disturbed this one.
	undisturbed := func(ctx SpecContext) {
		GinkgoHelper()
		stream.ExpectUndisturbed()
		answer, err := conn.Ask(ctx)
		Expect(err).NotTo(HaveOccurred(), "the connection that was open before was cut")
		Expect(answer.PortName).To(Equal("p8080"))
		Expect(env.Services.AwaitIngress(ctx, "web")).To(Equal(address))
	}

	It("can be renumbered while the others serve", framework.Needs(framework.SmoothPorts), func(ctx SpecContext) {
		since, lb := env.Cloud.Journal.Last(), env.LoadBalancers.Of(ctx, "web")
		env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Ports[1].Port = 9090 })
		Expect(env.Traffic.AwaitAnswer(ctx, "web", address, 9090).PortName).To(Equal("p8081"))
		Eventually(env.Traffic.Closed).WithArguments(ctx, address,
			8081).WithTimeout(framework.Timeout).WithPolling(framework.Polling).Should(BeTrue())
		undisturbed(ctx)
		Expect(hetzner.ListenPorts(env.LoadBalancers.Of(ctx, "web"))).To(ConsistOf(framework.Port, 9090))
		if !env.Cloud.Simulated() {
			return
		}
		var changes []string
		for _, e := range env.Cloud.Journal.Entries(journal.Filter{
			Client: framework.Current().CCM.UserAgent, Writes: true, Route: "/load_balancers/{id}/actions/*", ResourceID: lb.ID,
			Since: since}) {
			changes = append(changes, e.Operation)
		}
		Expect(changes).To(Equal([]string{"add_load_balancer_service", "delete_load_balancer_service"}),
			"the new port must be added before the old one is deleted")
	})

	It("follows its NodePort", func(ctx SpecContext) {
		var changed int32
		env.Services.Update(ctx, "web", func(s *corev1.Service) {
			changed = framework.Current().FreeNodePort()
			s.Spec.Ports[1].NodePort = changed
		})
		Eventually(func(g Gomega) {
			answer, err := env.Traffic.Get(ctx, address, 8081)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(answer.PortName).To(Equal("p8081"))
			g.Expect(hetzner.ServiceOn(env.LoadBalancers.Of(ctx, "web"), 8081).DestinationPort).To(BeEquivalentTo(changed))
		}).WithContext(ctx).WithTimeout(framework.Timeout).WithPolling(framework.Polling).Should(Succeed())
		undisturbed(ctx)
		service := hetzner.ServiceOn(env.LoadBalancers.Of(ctx, "web"), 8081)
		Expect(service.DestinationPort).To(BeEquivalentTo(changed))
		Expect(service.HealthCheck.Port).To(BeEquivalentTo(changed), "the health check still uses the old port")
	})

	It("can be replaced together with all others, although old and new ones do not fit at the same time",
		framework.Needs(framework.SmoothPorts), func(ctx SpecContext) {
			stream.Stop()
			// An lb11 has five services: the old ones must be deleted before all new ones fit.
			var ports []corev1.ServicePort
			for n := range int32(5) {
				ports = append(ports, framework.ServicePort(8090+n))
			}
			env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Ports = ports })
			env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
				g.Expect(hetzner.ListenPorts(lb)).To(ConsistOf(8090, 8091, 8092, 8093, 8094))
			})
			for n := range 5 {
				env.Traffic.AwaitAnswer(ctx, "web", address, 8090+n)
			}
			Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
		})
})
