package provider

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// instances serves two controllers. The node controller asks InstanceMetadata for each new Node, and removes the taint "uninitialized".
// The node lifecycle controller asks about each Node that is not ready: if InstanceExists says false, the Node is deleted, with its pods.
type instances struct{ *Cloud }

// InstanceMetadata implements cloudprovider.InstancesV2.
func (c instances) InstanceMetadata(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	i, err := c.find(ctx, node)
	if err != nil {
		return nil, err
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID: MakeProviderID(i.Zone, i.ID), InstanceType: i.Size, Zone: i.Zone, Region: i.Region,
		NodeAddresses: []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: i.Name},
			{Type: corev1.NodeInternalIP, Address: i.PrivateIP},
			{Type: corev1.NodeExternalIP, Address: i.PublicIP},
		},
	}, nil
}

// InstanceExists implements cloudprovider.InstancesV2. It returns false only with a proof, and an error in all other doubt. A Node
// without a provider ID was perhaps never an instance, so that its absence proves nothing.
func (c instances) InstanceExists(ctx context.Context, node *corev1.Node) (bool, error) {
	_, err := c.find(ctx, node)
	if errors.Is(err, cloudprovider.InstanceNotFound) && node.Spec.ProviderID != "" {
		return false, nil
	}
	return err == nil, err
}

// InstanceShutdown implements cloudprovider.InstancesV2.
func (c instances) InstanceShutdown(ctx context.Context, node *corev1.Node) (bool, error) {
	i, err := c.find(ctx, node)
	if err != nil {
		return false, err
	}
	return i.State == "stopped", nil
}

// find returns the instance of a Node: that of its provider ID, or of its name while it has none. A name may be given to another
// instance, an ID never. The error has cloudprovider.InstanceNotFound if it is proven that none exists.
func (c instances) find(ctx context.Context, node *corev1.Node) (*Instance, error) {
	if node.Spec.ProviderID != "" {
		id, err := ParseProviderID(node)
		if err != nil {
			return nil, err
		}
		i, err := c.client.Instance(ctx, id)
		if err == nil && i == nil {
			err = cloudprovider.InstanceNotFound
		}
		if err != nil {
			return nil, fmt.Errorf("cannot get the instance %s of the node %s: %w", id, node.Name, err)
		}
		return i, nil
	}
	all, err := c.client.Instances(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot look for the instance of the node %s: %w", node.Name, err)
	}
	for _, i := range all {
		if i.Name == node.Name {
			return &i, nil
		}
	}
	return nil, fmt.Errorf("the node %s: none of %d instances has its name: create it, or delete the node: %w",
		node.Name, len(all), cloudprovider.InstanceNotFound)
}
