package specs

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// biggerType is larger than hetzner.ServerType, with the same architecture and location.
const biggerType = "cx33"

var _ = Describe("Node", Label("node"), func() {
	DescribeTable("shows the addresses of the configured family", framework.Needs(framework.AddressFamily), Label(framework.OwnCloud),
		nodeAddresses,
		Entry("IPv4 by default", addressCase{external: []string{"v4"}, internal: true}),
		Entry("IPv4", addressCase{family: "ipv4", external: []string{"v4"}, internal: true}),
		Entry("IPv6", addressCase{family: "ipv6", external: []string{"v6"}, internal: true}),
		Entry("both", addressCase{family: "dualstack", external: []string{"v4", "v6"}, internal: true}),
		Entry("both, of a server without IPv4", addressCase{family: "dualstack", server: publicNet(false, true), external: []string{"v6"},
			internal: true}),
		Entry("IPv4, of a server without IPv4: only the private address", addressCase{family: "ipv4", server: publicNet(false, true),
			internal: true}),
		Entry("of a server in the private network only", addressCase{family: "dualstack", server: publicNet(false, false), internal: true}),
		Entry("of a server in a private network only, without a configured network",
			addressCase{noNetwork: true, server: publicNet(false, false), internal: true}),
		Entry("without a configured network: only public ones", addressCase{noNetwork: true, external: []string{"v4"}}),
	)

	It("does not delete a NotReady node that never had a server", framework.Needs(framework.ForeignNodes), Label(framework.OwnCloud),
		func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true})
			n := env.Nodes.Start(ctx, node.Spec{Name: "stranger"})
			env.Nodes.Crash(ctx, n)
			ccm := env.CCM.Start(ctx, framework.CCMOptions{Args: framework.OnlyNodes})
			awaitComplaint(ctx, ccm, "stranger", "")
			stays := env.Nodes.ExpectStays(ctx, "stranger", 4)
			Expect(stays).To(framework.HaveTaint(cloudproviderapi.TaintExternalCloudProvider))
		})

	DescribeTable("does not touch a node with a provider ID that is not its own", framework.Needs(framework.ForeignNodes),
		Label(framework.OwnCloud), foreignNode,
		Entry("of another provider, although a server has that number",
			func(server int64) string { return fmt.Sprintf("%s%d", framework.OtherPrefix, server) }),
		Entry("malformed", func(server int64) string {
			return fmt.Sprintf("%sserver-%d", framework.Current().CCM.ProviderPrefix, server)
		}),
	)

	It("follows a renamed server although another took its name", framework.Needs(framework.AddressUpdates), Label(framework.OwnCloud),
		func(ctx SpecContext) {
			var decoys atomic.Bool
			env := hetzner.NewEnv(ctx, hetzner.Options{
				Spec: framework.NodeSpec(func(node.Server, *node.Spec) bool { return !decoys.Load() }),
			})
			server := env.Nodes.Create(ctx, "node-1")[0]
			decoys.Store(true)
			env.Servers.Rename(ctx, server, "renamed")
			env.Servers.Create(ctx, "node-1")

			env.Servers.Detach(ctx, server) // a change to wait for
			n := env.Nodes.Await(ctx, "node-1", func(g Gomega, n *corev1.Node) {
				g.Expect(framework.AddressesOf(n, corev1.NodeInternalIP)).To(BeEmpty())
			})
			Expect(n.Spec.ProviderID).To(Equal(env.Servers.ProviderID(server)))
			framework.ExpectHostName(n, "renamed")
			Expect(framework.AddressesOf(n, corev1.NodeExternalIP)).To(ConsistOf(server.PublicNet.IPv4.IP.String()))
			n = env.Nodes.ExpectStays(ctx, "node-1", 3)
			Expect(framework.AddressesOf(n, corev1.NodeExternalIP)).To(ConsistOf(server.PublicNet.IPv4.IP.String()))
		})

	It("updates the labels of a node when its server's type was changed", framework.Needs(framework.TypeUpdates), Label(framework.OwnCloud),
		func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			server := env.Nodes.Create(ctx, "node-1")[0]
			env.Servers.PowerOff(ctx, server)
			env.Cloud.Do(ctx)(env.Cloud.Client.Server.ChangeType(ctx, server,
				hcloud.ServerChangeTypeOpts{ServerType: &hcloud.ServerType{Name: biggerType}}))
			env.Servers.PowerOn(ctx, server)
			env.Nodes.Await(ctx, "node-1", func(g Gomega, n *corev1.Node) {
				g.Expect(n.Labels).To(HaveKeyWithValue(corev1.LabelInstanceTypeStable, biggerType))
			})
		})

	It("adds the private address of a server that is attached to the network, and removes it when it is detached",
		framework.Needs(framework.AddressUpdates), Label(framework.OwnCloud), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			server := env.Servers.Create(ctx, "node-1", func(o *hcloud.ServerCreateOpts) { o.Networks = nil })
			n := env.Nodes.AwaitInitialized(ctx, "node-1")
			Expect(framework.AddressesOf(n, corev1.NodeInternalIP)).To(BeEmpty())
			awaitAddresses(ctx, env, "node-1", corev1.NodeExternalIP, server.PublicNet.IPv4.IP.String())

			env.Servers.Attach(ctx, server, "10.0.0.42")
			awaitAddresses(ctx, env, "node-1", corev1.NodeInternalIP, "10.0.0.42")
			env.Servers.Detach(ctx, server)
			awaitAddresses(ctx, env, "node-1", corev1.NodeInternalIP)
			awaitAddresses(ctx, env, "node-1", corev1.NodeExternalIP, server.PublicNet.IPv4.IP.String())
		})

	It("initializes a node whose kubelet has a fixed address as soon as its server has that address", Label(framework.OwnCloud),
		func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{
				Spec: framework.NodeSpec(func(_ node.Server, spec *node.Spec) bool {
					spec.NodeIPs = []netip.Addr{netip.MustParseAddr("10.0.0.77")}
					return true
				}),
			})
			server := env.Servers.Create(ctx, "node-1", func(o *hcloud.ServerCreateOpts) { o.Networks = nil })
			env.Nodes.Await(ctx, "node-1", func(Gomega, *corev1.Node) {})
			n := env.Nodes.ExpectStays(ctx, "node-1", 3)
			Expect(n).To(framework.HaveTaint(cloudproviderapi.TaintExternalCloudProvider))

			env.Servers.Attach(ctx, server, "10.0.0.77")
			env.Nodes.AwaitInitialized(ctx, "node-1")
			awaitAddresses(ctx, env, "node-1", corev1.NodeInternalIP, "10.0.0.77")
		})

	It("reads all servers with one request, and writes nothing", framework.Needs(framework.CallBudgets),
		Label("fake-only", framework.OwnCloud), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{CCM: map[string]string{"HCLOUD_NETWORK_ROUTES_ENABLED": "false"}})
			sent := env.CCM.Requests()
			env.Nodes.Create(ctx, "node-1", "node-2", "node-3", "node-4")
			framework.RecordFigure(speclist.RequestsNewNode, "requests", float64(env.CCM.Requests()-sent)/4)
			one := journal.Filter{Client: framework.Current().CCM.UserAgent, Route: "/servers/{id}"}
			before := env.Cloud.Journal.Count(one)
			env.CCM.AwaitRequests(ctx, 3, journal.Filter{Method: "GET", Route: "/servers"})
			Expect(env.Cloud.Journal.Count(one)).To(Equal(before))
			Expect(env.CCM.Writes()).To(BeZero())
		})
})

// addressCase is a server and the addresses that its node must have.
type addressCase struct {
	family    string // HCLOUD_INSTANCES_ADDRESS_FAMILY
	noNetwork bool   // HCLOUD_NETWORK is not set
	server    func(*hcloud.ServerCreateOpts)
	external  []string // "v4" and "v6" stand for the server's own
	internal  bool
}

// publicNet makes a server with or without public addresses.
func publicNet(v4, v6 bool) func(*hcloud.ServerCreateOpts) {
	return func(o *hcloud.ServerCreateOpts) {
		o.PublicNet = &hcloud.ServerCreatePublicNet{EnableIPv4: v4, EnableIPv6: v6}
	}
}

func nodeAddresses(ctx SpecContext, c addressCase) {
	settings := map[string]string{"HCLOUD_INSTANCES_ADDRESS_FAMILY": c.family}
	if c.noNetwork {
		settings["HCLOUD_NETWORK"] = ""
	}
	env := hetzner.NewEnv(ctx, hetzner.Options{CCM: settings})
	var change []func(*hcloud.ServerCreateOpts)
	if c.server != nil {
		change = append(change, c.server)
	}
	server := env.Servers.Create(ctx, "node-1", change...)
	var external, internal []string
	for _, family := range c.external {
		if family == "v4" {
			external = append(external, server.PublicNet.IPv4.IP.String())
			continue
		}
		// The API shows a server's IPv6 network. Images configure its first address.
		network, ok := netip.AddrFromSlice(server.PublicNet.IPv6.IP)
		Expect(ok).To(BeTrue())
		external = append(external, network.Next().String())
	}
	if c.internal {
		internal = []string{server.PrivateNet[0].IP.String()}
	}
	env.Nodes.AwaitInitialized(ctx, "node-1")
	awaitAddresses(ctx, env, "node-1", corev1.NodeExternalIP, external...)
	awaitAddresses(ctx, env, "node-1", corev1.NodeInternalIP, internal...)
	framework.ExpectHostName(env.Nodes.Get(ctx, "node-1"), "node-1")
}

// awaitAddresses waits until a node has exactly these addresses of a type.
func awaitAddresses(ctx context.Context, env *hetzner.Env, name string, kind corev1.NodeAddressType, want ...string) {
	GinkgoHelper()
	env.Nodes.Await(ctx, name, func(g Gomega, n *corev1.Node) { g.Expect(framework.AddressesOf(n, kind)).To(ConsistOf(want)) })
}

// foreignNode checks that a NotReady node with another provider ID stays as it is, and that our CCM logs the reason. A
// server with the node's name exists, and the provider ID has its number.
func foreignNode(ctx SpecContext, providerIDOf func(server int64) string) {
	env := hetzner.NewEnv(ctx, hetzner.Options{
		Spec: framework.NodeSpec(func(s node.Server, _ *node.Spec) bool { return s.Name == "node-1" }),
	})
	providerID := providerIDOf(env.Servers.Create(ctx, "foreign").ID)
	env.Nodes.Create(ctx, "node-1")
	env.Nodes.Crash(ctx, env.Nodes.Start(ctx, node.Spec{Name: "foreign", ProviderID: providerID}))
	was := env.Nodes.Get(ctx, "foreign")

	awaitComplaint(ctx, env.CCM.Replica, "foreign", providerID)
	n := env.Nodes.ExpectStays(ctx, "foreign", 3)
	Expect(n.Spec.ProviderID).To(Equal(providerID))
	Expect(n.Status.Addresses).To(Equal(was.Status.Addresses))
	Expect(n.Labels).To(Equal(was.Labels))
	Expect(n).To(framework.HaveTaint(cloudproviderapi.TaintExternalCloudProvider))
	Expect(n).NotTo(framework.HaveTaint(cloudproviderapi.TaintNodeShutdown))
}

// awaitComplaint waits until the log of our CCM says, with a text, that the node lifecycle controller cannot check whether a node's server
// exists. The log of another CCM promises nothing.
func awaitComplaint(ctx context.Context, ccm *framework.Replica, node, text string) {
	GinkgoHelper()
	if framework.Current().CCM.Name == framework.OurCCM {
		Eventually(func() string { return strings.ReplaceAll(ccm.Log(), `\"`, `"`) }).WithContext(ctx).
			Should(MatchRegexp("error checking if node " + node + " exists.*" + regexp.QuoteMeta(text)))
	}
}
