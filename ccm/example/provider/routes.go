package provider

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	cloudprovider "k8s.io/cloud-provider"
)

// routes serves the route controller. It wants a route from the pod range of each Node to its instance: it lists the routes, compares
// them with the Nodes, creates those that lack and deletes the others.
type routes struct{ *Cloud }

// ListRoutes implements cloudprovider.Routes. The controller deletes those in the cluster's pod range that belong to no Node, and leaves
// all others alone.
func (c routes) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	nodes, err := c.nodeNames() // first: an empty list would make all routes black holes
	if err != nil {
		return nil, err
	}
	all, err := c.client.Routes(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot list the routes: %w", err)
	}
	var out []*cloudprovider.Route
	for _, r := range all {
		name, known := nodes[r.Instance]
		// The name has what DeleteRoute needs: the route may lead elsewhere by then.
		out = append(out, &cloudprovider.Route{Name: r.Instance, TargetNode: name, DestinationCIDR: r.Prefix, Blackhole: !known})
	}
	return out, nil
}

// CreateRoute implements cloudprovider.Routes. It replaces a route of the same range.
func (c routes) CreateRoute(ctx context.Context, _, _ string, r *cloudprovider.Route) error {
	prefix, err := netip.ParsePrefix(r.DestinationCIDR)
	if err != nil {
		return fmt.Errorf("cannot create the route of the node %s: %w", r.TargetNode, err)
	}
	node, err := c.nodes.Get(string(r.TargetNode))
	if err != nil {
		return fmt.Errorf("cannot create the route of the node %s: %w", r.TargetNode, err)
	}
	id, err := ParseProviderID(node)
	if err != nil {
		return fmt.Errorf("cannot create the route of the node %s: %w", r.TargetNode, err)
	}
	if err := c.client.SetRoute(ctx, prefix, id); err != nil {
		return fmt.Errorf("cannot create the route of the node %s: %w", r.TargetNode, err)
	}
	return nil
}

// DeleteRoute implements cloudprovider.Routes. It deletes exactly what was listed: the controller creates and deletes at the same time.
func (c routes) DeleteRoute(ctx context.Context, _ string, r *cloudprovider.Route) error {
	prefix, err := netip.ParsePrefix(r.DestinationCIDR)
	if err == nil {
		err = c.client.DeleteRoute(ctx, prefix, r.Name)
	}
	if err != nil {
		return fmt.Errorf("cannot delete the route from %s to the instance %s: %w", r.DestinationCIDR, r.Name, err)
	}
	return nil
}

// nodeNames returns the names of the Nodes by the IDs of their instances.
func (c routes) nodeNames() (map[string]types.NodeName, error) {
	if !c.synced() {
		return nil, errors.New("cannot list the routes: the nodes of the cluster are not known yet")
	}
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("cannot list the nodes of the cluster: %w", err)
	}
	byID := map[string]types.NodeName{}
	for _, node := range nodes {
		if id, err := ParseProviderID(node); err == nil {
			byID[id] = types.NodeName(node.Name)
		}
	}
	return byID, nil
}
