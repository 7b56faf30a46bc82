package specs

import (
	"context"
	"net"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

// serverOrder is how a client makes a server a node of the cluster.
type serverOrder struct {
	on      bool // it is created on, and not powered on afterwards
	private bool // it has no public addresses
	chosen  bool // its address is chosen by the client
	// twice powers it off and on again, as Terraform's provider did before version 1.49.1.
	twice bool
}

var _ = Describe("A server that is attached to its networks after it was created", framework.BringsNodes(), framework.Long, Serial,
	Label(framework.RealNodes, framework.FakeOnly, "node"), func() {
		DescribeTable("becomes a node", serverBecomesNode,
			Entry("created off, attached, started", serverOrder{}),
			Entry("created off without public addresses, attached, started", serverOrder{private: true, chosen: true}),
			Entry("created off, attached, started, and powered off and on again", serverOrder{private: true, twice: true}),
			Entry("created on, attached: what the development environment's Terraform asks for", serverOrder{on: true}),
		)

		It("keeps its address while it is on, and has another when it was attached elsewhere while it was off", func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			name := env.Nodes.Name("moved")
			server := env.Servers.Create(ctx, name)
			env.Nodes.AwaitJoined(ctx, name)
			before := env.Servers.PrivateIP(ctx, server)
			awaitAddresses(ctx, env, name, corev1.NodeInternalIP, before)

			By("attaching it at another address while it is on")
			env.Servers.Detach(ctx, server)
			after := inSubnet(env, 202)
			action, _, err := env.Cloud.Client.Server.AttachToNetwork(ctx, server,
				hcloud.ServerAttachToNetworkOpts{Network: env.Cloud.Network, IP: net.ParseIP(after)})
			Expect(err).NotTo(HaveOccurred())
			Expect(env.Cloud.Client.Action.WaitFor(ctx, action)).To(MatchError(ContainSubstring("power the server off")))

			By("attaching it there while it is off")
			env.Servers.PowerOff(ctx, server)
			env.Servers.Attach(ctx, server, after)
			env.Servers.PowerOn(ctx, server)
			awaitAddresses(ctx, env, name, corev1.NodeInternalIP, after)
			env.Nodes.AwaitReady(ctx, name, true)
		})

		It("is rebuilt, reset, shut down and deleted although it never had a guest", func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			server, cloud := env.Servers.Create(ctx, env.Nodes.Name("guestless"), noNetworks), env.Cloud.Client.Server
			status := func(want hcloud.ServerStatus) {
				GinkgoHelper()
				Eventually(func(g Gomega) {
					now, _, err := cloud.GetByID(ctx, server.ID)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(now.Status).To(Equal(want))
				}).WithContext(ctx).Should(Succeed())
			}
			status(hcloud.ServerStatusRunning)
			rebuilt, _, err := cloud.RebuildWithResult(ctx, server, hcloud.ServerRebuildOpts{Image: &hcloud.Image{Name: "debian-13"}})
			Expect(err).NotTo(HaveOccurred())
			env.Cloud.Wait(ctx, rebuilt.Action)
			env.Servers.Reset(ctx, server)
			status(hcloud.ServerStatusRunning)
			env.Cloud.Do(ctx)(cloud.Shutdown(ctx, server))
			status(hcloud.ServerStatusOff)
			env.Servers.Delete(ctx, server)
		})
	})

// inSubnet returns an address of the cluster's network by its last byte.
func inSubnet(env *hetzner.Env, last byte) string {
	a := slices.Clone(env.Cloud.Network.Subnets[0].IPRange.IP.To4())
	a[3] = last
	return a.String()
}

func noNetworks(o *hcloud.ServerCreateOpts) { o.Networks = nil }

// joinByKubeadm is the user data of a server that becomes a node of the cluster: simulated nodes have a configuration for kubeadm.
const joinByKubeadm = "#cloud-config\nruncmd:\n  - kubeadm join --config=/kind/kubeadm.conf\n"

// serverBecomesNode makes the calls of Terraform's provider for a server with a private network besides the cluster's. By the provider's
// source, it creates a server without networks and waits for all actions. It attaches the server to one network after the other. A server
// without public addresses is created off, and powered on at the end. Others are created on (seen up to version 1.63), or off, too (seen in
// a later one).
func serverBecomesNode(ctx SpecContext, o serverOrder) {
	env := hetzner.NewEnv(ctx, hetzner.Options{})
	name := env.Nodes.Name("ordered")
	own := ownNetwork(ctx, env, name)
	server := env.Servers.Create(ctx, name, noNetworks, func(c *hcloud.ServerCreateOpts) {
		c.UserData, c.StartAfterCreate = joinByKubeadm, &o.on
		c.PublicNet = &hcloud.ServerCreatePublicNet{EnableIPv4: !o.private, EnableIPv6: !o.private}
	})
	env.Cloud.Do(ctx)(env.Cloud.Client.Server.AttachToNetwork(ctx, server, hcloud.ServerAttachToNetworkOpts{Network: own,
		IP: net.ParseIP("10.1.1.20")}))
	address := ""
	if o.chosen {
		address = inSubnet(env, 201)
	}
	env.Servers.Attach(ctx, server, address)
	if !o.on {
		env.Servers.PowerOn(ctx, server)
	}
	if o.twice {
		env.Servers.PowerOff(ctx, server)
		env.Servers.PowerOn(ctx, server)
	}
	env.Nodes.AwaitJoined(ctx, name)
	n := env.Nodes.AwaitInitialized(ctx, name)
	Expect(n.Spec.ProviderID).To(Equal(env.Servers.ProviderID(server)))
	awaitAddresses(ctx, env, name, corev1.NodeInternalIP, env.Servers.PrivateIP(ctx, server))
	env.Nodes.AwaitReady(ctx, name, true)
	env.Servers.Delete(ctx, server)
	env.Nodes.AwaitGone(ctx, name)
}

// ownNetwork creates a network that is not the cluster's. It is deleted when the spec ends.
func ownNetwork(ctx context.Context, env *hetzner.Env, name string) *hcloud.Network {
	GinkgoHelper()
	ipRange := &net.IPNet{IP: net.IPv4(10, 1, 0, 0).To4(), Mask: net.CIDRMask(16, 32)}
	n, _, err := env.Cloud.Client.Network.Create(ctx, hcloud.NetworkCreateOpts{
		Name: name, IPRange: ipRange,
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, IPRange: ipRange, NetworkZone: hcloud.NetworkZoneEUCentral}},
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		Expect(env.Cloud.Client.Network.Delete(ctx, n)).Error().NotTo(HaveOccurred())
	})
	return n
}
