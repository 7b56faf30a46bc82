package specs

import (
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

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
