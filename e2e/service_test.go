package e2e

import (
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
)

var _ = Describe("Service", Label("service"), func() {
	It("gets a load balancer whose address answers from outside of the cluster", Label("dataplane"), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		env.Workers(ctx, 2)
		env.CreateService(ctx, "web")
		env.AwaitServed(ctx, "web")
		Expect(env.LoadBalancers(ctx)).To(HaveLen(1))
		env.ExpectNoServiceWrites(ctx)
	})

	It("is deleted together with its load balancer, whose ports close and whose addresses are free again", Label("dataplane", framework.OwnCloud), func(ctx SpecContext) {
		// With two public addresses, a third Service can only be served if deleting gives them back.
		env := framework.NewEnv(ctx, suite, framework.Options{LoadBalancerBits: 30})
		env.CreateNodes(ctx, "node-1")
		var private string
		for i := range 3 {
			name := fmt.Sprintf("web-%d", i)
			env.CreateService(ctx, name)
			address := env.AwaitServed(ctx, name)
			lb := env.LoadBalancerOf(ctx, name)
			Expect(lb.PrivateNet).To(HaveLen(1))
			if i == 0 {
				private = lb.PrivateNet[0].IP.String()
			}
			Expect(lb.PrivateNet[0].IP.String()).To(Equal(private), "the address in the network was not given back")

			env.DeleteService(ctx, name)
			env.AwaitGone(ctx, name)
			Expect(env.LoadBalancers(ctx)).To(BeEmpty())
			Expect(env.Closed(ctx, address, framework.Port)).To(BeTrue(), "%s:%d still listens", address, framework.Port)
			Expect(env.Cloud.DataPlane().Endpoints(lb.ID)).To(BeEmpty())
		}
	})

	It("loses its load balancer as ClusterIP and gets another one as LoadBalancer", Label("dataplane"), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		env.Workers(ctx, 1)
		env.CreateService(ctx, "web")
		address := env.AwaitServed(ctx, "web")

		env.UpdateService(ctx, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
		env.AwaitService(ctx, "web", func(g Gomega, s *corev1.Service) {
			g.Expect(s.Status.LoadBalancer.Ingress).To(BeEmpty())
			g.Expect(servicehelpers.HasLBFinalizer(s)).To(BeFalse(), "the finalizer is still there")
		})
		Expect(env.LoadBalancers(ctx)).To(BeEmpty())
		Expect(env.Closed(ctx, address, framework.Port)).To(BeTrue())

		env.UpdateService(ctx, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer })
		env.AwaitServed(ctx, "web")
		Expect(env.LoadBalancers(ctx)).To(HaveLen(1))
	})

	It("converges on the last of many rapid updates", Label("dataplane", framework.FakeOnly), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		env.Workers(ctx, 1)
		env.CreateService(ctx, "web")
		address := env.AwaitServed(ctx, "web")
		before := env.ServiceWrites()

		const updates = 25
		for i := range updates {
			env.UpdateService(ctx, "web", func(s *corev1.Service) {
				s.Annotations[framework.Annotation+"algorithm-type"] = []string{"least_connections", "round_robin"}[i%2]
				s.Annotations[framework.Annotation+"name"] = env.Unique(fmt.Sprintf("web-%d", i))
				s.Spec.Ports = s.Spec.Ports[:1]
				s.Spec.Ports[0].Port = framework.Port + int32(i)
			})
		}
		lb := env.AwaitLoadBalancer(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
			g.Expect(lb.Name).To(Equal(env.Unique(fmt.Sprintf("web-%d", updates-1))))
			g.Expect(lb.Algorithm.Type).To(BeEquivalentTo("least_connections"))
			g.Expect(framework.ListenPorts(lb)).To(ConsistOf(framework.Port + updates - 1))
		})
		env.AwaitAnswer(ctx, "web", address, framework.Port+updates-1)
		env.AwaitStill(ctx, 2)
		Expect(env.LoadBalancerOf(ctx, "web")).To(HaveField("ID", lb.ID))
		Expect(env.Closed(ctx, address, framework.Port)).To(BeTrue())
		// One sync writes name and labels twice, the algorithm and two ports. The service controller
		// merges what it has not seen yet, so that not each update is synced.
		Expect(env.ServiceWrites()-before).To(BeNumerically("<", 5*updates), "each update was written")
	})

	It("shares nothing with a Service of the same ports", Label("dataplane"), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		env.Workers(ctx, 2)
		env.CreateService(ctx, "web")
		env.CreateService(ctx, "api")
		web, api := env.AwaitServed(ctx, "web"), env.AwaitServed(ctx, "api")
		Expect(web).NotTo(Equal(api))
		Expect(env.LoadBalancers(ctx)).To(HaveLen(2))
		other := env.LoadBalancerOf(ctx, "api")

		stream := env.Stream(ctx, api, framework.Port)
		writes := env.CCMWritesTo(other)
		env.UpdateService(ctx, "web", func(s *corev1.Service) { s.Spec.Ports[0].Port++ })
		env.AwaitAnswer(ctx, "web", web, framework.Port+1)
		env.DeleteService(ctx, "web")
		env.AwaitGone(ctx, "web")
		env.AwaitAnswer(ctx, "api", api, framework.Port)
		stream.ExpectUndisturbed()
		Expect(env.CCMWritesTo(other)).To(Equal(writes), "the other Service's load balancer was written")
		Expect(env.LoadBalancers(ctx)).To(HaveExactElements(HaveField("ID", other.ID)))
	})

	It("with the class of another implementation is left alone", func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		class := "example.com/other"
		env.CreateService(ctx, "foreign", func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class })
		// When a Service that was created later is done, the CCM has seen the foreign one.
		env.CreateService(ctx, "web")
		env.AwaitIngress(ctx, "web")
		env.ExpectNoServiceWrites(ctx)
		Expect(env.LoadBalancers(ctx)).To(HaveLen(1))
		foreign := env.Service(ctx, "foreign")
		Expect(foreign.Status.LoadBalancer.Ingress).To(BeEmpty())
		Expect(foreign.Finalizers).To(BeEmpty())
		Expect(env.Events(ctx, "foreign")).To(BeEmpty())

		env.DeleteService(ctx, "foreign")
		env.AwaitGone(ctx, "foreign")
		Expect(env.LoadBalancers(ctx)).To(HaveLen(1))
	})

	It("without nodes has a load balancer, and targets as soon as there are nodes", Label("dataplane", framework.OwnCloud), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		env.CreateService(ctx, "web")
		address := env.AwaitIngress(ctx, "web")
		env.AwaitEvent(ctx, "web", "UnAvailableLoadBalancer", ContainSubstring("no available nodes"))
		Expect(env.LoadBalancerOf(ctx, "web").Targets).To(BeEmpty())
		env.CreateNodes(ctx, "node-1")
		env.AwaitAnswer(ctx, "web", address, framework.Port)
	})

	It("is told when it has more ports than the load balancer's type, and gets them with a larger one", framework.Needs(framework.CompleteCreation), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		env.CreateService(ctx, "web", func(s *corev1.Service) {
			s.Spec.Ports = nil
			for n := range int32(6) { // an lb11 has five
				s.Spec.Ports = append(s.Spec.Ports, port(9000+n))
			}
		})
		event := env.AwaitEvent(ctx, "web", "SyncLoadBalancerFailed", ContainSubstring("resource_limit_exceeded"))
		Expect(event.Type).To(Equal(corev1.EventTypeWarning))
		Expect(env.LoadBalancers(ctx)).To(BeEmpty())
		env.UpdateService(ctx, "web", annotate(map[string]string{"type": "lb21"}))
		lb := env.LoadBalancerOf(ctx, "web")
		Expect(framework.ListenPorts(lb)).To(ConsistOf(9000, 9001, 9002, 9003, 9004, 9005))
	})

	It("is told that UDP cannot be had", framework.Needs(framework.SettingEvents), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		env.CreateService(ctx, "dns", func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP })
		env.AwaitEvent(ctx, "dns", "InvalidSettings", And(ContainSubstring("8080"), ContainSubstring("UDP"), ContainSubstring("TCP only")))
		Expect(env.LoadBalancers(ctx)).To(BeEmpty())
		Expect(env.ServiceWrites()).To(BeZero())

		env.UpdateService(ctx, "dns", func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolTCP })
		env.AwaitIngress(ctx, "dns")
	})
})
