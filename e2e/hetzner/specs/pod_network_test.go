package specs

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/whoami"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

var _ = Describe("Pod network", framework.Needs(framework.NodeRoutes), Label(framework.RealNodes, framework.Dataplane, "route"), func() {
	It("connects pods on different nodes under their own addresses, by IP and through a Service", func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{})
		workers := env.Nodes.Workers(ctx, 2)
		env.Services.Create(ctx, "web", clusterIP)
		here, there := env.Pods.Await(ctx, "web", workers[0].Name), env.Pods.Await(ctx, "web", workers[1].Name)

		By("asking the other pod")
		answer, err := env.Pods.FetchAnswer(ctx, here, there.Status.PodIP)
		Expect(err).NotTo(HaveOccurred())
		Expect(answer.Node).To(Equal(there.Spec.NodeName))
		Expect(framework.Host(answer.Client)).To(Equal(here.Status.PodIP), "the address that the other pod saw")

		By("asking the Service until each pod has answered")
		service := env.Services.Get(ctx, "web").Spec.ClusterIP
		answered := map[string]whoami.Answer{}
		Eventually(func(g Gomega) {
			answer, err := env.Pods.FetchAnswer(ctx, here, service)
			g.Expect(err).NotTo(HaveOccurred())
			answered[answer.Node] = answer
			g.Expect(answered).To(And(HaveKey(here.Spec.NodeName), HaveKey(there.Spec.NodeName)))
		}).WithContext(ctx).Should(Succeed())
		Expect(framework.Host(answered[there.Spec.NodeName].Client)).To(Equal(here.Status.PodIP))
	})

	It("gives pods their node's address outside of the cluster, so that the metadata service knows their server", Label(framework.FakeOnly),
		func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			env.Services.Create(ctx, "web", clusterIP)
			for _, w := range env.Nodes.Workers(ctx, 2) {
				Expect(env.Pods.Fetch(ctx, env.Pods.Await(ctx, "web", w.Name), hetzner.MetadataURL+
					"instance-id")).To(Equal(fmt.Sprint(w.Server.ID)))
			}
		})

	It("needs the cloud's routes, which the CCM restores", Label(framework.FakeOnly), framework.Alone(), func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{})
		workers := env.Nodes.Workers(ctx, 2)
		env.Services.Create(ctx, "web", clusterIP)
		here, there := env.Pods.Await(ctx, "web", workers[0].Name), env.Pods.Await(ctx, "web", workers[1].Name)
		ask := func() (string, error) {
			answer, err := env.Pods.FetchAnswer(ctx, here, there.Status.PodIP)
			return answer.Node, err
		}
		Expect(ask()).To(Equal(there.Spec.NodeName))
		route := env.Routes.Of(ctx, workers[1].Name, workers[1].Server)
		Expect(env.Routes.List(ctx)).To(ContainElement(route))

		// Otherwise the CCM restores the route before the spec can look.
		fault, remove := env.Cloud.Faults.Add(fault.Rule{Operation: "add_network_route", Effect: fault.APIError("unavailable")})
		env.Routes.Delete(ctx, env.Nodes.Get(ctx, workers[1].Name).Spec.PodCIDR, env.Servers.PrivateIP(ctx, workers[1].Server))
		env.Cloud.Faults.Await(ctx, fault, 1)
		_, err := ask()
		Expect(err).To(HaveOccurred(), "the pods are connected without a route of the cloud")
		Expect(env.Pods.Fetch(ctx, here, hetzner.MetadataURL+"instance-id")).To(Equal(fmt.Sprint(workers[0].Server.ID)),
			"a pod on a node with a route")

		remove()
		Eventually(func() []string { return env.Routes.List(ctx) }).WithContext(ctx).Should(ContainElement(route))
		Eventually(ask).WithContext(ctx).Should(Equal(there.Spec.NodeName))
		env.Nodes.Await(ctx, workers[1].Name, func(g Gomega, n *corev1.Node) {
			g.Expect(n).NotTo(framework.HaveTaint(corev1.TaintNodeNetworkUnavailable))
		})
	})
})

// clusterIP makes a Service one without a load balancer.
func clusterIP(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }

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
			}).WithContext(ctx).Should(ContainSubstring(where))
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
