package framework

import (
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

// Route is how specs write a route: "10.244.0.0/24 via 10.0.0.2".
func Route(destination, gateway string) string { return destination + " via " + gateway }

// Routes returns the routes of the cluster's network, sorted.
func (e *Env) Routes(ctx context.Context) []string {
	GinkgoHelper()
	network, _, err := e.HCloud.Network.GetByID(ctx, e.Network.ID)
	Expect(err).NotTo(HaveOccurred())
	Expect(network).NotTo(BeNil())
	var all []string
	for _, r := range network.Routes {
		all = append(all, Route(r.Destination.String(), r.Gateway.String()))
	}
	slices.Sort(all)
	return all
}

// AwaitRoutes waits until the network has exactly these routes.
func (e *Env) AwaitRoutes(ctx context.Context, want ...string) {
	GinkgoHelper()
	Eventually(func() []string { return e.Routes(ctx) }).
		WithContext(ctx).WithTimeout(Timeout).WithPolling(Polling).Should(ConsistOf(want))
}

// RouteOf returns the route that a node must have: to its pod range, for which it waits, by way of
// its server's address in the network.
func (e *Env) RouteOf(ctx context.Context, nodeName string, server *hcloud.Server) string {
	GinkgoHelper()
	n := e.AwaitNode(ctx, nodeName, func(g Gomega, n *corev1.Node) { g.Expect(n.Spec.PodCIDR).NotTo(BeEmpty()) })
	return Route(n.Spec.PodCIDR, e.PrivateIP(ctx, server))
}

// PrivateIP returns the address that a server has in the cluster's network now.
func (e *Env) PrivateIP(ctx context.Context, server *hcloud.Server) string {
	GinkgoHelper()
	now, _, err := e.HCloud.Server.GetByID(ctx, server.ID)
	Expect(err).NotTo(HaveOccurred())
	Expect(now).NotTo(BeNil())
	for _, n := range now.PrivateNet {
		if n.Network.ID == e.Network.ID {
			return n.IP.String()
		}
	}
	Fail(fmt.Sprintf("server %s is not attached to the network", server.Name))
	return ""
}

// AddRoute adds a route to the network, as somebody else than the CCM would.
func (e *Env) AddRoute(ctx context.Context, destination, gateway string) {
	GinkgoHelper()
	e.Started(ctx)(e.HCloud.Network.AddRoute(ctx, e.Network, hcloud.NetworkAddRouteOpts{Route: route(destination, gateway)}))
}

// DeleteRoute deletes a route of the network, as somebody else than the CCM would.
func (e *Env) DeleteRoute(ctx context.Context, destination, gateway string) {
	GinkgoHelper()
	e.Started(ctx)(e.HCloud.Network.DeleteRoute(ctx, e.Network, hcloud.NetworkDeleteRouteOpts{Route: route(destination, gateway)}))
}

func route(destination, gateway string) hcloud.NetworkRoute {
	return hcloud.NetworkRoute{Destination: IPNet(destination), Gateway: net.ParseIP(gateway)}
}

// AttachServer attaches a server to the cluster's network, at an address if one is given.
func (e *Env) AttachServer(ctx context.Context, server *hcloud.Server, address string) {
	GinkgoHelper()
	e.Started(ctx)(e.HCloud.Server.AttachToNetwork(ctx, server, hcloud.ServerAttachToNetworkOpts{
		Network: e.Network, IP: net.ParseIP(address),
	}))
}

// DetachServer detaches a server from the cluster's network.
func (e *Env) DetachServer(ctx context.Context, server *hcloud.Server) {
	GinkgoHelper()
	e.Started(ctx)(e.HCloud.Server.DetachFromNetwork(ctx, server, hcloud.ServerDetachFromNetworkOpts{Network: e.Network}))
}
