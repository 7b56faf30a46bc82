package ccm

import (
	"context"
	"errors"
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// instances implements cloudprovider.InstancesV2: Nodes are servers.
//
// A Node is matched by its provider ID, else by its name. An error of any kind (401, 429, 5xx,
// timeout, dropped connection) is returned as an error and never taken for "does not exist": on a
// wrong "no" the node lifecycle controller deletes the Node at once. Only the API's definite
// not_found for a server that the Node's own provider ID names is a "no".
type instances struct {
	servers *serverCache
	network *networkResolver
	family  AddressFamily
	labels  *nodeLabelSync
}

var _ cloudprovider.InstancesV2 = (*instances)(nil)

// InstanceExists implements cloudprovider.InstancesV2.
//
// A Node without provider ID was never identified as a server. That no server has its name is then
// no proof that its machine is gone, so it is an error: the Node stays, uninitialized, until a
// server of that name exists or a person removes it.
func (i *instances) InstanceExists(ctx context.Context, node *corev1.Node) (bool, error) {
	server, err := i.serverOf(ctx, node)
	if err != nil {
		return false, err
	}
	if server == nil && node.Spec.ProviderID == "" {
		return false, fmt.Errorf("node %q has no provider ID and no server is named so: it was never a server of this project, so it is not deleted", node.Name)
	}
	return server != nil, nil
}

// InstanceShutdown implements cloudprovider.InstancesV2: whether the server's status is off.
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

// InstanceMetadata implements cloudprovider.InstancesV2. It wraps cloudprovider.InstanceNotFound if
// there is no server for the Node; the node controller then leaves the Node uninitialized and asks
// again.
func (i *instances) InstanceMetadata(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	server, err := i.serverOf(ctx, node)
	if err != nil {
		return nil, err
	}
	if server == nil {
		return nil, notFound(node)
	}
	networkID, err := i.network.ID(ctx)
	if err != nil {
		return nil, err
	}
	meta := metadataOf(server, node.Name, networkID, i.family)
	i.labels.sync(ctx, node, meta)
	return meta, nil
}

func notFound(node *corev1.Node) error {
	if node.Spec.ProviderID != "" {
		return fmt.Errorf("node %q: no server for provider ID %q: %w", node.Name, node.Spec.ProviderID, cloudprovider.InstanceNotFound)
	}
	return fmt.Errorf("node %q: no server is named so: %w", node.Name, cloudprovider.InstanceNotFound)
}

// serverOf returns the server behind a Node, nil if the API says that there is none.
func (i *instances) serverOf(ctx context.Context, node *corev1.Node) (*hcloud.Server, error) {
	ctx = polling(ctx)
	if node.Spec.ProviderID == "" {
		return i.servers.ByName(ctx, node.Name)
	}
	id, err := parseProviderID(node.Spec.ProviderID)
	if err != nil {
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

// metadataOf says what Kubernetes should know of a server. Region is the network zone, zone the
// location.
func metadataOf(s *hcloud.Server, nodeName string, networkID int64, family AddressFamily) *cloudprovider.InstanceMetadata {
	m := &cloudprovider.InstanceMetadata{
		ProviderID:    providerID(s.ID),
		NodeAddresses: nodeAddresses(s, nodeName, networkID, family),
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

// nodeAddresses returns the Node's addresses: hostname, public addresses of the chosen family, the
// address in the configured network. The hostname is the Node's name, not the server's: a server
// can be renamed, the machine's host name stays.
//
// Without a configured network the private addresses of a server are not shown, unless it has no
// public interface at all: then they are the only way to reach it.
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
