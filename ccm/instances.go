package ccm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cloud-provider"
	nodeutil "k8s.io/component-helpers/node/util"
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
	events  *event.Recorder
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
	server, err := i.notReadyServerOf(ctx, node)
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
	server, err := i.notReadyServerOf(ctx, node)
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
	ctx, ask := i.askForMetadata(ctx, node)
	server, err := i.serverOf(ctx, node, ask)
	if err != nil {
		return nil, err
	}
	if server == nil {
		err := notFound(node)
		i.events.NodeWarning(node, event.ServerNotFound, "%s", err)
		return nil, err
	}
	networkID, err := i.network.ID(ctx)
	if err != nil {
		return nil, err
	}
	if networkID != 0 && !nodeinfo.PrivateIP(server, networkID).IsValid() {
		// Without a network the Node would lose its internal address.
		if networkID, err = i.network.confirm(ctx); err != nil {
			return nil, err
		}
	}
	if networkID != 0 && !nodeinfo.PrivateIP(server, networkID).IsValid() {
		i.events.NodeWarning(node, event.NotAttached, "Server %d (%s) is not attached to network %d (HCLOUD_NETWORK=%q), so the node has no internal address and no routes: attach the server",
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

// notReadyServerOf returns the server of a Node that is not Ready. The node lifecycle controller asks for each of
// them every five seconds. What has been so for long is asked less often: after a minute every half minute, after
// 20 minutes every maxNotReadyAge.
func (i *instances) notReadyServerOf(ctx context.Context, node *corev1.Node) (*hcloud.Server, error) {
	return i.serverOf(periodically(ctx, controllerLifecycle, "exists"), node, serverAsk{
		maxAge: i.notReadyAge(node),
		likely: func() []serverAsk {
			return i.asks(func(n *corev1.Node) serverAsk { return serverAsk{maxAge: i.notReadyAge(n)} }, func(n *corev1.Node) bool { return !isReady(n) })
		},
	})
}

// notReadyAge returns the maximum age of the data of a server whose Node is not Ready: half of the time that it
// has been so.
func (i *instances) notReadyAge(node *corev1.Node) time.Duration {
	since := node.CreationTimestamp.Time
	if _, c := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady); c != nil {
		since = c.LastTransitionTime.Time
	}
	if since.IsZero() {
		return 0
	}
	return max(min(i.servers.clock.Since(since)/2, maxNotReadyAge), i.servers.ttl)
}

func isReady(node *corev1.Node) bool {
	_, c := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// askForMetadata returns the question for a Node's metadata. A Node that is not initialized yet runs on a server
// that existed when the Node was created: data from later than that are good enough. Older data may be about a former
// server of that name, and nothing can change a provider ID that a Node has. (The clocks of the API server and of this machine
// may differ by a few seconds.) All other Nodes are refreshed together.
func (i *instances) askForMetadata(ctx context.Context, node *corev1.Node) (context.Context, serverAsk) {
	if nodeinfo.IsUninitialized(node) {
		ask := i.askForInit(node)
		ask.likely = func() []serverAsk { return i.asks(i.askForInit, nodeinfo.IsUninitialized) }
		return urgently(ctx, controllerNode, "initialize"), ask
	}
	return periodically(ctx, controllerNode, "refresh"), serverAsk{likely: func() []serverAsk {
		return i.asks(func(*corev1.Node) serverAsk { return serverAsk{} }, func(n *corev1.Node) bool { return !nodeinfo.IsUninitialized(n) })
	}}
}

// askForInit returns how old data may be that initialize a Node.
func (i *instances) askForInit(n *corev1.Node) serverAsk {
	created, now := n.CreationTimestamp.Time, i.servers.clock.Now()
	if created.IsZero() {
		return serverAsk{}
	}
	ask := serverAsk{maxAge: max(min(now.Sub(created)-maxClockSkew, maxInitAge), i.servers.ttl), notBefore: created.Add(maxClockSkew)}
	if ask.notBefore.After(now) {
		ask.notBefore = now
	}
	return ask
}

// maxClockSkew is how much the clocks of the API server and of this machine may differ.
const maxClockSkew = 10 * time.Second

// asks returns the questions about the servers of all Nodes that choose accepts. It returns nil before the Nodes are known.
func (i *instances) asks(question func(*corev1.Node) serverAsk, choose func(*corev1.Node) bool) []serverAsk {
	nodes, _ := i.servers.evidence.listers()
	var all []serverAsk
	for _, n := range nodeinfo.List(nodes) {
		if !choose(n) {
			continue
		}
		if ask, err := askFor(n, question(n)); err == nil {
			all = append(all, ask)
		}
	}
	return all
}

// askFor completes a question by the Node's server: by its provider ID, or by its name if it has none.
func askFor(node *corev1.Node, ask serverAsk) (serverAsk, error) {
	if node.Spec.ProviderID == "" {
		ask.name = node.Name
		return ask, nil
	}
	var err error
	ask.id, err = nodeinfo.ParseProviderID(node.Spec.ProviderID)
	return ask, err
}

// serverOf returns the Node's server, or nil if the API says that there is none.
func (i *instances) serverOf(ctx context.Context, node *corev1.Node, ask serverAsk) (*hcloud.Server, error) {
	server, err := i.findServer(polling(ctx), node, ask)
	if d, ok := errors.AsType[*doubtError](err); ok {
		i.events.NodeWarning(node, event.Doubted, "%s", d)
	}
	return server, err
}

func (i *instances) findServer(ctx context.Context, node *corev1.Node, ask serverAsk) (*hcloud.Server, error) {
	ask, err := askFor(node, ask)
	switch {
	case err != nil:
		i.events.NodeWarning(node, event.ForeignProviderID, "The node is ignored: %s", err)
		return nil, fmt.Errorf("node %q: %w", node.Name, err)
	case ask.id == 0:
		return i.servers.ByName(ctx, ask)
	}
	return i.servers.ByID(ctx, ask)
}
