package framework

import (
	"context"
	"net/netip"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

// Routes are the routes of the cluster's network.
type Routes struct {
	env *Env
}

// List returns the routes of the cluster's network.
func (rs Routes) List(ctx context.Context) []cloud.Route {
	GinkgoHelper()
	all, err := Capability[cloud.Router](rs.env).Routes(ctx)
	Expect(err).NotTo(HaveOccurred())
	for i := range all { // a route to a server is compared by the server
		if all[i].Server != "" {
			all[i].Address = ""
		}
	}
	return all
}

// Await waits until the network has exactly these routes.
func (rs Routes) Await(ctx context.Context, want ...cloud.Route) {
	GinkgoHelper()
	Eventually(func() []cloud.Route { return rs.List(ctx) }).WithContext(ctx).Should(ConsistOf(want))
}

// AwaitExactly waits until the network has the routes of these servers' nodes and no others, and no node is NetworkUnavailable. A node with
// a route from before the CCM's start has no such condition. Nodes must have their servers' names.
func (rs Routes) AwaitExactly(ctx context.Context, servers ...cloud.Server) {
	GinkgoHelper()
	var want []cloud.Route
	for _, s := range servers {
		want = append(want, rs.Of(ctx, s.Name, s))
	}
	rs.Await(ctx, want...)
	for _, s := range servers {
		rs.env.Nodes.AwaitUsable(ctx, s.Name)
	}
}

// Of returns the route that a node must have: to its pod range through its server. It waits until the node has a pod range.
func (rs Routes) Of(ctx context.Context, nodeName string, server cloud.Server) cloud.Route {
	GinkgoHelper()
	return cloud.Route{Destination: netip.MustParsePrefix(rs.env.Nodes.AwaitPodCIDR(ctx, nodeName)), Server: server.ID}
}

// Add adds a route to the network, as a user would, without the CCM.
func (rs Routes) Add(ctx context.Context, r cloud.Route) {
	GinkgoHelper()
	Expect(Capability[cloud.Router](rs.env).AddRoute(ctx, r)).To(Succeed())
}

// Delete deletes a route of the network, as a user would, without the CCM.
func (rs Routes) Delete(ctx context.Context, r cloud.Route) {
	GinkgoHelper()
	Expect(Capability[cloud.Router](rs.env).DeleteRoute(ctx, r)).To(Succeed())
}

// AwaitPodCIDR waits until a node has a pod range, and returns it.
func (ns Nodes) AwaitPodCIDR(ctx context.Context, name string) string {
	GinkgoHelper()
	return ns.Await(ctx, name, func(g Gomega, n *corev1.Node) { g.Expect(n.Spec.PodCIDR).NotTo(BeEmpty()) }).Spec.PodCIDR
}

// AwaitUsable waits until nodes are not said to be without a network. (The condition may be missing for up to ten seconds after the route
// was made.)
func (ns Nodes) AwaitUsable(ctx context.Context, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		ns.Await(ctx, name, func(g Gomega, n *corev1.Node) {
			_, c := nodeutil.GetNodeCondition(&n.Status, corev1.NodeNetworkUnavailable)
			g.Expect(c).To(Or(BeNil(), HaveField("Status", corev1.ConditionFalse)), "NetworkUnavailable of %s", n.Name)
		})
	}
}

// OtherRange returns a pod range of the cluster that is far from a node's.
func OtherRange(n *corev1.Node, distance byte) netip.Prefix {
	p := netip.MustParsePrefix(n.Spec.PodCIDR)
	b := p.Addr().As4()
	b[2] += distance
	return netip.PrefixFrom(netip.AddrFrom4(b), p.Bits())
}
