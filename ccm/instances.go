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
	show    nodeSettings
	labels  *nodeLabelSync
	events  *eventRecorder
	guard   *routeGuard
	from    *fromServer
}

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
	meta := i.show.metadata(server, node, networkID)
	if err := i.guard.beforeInit(node); err != nil {
		return nil, err
	}
	if err := i.from.sync(ctx, node, server); err != nil {
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
