package specs

import (
	"context"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

var _ = Describe("A CCM in a pod", Ordered, framework.Alone(), Label(framework.RealNodes, framework.FakeOnly, "process"), func() {
	var (
		env  *hetzner.Env
		port int
	)
	BeforeAll(func(ctx SpecContext) {
		env = hetzner.NewEnv(ctx, hetzner.Options{})
		port = framework.Port
		env.Services.Create(ctx, "web")
		env.Services.AwaitIngress(ctx, "web")
	})
	// continues calls end to end the CCM. It checks that the CCM changes nothing afterwards, and that it works again.
	continues := func(ctx context.Context, end func()) {
		GinkgoHelper()
		env.CCM.AwaitIdle(ctx) // after the last change of the port it still cleans up
		before := hetzner.Settings(env.LoadBalancers.Of(ctx, "web"))
		end()
		env.CCM.AwaitIdle(ctx)
		Expect(hetzner.Settings(env.LoadBalancers.Of(ctx, "web"))).To(Equal(before), "nothing had changed")
		port++
		changePort(ctx, env, port)
	}
	// only returns the only pod.
	only := func(ctx context.Context) corev1.Pod { GinkgoHelper(); return env.CCM.AwaitPods(ctx, 1)[0] }

	It("continues after it was killed", func(ctx SpecContext) {
		was := only(ctx)
		continues(ctx, func() { env.CCM.Crash(ctx) })
		now := only(ctx)
		Expect(now.UID).To(Equal(was.UID))
		Expect(now.Status.ContainerStatuses[0].RestartCount).To(Equal(was.Status.ContainerStatuses[0].RestartCount + 1))
	})

	It("continues in another pod after its own was deleted", func(ctx SpecContext) {
		was := only(ctx)
		continues(ctx, func() { env.CCM.DeletePod(ctx, was) })
		Expect(only(ctx).UID).NotTo(Equal(was.UID))
	})

	It("continues in another pod after its own was evicted", func(ctx SpecContext) {
		was := only(ctx)
		continues(ctx, func() { env.CCM.EvictPod(ctx, was) })
		Expect(only(ctx).UID).NotTo(Equal(was.UID))
	})
})

var _ = Describe("A CCM in two pods", framework.Alone(), Label(framework.RealNodes, framework.FakeOnly, "process"), func() {
	It("works in one pod, and in the other when the leader's pod is deleted", func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{})
		env.CCM.Start(ctx, framework.CCMOptions{LeaderElect: true})
		pods := env.CCM.AwaitPods(ctx, 2)
		env.Services.Create(ctx, "web")
		env.Services.AwaitIngress(ctx, "web")
		env.CCM.AwaitIdle(ctx)
		first, leader := env.CCM.Leader(ctx)
		other := pods[0]
		if other.UID == leader.UID {
			other = pods[1]
		}
		before := hetzner.Settings(env.LoadBalancers.Of(ctx, "web"))
		uncordon := env.Nodes.Cordon(ctx) // the replacement of the leader's pod would be a third candidate
		env.CCM.DeletePod(ctx, leader)
		Eventually(func() string {
			identity, pod := env.CCM.Leader(ctx)
			Expect(identity == first || pod.UID == other.UID).To(BeTrue(), "%s is neither the old leader nor the other", identity)
			return identity
		}).WithContext(ctx).ShouldNot(Equal(first))
		env.CCM.AwaitIdle(ctx)
		Expect(hetzner.Settings(env.LoadBalancers.Of(ctx, "web"))).To(Equal(before), "nothing had changed")
		changePort(ctx, env, framework.Port+1)

		By("letting another pod replace the leader's")
		uncordon(ctx)
		env.CCM.AwaitPods(ctx, 2)
		identity, pod := env.CCM.Leader(ctx)
		Expect(identity).NotTo(Equal(first))
		Expect(pod.UID).To(Equal(other.UID))
	})
})

var _ = Describe("A CCM that starts", framework.Needs(framework.NodeRoutes), framework.Alone(),
	Label(framework.RealNodes, framework.FakeOnly, framework.Dataplane, "process"), func() {
		It("does all the work that waits for a new server and a new Service as soon as the cloud answers", func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true})
			names, name := env.Nodes.Workers(ctx, 1).Names(), env.Nodes.Name("early")
			env.Services.Create(ctx, "web", local)
			server := env.Servers.Create(ctx, name)
			env.Nodes.AwaitJoined(ctx, name)
			was := env.Nodes.AwaitReady(ctx, name, true)
			Expect(was).To(framework.HaveTaint(cloudproviderapi.TaintExternalCloudProvider))

			if framework.Current().CCM.Has(framework.SettingsCheck) { // else it may end when the cloud does not answer
				fault, remove := env.Cloud.Faults.Add(fault.Rule{Effect: fault.DropConnection()})
				env.CCM.Start(ctx, framework.CCMOptions{})
				env.Cloud.Faults.Await(ctx, fault, 3)
				Expect(env.Nodes.Get(ctx, name)).To(framework.HaveTaint(cloudproviderapi.TaintExternalCloudProvider))
				Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())
				remove()
			} else {
				env.CCM.Start(ctx, framework.CCMOptions{})
			}

			n := env.Nodes.AwaitInitialized(ctx, name)
			Expect(n.UID).To(Equal(was.UID))
			Expect(n.Spec.ProviderID).To(Equal(env.Servers.ProviderID(server)))
			address := env.Traffic.AwaitServed(ctx, "web")
			names = append(names, name)
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names...))
			env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, names...)
			Eventually(env.Routes.List).WithContext(ctx).Should(ContainElement(env.Routes.Of(ctx, name, server)))
			Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
		})
	})

// changePort changes the port of the Service "web" and waits until the CCM has followed.
func changePort(ctx context.Context, env *hetzner.Env, port int) {
	GinkgoHelper()
	env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Ports[0].Port = int32(port) })
	env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
		g.Expect(hetzner.ListenPorts(lb)).To(Equal([]int{port}))
	})
}
