package specs

import (
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

var _ = Describe("Service", Label("service"), func() {
	It("says that it has more ports than the load balancer's type has room for, and gets them with a larger type",
		framework.Needs(framework.TypeLimits), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			env.Services.Create(ctx, "web", func(s *corev1.Service) {
				s.Spec.Ports = nil
				for n := range int32(6) { // an lb11 has five
					s.Spec.Ports = append(s.Spec.Ports, framework.ServicePort(9000+n))
				}
			})
			event := env.Services.AwaitEvent(ctx, "web", "LoadBalancerTypeLimit",
				And(ContainSubstring("5 services of 6"), ContainSubstring("lb21")))
			Expect(event.Type).To(Equal(corev1.EventTypeWarning))
			Expect(hetzner.ListenPorts(env.LoadBalancers.Of(ctx, "web"))).To(ConsistOf(9000, 9001, 9002, 9003, 9004))
			env.Services.Update(ctx, "web", annotate(map[string]string{"type": "lb21"}))
			env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
				g.Expect(hetzner.ListenPorts(lb)).To(ConsistOf(9000, 9001, 9002, 9003, 9004, 9005))
			})
		})

	It("says that UDP is not supported", framework.Needs(framework.SettingEvents), func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{})
		env.Services.Create(ctx, "dns", func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolUDP })
		env.Services.AwaitEvent(ctx, "dns", "InvalidSettings", And(ContainSubstring("8080"), ContainSubstring("UDP"),
			ContainSubstring("TCP only")))
		Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())

		env.Services.Update(ctx, "dns", func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolTCP })
		env.Services.AwaitIngress(ctx, "dns")
	})
})

var _ = Describe("A port of a Service", Label("service", "dataplane"), func() {
	It("can be replaced together with all others, although old and new ones do not fit at the same time",
		framework.Needs(framework.SmoothPorts), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			env.Nodes.Workers(ctx, 2)
			env.Services.Create(ctx, "web", func(s *corev1.Service) { s.Spec.Ports = append(s.Spec.Ports, framework.ServicePort(8081)) })
			address := env.Traffic.AwaitServed(ctx, "web")
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
