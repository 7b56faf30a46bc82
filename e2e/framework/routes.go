package framework

import (
	"context"
	"net"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

// Routes are the routes of the cluster's network.
type Routes struct {
	env *Env
}

// Route is how specs write a route: "10.244.0.0/24 via 10.0.0.2".
func Route(destination, gateway string) string { return destination + " via " + gateway }

// List returns the routes of the cluster's network, sorted.
func (rs Routes) List(ctx context.Context) []string {
	GinkgoHelper()
	network, _, err := rs.env.Cloud.Client.Network.GetByID(ctx, rs.env.Cloud.Network.ID)
	Expect(err).NotTo(HaveOccurred())
	Expect(network).NotTo(BeNil())
	var all []string
	for _, r := range network.Routes {
		all = append(all, Route(r.Destination.String(), r.Gateway.String()))
	}
	slices.Sort(all)
	return all
}

// Await waits until the network has exactly these routes.
func (rs Routes) Await(ctx context.Context, want ...string) {
	GinkgoHelper()
	Eventually(func() []string { return rs.List(ctx) }).
		WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(ConsistOf(want))
}

// AwaitExactly waits until the network has the routes of these servers' nodes and no others, and until no node is
// NetworkUnavailable. A node whose route existed before the CCM started has no such condition. Nodes must have their
// servers' names.
func (rs Routes) AwaitExactly(ctx context.Context, servers ...*hcloud.Server) {
	GinkgoHelper()
	var want []string
	for _, s := range servers {
		want = append(want, rs.Of(ctx, s.Name, s))
	}
	rs.Await(ctx, want...)
	for _, s := range servers {
		rs.env.Nodes.Await(ctx, s.Name, func(g Gomega, n *corev1.Node) {
			g.Expect(conditionOf(n, corev1.NodeNetworkUnavailable)).NotTo(Equal(corev1.ConditionTrue), "NetworkUnavailable of %s", n.Name)
		})
	}
}

// Of returns the route that a node must have: to its pod range through its server's address in the network. It waits
// until the node has a pod range.
func (rs Routes) Of(ctx context.Context, nodeName string, server *hcloud.Server) string {
	GinkgoHelper()
	n := rs.env.Nodes.Await(ctx, nodeName, func(g Gomega, n *corev1.Node) { g.Expect(n.Spec.PodCIDR).NotTo(BeEmpty()) })
	return Route(n.Spec.PodCIDR, rs.env.Servers.PrivateIP(ctx, server))
}

// Add adds a route to the network, as a user would, without the CCM.
func (rs Routes) Add(ctx context.Context, destination, gateway string) {
	GinkgoHelper()
	rs.env.Cloud.Do(ctx)(rs.env.Cloud.Client.Network.AddRoute(ctx, rs.env.Cloud.Network,
		hcloud.NetworkAddRouteOpts{Route: route(destination, gateway)}))
}

// Delete deletes a route of the network, as a user would, without the CCM.
func (rs Routes) Delete(ctx context.Context, destination, gateway string) {
	GinkgoHelper()
	rs.env.Cloud.Do(ctx)(rs.env.Cloud.Client.Network.DeleteRoute(ctx, rs.env.Cloud.Network,
		hcloud.NetworkDeleteRouteOpts{Route: route(destination, gateway)}))
}

func route(destination, gateway string) hcloud.NetworkRoute {
	return hcloud.NetworkRoute{Destination: IPNet(destination), Gateway: net.ParseIP(gateway)}
}
