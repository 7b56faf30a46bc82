package e2e

import (
	"fmt"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

var _ = Describe("Service", Label("service"), func() {
	It("gets a load balancer whose address answers from outside of the cluster", Label("dataplane"), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		env.Nodes.Workers(ctx, 2)
		begin := time.Now()
		env.Services.Create(ctx, "web")
		env.Traffic.AwaitServed(ctx, "web")
		framework.RecordFigure(speclist.TimeToFirstTraffic, "s", time.Since(begin).Seconds())
		Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
		env.CCM.ExpectNoServiceWrites(ctx)
	})

	It("is deleted with its load balancer, whose ports close and whose addresses become free", Label("dataplane", framework.OwnCloud),
		func(ctx SpecContext) {
			// There are two public addresses: a third Service can be served only if deletion frees them.
			env := framework.NewEnv(ctx, suite, framework.Options{LoadBalancerBits: 30})
			env.Nodes.Create(ctx, "node-1")
			var private string
			for i := range 3 {
				name := fmt.Sprintf("web-%d", i)
				env.Services.Create(ctx, name)
				address := env.Traffic.AwaitServed(ctx, name)
				lb := env.LoadBalancers.Of(ctx, name)
				Expect(lb.PrivateNet).To(HaveLen(1))
				if i == 0 {
					private = lb.PrivateNet[0].IP.String()
				}
				Expect(lb.PrivateNet[0].IP.String()).To(Equal(private), "the address in the network was not freed")

				env.Services.Delete(ctx, name)
				env.Services.AwaitGone(ctx, name)
				Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())
				Expect(env.Traffic.Closed(ctx, address, framework.Port)).To(BeTrue(), "%s:%d still listens", address, framework.Port)
				Expect(env.Cloud.Fake.DataPlane().Endpoints(lb.ID)).To(BeEmpty())
			}
		})

	It("loses its load balancer when its type becomes ClusterIP, and gets another one when it is LoadBalancer again", Label("dataplane"),
		func(ctx SpecContext) {
			env := framework.NewEnv(ctx, suite, framework.Options{})
			env.Nodes.Workers(ctx, 1)
			env.Services.Create(ctx, "web")
			address := env.Traffic.AwaitServed(ctx, "web")

			env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
			env.Services.Await(ctx, "web", func(g Gomega, s *corev1.Service) {
				g.Expect(s.Status.LoadBalancer.Ingress).To(BeEmpty())
				g.Expect(servicehelpers.HasLBFinalizer(s)).To(BeFalse(), "the finalizer is still there")
			})
			Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())
			Expect(env.Traffic.Closed(ctx, address, framework.Port)).To(BeTrue())

			env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer })
			env.Traffic.AwaitServed(ctx, "web")
			Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
		})

	It("converges on the last of many rapid updates", Label("dataplane"), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		env.Nodes.Workers(ctx, 1)
		env.Services.Create(ctx, "web")
		address := env.Traffic.AwaitServed(ctx, "web")

		const updates = 25
		for i := range updates {
			env.Services.Update(ctx, "web", func(s *corev1.Service) {
				s.Annotations[framework.Annotation+"algorithm-type"] = []string{"least_connections", "round_robin"}[i%2]
				s.Annotations[framework.Annotation+"name"] = env.Cloud.Unique(fmt.Sprintf("web-%d", i))
				s.Spec.Ports = s.Spec.Ports[:1]
				s.Spec.Ports[0].Port = framework.Port + int32(i)
			})
		}
		lb := env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
			g.Expect(lb.Name).To(Equal(env.Cloud.Unique(fmt.Sprintf("web-%d", updates-1))))
			g.Expect(lb.Algorithm.Type).To(BeEquivalentTo("least_connections"))
			g.Expect(framework.ListenPorts(lb)).To(ConsistOf(framework.Port + updates - 1))
		})
		env.Traffic.AwaitAnswer(ctx, "web", address, framework.Port+updates-1)
		env.CCM.AwaitIdle(ctx)
		Expect(env.LoadBalancers.Of(ctx, "web")).To(HaveField("ID", lb.ID))
		Expect(env.Traffic.Closed(ctx, address, framework.Port)).To(BeTrue())
	})

	It("shares nothing with a Service of the same ports", Label("dataplane"), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		names := env.Nodes.Workers(ctx, 2).Names()
		env.Services.Create(ctx, "web")
		env.Services.Create(ctx, "api")
		web, api := env.Traffic.AwaitServed(ctx, "web"), env.Traffic.AwaitServed(ctx, "api")
		Expect(web).NotTo(Equal(api))
		Expect(env.LoadBalancers.List(ctx)).To(HaveLen(2))
		other := env.LoadBalancers.AwaitTargets(ctx, "api", framework.Healthy(names...))

		stream := env.Traffic.Stream(ctx, api, framework.Port)
		env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Ports[0].Port++ })
		env.Traffic.AwaitAnswer(ctx, "web", web, framework.Port+1)
		env.Services.Delete(ctx, "web")
		env.Services.AwaitGone(ctx, "web")
		env.Traffic.AwaitAnswer(ctx, "api", api, framework.Port)
		stream.ExpectUndisturbed()
		left := env.LoadBalancers.List(ctx)
		Expect(left).To(HaveLen(1))
		Expect(framework.Settings(left[0])).To(Equal(framework.Settings(other)), "the other Service's load balancer has changed")
	})

	It("is left alone if its class belongs to another implementation", func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		class := "example.com/other"
		env.Services.Create(ctx, "foreign", func(s *corev1.Service) { s.Spec.LoadBalancerClass = &class })
		// When a Service that was created later is ready, the CCM has seen the foreign one.
		env.Services.Create(ctx, "web")
		env.Services.AwaitIngress(ctx, "web")
		env.CCM.ExpectNoServiceWrites(ctx)
		Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
		foreign := env.Services.Get(ctx, "foreign")
		Expect(foreign.Status.LoadBalancer.Ingress).To(BeEmpty())
		Expect(foreign.Finalizers).To(BeEmpty())
		Expect(env.Services.Events(ctx, "foreign")).To(BeEmpty())

		env.Services.Delete(ctx, "foreign")
		env.Services.AwaitGone(ctx, "foreign")
		Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
	})

	It("has a load balancer while there are no nodes, and targets as soon as there are some", Label("dataplane", framework.OwnCloud),
		func(ctx SpecContext) {
			env := framework.NewEnv(ctx, suite, framework.Options{})
			env.Services.Create(ctx, "web")
			address := env.Services.AwaitIngress(ctx, "web")
			env.Services.AwaitEvent(ctx, "web", "UnAvailableLoadBalancer", ContainSubstring("no available nodes"))
			Expect(env.LoadBalancers.Of(ctx, "web").Targets).To(BeEmpty())
			env.Nodes.Create(ctx, "node-1")
			env.Traffic.AwaitAnswer(ctx, "web", address, framework.Port)
		})

	It("says that it has more ports than the load balancer's type has room for, and gets them with a larger type",
		framework.Needs(framework.TypeLimits), func(ctx SpecContext) {
			env := framework.NewEnv(ctx, suite, framework.Options{})
			env.Services.Create(ctx, "web", func(s *corev1.Service) {
				s.Spec.Ports = nil
				for n := range int32(6) { // an lb11 has five
					s.Spec.Ports = append(s.Spec.Ports, port(9000+n))
				}
			})
			event := env.Services.AwaitEvent(ctx, "web", "LoadBalancerTypeLimit",
				And(ContainSubstring("5 services of 6"), ContainSubstring("lb21")))
			Expect(event.Type).To(Equal(corev1.EventTypeWarning))
			Expect(framework.ListenPorts(env.LoadBalancers.Of(ctx, "web"))).To(ConsistOf(9000, 9001, 9002, 9003, 9004))
			env.Services.Update(ctx, "web", annotate(map[string]string{"type": "lb21"}))
			env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
				g.Expect(framework.ListenPorts(lb)).To(ConsistOf(9000, 9001, 9002, 9003, 9004, 9005))
			})
		})

	It("says that UDP is not supported", framework.Needs(framework.SettingEvents), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		env.Services.Create(ctx, "dns", func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP })
		env.Services.AwaitEvent(ctx, "dns", "InvalidSettings", And(ContainSubstring("8080"), ContainSubstring("UDP"),
			ContainSubstring("TCP only")))
		Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())

		env.Services.Update(ctx, "dns", func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolTCP })
		env.Services.AwaitIngress(ctx, "dns")
	})
})
