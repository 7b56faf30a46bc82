// Package node is the part of the node controllers: each Node is a server, and shows its addresses, labels and taints.
package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/inventory"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

// Instances implements cloudprovider.InstancesV2: each Node is a server.
//
// A Node is matched by its provider ID, or by its name if it has none. An error of any kind (401,
// 429, 5xx, timeout, dropped connection) never counts as "does not exist", because the node lifecycle
// controller then deletes the Node at once. A server does not exist only if the API answers
// not_found for the ID in the Node's own provider ID.
type Instances struct {
	servers *inventory.Servers
	network *inventory.Network
	show    Settings
	events  *event.Recorder
	from    *fromServer
	kube    kubernetes.Interface // nil until the cloud is initialized
	// routesOn reports whether Nodes wait for routes.
	routesOn func() bool
}

var _ cloudprovider.InstancesV2 = (*Instances)(nil)

// NewInstances returns the instances. routesOn reports whether Nodes wait for routes.
func NewInstances(servers *inventory.Servers, network *inventory.Network, show Settings, nodeLabels []LabelPattern,
	taints []TaintPattern, events *event.Recorder, routesOn func() bool) *Instances {
	return &Instances{servers: servers, network: network, show: show, events: events, routesOn: routesOn,
		from: &fromServer{labels: nodeLabels, taints: taints}}
}

// UseKube sets the client with which Nodes are changed.
func (i *Instances) UseKube(kube kubernetes.Interface) { i.kube, i.from.kube = kube, kube }

// Detached returns the server with the name if it exists and is not attached to the network.
func (i *Instances) Detached(ctx context.Context, name string, networkID int64) (*hcloud.Server, error) {
	server, err := i.servers.ByName(ctx, inventory.Ask{Name: name})
	if err != nil || server == nil || nodeinfo.PrivateIP(server, networkID).IsValid() {
		return nil, err
	}
	return server, nil
}

// InstanceExists implements cloudprovider.InstancesV2.
//
// If a Node has no provider ID and no server has its name, InstanceExists returns an error: that is
// no proof that the Node's machine is gone. The Node stays uninitialized until a server of that name
// exists or a person deletes the Node.
func (i *Instances) InstanceExists(ctx context.Context, node *corev1.Node) (bool, error) {
	server, err := i.notReadyServerOf(ctx, node)
	if err != nil {
		return false, err
	}
	if server == nil && node.Spec.ProviderID == "" {
		return false, fmt.Errorf("node %q has no provider ID and no server has its name: it was never a server of this project, so it is "+
			"not deleted; create a server of that name, or delete the node", node.Name)
	}
	return server != nil, nil
}

// InstanceShutdown implements cloudprovider.InstancesV2. It reports whether the server's status is off.
func (i *Instances) InstanceShutdown(ctx context.Context, node *corev1.Node) (bool, error) {
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
func (i *Instances) InstanceMetadata(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	ctx, ask := i.askForMetadata(ctx, node)
	server, err := i.serverOf(ctx, node, ask)
	if err != nil {
		return nil, err
	}
	if server == nil {
		err := notFound(node)
		i.events.Seldom(node, event.ServerNotFound, "%s", err)
		return nil, err
	}
	networkID, err := i.network.ID(ctx)
	if err != nil {
		return nil, err
	}
	detached := func() bool { return networkID != 0 && !nodeinfo.PrivateIP(server, networkID).IsValid() }
	if detached() { // without a network the Node would lose its internal address
		if networkID, err = i.network.Confirm(ctx); err != nil {
			return nil, err
		}
	}
	if detached() {
		i.events.Seldom(node, event.NotAttached,
			"Server %d (%s) is not attached to network %d (HCLOUD_NETWORK=%q), so the node has no internal address and no routes: attach "+
				"the server",
			server.ID, server.Name, networkID, i.network.IDOrName)
	}
	meta := i.show.metadata(server, node, networkID)
	if err := i.guardRoute(node); err != nil {
		return nil, err
	}
	if err := i.from.sync(ctx, node, server); err != nil {
		return nil, err
	}
	syncLabels(ctx, i.kube, node, meta)
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
// 20 minutes every inventory.MaxNotReadyAge.
func (i *Instances) notReadyServerOf(ctx context.Context, node *corev1.Node) (*hcloud.Server, error) {
	return i.serverOf(apicall.Periodically(ctx, apicall.ControllerLifecycle, "exists"), node, inventory.Ask{
		MaxAge: i.notReadyAge(node),
		Likely: func() []inventory.Ask {
			return i.asks(func(n *corev1.Node) inventory.Ask { return inventory.Ask{MaxAge: i.notReadyAge(n)} },
				func(n *corev1.Node) bool { return !nodeinfo.IsReady(n) })
		},
	})
}

// notReadyAge returns the maximum age of the data of a server with a Node that is not Ready: half of the time that it
// has been so.
func (i *Instances) notReadyAge(node *corev1.Node) time.Duration {
	since := node.CreationTimestamp.Time
	if _, c := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady); c != nil {
		since = c.LastTransitionTime.Time
	}
	if since.IsZero() {
		return 0
	}
	return max(min(i.servers.Clock.Since(since)/2, inventory.MaxNotReadyAge), i.servers.TTL)
}

// askForMetadata returns the question for a Node's metadata. A Node that is not initialized yet runs on a server
// that existed when the Node was created: data from later than that are good enough. Older data may be about a former
// server of that name, and nothing can change a provider ID that a Node has. (The clocks of the API server and of this machine
// may differ by a few seconds.) All other Nodes are refreshed together.
func (i *Instances) askForMetadata(ctx context.Context, node *corev1.Node) (context.Context, inventory.Ask) {
	if nodeinfo.IsUninitialized(node) {
		ask := i.askForInit(node)
		ask.Likely = func() []inventory.Ask { return i.asks(i.askForInit, nodeinfo.IsUninitialized) }
		return apicall.Urgently(ctx, apicall.ControllerNode, "initialize"), ask
	}
	return apicall.Periodically(ctx, apicall.ControllerNode, "refresh"), inventory.Ask{Likely: func() []inventory.Ask {
		return i.asks(func(*corev1.Node) inventory.Ask { return inventory.Ask{} },
			func(n *corev1.Node) bool { return !nodeinfo.IsUninitialized(n) })
	}}
}

// askForInit returns how old data may be that initialize a Node.
func (i *Instances) askForInit(n *corev1.Node) inventory.Ask {
	created, now := n.CreationTimestamp.Time, i.servers.Clock.Now()
	if created.IsZero() {
		return inventory.Ask{}
	}
	ask := inventory.Ask{MaxAge: max(min(now.Sub(created)-maxClockSkew, inventory.MaxInitAge), i.servers.TTL),
		NotBefore: created.Add(maxClockSkew)}
	if ask.NotBefore.After(now) {
		ask.NotBefore = now
	}
	return ask
}

// maxClockSkew is how much the clocks of the API server and of this machine may differ.
const maxClockSkew = 10 * time.Second

// asks returns the questions about the servers of all Nodes that choose accepts. It returns nil before the Nodes are known.
func (i *Instances) asks(question func(*corev1.Node) inventory.Ask, choose func(*corev1.Node) bool) []inventory.Ask {
	nodes, _ := i.servers.Evidence.Listers()
	var all []inventory.Ask
	for _, n := range nodeinfo.List(nodes) {
		if !choose(n) {
			continue
		}
		if ask, err := inventory.AskFor(n, question(n)); err == nil {
			all = append(all, ask)
		}
	}
	return all
}

// serverOf returns the Node's server, or nil if the API says that it does not exist.
func (i *Instances) serverOf(ctx context.Context, node *corev1.Node, ask inventory.Ask) (*hcloud.Server, error) {
	server, err := i.findServer(apicall.Polling(ctx), node, ask)
	if d, ok := errors.AsType[*apicall.DoubtError](err); ok {
		i.events.Seldom(node, event.Doubted, "%s", d)
	}
	return server, err
}

func (i *Instances) findServer(ctx context.Context, node *corev1.Node, ask inventory.Ask) (*hcloud.Server, error) {
	ask, err := inventory.AskFor(node, ask)
	switch {
	case err != nil:
		i.events.Seldom(node, event.ForeignProviderID, "The node is ignored: %s", err)
		return nil, fmt.Errorf("node %q: %w", node.Name, err)
	case ask.ID == 0:
		return i.servers.ByName(ctx, ask)
	}
	return i.servers.ByID(ctx, ask)
}
