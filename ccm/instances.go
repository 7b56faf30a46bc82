package ccm

import (
	"context"
	"errors"
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// instances implements cloudprovider.InstancesV2: each Node is a server.
//
// A Node is matched by its provider ID, or by its name if it has none. An error of any kind (401,
// 429, 5xx, timeout, dropped connection) never counts as "does not exist", because the node lifecycle
// controller then deletes the Node at once. A server does not exist only if the API answers
// not_found for the ID in the Node's own provider ID.
type instances struct {
	servers *serverCache
	network *networkResolver
	family  AddressFamily
	labels  *nodeLabelSync
	events  *eventRecorder
	guard   *routeGuard
}

// The label by which other programs, such as the CSI driver, recognise a Node that is a server of the
// cloud. The production CCM sets it too.
const (
	labelProvidedBy = "instance.hetzner.cloud/provided-by"
	providedByCloud = "cloud"
)

var _ cloudprovider.InstancesV2 = (*instances)(nil)

// InstanceExists implements cloudprovider.InstancesV2.
//
// If a Node has no provider ID and no server has its name, InstanceExists returns an error: that is
// no proof that the Node's machine is gone. The Node stays uninitialized until a server of that name
// exists or a person deletes the Node.
func (i *instances) InstanceExists(ctx context.Context, node *corev1.Node) (bool, error) {
	server, err := i.serverOf(ctx, node)
	if err != nil {
		return false, err
	}
	if server == nil && node.Spec.ProviderID == "" {
		return false, fmt.Errorf("node %q has no provider ID and no server has its name: it was never a server of this project, so it is not deleted; "+
			"create a server of that name, or delete the node", node.Name)
	}
	return server != nil, nil
}

// InstanceShutdown implements cloudprovider.InstancesV2. It reports whether the server's status is off.
func (i *instances) InstanceShutdown(ctx context.Context, node *corev1.Node) (bool, error) {
	server, err := i.serverOf(ctx, node)
	if err != nil {
		return false, err
	}
	if server == nil {
		return false, notFound(node)
	}
	return server.Status == hcloud.ServerStatusOff, nil
}

// InstanceMetadata implements cloudprovider.InstancesV2. It returns an error that wraps
// cloudprovider.InstanceNotFound if the Node has no server. The node controller then leaves the Node
// uninitialized and asks again.
func (i *instances) InstanceMetadata(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	server, err := i.serverOf(ctx, node)
	if err != nil {
		return nil, err
	}
	if server == nil {
		err := notFound(node)
		i.events.nodeWarning(node, EventServerNotFound, "%s", err)
		return nil, err
	}
	networkID, err := i.network.ID(ctx)
	if err != nil {
		return nil, err
	}
	if networkID != 0 && !privateIP(server, networkID).IsValid() {
		// Without a network the Node would lose its internal address.
		if networkID, err = i.network.confirm(ctx); err != nil {
			return nil, err
		}
	}
	if networkID != 0 && !privateIP(server, networkID).IsValid() {
		i.events.nodeWarning(node, EventNotAttached, "Server %d (%s) is not attached to network %d (HCLOUD_NETWORK=%q), so the node has no internal address and no routes: attach the server",
			server.ID, server.Name, networkID, i.network.idOrName)
	}
	meta := metadataOf(server, node.Name, networkID, i.family)
	if err := i.guard.beforeInit(node); err != nil {
		return nil, err
	}
	i.labels.sync(ctx, node, meta)
	return meta, nil
}

func notFound(node *corev1.Node) error {
	if node.Spec.ProviderID != "" {
		return fmt.Errorf("node %q: no server for provider ID %q: %w", node.Name, node.Spec.ProviderID, cloudprovider.InstanceNotFound)
	}
	return fmt.Errorf("node %q: no server has this name: %w", node.Name, cloudprovider.InstanceNotFound)
}

// serverOf returns the Node's server, or nil if the API says that there is none.
func (i *instances) serverOf(ctx context.Context, node *corev1.Node) (*hcloud.Server, error) {
	server, err := i.findServer(polling(ctx), node)
	if d, ok := errors.AsType[*doubtError](err); ok {
		i.events.nodeWarning(node, EventDoubted, "%s", d)
	}
	return server, err
}

func (i *instances) findServer(ctx context.Context, node *corev1.Node) (*hcloud.Server, error) {
	if node.Spec.ProviderID == "" {
		return i.servers.ByName(ctx, node.Name)
	}
	id, err := parseProviderID(node.Spec.ProviderID)
	if err != nil {
		i.events.nodeWarning(node, EventForeignProviderID, "The node is ignored: %s", err)
		return nil, fmt.Errorf("node %q: %w", node.Name, err)
	}
	return i.servers.ByID(ctx, id)
}

// isForeign reports whether the Node belongs to another provider.
func isForeign(node *corev1.Node) bool {
	if node.Spec.ProviderID == "" {
		return false
	}
	var foreign *foreignProviderIDError
	_, err := parseProviderID(node.Spec.ProviderID)
	return errors.As(err, &foreign)
}

// metadataOf returns the metadata of a server for Kubernetes. The region is the network zone, the
// zone is the location.
func metadataOf(s *hcloud.Server, nodeName string, networkID int64, family AddressFamily) *cloudprovider.InstanceMetadata {
	m := &cloudprovider.InstanceMetadata{
		ProviderID:    providerID(s.ID),
		NodeAddresses: nodeAddresses(s, nodeName, networkID, family),

		AdditionalLabels: map[string]string{labelProvidedBy: providedByCloud},
	}
	if s.ServerType != nil {
		m.InstanceType = s.ServerType.Name
	}
	if s.Location != nil {
		m.Zone = s.Location.Name
		m.Region = string(s.Location.NetworkZone)
	}
	return m
}

// nodeAddresses returns the Node's addresses: its hostname, its public addresses of the given family
// and its address in the configured network. The hostname is the name of the Node, because a server
// can be renamed while the machine keeps its host name.
//
// Without a configured network, private addresses are returned only if the server has no public
// interface: then they are the only way to reach it.
func nodeAddresses(s *hcloud.Server, nodeName string, networkID int64, family AddressFamily) []corev1.NodeAddress {
	addrs := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: nodeName}}
	v4, v6 := publicIPv4(s), publicIPv6(s)
	if family != AddressFamilyIPv6 && v4.IsValid() {
		addrs = append(addrs, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: v4.String()})
	}
	if family != AddressFamilyIPv4 && v6.IsValid() {
		addrs = append(addrs, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: v6.String()})
	}
	if networkID != 0 {
		if ip := privateIP(s, networkID); ip.IsValid() {
			addrs = append(addrs, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.String()})
		}
		return addrs
	}
	if !v4.IsValid() && !v6.IsValid() {
		for _, n := range s.PrivateNet {
			addrs = append(addrs, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: n.IP.String()})
		}
	}
	return addrs
}
