package hetzner

import (
	"context"
	"net"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
)

// Nodes are the cluster's nodes.
type Nodes struct {
	framework.Nodes
	env *Env
}

// Create creates servers and waits until their nodes are initialized.
func (ns Nodes) Create(ctx context.Context, names ...string) []*hcloud.Server {
	GinkgoHelper()
	var servers []*hcloud.Server
	for _, name := range names {
		servers = append(servers, ns.env.Servers.Create(ctx, name))
	}
	for _, name := range names {
		ns.AwaitInitialized(ctx, name)
	}
	return servers
}

// Workers are the nodes that can be targets.
type Workers = framework.Workers[*hcloud.Server]

// Workers returns at least n nodes that are targets of load balancers, as framework.Nodes.Workers does.
func (ns Nodes) Workers(ctx context.Context, n int) (workers Workers) {
	GinkgoHelper()
	for _, w := range ns.Nodes.Workers(ctx, n) {
		workers = append(workers, framework.Worker[*hcloud.Server]{Name: w.Name, Server: ns.env.serverOf(ctx, w.Server)})
	}
	return workers
}

// Servers returns the servers of all nodes, including control planes, by the names of the nodes.
func (ns Nodes) Servers(ctx context.Context) map[string]*hcloud.Server {
	GinkgoHelper()
	found := map[string]*hcloud.Server{}
	for name, s := range ns.Nodes.Servers(ctx) {
		found[name] = ns.env.serverOf(ctx, s)
	}
	return found
}

func (e *Env) serverOf(ctx context.Context, s cloud.Server) *hcloud.Server {
	GinkgoHelper()
	server, _, err := e.Cloud.Client.Server.GetByID(ctx, number(s.ID))
	Expect(err).NotTo(HaveOccurred())
	Expect(server).NotTo(BeNil(), "the server %s is gone", s.Name)
	return server
}

// Routes are the routes of the cluster's network, as text.
type Routes struct {
	framework.Routes
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
	Eventually(func() []string { return rs.List(ctx) }).WithContext(ctx).Should(ConsistOf(want))
}

// AwaitExactly waits until the network has the routes of these servers' nodes and no others, as framework.Routes.AwaitExactly does.
func (rs Routes) AwaitExactly(ctx context.Context, servers ...*hcloud.Server) {
	GinkgoHelper()
	var all []cloud.Server
	for _, s := range servers {
		all = append(all, rs.env.account.server(s))
	}
	rs.Routes.AwaitExactly(ctx, all...)
}

// Of returns the route that a node must have: to its pod range through its server's address in the network. It waits
// until the node has a pod range.
func (rs Routes) Of(ctx context.Context, nodeName string, server *hcloud.Server) string {
	GinkgoHelper()
	return Route(rs.env.Nodes.AwaitPodCIDR(ctx, nodeName), rs.env.Servers.PrivateIP(ctx, server))
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
