package e2e

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
)

var _ = Describe("Traffic to pods", Label(framework.RealNodes, framework.Dataplane, "service"), func() {
	It("enters at all nodes and reaches pods on all of them: under the entrance's address with the policy Cluster, under the load balancer's with Local", func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		names := env.Nodes.Workers(ctx, 2).Names()
		env.Services.Create(ctx, "web")
		address := env.Traffic.AwaitServed(ctx, "web")
		env.LoadBalancers.AwaitTargets(ctx, "web", framework.Healthy(names...))
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
		Expect(came).To(Equal(each), "by which node requests came in")

		env.Services.Update(ctx, "web", local)
		env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
			g.Expect(framework.ServiceOn(lb, framework.Port).HealthCheck.Protocol).To(BeEquivalentTo("http"))
		})
		env.LoadBalancers.AwaitTargets(ctx, "web", framework.Healthy(names...))
		Eventually(func(g Gomega) {
			answered, peers := map[string]int{}, map[string]bool{}
			for range 10 * len(names) {
				answer, err := env.Traffic.Get(ctx, address, framework.Port)
				g.Expect(err).NotTo(HaveOccurred())
				answered[answer.Node]++
				peer := framework.Host(answer.Peer)
				g.Expect(entrances(peer)).To(Equal(peer), "a node has put its address in the place of the load balancer's")
				peers[peer] = true
			}
			g.Expect(answered).To(Equal(each))
			g.Expect(peers).To(HaveLen(1), "the load balancer's address")
		}).WithContext(ctx).WithTimeout(framework.Timeout).WithPolling(framework.Polling).Should(Succeed())
	})

	DescribeTable("loses no request while the pods are replaced one after the other", func(ctx SpecContext, policy corev1.ServiceExternalTrafficPolicy, grace time.Duration, minReady int32) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		names := env.Nodes.Workers(ctx, 2).Names()
		env.Services.Create(ctx, "web", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = policy })
		env.Pods.Update(ctx, "web", func(set *appsv1.DaemonSet) {
			seconds := int64(60)
			set.Spec.MinReadySeconds = minReady
			set.Spec.Template.Spec.TerminationGracePeriodSeconds = &seconds
			setVariable(set, "GRACE", grace.String())
		})
		env.Pods.AwaitRollout(ctx, "web")
		address := env.Traffic.AwaitServed(ctx, "web")
		env.LoadBalancers.AwaitTargets(ctx, "web", framework.Healthy(names...))
		env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, names...)
		writes := env.CCM.ServiceWrites()

		begin := time.Now()
		load := env.Traffic.Load(ctx, address, framework.Port)
		load.AwaitAnswers(ctx, begin, 10)
		env.Pods.Update(ctx, "web", func(set *appsv1.DaemonSet) { setVariable(set, "VERSION", "2") })
		env.Pods.AwaitRollout(ctx, "web")
		env.LoadBalancers.AwaitTargets(ctx, "web", framework.Healthy(names...))
		load.AwaitAnswers(ctx, time.Now(), 10)
		Expect(load.Since(ctx, begin, "during the rolling update").Lost).To(BeEmpty())
		Expect(env.CCM.ServiceWrites()).To(Equal(writes), "pods are not the CCM's business")
	},
		Entry("by policy Cluster, where a node sends requests on to the other's pod", corev1.ServiceExternalTrafficPolicyCluster, 4*time.Second, int32(0)),
		// An old pod serves until the load balancer has noticed, and the next one's turn is when it has noticed the new
		// one: it looks every 3 s.
		// Alone, since the pods are given little more time than the health checks take.
		Entry("by policy Local, where the load balancer avoids a node without a pod", framework.Alone(), corev1.ServiceExternalTrafficPolicyLocal, 7*time.Second, int32(6)),
	)
})

// local makes a Service whose traffic stays on the node where it came in.
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

// entrancesOf returns a function that names the node whose address a connection to a pod came from: the node's
// own for a pod elsewhere, one of its pods' range for a pod on it. Another address is returned as it is.
func entrancesOf(ctx context.Context, env *framework.Env) func(address string) string {
	GinkgoHelper()
	nodes, err := env.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	return func(address string) string {
		for _, n := range nodes.Items {
			if slices.Contains(framework.AddressesOf(&n, corev1.NodeInternalIP), address) || framework.IPNet(n.Spec.PodCIDR).Contains(net.ParseIP(address)) {
				return n.Name
			}
		}
		return address
	}
}

var _ = Describe("A server's life", framework.Needs(framework.NodeRoutes, framework.ShutdownTaint), Ordered, framework.Alone(), Label(framework.RealNodes, framework.FakeOnly, framework.Dataplane, "lifecycle", "node", "service", "route"), func() {
	var (
		env     *framework.Env
		others  []string
		name    string
		server  *hcloud.Server
		route   string
		address string
		load    *framework.Load
		joined  *corev1.Node
	)
	BeforeAll(func(ctx SpecContext) {
		env = framework.NewEnv(ctx, suite, framework.Options{})
		others, name = env.Nodes.Workers(ctx, 1).Names(), env.Cloud.Unique("life")
		env.Services.Create(ctx, "web", local)
		address = env.Traffic.AwaitServed(ctx, "web")
		env.LoadBalancers.AwaitTargets(ctx, "web", framework.Healthy(others...))
		load = env.Traffic.Load(ctx, address, framework.Port)
	})
	// targets waits until the load balancer has the other nodes as healthy targets, and the server's as told.
	targets := func(ctx context.Context, health string) {
		GinkgoHelper()
		want := framework.Healthy(others...)
		want[name] = health
		env.LoadBalancers.AwaitTargets(ctx, "web", want)
	}

	It("begins with a node that joins by itself and becomes Ready, a target and a route", func(ctx SpecContext) {
		begin := time.Now()
		server = env.Servers.Create(ctx, name)
		env.Nodes.AwaitInitialized(ctx, name)
		joined = env.Nodes.AwaitReady(ctx, name, true)
		Expect(joined.Spec.ProviderID).To(Equal(env.Servers.ProviderID(server)))
		Expect(framework.AddressesOf(joined, corev1.NodeInternalIP)).To(ConsistOf(env.Servers.PrivateIP(ctx, server)))
		Expect(framework.AddressesOf(joined, corev1.NodeHostName)).To(ConsistOf(name))
		Expect(joined.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, server.ServerType.Name))
		AddReportEntry("from the order of the server until it is Ready", time.Since(begin).String())

		route = env.Routes.Of(ctx, name, server)
		Eventually(func() []string { return env.Routes.List(ctx) }).WithContext(ctx).
			WithTimeout(framework.Timeout).WithPolling(framework.Polling).Should(ContainElement(route))
		targets(ctx, "healthy")
		env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, append([]string{name}, others...)...)
		AddReportEntry("from the order of the server until it answers", time.Since(begin).String())
		Expect(load.Since(ctx, begin, "while the node joins").Lost).To(BeEmpty())
	})

	It("has metadata that its pods read", func(ctx SpecContext) {
		pod := env.Pods.Await(ctx, "web", name)
		Eventually(func() (string, error) { return env.Pods.Fetch(ctx, pod, framework.MetadataURL+"instance-id") }).WithContext(ctx).
			WithTimeout(framework.Timeout).WithPolling(framework.Polling).Should(Equal(fmt.Sprint(server.ID)))
		Expect(env.Pods.Fetch(ctx, pod, framework.MetadataURL+"hostname")).To(Equal(name))
	})

	It("loses its power, and with it no more than what was under way until the health check noticed", func(ctx SpecContext) {
		off := time.Now()
		env.Servers.PowerOff(ctx, server)
		targets(ctx, "unhealthy")
		noticed := time.Now()
		env.Nodes.AwaitReady(ctx, name, false)
		n := env.Nodes.Await(ctx, name, func(g Gomega, n *corev1.Node) {
			g.Expect(n).To(framework.HaveTaint("node.cloudprovider.kubernetes.io/shutdown"))
		})
		Expect(n.UID).To(Equal(joined.UID))
		Expect(env.Routes.List(ctx)).To(ContainElement(route), "it comes back")
		load.AwaitAnswers(ctx, noticed, 40)
		for _, r := range load.Since(ctx, off.Add(-5*time.Second), "around the power-off").Lost {
			Expect(r.End).To(BeTemporally(">=", off), "lost before: %v", r.Err)
			Expect(r.Begin).To(BeTemporally("<", noticed), "sent to a target that is known to be unhealthy: %v", r.Err)
		}
		AddReportEntry("from the power-off until the health check noticed", noticed.Sub(off).String())
	})

	It("has its power back and is what it was, without a request that is lost", func(ctx SpecContext) {
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

	It("ends, and its node, its target and its route with it", func(ctx SpecContext) {
		begin := time.Now()
		env.Servers.Delete(ctx, server)
		gone := time.Now()
		env.Nodes.AwaitGone(ctx, name)
		env.LoadBalancers.AwaitTargets(ctx, "web", framework.Healthy(others...))
		Eventually(func() []string { return env.Routes.List(ctx) }).WithContext(ctx).
			WithTimeout(framework.Timeout).WithPolling(framework.Polling).ShouldNot(ContainElement(route))
		env.Traffic.AwaitAnsweringNodes(ctx, address, framework.Port, others...)
		load.AwaitAnswers(ctx, gone, 40)
		for _, r := range load.Since(ctx, begin, "around the deletion").Lost {
			Expect(r.Begin).To(BeTemporally("<", gone), "sent to a server that is gone: %v", r.Err)
		}
	})
})
