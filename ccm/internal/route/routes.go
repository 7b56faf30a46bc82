// Package route is the part of the route controller: the pod ranges of Nodes are routes of the network.
package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/inventory"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// maxRouteAge is the maximum age of cached routes. One read of the network serves a burst of
// CreateRoute calls. ListRoutes always reads; what it finds to be missing is created from then on.
const maxRouteAge = time.Minute

// Routes implements cloudprovider.Routes: one route in the network per Node and pod range. The gateway
// is the private address of the Node's server.
//
// A route belongs to the cluster if its destination lies inside the pod range of the cluster
// (--cluster-cidr) and is smaller than it. Any other route is foreign and is not listed, so that the
// route controller cannot delete it. (The controller's own check would also delete a wider foreign
// route that starts or ends in the pod range.)
//
// A route of the cluster is stale if its gateway is not the address of a server. The server of the Node with
// its pod range is asked for by ID, because a list proves nothing. A stale route is listed as a black hole: the
// controller deletes it, unless CreateRoute replaces it before.
//
// The API may refuse a change with conflict while the action of another one runs. So the limit is one action per
// network at a time, about one second per route: several requests in flight only cost calls. The order that costs
// least uses that: the next change is sent when the last one has probably ended, and to be accepted is the proof that
// it has. Results are asked for together, one call for up to MaxUnconfirmed changes.
//
// Not supported: IPv6 pod ranges, because Hetzner networks are IPv4 only. CreateRoute ignores them.
type Routes struct {
	client       *hcloud.Client
	waiter       *apicall.Waiter
	servers      *inventory.Servers
	network      *inventory.Network
	evidence     *inventory.Evidence
	own          plan.Ownership
	clusterCIDRs []netip.Prefix
	nodes        corelisters.NodeLister // nil until SetInformers
	state        *apicall.Cache[[]netRoute]
	changing     apicall.KeyLock // held while a change is sent, with the empty key
	Queued       atomic.Int32    // changes that wait for changing
	freeAt       time.Time       // when the action of the last change has probably ended; guarded by changing

	mu          sync.Mutex
	unconfirmed map[netRoute]*routeChange

	// Failed is called when a route could not be created or deleted. The route controller in its
	// watch-based mode does not try again.
	Failed func()
}

// netRoute is a route of a network. The gateway is an address of that network only: a new one of the same name
// may give it to another server.
type netRoute struct {
	NetworkID   int64
	Destination netip.Prefix
	Gateway     netip.Addr
}

// String is also the name by which DeleteRoute finds a route.
func (r netRoute) String() string {
	return fmt.Sprintf("%s via %s in network %d", r.Destination, r.Gateway, r.NetworkID)
}

func (r netRoute) hcloud() hcloud.NetworkRoute {
	return hcloud.NetworkRoute{Destination: plan.IPNet(r.Destination), Gateway: r.Gateway.AsSlice()}
}

var _ cloudprovider.Routes = (*Routes)(nil)

// New returns the routes in the network. failed is called when a change has failed.
func New(waiter *apicall.Waiter, servers *inventory.Servers, network *inventory.Network, e *inventory.Evidence,
	own plan.Ownership, clusterCIDRs []netip.Prefix, failed func()) *Routes {
	r := &Routes{
		client: waiter.Client, waiter: waiter, servers: servers, network: network, evidence: e, own: own,
		clusterCIDRs: clusterCIDRs, unconfirmed: map[netRoute]*routeChange{}, Failed: failed,
	}
	r.state = apicall.NewCache(waiter.Clock, maxRouteAge, r.readNetwork)
	return r
}

// UseNodes sets the lister of Nodes, before the first question about a route.
func (r *Routes) UseNodes(nodes corelisters.NodeLister) { r.nodes = nodes }

// readNetwork fetches the routes of the network for the cache.
func (r *Routes) readNetwork(ctx context.Context) ([]netRoute, error) {
	network, err := r.getNetwork(ctx)
	if errors.Is(err, errNetworkGone) {
		r.network.Forget() // another network may have its name now
		network, err = r.getNetwork(ctx)
	}
	if err != nil {
		return nil, err
	}
	var all []netRoute
	for _, nr := range network.Routes {
		gateway, ok := netip.AddrFromSlice(nr.Gateway)
		destination, err := netip.ParsePrefix(nr.Destination.String())
		if ok && err == nil {
			all = append(all, netRoute{network.ID, destination.Masked(), gateway.Unmap()})
		}
	}
	return all, nil
}

func (r *Routes) getNetwork(ctx context.Context) (*hcloud.Network, error) {
	id, err := r.network.ID(ctx)
	if err != nil {
		return nil, err
	}
	network, _, err := r.client.Network.GetByID(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("getting network %d: %w", id, err)
	}
	if network == nil {
		return nil, fmt.Errorf("getting network %d (HCLOUD_NETWORK=%q): %w", id, r.network.IDOrName, errNetworkGone)
	}
	if network.ID != id {
		return nil, fmt.Errorf("getting network %d: the answer is about network %d; check HCLOUD_ENDPOINT", id, network.ID)
	}
	return network, nil
}

// errNetworkGone reports that the API does not know the ID of a network any more.
var errNetworkGone = errors.New("it does not exist any more")

// ListRoutes implements cloudprovider.Routes.
func (r *Routes) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	ctx = apicall.Urgently(ctx, apicall.ControllerRoute, "list")
	if err := r.evidence.Project(ctx); err != nil {
		return nil, err
	}
	r.state.Forget()
	all, err := r.state.Get(ctx)
	if err != nil {
		return nil, err
	}
	foreign := r.foreignRanges()
	all = slices.DeleteFunc(slices.Clone(all), func(nr netRoute) bool {
		return !isClusterRoute(nr.Destination, r.clusterCIDRs) || slices.Contains(foreign, nr.Destination.String())
	})
	gateways, err := r.gateways(ctx)
	if err != nil {
		return nil, err
	}
	if slices.ContainsFunc(all, func(nr netRoute) bool { return gateways[nr.Gateway] == nil }) {
		// The cached data may be older than the server: fetch all before a route counts as stale.
		if err := r.servers.Refresh(ctx); err != nil {
			return nil, err
		}
		if gateways, err = r.gateways(ctx); err != nil {
			return nil, err
		}
	}
	var managed []*cloudprovider.Route
	byServer := r.nodesByServer()
	for _, route := range all {
		gateway := gateways[route.Gateway]
		if gateway == nil {
			if gateway, err = r.unlisted(ctx, route, byServer); err != nil {
				klog.V(2).InfoS("Kept a route whose gateway may exist", "route", route, "evidence", err)
				continue // not listed, so that it is not deleted
			}
		}
		if r.isElsewhere(gateway) {
			continue
		}
		nodes := nodesOf(gateway, byServer)
		managed = append(managed, &cloudprovider.Route{
			Name:            route.String(),
			TargetNode:      nodeOf(route.Destination, nodes),
			DestinationCIDR: route.Destination.String(),
			Blackhole:       len(nodes) == 0,
		})
	}
	return managed, nil
}

// unlisted returns the gateway of a route that no list shows, if it is the server of the Node with that pod range. It returns an
// error while it is not certain that this server is gone.
func (r *Routes) unlisted(ctx context.Context, route netRoute, byServer map[int64][]*corev1.Node) (*hcloud.Server, error) {
	podRange := route.Destination.String()
	for id, nodes := range byServer {
		if !slices.ContainsFunc(nodes, func(n *corev1.Node) bool { return slices.Contains(n.Spec.PodCIDRs, podRange) }) {
			continue
		}
		server, err := r.servers.ByID(ctx, inventory.Ask{ID: id})
		if err != nil || server != nil && nodeinfo.PrivateIP(server, route.NetworkID) == route.Gateway {
			return server, err
		}
	}
	return nil, nil
}

// isElsewhere reports whether a gateway is a server of another cluster. Routes have no labels, so an operator must set
// plan.LabelCluster on the server.
func (r *Routes) isElsewhere(gateway *hcloud.Server) bool {
	return gateway != nil && !r.own.IsHere(gateway.Labels)
}

// isClusterRoute reports whether a route to destination belongs to the cluster.
func isClusterRoute(destination netip.Prefix, clusterCIDRs []netip.Prefix) bool {
	return slices.ContainsFunc(clusterCIDRs, func(c netip.Prefix) bool {
		return c.Contains(destination.Addr()) && destination.Bits() > c.Bits()
	})
}

// foreignRanges returns the pod ranges of Nodes that belong to another provider, such as a dedicated
// server behind a vSwitch. That provider creates their routes.
func (r *Routes) foreignRanges() []string {
	var ranges []string
	for _, n := range nodeinfo.List(r.nodes) {
		if nodeinfo.IsForeign(n) {
			ranges = append(ranges, n.Spec.PodCIDRs...)
		}
	}
	return ranges
}

// nodeOf returns the Node of a route, one of those with the route's gateway. A server
// has two Nodes after its machine registered again under another name. The route then belongs to
// the Node with that pod range, or else to the first one.
func nodeOf(destination netip.Prefix, nodes []*corev1.Node) types.NodeName {
	if len(nodes) == 0 {
		return ""
	}
	i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return slices.Contains(n.Spec.PodCIDRs, destination.String()) })
	return types.NodeName(nodes[max(i, 0)].Name)
}

// gateways returns the servers in the network by their private addresses.
func (r *Routes) gateways(ctx context.Context) (map[netip.Addr]*hcloud.Server, error) {
	networkID, err := r.network.ID(ctx)
	if err != nil {
		return nil, err
	}
	servers, err := r.servers.All(ctx, inventory.CalmServerAge)
	if err != nil {
		return nil, err
	}
	result := map[netip.Addr]*hcloud.Server{}
	for _, s := range servers {
		if ip := nodeinfo.PrivateIP(s, networkID); ip.IsValid() {
			result[ip] = s
		}
	}
	return result, nil
}

// nodesOf returns the Nodes of a gateway, none if it is nil. Without a Node with the server's provider ID, the server's
// name counts as the name of its Node.
func nodesOf(gateway *hcloud.Server, byServer map[int64][]*corev1.Node) []*corev1.Node {
	if gateway == nil {
		return nil
	}
	if nodes := byServer[gateway.ID]; len(nodes) > 0 {
		return nodes
	}
	return []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: gateway.Name}}}
}

// nodesByServer returns the known Nodes by the ID of their server, each list in the order of names.
func (r *Routes) nodesByServer() map[int64][]*corev1.Node {
	result := map[int64][]*corev1.Node{}
	for id, n := range nodeinfo.ByServer(r.nodes) {
		result[id] = append(result[id], n)
	}
	for _, nodes := range result {
		slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	}
	return result
}

// CreateRoute implements cloudprovider.Routes. It is idempotent: it keeps an existing route and
// replaces one with another gateway.
func (r *Routes) CreateRoute(ctx context.Context, _, _ string, route *cloudprovider.Route) error {
	ctx = apicall.Urgently(ctx, apicall.ControllerRoute, "create")
	destination, err := netip.ParsePrefix(route.DestinationCIDR)
	if err != nil {
		return fmt.Errorf("creating the route to %q: %w", route.DestinationCIDR, err)
	}
	if destination.Addr().Is6() {
		klog.V(2).InfoS("Skipped the route to an IPv6 range: Hetzner networks are IPv4 only", "node", route.TargetNode, "range",
			destination)
		return nil
	}
	if slices.Contains(r.foreignRanges(), route.DestinationCIDR) {
		klog.V(2).InfoS("Skipped the route to a node of another provider", "node", route.TargetNode, "range", destination)
		return nil
	}
	if err := r.create(ctx, route.TargetNode, destination.Masked()); err != nil {
		r.Failed()
		return fmt.Errorf("%s", apicall.StableText(err))
	}
	return nil
}

func (r *Routes) create(ctx context.Context, node types.NodeName, destination netip.Prefix) error {
	if err := r.evidence.Project(ctx); err != nil {
		return err
	}
	all, err := r.state.Get(ctx)
	if err != nil {
		return err
	}
	if want, err := r.routeTo(ctx, node, destination, inventory.CalmServerAge); err == nil && slices.Contains(all, want) &&
		r.changeTo(destination) == nil {
		return nil
	}
	want, err := r.routeTo(ctx, node, destination, 0)
	if err != nil {
		return err
	}
	unlock, err := r.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if before := r.changeTo(destination); before != nil {
		unlock()
		if err := before.wait(ctx); err != nil || before.route == want && before.add {
			return err
		}
		return r.create(ctx, node, destination)
	}
	if all, err = r.state.Get(ctx); err != nil || slices.Contains(all, want) {
		return err
	}
	for _, stale := range all {
		if stale.NetworkID != want.NetworkID || stale.Destination != destination {
			continue
		}
		gateways, err := r.gateways(ctx)
		if err != nil || r.isElsewhere(gateways[stale.Gateway]) {
			return cmp.Or(err, fmt.Errorf("the route %v belongs to a server of another cluster (label %s): give the two clusters "+
				"different pod ranges or networks", stale, plan.LabelCluster))
		}
		holders := nodesOf(gateways[stale.Gateway], r.nodesByServer())
		if i := slices.IndexFunc(holders, func(n *corev1.Node) bool {
			return n.Name != string(node) && slices.Contains(n.Spec.PodCIDRs, destination.String())
		}); i >= 0 {
			return fmt.Errorf("the pod range %v is also that of node %q, which has the route: give each node a range of its own",
				destination, holders[i].Name)
		}
		klog.InfoS("Replacing a route because its gateway is not the node's address", "node", node, "route", stale, "gateway", want.Gateway)
		if err := r.change(ctx, unlock, stale, false); err != nil {
			return err
		}
		return r.create(ctx, node, destination)
	}
	return r.change(ctx, unlock, want, true)
}

// routeTo returns the route to a pod range of a Node. The private address of the Node's server is its gateway.
func (r *Routes) routeTo(ctx context.Context, name types.NodeName, destination netip.Prefix, maxAge time.Duration) (netRoute, error) {
	networkID, err := r.network.ID(ctx)
	if err != nil {
		return netRoute{}, err
	}
	var server *hcloud.Server
	if id := r.providerIDOf(name); id != "" {
		serverID, err := nodeinfo.ParseProviderID(id)
		if err != nil {
			return netRoute{}, fmt.Errorf("node %q: %w", name, err)
		}
		server, err = r.servers.ByID(ctx, inventory.Ask{ID: serverID, MaxAge: maxAge})
		if err != nil {
			return netRoute{}, err
		}
	} else if server, err = r.servers.ByName(ctx, inventory.Ask{Name: string(name)}); err != nil {
		return netRoute{}, err
	}
	if server == nil {
		return netRoute{}, fmt.Errorf("node %q has no server: %w", name, cloudprovider.InstanceNotFound)
	}
	ip := nodeinfo.PrivateIP(server, networkID)
	if !ip.IsValid() {
		r.servers.ForgetOne(server.ID) // it may have been attached just now
		return netRoute{}, fmt.Errorf("server %d (%s) is not attached to network %d (HCLOUD_NETWORK=%q), so it cannot be the gateway of "+
			"a route: attach it", server.ID, server.Name, networkID, r.network.IDOrName)
	}
	return netRoute{networkID, destination, ip}, nil
}

func (r *Routes) providerIDOf(name types.NodeName) string {
	if r.nodes == nil {
		return ""
	}
	node, err := r.nodes.Get(string(name))
	if err != nil {
		return ""
	}
	return node.Spec.ProviderID
}

// DeleteRoute implements cloudprovider.Routes. It deletes exactly the route that ListRoutes returned,
// with the same destination and gateway in the same network. If that route is gone or was replaced, it does nothing.
func (r *Routes) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	ctx = apicall.Urgently(ctx, apicall.ControllerRoute, "delete")
	if err := r.evidence.Project(ctx); err != nil {
		return err
	}
	unlock, err := r.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := r.state.Get(ctx)
	if err != nil {
		r.Failed()
		return err
	}
	i := slices.IndexFunc(all, func(nr netRoute) bool { return nr.String() == route.Name })
	if i < 0 {
		return nil
	}
	if before := r.changeTo(all[i].Destination); before != nil {
		unlock()
		return before.wait(ctx)
	}
	if err := r.change(ctx, unlock, all[i], false); err != nil {
		r.Failed()
		return fmt.Errorf("%s", apicall.StableText(err))
	}
	return nil
}
