package hetzner

import (
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
)

// Servers are the cloud's servers. Each becomes a node.
type Servers struct {
	env *Env
}

// Create creates a server in the network, and returns it when it runs. Its node registers by itself.
func (sv Servers) Create(ctx context.Context, name string, change ...func(*hcloud.ServerCreateOpts)) *hcloud.Server {
	GinkgoHelper()
	result := sv.Order(ctx, name, change...)
	sv.env.Cloud.Wait(ctx, append(result.NextActions, result.Action)...)
	return sv.env.serverOf(ctx, sv.env.account.server(result.Server))
}

// Order creates a server as Create does, and does not wait for it.
func (sv Servers) Order(ctx context.Context, name string, change ...func(*hcloud.ServerCreateOpts)) hcloud.ServerCreateResult {
	GinkgoHelper()
	framework.SkipUnlessServersJoin()
	opts := serverCreateOpts(name, sv.env.Cloud.Network)
	for _, c := range change {
		c(&opts)
	}
	opts.Labels = tagged(opts.Labels)
	result, _, err := sv.env.Cloud.Client.Server.Create(ctx, opts)
	Expect(err).NotTo(HaveOccurred())
	sv.env.CreatedServer(sv.env.account.server(result.Server))
	return result
}

// CreateAll creates several servers at the same time.
func (sv Servers) CreateAll(ctx context.Context, names ...string) []*hcloud.Server {
	GinkgoHelper()
	return framework.CreateAll(names, func(name string) *hcloud.Server { return sv.Create(ctx, name) })
}

// Delete deletes a server and waits until it is gone.
func (sv Servers) Delete(ctx context.Context, s *hcloud.Server) {
	GinkgoHelper()
	result, _, err := sv.env.Cloud.Client.Server.DeleteWithResult(ctx, s)
	Expect(err).NotTo(HaveOccurred())
	sv.env.Cloud.Wait(ctx, result.Action)
}

// PowerOff powers a server off.
func (sv Servers) PowerOff(ctx context.Context, s *hcloud.Server) {
	GinkgoHelper()
	sv.env.Cloud.Do(ctx)(sv.env.Cloud.Client.Server.Poweroff(ctx, s))
}

// PowerOn powers a server on.
func (sv Servers) PowerOn(ctx context.Context, s *hcloud.Server) {
	GinkgoHelper()
	sv.env.Cloud.Do(ctx)(sv.env.Cloud.Client.Server.Poweron(ctx, s))
}

// Reset resets all of the servers at once, as their reset buttons would.
func (sv Servers) Reset(ctx context.Context, servers ...*hcloud.Server) {
	GinkgoHelper()
	var actions []*hcloud.Action
	for _, s := range servers {
		action, _, err := sv.env.Cloud.Client.Server.Reset(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		actions = append(actions, action)
	}
	sv.env.Cloud.Wait(ctx, actions...)
	sv.env.CCM.NoteRestart()
}

// Rename renames a server.
func (sv Servers) Rename(ctx context.Context, s *hcloud.Server, name string) {
	GinkgoHelper()
	Expect(sv.env.Cloud.Client.Server.Update(ctx, s, hcloud.ServerUpdateOpts{Name: name})).Error().NotTo(HaveOccurred())
}

// Attach attaches a server to the cluster's network, at an address if one is given.
func (sv Servers) Attach(ctx context.Context, server *hcloud.Server, address string) {
	GinkgoHelper()
	sv.env.Cloud.Do(ctx)(sv.env.Cloud.Client.Server.AttachToNetwork(ctx, server, hcloud.ServerAttachToNetworkOpts{
		Network: sv.env.Cloud.Network, IP: net.ParseIP(address),
	}))
}

// Detach detaches a server from the cluster's network.
func (sv Servers) Detach(ctx context.Context, server *hcloud.Server) {
	GinkgoHelper()
	sv.env.Cloud.Do(ctx)(sv.env.Cloud.Client.Server.DetachFromNetwork(ctx, server,
		hcloud.ServerDetachFromNetworkOpts{Network: sv.env.Cloud.Network}))
}

// CreateFloatingIP creates an IPv4 address without a server. It is deleted when the spec ends.
func (sv Servers) CreateFloatingIP(ctx context.Context) *hcloud.FloatingIP {
	GinkgoHelper()
	cloud := sv.env.Cloud.Client.FloatingIP
	created, _, err := cloud.Create(ctx, hcloud.FloatingIPCreateOpts{
		Type: hcloud.FloatingIPTypeIPv4, HomeLocation: &hcloud.Location{Name: Location}, Labels: tagged(nil),
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func(ctx context.Context) {
		now, _, err := cloud.GetByID(ctx, created.FloatingIP.ID)
		Expect(err).NotTo(HaveOccurred())
		if now.Server != nil {
			sv.env.Cloud.Do(ctx)(cloud.Unassign(ctx, now))
		}
		_, err = cloud.Delete(ctx, now)
		Expect(err).NotTo(HaveOccurred())
	})
	return created.FloatingIP
}

// PrivateIP returns the address that a server has in the cluster's network now.
func (sv Servers) PrivateIP(ctx context.Context, server *hcloud.Server) string {
	GinkgoHelper()
	for _, n := range sv.env.serverOf(ctx, sv.env.account.server(server)).PrivateNet {
		if n.Network.ID == sv.env.Cloud.Network.ID {
			return n.IP.String()
		}
	}
	Fail(fmt.Sprintf("server %s is not attached to the network", server.Name))
	return ""
}

// ProviderID returns the provider ID of a server's node.
func (sv Servers) ProviderID(server *hcloud.Server) string {
	return fmt.Sprintf("%s%d", sv.env.account.ProviderPrefix, server.ID)
}

// MetadataURL is the metadata service of a server. Its pods reach the service too. A key of the metadata
// follows.
const MetadataURL = "http://169.254.169.254/hetzner/v1/metadata/"

// IDs returns the ids of servers, sorted.
func IDs(servers ...*hcloud.Server) []int64 {
	var ids []int64
	for _, s := range servers {
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	return ids
}
