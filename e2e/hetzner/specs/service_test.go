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
