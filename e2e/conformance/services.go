package conformance

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

var _ = Describe("A Service of type LoadBalancer", Label(Conformance, "service"), func() {
	var env *framework.Env
	BeforeEach(func(ctx SpecContext) { env = framework.NewEnv(ctx, framework.Options{}) })

	It("gets a load balancer whose address answers from outside of the cluster"+ensure, Label(framework.Dataplane), func(ctx SpecContext) {
		env.Nodes.Workers(ctx, 2)
		begin := time.Now()
		env.Services.Create(ctx, "web")
		env.Traffic.AwaitServed(ctx, "web")
		framework.RecordFigure(speclist.TimeToFirstTraffic, "s", time.Since(begin).Seconds())
		Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
		Expect(env.Services.Get(ctx, "web").Finalizers).To(ContainElement(cleanup))
	})

	It("is deleted with its load balancer, whose port closes"+remove, Label(framework.Dataplane), func(ctx SpecContext) {
		env.Nodes.Workers(ctx, 1)
		env.Services.Create(ctx, "web")
		address := env.Traffic.AwaitServed(ctx, "web")
		env.Services.Delete(ctx, "web")
		env.Services.AwaitGone(ctx, "web")
		Expect(env.LoadBalancers.List(ctx)).To(BeEmpty(), "the Service is gone before its load balancer")
		awaitClosed(ctx, env, address, framework.Port)
	})

	It("loses its load balancer when its type becomes ClusterIP, and gets another one when it is LoadBalancer again"+remove,
		Label(framework.Dataplane), func(ctx SpecContext) {
			env.Nodes.Workers(ctx, 1)
			env.Services.Create(ctx, "web")
			address := env.Traffic.AwaitServed(ctx, "web")

			env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP })
			env.Services.Await(ctx, "web", func(g Gomega, s *corev1.Service) {
				g.Expect(s.Status.LoadBalancer.Ingress).To(BeEmpty())
				g.Expect(s.Finalizers).NotTo(ContainElement(cleanup), "the finalizer is still there")
			})
			Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())
			awaitClosed(ctx, env, address, framework.Port)

			env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer })
			env.Traffic.AwaitServed(ctx, "web")
			Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
		})

	It("shares nothing with a Service of the same ports"+ensure, Label(framework.Dataplane), func(ctx SpecContext) {
		names := env.Nodes.Workers(ctx, 2).Names()
		env.Services.Create(ctx, "web")
		env.Services.Create(ctx, "api")
		web, api := env.Traffic.AwaitServed(ctx, "web"), env.Traffic.AwaitServed(ctx, "api")
		Expect(web).NotTo(Equal(api))
		Expect(env.LoadBalancers.List(ctx)).To(HaveLen(2))
		other := env.LoadBalancers.AwaitTargets(ctx, "api", names...)

		load := env.Traffic.Load(ctx, api, framework.Port)
		env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Ports[0].Port++ })
		env.Traffic.AwaitAnswer(ctx, "web", web, framework.Port+1)
		env.Services.Delete(ctx, "web")
		env.Services.AwaitGone(ctx, "web")
		env.Traffic.AwaitAnswer(ctx, "api", api, framework.Port)
		load.ExpectUndisturbed(ctx)
		left := env.LoadBalancers.List(ctx)
		Expect(left).To(HaveLen(1))
		Expect(framework.Settings(left[0])).To(Equal(framework.Settings(other)), "the other Service's load balancer has changed")
	})

	It("is left alone if its class belongs to another implementation"+class, func(ctx SpecContext) {
		other := "example.com/other"
		env.Services.Create(ctx, "foreign", func(s *corev1.Service) { s.Spec.LoadBalancerClass = &other })
		// The CCM sees Services in order: when this later Service is ready, the CCM knows the foreign one.
		env.Services.Create(ctx, "web")
		env.Services.AwaitIngress(ctx, "web")
		env.CCM.AwaitIdle(ctx)
		Consistently(func(g Gomega) {
			g.Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
			foreign := env.Services.Get(ctx, "foreign")
			g.Expect(foreign.Status.LoadBalancer.Ingress).To(BeEmpty())
			g.Expect(foreign.Finalizers).To(BeEmpty())
			g.Expect(env.Services.Events(ctx, "foreign")).To(BeEmpty())
		}).WithContext(ctx).WithTimeout(framework.Current().QuietTime()).Should(Succeed())

		env.Services.Delete(ctx, "foreign")
		env.Services.AwaitGone(ctx, "foreign")
		Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
	})

	It("has a load balancer while there are no nodes, and targets as soon as there are some"+update,
		Label(framework.Dataplane, framework.OwnCloud), func(ctx SpecContext) {
			env.Services.Create(ctx, "web")
			address := env.Services.AwaitIngress(ctx, "web")
			for _, p := range env.LoadBalancers.Of(ctx, "web").Ports {
				Expect(p.Targets).To(BeEmpty())
			}
			env.Nodes.Create(ctx, "node-1")
			env.Traffic.AwaitAnswer(ctx, "web", address, framework.Port)
		})

	It("keeps its load balancer, its address and the last of many rapid changes"+ensure, Label(framework.Dataplane), func(ctx SpecContext) {
		env.Nodes.Workers(ctx, 1)
		env.Services.Create(ctx, "web")
		address := env.Traffic.AwaitServed(ctx, "web")
		id := env.LoadBalancers.Of(ctx, "web").ID
		const updates = 25
		for i := range updates {
			env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Ports[0].Port = framework.Port + int32(i) })
		}
		env.Traffic.AwaitAnswer(ctx, "web", address, framework.Port+updates-1)
		env.CCM.AwaitIdle(ctx)
		lb := env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb cloud.LoadBalancer) {
			g.Expect(framework.ListenPorts(lb)).To(Equal([]int{framework.Port + updates - 1}))
		})
		Expect(lb.ID).To(Equal(id))
		awaitClosed(ctx, env, address, framework.Port)
	})

	It("serves on a TCP port that has the number of a UDP port"+ensure, framework.Needs(framework.MixedProtocols),
		Label(framework.Dataplane), func(ctx SpecContext) {
			env.Nodes.Workers(ctx, 1)
			env.Services.Create(ctx, "web", func(s *corev1.Service) {
				udp := framework.ServicePort(framework.Port)
				udp.Name, udp.Protocol = "udp", corev1.ProtocolUDP
				s.Spec.Ports = append(s.Spec.Ports, udp)
			})
			env.Traffic.AwaitServed(ctx, "web")
		})

	It("never leads to the node port 0, and serves as soon as it has node ports"+ensure, Label(framework.Dataplane), func(ctx SpecContext) {
		env.Nodes.Workers(ctx, 1)
		env.Services.Create(ctx, "web", func(s *corev1.Service) { s.Spec.AllocateLoadBalancerNodePorts = new(false) })
		Consistently(func(g Gomega) { // a cloud may know the number from the targets only
			for _, lb := range env.LoadBalancers.List(ctx) {
				g.Expect(lb.Ports).NotTo(ContainElement(And(HaveField("NodePort", BeZero()), HaveField("Targets", Not(BeEmpty())))))
			}
		}).WithContext(ctx).WithTimeout(framework.Current().QuietTime()).Should(Succeed(), "no node listens on port 0")
		env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.AllocateLoadBalancerNodePorts = new(true) })
		env.Traffic.AwaitServed(ctx, "web")
	})

	It("gets a load balancer again after another client has deleted it"+ensure, framework.Needs(framework.Repair),
		Label(framework.Dataplane), func(ctx SpecContext) {
			env.Nodes.Workers(ctx, 1)
			env.Services.Create(ctx, "web")
			env.Traffic.AwaitServed(ctx, "web")
			env.CCM.AwaitIdle(ctx) // else the sync that made it may make it again
			was := env.LoadBalancers.Of(ctx, "web").ID
			Expect(env.Cloud.DeleteLoadBalancer(ctx, was)).To(Succeed())
			Eventually(func(g Gomega) {
				all := env.LoadBalancers.List(ctx)
				g.Expect(all).To(HaveLen(1))
				g.Expect(all[0].ID).NotTo(Equal(was))
			}).WithContext(ctx).Should(Succeed())
			Eventually(func() (string, error) { // the address may be another one
				answer, err := env.Traffic.Get(ctx, env.Services.AwaitIngress(ctx, "web"), framework.Port)
				return answer.Service, err
			}).WithContext(ctx).Should(HaveSuffix("/web"))
		})
})

var _ = Describe("A port of a Service of type LoadBalancer", Label(Conformance, "service", framework.Dataplane), func() {
	var (
		env     *framework.Env
		address string
		load    *framework.Load
	)
	// Each spec changes a load balancer that serves on 8080 and 8081 while a client uses 8080.
	BeforeEach(func(ctx SpecContext) {
		env = framework.NewEnv(ctx, framework.Options{})
		names := env.Nodes.Workers(ctx, 2).Names()
		env.Services.Create(ctx, "web", func(s *corev1.Service) { s.Spec.Ports = append(s.Spec.Ports, framework.ServicePort(8081)) })
		address = env.Traffic.AwaitServed(ctx, "web")
		env.Traffic.AwaitAnswer(ctx, "web", address, 8081)
		env.LoadBalancers.AwaitTargets(ctx, "web", names...)
		load = env.Traffic.Load(ctx, address, framework.Port)
	})
	undisturbed := func(ctx context.Context) {
		GinkgoHelper()
		load.ExpectUndisturbed(ctx)
		Expect(env.Services.AwaitIngress(ctx, "web")).To(Equal(address))
	}

	It("can be added while another one serves"+ensure, func(ctx SpecContext) {
		env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Ports = append(s.Spec.Ports, framework.ServicePort(8082)) })
		awaitAnswer(ctx, env, address, 8082, "p8082")
		undisturbed(ctx)
	})

	It("can be removed while another one serves"+ensure, func(ctx SpecContext) {
		env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[:1] })
		awaitClosed(ctx, env, address, 8081)
		undisturbed(ctx)
		Expect(framework.ListenPorts(env.LoadBalancers.Of(ctx, "web"))).To(ConsistOf(framework.Port))
	})

	It("can get another number while another one serves"+ensure, func(ctx SpecContext) {
		env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Ports[1].Port = 9090 })
		awaitAnswer(ctx, env, address, 9090, "p8081")
		awaitClosed(ctx, env, address, 8081)
		undisturbed(ctx)
	})

	It("follows its node port while another one serves"+ensure, func(ctx SpecContext) {
		changed := framework.Current().FreeNodePort()
		env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Ports[1].NodePort = changed })
		env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb cloud.LoadBalancer) {
			g.Expect(lb.Ports).To(ContainElement(And(HaveField("Port", BeEquivalentTo(8081)), HaveField("NodePort", changed))))
		})
		awaitAnswer(ctx, env, address, 8081, "p8081")
		undisturbed(ctx)
	})

	It("can swap its number with another one"+ensure, framework.Needs(framework.SmoothPorts), func(ctx SpecContext) {
		env.Services.Update(ctx, "web", func(s *corev1.Service) {
			s.Spec.Ports[0].Port, s.Spec.Ports[1].Port = s.Spec.Ports[1].Port, s.Spec.Ports[0].Port
		})
		awaitAnswer(ctx, env, address, 8080, "p8081")
		awaitAnswer(ctx, env, address, 8081, "p8080")
	})
})

var _ = Describe("The targets of a load balancer", Label(Conformance, "service", framework.Dataplane), func() {
	var env *framework.Env
	BeforeEach(func(ctx SpecContext) { env = framework.NewEnv(ctx, framework.Options{}) })

	It("are all nodes, and each of them serves"+ensure, func(ctx SpecContext) {
		names := env.Nodes.Workers(ctx, 2).Names()
		// With the policy Cluster, a node may forward to a pod on another node.
		env.Services.Create(ctx, "web", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
		address := env.Traffic.AwaitServed(ctx, "web")
		env.LoadBalancers.AwaitTargets(ctx, "web", names...)
		env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, names...)
	})

	It("follow nodes that come and go, without a request that fails"+update, Label(framework.OwnCloud), func(ctx SpecContext) {
		env.Nodes.Create(ctx, "node-1")
		env.Services.Create(ctx, "web")
		address := env.Traffic.AwaitServed(ctx, "web")
		load := env.Traffic.Load(ctx, address, framework.Port)
		env.Nodes.Create(ctx, "node-2")
		env.LoadBalancers.AwaitTargets(ctx, "web", "node-1", "node-2")
		env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, "node-1", "node-2")
		env.Nodes.Delete(ctx, "node-2")
		env.LoadBalancers.AwaitTargets(ctx, "web", "node-1")
		env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, "node-1")
		load.ExpectUndisturbed(ctx)
	})

	It("do not include a server that was deleted"+update, Label(framework.OwnCloud), func(ctx SpecContext) {
		servers := env.Nodes.Create(ctx, "node-1", "node-2")
		env.Services.Create(ctx, "web")
		address := env.Traffic.AwaitServed(ctx, "web")
		env.LoadBalancers.AwaitTargets(ctx, "web", "node-1", "node-2")
		env.Servers.Delete(ctx, servers[0])
		env.LoadBalancers.AwaitTargets(ctx, "web", "node-2")
		env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, "node-2")
	})

	It("do not include a node with the label for exclusion"+exclude, framework.Alone(), func(ctx SpecContext) {
		names := env.Nodes.Workers(ctx, 2).Names()
		env.Services.Create(ctx, "web")
		env.Traffic.AwaitServed(ctx, "web")
		env.LoadBalancers.AwaitTargets(ctx, "web", names...)
		yes := "true"
		env.Nodes.SetLabel(ctx, names[0], corev1.LabelNodeExcludeBalancers, &yes)
		env.LoadBalancers.AwaitTargets(ctx, "web", names[1:]...)
		env.Traffic.AwaitServed(ctx, "web")
		env.Nodes.SetLabel(ctx, names[0], corev1.LabelNodeExcludeBalancers, nil)
		env.LoadBalancers.AwaitTargets(ctx, "web", names...)
		env.Traffic.AwaitServed(ctx, "web")
	})

	It("get traffic only if they have an endpoint, with the policy Local"+local, framework.Needs(framework.LocalPolicy),
		func(ctx SpecContext) {
			env.Traffic.SkipIfMute()
			names := env.Nodes.Workers(ctx, 2).Names()
			env.Services.Create(ctx, "web", func(s *corev1.Service) {
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			})
			env.Pods.SetEndpoints(ctx, "web", names[0])
			address := env.Traffic.AwaitServed(ctx, "web")
			env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, names[0])
			env.Pods.SetEndpoints(ctx, "web", names[1])
			env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, names[1])
		})
})
