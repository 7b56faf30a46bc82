package ccm

import (
	"context"
	"fmt"

	cloudprovider "k8s.io/cloud-provider"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/node"
)

// The node controller initialises each new Node: it asks InstanceMetadata for the provider ID, addresses and labels, and
// removes the taint node.cloudprovider.kubernetes.io/uninitialized. It asks again every few minutes.

// newInstances returns the instances, one per server. If the route controller runs, a new Node gets no pods before
// its route exists.
func (c *Cloud) newInstances() *node.Instances {
	show := node.Settings{Family: c.cfg.AddressFamily, ProviderIDs: c.cfg.ProviderIDPrefix, Topology: c.cfg.TopologyLabels,
		NoZone: c.cfg.ZoneLabelDisabled}
	return node.NewInstances(c.servers, c.network, show, c.cfg.NodeLabels, c.cfg.NodeTaints, c.events, c.routesAsked.Load)
}

// InstancesV2 implements cloudprovider.Interface.
func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c.instances, true }

// Instances implements cloudprovider.Interface. InstancesV2 replaces it.
func (c *Cloud) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones implements cloudprovider.Interface. InstancesV2 replaces it.
func (c *Cloud) Zones() (cloudprovider.Zones, bool) { return nil, false }

// checkAttached returns an error if the server of this node is not attached to the network. The node
// must have the name of its server; otherwise there is nothing to check.
func (c *Cloud) checkAttached(ctx context.Context, networkID int64) error {
	server, err := c.instances.Detached(ctx, c.cfg.NodeName, networkID)
	if err != nil || server == nil {
		return err
	}
	return fmt.Errorf("server %d (%s), on which this program runs, is not attached to network %d (HCLOUD_NETWORK=%q): attach it, or set "+
		"HCLOUD_NETWORK to its network; "+
		"HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK=true switches this check off", server.ID, server.Name, networkID, c.cfg.Network)
}
