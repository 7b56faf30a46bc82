package specs

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

var _ = Describe("Traffic to pods", Label(framework.RealNodes, framework.Dataplane, "service"), func() {
	It("reaches pods on all nodes, from a node's address with the policy Cluster, and from the load balancer's with Local",
		func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			names := env.Nodes.Workers(ctx, 2).Names()
			env.Services.Create(ctx, "web")
			address := env.Traffic.AwaitServed(ctx, "web")
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names...))
			env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, names...)
			each := map[string]int{}
			for _, name := range names {
				each[name] = 10
			}
			entrances := entrancesOf(ctx, env)
			came := map[string]int{}
			for range 10 * len(names) {
				answer, err := env.Traffic.Get(ctx, address, framework.Port)
				Expect(err).NotTo(HaveOccurred())
				came[entrances(framework.Host(answer.Peer))]++
			}
			Expect(came).To(Equal(each), "the nodes that received the requests")

			env.Services.Update(ctx, "web", local)
			env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
				g.Expect(hetzner.ServiceOn(lb, framework.Port).HealthCheck.Protocol).To(BeEquivalentTo("http"))
			})
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names...))
			Eventually(func(g Gomega) {
				answered, peers := map[string]int{}, map[string]bool{}
				for range 10 * len(names) {
					answer, err := env.Traffic.Get(ctx, address, framework.Port)
					g.Expect(err).NotTo(HaveOccurred())
					answered[answer.Node]++
					peer := framework.Host(answer.Peer)
					g.Expect(entrances(peer)).To(Equal(peer), "a node has replaced the load balancer's address by its own")
					peers[peer] = true
				}
				g.Expect(answered).To(Equal(each))
				g.Expect(peers).To(HaveLen(1), "the load balancer's address")
			}).WithContext(ctx).Should(Succeed())
		})

	DescribeTable("loses no request while the pods are replaced one by one", framework.Long,
		func(ctx SpecContext, policy corev1.ServiceExternalTrafficPolicy, grace time.Duration, minReady int32) {
			env := hetzner.NewEnv(ctx, hetzner.Options{Pods: func(set *appsv1.DaemonSet) {
				seconds := int64(60)
				set.Spec.MinReadySeconds = minReady
				set.Spec.Template.Spec.TerminationGracePeriodSeconds = &seconds
				setVariable(set, "GRACE", grace.String())
			}})
			names := env.Nodes.Workers(ctx, 2).Names()
			env.Services.Create(ctx, "web", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = policy })
			env.Pods.AwaitRollout(ctx, "web")
			address := env.Traffic.AwaitServed(ctx, "web")
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names...))
			env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, names...)
			before := hetzner.Settings(env.LoadBalancers.Of(ctx, "web"))

			begin := time.Now()
			load := env.Traffic.Load(ctx, address, framework.Port)
			load.AwaitAnswers(ctx, begin, 10)
			env.Pods.Update(ctx, "web", func(set *appsv1.DaemonSet) { setVariable(set, "VERSION", "2") })
			env.Pods.AwaitRollout(ctx, "web")
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names...))
			load.AwaitAnswers(ctx, time.Now(), 10)
			Expect(load.Since(ctx, begin, "during the rolling update").Lost).To(BeEmpty())
			Expect(hetzner.Settings(env.LoadBalancers.Of(ctx, "web"))).To(Equal(before), "pods must not change the load balancer")
		},
		Entry("with the policy Cluster, where a node forwards requests to another node's pod", corev1.ServiceExternalTrafficPolicyCluster,
			4*time.Second, int32(0)),
		// The health check runs every 3 s. An old pod serves until the check notices its end; the next pod is replaced when the check
		// notices the new one. The times leave room for a host that is busy with other specs.
		Entry("with the policy Local, where the load balancer avoids a node without a pod", corev1.ServiceExternalTrafficPolicyLocal,
			12*time.Second, int32(9)),
	)
})

// local makes the traffic of a Service stay on the node that receives it.
func local(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

// setVariable sets a variable of the environment of a Service's pods.
func setVariable(set *appsv1.DaemonSet, name, value string) {
	c := &set.Spec.Template.Spec.Containers[0]
	if i := slices.IndexFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == name }); i >= 0 {
		c.Env[i].Value = value
		return
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
}

// entrancesOf returns a function that finds the node with the client's address of a connection to a pod: the node's own address, or one of
// its pod range if the pod is on that node. It returns any other address unchanged.
func entrancesOf(ctx context.Context, env *hetzner.Env) func(address string) string {
	GinkgoHelper()
	nodes, err := env.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	return func(address string) string {
		for _, n := range nodes.Items {
			if slices.Contains(framework.AddressesOf(&n, corev1.NodeInternalIP), address) ||
				hetzner.IPNet(n.Spec.PodCIDR).Contains(net.ParseIP(address)) {
				return n.Name
			}
		}
		return address
	}
}

var _ = Describe("A server's life", framework.Needs(framework.NodeRoutes, framework.ShutdownTaint), Ordered, framework.BringsNodes(),
	framework.Long, Label(framework.RealNodes, framework.FakeOnly, framework.Dataplane, "lifecycle", "node", "service", "route"), func() {
		var (
			env     *hetzner.Env
			others  []string
			name    string
			server  *hcloud.Server
			route   string
			address string
			load    *framework.Load
			joined  *corev1.Node
		)
		BeforeAll(func(ctx SpecContext) {
			env = hetzner.NewEnv(ctx, hetzner.Options{})
			others, name = env.Nodes.Workers(ctx, 1).Names(), env.Nodes.Name("life")
			env.Services.Create(ctx, "web", local)
			address = env.Traffic.AwaitServed(ctx, "web")
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(others...))
			load = env.Traffic.Load(ctx, address, framework.Port)
		})
		// targets waits until the other nodes are healthy targets and the server has the given health.
		targets := func(ctx context.Context, health string) {
			GinkgoHelper()
			want := hetzner.Healthy(others...)
			want[name] = health
			env.LoadBalancers.AwaitTargets(ctx, "web", want)
		}

		It("begins with a node that joins by itself, becomes Ready and gets a target and a route", func(ctx SpecContext) {
			begin := time.Now()
			server = env.Servers.Create(ctx, name)
			env.Nodes.AwaitJoined(ctx, name)
			env.Nodes.AwaitInitialized(ctx, name)
			joined = env.Nodes.AwaitReady(ctx, name, true)
			Expect(joined.Spec.ProviderID).To(Equal(env.Servers.ProviderID(server)))
			Expect(framework.AddressesOf(joined, corev1.NodeInternalIP)).To(ConsistOf(env.Servers.PrivateIP(ctx, server)))
			framework.ExpectHostName(joined, name)
			Expect(joined.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, server.ServerType.Name))
			AddReportEntry("time from the order of the server until it is Ready", time.Since(begin).String())

			route = env.Routes.Of(ctx, name, server)
			Eventually(func() []string { return env.Routes.List(ctx) }).WithContext(ctx).Should(ContainElement(route))
			targets(ctx, "healthy")
			env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, append([]string{name}, others...)...)
			AddReportEntry("time from the order of the server until it answers", time.Since(begin).String())
			Expect(load.Since(ctx, begin, "while the node joins").Lost).To(BeEmpty())
		})

		It("has metadata that its pods read", func(ctx SpecContext) {
			pod := env.Pods.Await(ctx, "web", name)
			Eventually(ctx, env.Pods.Fetch).WithArguments(pod, hetzner.MetadataURL+"instance-id").Should(Equal(fmt.Sprint(server.ID)))
			Expect(env.Pods.Fetch(ctx, pod, hetzner.MetadataURL+"hostname")).To(Equal(name))
		})

		It("loses only the requests until the health check notices that it lost its power", func(ctx SpecContext) {
			off := time.Now()
			env.Servers.PowerOff(ctx, server)
			targets(ctx, "unhealthy")
			noticed := time.Now()
			env.Nodes.AwaitReady(ctx, name, false)
			n := env.Nodes.Await(ctx, name, func(g Gomega, n *corev1.Node) {
				g.Expect(n).To(framework.HaveTaint("node.cloudprovider.kubernetes.io/shutdown"))
			})
			Expect(n.UID).To(Equal(joined.UID))
			Expect(env.Nodes.ExpectStays(ctx, name, 3)).To(framework.HaveTaint("node.cloudprovider.kubernetes.io/shutdown"))
			Expect(env.Nodes.Get(ctx, others[0])).NotTo(framework.HaveTaint("node.cloudprovider.kubernetes.io/shutdown"))
			Expect(env.Routes.List(ctx)).To(ContainElement(route), "the server will be back")
			load.AwaitAnswers(ctx, noticed, 40)
			for _, r := range load.Since(ctx, off.Add(-5*time.Second), "around the power-off").Lost {
				Expect(r.End).To(BeTemporally(">=", off), "lost before: %v", r.Err)
				Expect(r.Begin).To(BeTemporally("<", noticed), "sent to a target that is known to be unhealthy: %v", r.Err)
			}
			AddReportEntry("time from the power-off until the health check noticed", noticed.Sub(off).String())
		})

		It("keeps its identity after a power cycle, and loses no request", func(ctx SpecContext) {
			on := time.Now()
			env.Servers.PowerOn(ctx, server)
			env.Nodes.AwaitReady(ctx, name, true)
			n := env.Nodes.Await(ctx, name, func(g Gomega, n *corev1.Node) {
				g.Expect(n).NotTo(framework.HaveTaint("node.cloudprovider.kubernetes.io/shutdown"))
			})
			Expect(n.UID).To(Equal(joined.UID))
			Expect(n.Spec.ProviderID).To(Equal(joined.Spec.ProviderID))
			Expect(n.Status.Addresses).To(ConsistOf(joined.Status.Addresses))
			targets(ctx, "healthy")
			env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, append([]string{name}, others...)...)
			Expect(load.Since(ctx, on, "since the power is back").Lost).To(BeEmpty())
		})

		It("takes its node, its target and its route along when it is deleted", func(ctx SpecContext) {
			begin := time.Now()
			env.Servers.Delete(ctx, server)
			gone := time.Now()
			env.Nodes.AwaitGone(ctx, name)
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(others...))
			Eventually(func() []string { return env.Routes.List(ctx) }).WithContext(ctx).ShouldNot(ContainElement(route))
			env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, others...)
			load.AwaitAnswers(ctx, gone, 40)
			for _, r := range load.Since(ctx, begin, "around the deletion").Lost {
				Expect(r.Begin).To(BeTemporally("<", gone), "sent to a server that is gone: %v", r.Err)
			}
		})
	})
