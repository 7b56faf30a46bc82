package specs

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

var _ = Describe("A Floating IP", Label(framework.RealNodes, framework.FakeOnly, framework.Dataplane, "node"), func() {
	It("leads to the server that it is assigned to, and follows it when it moves", func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{})
		workers := env.Nodes.Workers(ctx, 2)
		service := env.Services.Create(ctx, "web", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeNodePort, corev1.ServiceExternalTrafficPolicyLocal
		})
		ip := env.Servers.CreateFloatingIP(ctx)
		env.Nodes.AddAddress(ctx, ip.IP.String(), workers.Names()...)
		leadsTo := func(where string) {
			GinkgoHelper()
			Eventually(func() string {
				answer, err := env.Traffic.Get(ctx, ip.IP.String(), int(service.Spec.Ports[0].NodePort))
				if err != nil {
					return err.Error()
				}
				return answer.Node
			}).WithContext(ctx).WithTimeout(framework.Timeout).WithPolling(framework.Polling).Should(ContainSubstring(where))
		}
		const nowhere = "no route to host"

		leadsTo(nowhere)
		for _, w := range workers[:2] {
			env.Pods.Await(ctx, "web", w.Name)
			env.Cloud.Do(ctx)(env.Cloud.Client.FloatingIP.Assign(ctx, ip, w.Server))
			leadsTo(w.Name)
		}
		env.Cloud.Do(ctx)(env.Cloud.Client.FloatingIP.Unassign(ctx, ip))
		leadsTo(nowhere)
	})
})
