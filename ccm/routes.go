package ccm

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"
)

// routesTTL lets one read of the network serve a burst of CreateRoute calls.
const routesTTL = 5 * time.Second

// routes implements cloudprovider.Routes: one route in the network per Node and pod range, by way
// of the server's private address.
//
// A route belongs to the cluster if its destination lies inside the cluster's pod range
// (--cluster-cidr) and is smaller than it: that range is the cluster's to divide. Any other route
// is foreign; it is not even listed, so that the route controller, which deletes what it does not
// want, cannot touch it. (The controller's own test is looser: it would also delete a foreign
// route whose destination begins or ends in the pod range but is wider.)
//
// A cluster's route whose gateway is no server's address is stale; it is listed as a black hole,
// which the controller deletes, unless CreateRoute has replaced it before. Changes of the network
// are sent one at a time, because the API refuses concurrent ones with conflict.
//
// Left out: IPv6 pod ranges. Hetzner networks are IPv4 only, so such a range needs no route here
// and creating one does nothing.
type routes struct {
	client       *hcloud.Client
	waiter       *actionWaiter
	servers      *serverCache
	network      *networkResolver
	clusterCIDRs []netip.Prefix
	nodes        corelisters.NodeLister // nil until informers are there
	state        *ttlCache[[]netRoute]
	changing     chan struct{} // held while the network is changed
	// failed is called when a route could not be made or removed: the route controller does not
	// try again by itself in its watch-based mode.
	failed func()
}

// netRoute is a route of the network.
type netRoute struct {
	Destination netip.Prefix
	Gateway     netip.Addr
}

func (r netRoute) String() string { return fmt.Sprintf("%s via %s", r.Destination, r.Gateway) }

func (r netRoute) hcloud() hcloud.NetworkRoute {
	return hcloud.NetworkRoute{Destination: ipNet(r.Destination), Gateway: r.Gateway.AsSlice()}
}

var _ cloudprovider.Routes = (*routes)(nil)

// readNetwork feeds the cache.
func (r *routes) readNetwork(ctx context.Context) ([]netRoute, error) {
	id, err := r.network.ID(ctx)
	if err != nil {
		return nil, err
	}
	network, _, err := r.client.Network.GetByID(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("getting network %d: %w", id, err)
	}
	if network == nil {
		return nil, fmt.Errorf("network %d (HCLOUD_NETWORK=%q) does not exist any more", id, r.network.idOrName)
	}
	if network.ID != id {
		return nil, fmt.Errorf("getting network %d: the answer is about network %d; is HCLOUD_ENDPOINT the API's?", id, network.ID)
	}
	var all []netRoute
	for _, nr := range network.Routes {
		gateway, ok := netip.AddrFromSlice(nr.Gateway)
		destination, ok2 := prefixOf(nr)
		if ok && ok2 {
			all = append(all, netRoute{destination, gateway.Unmap()})
		}
	}
	return all, nil
}

func prefixOf(nr hcloud.NetworkRoute) (netip.Prefix, bool) {
	if nr.Destination == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(nr.Destination.IP)
	ones, _ := nr.Destination.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), ones).Masked(), ok
}

// ListRoutes implements cloudprovider.Routes.
func (r *routes) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	r.state.forget()
	all, err := r.state.get(ctx)
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
	if slices.ContainsFunc(all, func(nr netRoute) bool { return gateways[nr.Gateway] == "" }) {
		// The list of servers may be older than the server: nothing is called stale on its word.
		r.servers.Forget()
		if gateways, err = r.gateways(ctx); err != nil {
			return nil, err
		}
	}
	var managed []*cloudprovider.Route
	for _, route := range all {
		node, known := gateways[route.Gateway]
		managed = append(managed, &cloudprovider.Route{
			Name:            routeName(route),
			TargetNode:      node,
			DestinationCIDR: route.Destination.String(),
			Blackhole:       !known,
		})
	}
	return managed, nil
}

// isClusterRoute reports whether a route to destination is the cluster's.
func isClusterRoute(destination netip.Prefix, clusterCIDRs []netip.Prefix) bool {
	return slices.ContainsFunc(clusterCIDRs, func(c netip.Prefix) bool {
		return c.Contains(destination.Addr()) && destination.Bits() > c.Bits()
	})
}

// foreignRanges returns the pod ranges of Nodes that belong to another provider (a dedicated server
// behind a vSwitch, say). Whoever brought such a Node makes its routes.
func (r *routes) foreignRanges() []string {
	var ranges []string
	for _, n := range listNodes(r.nodes) {
		if isForeign(n) {
			ranges = append(ranges, n.Spec.PodCIDRs...)
		}
	}
	return ranges
}

// routeName identifies a route for DeleteRoute: destination and gateway.
func routeName(r netRoute) string { return r.String() }

// gateways maps each server's private address to the name of its Node: the one with the server's
// provider ID, else the server's name.
func (r *routes) gateways(ctx context.Context) (map[netip.Addr]types.NodeName, error) {
	networkID, err := r.network.ID(ctx)
	if err != nil {
		return nil, err
	}
	servers, err := r.servers.All(ctx)
	if err != nil {
		return nil, err
	}
	nodeOf := r.nodeNames()
	result := map[netip.Addr]types.NodeName{}
	for _, s := range servers {
		ip := privateIP(s, networkID)
		if !ip.IsValid() {
			continue
		}
		name, ok := nodeOf[providerID(s.ID)]
		if !ok {
			name = types.NodeName(s.Name)
		}
		result[ip] = name
	}
	return result, nil
}

// nodeNames maps provider IDs to the names of Nodes, as far as Nodes are known.
func (r *routes) nodeNames() map[string]types.NodeName {
	result := map[string]types.NodeName{}
	for _, n := range listNodes(r.nodes) {
		if n.Spec.ProviderID != "" {
			result[n.Spec.ProviderID] = types.NodeName(n.Name)
		}
	}
	return result
}

// CreateRoute implements cloudprovider.Routes. It is idempotent: a route that is there is left
// alone, one with another gateway is replaced.
func (r *routes) CreateRoute(ctx context.Context, _, _ string, route *cloudprovider.Route) error {
	destination, err := netip.ParsePrefix(route.DestinationCIDR)
	if err != nil {
		return fmt.Errorf("route to %q: %w", route.DestinationCIDR, err)
	}
	if destination.Addr().Is6() {
		klog.V(2).InfoS("No route for an IPv6 range: Hetzner networks are IPv4 only", "node", route.TargetNode, "range", destination)
		return nil
	}
	if slices.Contains(r.foreignRanges(), route.DestinationCIDR) {
		klog.V(2).InfoS("No route for a node of another provider", "node", route.TargetNode, "range", destination)
		return nil
	}
	if err := r.create(ctx, route.TargetNode, destination.Masked()); err != nil {
		r.failed()
		return fmt.Errorf("%s", stableError(err))
	}
	return nil
}

func (r *routes) create(ctx context.Context, node types.NodeName, destination netip.Prefix) error {
	gateway, err := r.gatewayOf(ctx, node)
	if err != nil {
		return err
	}
	want := netRoute{destination, gateway}
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	all, err := r.state.get(ctx)
	if err != nil {
		return err
	}
	if slices.Contains(all, want) {
		return nil
	}
	for _, stale := range all {
		if stale.Destination != destination {
			continue
		}
		klog.InfoS("Replacing a route whose gateway is not its node's address", "node", node, "route", stale, "gateway", gateway)
		if err := r.change(ctx, stale, false); err != nil {
			return err
		}
	}
	return r.change(ctx, want, true)
}

// gatewayOf returns the private address of the Node's server.
func (r *routes) gatewayOf(ctx context.Context, name types.NodeName) (netip.Addr, error) {
	networkID, err := r.network.ID(ctx)
	if err != nil {
		return netip.Addr{}, err
	}
	var server *hcloud.Server
	if id := r.providerIDOf(name); id != "" {
		serverID, err := parseProviderID(id)
		if err != nil {
			return netip.Addr{}, fmt.Errorf("node %q: %w", name, err)
		}
		server, err = r.servers.ByID(ctx, serverID)
		if err != nil {
			return netip.Addr{}, err
		}
	} else if server, err = r.servers.ByName(ctx, string(name)); err != nil {
		return netip.Addr{}, err
	}
	if server == nil {
		return netip.Addr{}, fmt.Errorf("node %q has no server: %w", name, cloudprovider.InstanceNotFound)
	}
	ip := privateIP(server, networkID)
	if !ip.IsValid() {
		r.servers.Forget() // it may just have been attached
		return netip.Addr{}, fmt.Errorf("server %d (%s) is not attached to network %d (HCLOUD_NETWORK=%q), so it cannot be the gateway of a route", server.ID, server.Name, networkID, r.network.idOrName)
	}
	return ip, nil
}

func (r *routes) providerIDOf(name types.NodeName) string {
	if r.nodes == nil {
		return ""
	}
	node, err := r.nodes.Get(string(name))
	if err != nil {
		return ""
	}
	return node.Spec.ProviderID
}

// DeleteRoute implements cloudprovider.Routes. It deletes exactly the route that ListRoutes gave
// out, destination and gateway; if that is gone or has been replaced meanwhile there is nothing to
// do.
func (r *routes) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	all, err := r.state.get(ctx)
	if err != nil {
		r.failed()
		return err
	}
	i := slices.IndexFunc(all, func(nr netRoute) bool { return routeName(nr) == route.Name })
	if i < 0 {
		return nil
	}
	if err := r.change(ctx, all[i], false); err != nil {
		r.failed()
		return fmt.Errorf("%s", stableError(err))
	}
	return nil
}

// change adds or deletes one route and waits until it is done. The caller holds the lock. If the
// request's fate is unknown, or the API refuses it because it is done already, what counts is what
// the network says.
func (r *routes) change(ctx context.Context, route netRoute, add bool) error {
	id, err := r.network.ID(ctx)
	if err != nil {
		return err
	}
	network := &hcloud.Network{ID: id}
	var action *hcloud.Action
	verb := "deleting"
	if add {
		verb = "adding"
		action, _, err = r.client.Network.AddRoute(ctx, network, hcloud.NetworkAddRouteOpts{Route: route.hcloud()})
	} else {
		action, _, err = r.client.Network.DeleteRoute(ctx, network, hcloud.NetworkDeleteRouteOpts{Route: route.hcloud()})
	}
	if err == nil {
		err = r.waiter.wait(ctx, action)
	}
	if err == nil {
		r.state.update(func(all []netRoute) []netRoute {
			if add {
				return append(slices.Clone(all), route)
			}
			return slices.DeleteFunc(slices.Clone(all), func(nr netRoute) bool { return nr == route })
		})
		return nil
	}
	r.state.forget()
	if current, readErr := r.readNetwork(ctx); readErr == nil && slices.Contains(current, route) == add {
		return nil
	}
	return fmt.Errorf("%s the route %v in network %d: %w", verb, route, id, err)
}

func (r *routes) lock(ctx context.Context) error {
	select {
	case r.changing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *routes) unlock() { <-r.changing }
