package specs

import (
	"context"
	"net/http"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

const (
	addRoute    = "/networks/{id}/actions/add_route"
	deleteRoute = "/networks/{id}/actions/delete_route"
)

// compareOften makes the CCM compare the routes with its plan each second.
var compareOften = map[string]string{"HCLOUD_RESYNC_INTERVAL": "1s"}

// The route controller of k8s.io/cloud-provider works at once when nodes change, and then at most every ten seconds:
// specs with several changes of nodes may take that long.
var _ = Describe("The route controller", framework.Needs(framework.NodeRoutes), Label(framework.OwnCloud, "route"), func() {
	It("costs one request for each route that changes, and none while nothing does", framework.Needs(framework.CallBudgets),
		func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{CCM: compareOften})
			expectCalls := func(add, remove int) {
				GinkgoHelper()
				env.CCM.AwaitIdle(ctx)
				Expect(ccmCount(env, addRoute, 0)).To(Equal(add), "requests that add a route")
				Expect(ccmCount(env, deleteRoute, 0)).To(Equal(remove), "requests that delete a route")
				Expect(env.CCM.Writes()).To(Equal(add + remove))
			}
			servers := env.Nodes.Create(ctx, "node-1", "node-2")
			one, two := env.Routes.Of(ctx, "node-1", servers[0]), env.Routes.Of(ctx, "node-2", servers[1])
			env.Routes.Await(ctx, one, two)
			expectCalls(2, 0)

			By("moving a server to another private address")
			env.Servers.Detach(ctx, servers[0])
			env.Servers.Attach(ctx, servers[0], "10.0.0.99")
			one = hetzner.Route(env.Nodes.Get(ctx, "node-1").Spec.PodCIDR, "10.0.0.99")
			env.Routes.Await(ctx, one, two)
			expectCalls(3, 1)

			By("adding routes that no node needs")
			n := env.Nodes.Get(ctx, "node-1")
			// One after the other: while a route is added, the network is locked and the CCM's request is refused.
			env.Routes.Add(ctx, framework.OtherRange(n, 64).String(), "10.0.0.200")
			env.Routes.Await(ctx, one, two)
			env.Routes.Add(ctx, framework.OtherRange(n, 128).String(), "10.0.0.99")
			env.Routes.Await(ctx, one, two)
			expectCalls(3, 3)

			By("starting the CCM anew")
			env.CCM.Crash(ctx)
			env.CCM.Start(ctx, framework.CCMOptions{})
			env.CCM.AwaitRequests(ctx, 1, journal.Filter{Method: "GET", Route: "/networks/{id}"})
			expectCalls(3, 3)
		})

	It("clears the NetworkUnavailable condition with which a node has registered", func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{
			NoCCM: true, CCM: compareOften,
			Spec: framework.NodeSpec(func(_ node.Server, spec *node.Spec) bool {
				spec.NetworkUnavailable = true
				return true
			}),
		})
		server := env.Servers.Create(ctx, "node-1")
		awaitNetwork(ctx, env, "node-1", corev1.ConditionTrue, "NoRouteCreated")
		env.CCM.Start(ctx, framework.CCMOptions{})
		env.Routes.Await(ctx, env.Routes.Of(ctx, "node-1", server))
		awaitNetwork(ctx, env, "node-1", corev1.ConditionFalse, "RouteCreated")
	})

	It("reports NetworkUnavailable while a node's server is not attached, and makes the route afterwards", func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{CCM: compareOften})
		server := env.Servers.Create(ctx, "node-1", func(o *hcloud.ServerCreateOpts) { o.Networks = nil })
		awaitNetwork(ctx, env, "node-1", corev1.ConditionTrue, "NoRouteCreated")
		Expect(env.Routes.List(ctx)).To(BeEmpty())
		env.Servers.Attach(ctx, server, "")
		env.Routes.Await(ctx, env.Routes.Of(ctx, "node-1", server))
		awaitNetwork(ctx, env, "node-1", corev1.ConditionFalse, "RouteCreated")
	})

	It("replaces a route when the node's server has another private address, and leaves other routes alone", func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{CCM: compareOften})
		servers := env.Nodes.Create(ctx, "node-1", "node-2")
		old, other := env.Routes.Of(ctx, "node-1", servers[0]), env.Routes.Of(ctx, "node-2", servers[1])
		env.Routes.Await(ctx, old, other)
		env.Servers.Detach(ctx, servers[0])
		env.Servers.Attach(ctx, servers[0], "10.0.0.99")
		env.Routes.Await(ctx, hetzner.Route(env.Nodes.Get(ctx, "node-1").Spec.PodCIDR, "10.0.0.99"), other)
	})

	It("finds a node's server by the provider ID, not by the name", func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{
			CCM: compareOften,
			Spec: framework.NodeSpec(func(s node.Server, spec *node.Spec) bool {
				spec.Name = "worker-of-" + s.Name
				spec.ProviderID = framework.Current().CCM.ProviderPrefix + s.ID
				return true
			}),
		})
		server := env.Servers.Create(ctx, "host-1")
		env.Routes.Await(ctx, env.Routes.Of(ctx, "worker-of-host-1", server))
	})

	It("does not touch the route of another provider's node", func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{CCM: compareOften})
		server := env.Nodes.Create(ctx, "node-1")[0]
		ours := env.Routes.Of(ctx, "node-1", server)
		env.Routes.Await(ctx, ours)
		env.Nodes.Start(ctx, node.Spec{Name: "dedicated", ProviderID: "example://1"})
		podCIDR := env.Nodes.AwaitPodCIDR(ctx, "dedicated")
		env.Routes.Add(ctx, podCIDR, "10.0.0.200")
		env.CCM.AwaitIdle(ctx)
		Expect(env.Routes.List(ctx)).To(ConsistOf(ours, hetzner.Route(podCIDR, "10.0.0.200")))
	})

	It("restores a route that was changed in the cloud", func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{CCM: compareOften})
		server := env.Nodes.Create(ctx, "node-1")[0]
		ours := env.Routes.Of(ctx, "node-1", server)
		env.Routes.Await(ctx, ours)
		podCIDR, gateway := env.Nodes.Get(ctx, "node-1").Spec.PodCIDR, env.Servers.PrivateIP(ctx, server)
		env.Routes.Delete(ctx, podCIDR, gateway)
		env.Routes.Add(ctx, podCIDR, "10.0.0.200")
		env.Routes.Await(ctx, ours)
	})

	It("waits while another client changes the network", Label("fake-only"), func(ctx SpecContext) {
		env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true, CCM: compareOften})
		servers := env.Servers.CreateAll(ctx, "node-1", "node-2")
		one, two := env.Routes.Of(ctx, "node-1", servers[0]), env.Routes.Of(ctx, "node-2", servers[1])
		Expect(env.Cloud.Fake.SetProfile(ctx, "10s")).To(Succeed())
		_, _, err := env.Cloud.Client.Network.AddSubnet(ctx, env.Cloud.Network, hcloud.NetworkAddSubnetOpts{Subnet: hcloud.NetworkSubnet{
			Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: hetzner.NetworkZone,
		}})
		Expect(err).NotTo(HaveOccurred())
		Expect(env.Cloud.Fake.SetProfile(ctx, "20ms")).To(Succeed())
		env.CCM.Start(ctx, framework.CCMOptions{})
		env.Routes.Await(ctx, one, two)
		Expect(ccmCount(env, addRoute, http.StatusConflict)).To(BeNumerically(">", 0), "no request met a conflict")
		env.Nodes.AwaitUsable(ctx, "node-1", "node-2")
	})

	DescribeTable("removes no route because of an answer that proves nothing", Label("fault", "fake-only"), keepsRoutes,
		Entry("about servers: 200 with an empty object", "server", jsonBody(http.StatusOK, `{}`)),
		Entry("about servers: 200 with an empty list that is not the API's", "server", jsonBody(http.StatusOK, `{"servers":[]}`)),
		Entry("about servers: a body that is cut off", "server", fault.CutBody(20)),
		Entry("about networks: 404 not_found for everything", "network", fault.APIError("not_found")),
		Entry("about networks: 200 with an empty object", "network", jsonBody(http.StatusOK, `{}`)),
	)

	DescribeTable("makes no routes when they are disabled", func(ctx SpecContext, o framework.CCMOptions) {
		env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true})
		ccm := env.CCM.Start(ctx, o)
		server := env.Nodes.Create(ctx, "node-1")[0]
		route := env.Routes.Of(ctx, "node-1", server)
		env.CCM.ExpectNoWrites(ctx)
		Expect(env.Routes.List(ctx)).To(BeEmpty())
		Expect(env.Nodes.Get(ctx, "node-1").Status.Conditions).NotTo(ContainElement(HaveField("Type", corev1.NodeNetworkUnavailable)))

		Expect(ccm.Stop(ctx)).To(Succeed())
		env.CCM.Start(ctx, framework.CCMOptions{})
		env.Routes.Await(ctx, route)
	},
		Entry("by the environment", framework.CCMOptions{Env: map[string]string{"HCLOUD_NETWORK_ROUTES_ENABLED": "false"}}),
		Entry("by the command line", framework.CCMOptions{Args: []string{"--configure-cloud-routes=false"}}),
		Entry("by having no network", framework.CCMOptions{Env: map[string]string{"HCLOUD_NETWORK": ""}}),
	)
})

// ccmCount returns the number of the CCM's requests with that route that were answered with a status, or with any if status is 0.
func ccmCount(env *hetzner.Env, route string, status int) int {
	return env.Cloud.Journal.Count(journal.Filter{Client: framework.Current().CCM.UserAgent, Route: route, Status: status})
}

// awaitNetwork waits until a node's NetworkUnavailable condition has a status for a reason.
func awaitNetwork(ctx context.Context, env *hetzner.Env, name string, status corev1.ConditionStatus, reason string) {
	GinkgoHelper()
	env.Nodes.Await(ctx, name, func(g Gomega, n *corev1.Node) {
		g.Expect(n.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeNetworkUnavailable),
			HaveField("Status", status), HaveField("Reason", reason))))
	})
}

// keepsRoutes checks that routes stay while all reads of a kind of resource meet an effect, and that
// routes are made again when they do not. Where the CCM repeats a read, it does so for twelve seconds.
func keepsRoutes(ctx SpecContext, resource string, effect fault.Effect) {
	env := hetzner.NewEnv(ctx, hetzner.Options{CCM: compareOften})
	server := env.Nodes.Create(ctx, "node-1")[0]
	route := env.Routes.Of(ctx, "node-1", server)
	env.Routes.Await(ctx, route)
	env.CCM.AwaitIdle(ctx)

	fault, remove := env.Cloud.Faults.Add(fault.Rule{Method: "GET", Resource: resource, Effect: effect})
	other := env.Servers.Create(ctx, "node-2") // something to do for the route controller
	name := env.Routes.Of(ctx, "node-2", other)
	env.Cloud.Faults.Await(ctx, fault, 3)
	env.CCM.AwaitIdle(ctx)
	Expect(env.Routes.List(ctx)).To(ContainElement(route)) // the other one needs no answer about a network that is known
	remove()
	env.Routes.Await(ctx, route, name)
}
