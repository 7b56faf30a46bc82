// Package provider connects the controllers of k8s.io/cloud-provider with the example cloud. A file for each: client.go speaks the
// cloud's API, nodes.go serves the node and the node lifecycle controller, services.go the service controller, routes.go the route
// controller. This file is the boilerplate.
package provider

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"
)

// Name is the value of --cloud-provider, and begins provider IDs.
const Name = "example"

// Cloud is what the controllers ask for their interfaces.
type Cloud struct {
	client *Client
	// nodes are those of the cluster. synced reports whether all of them were read.
	nodes  listers.NodeLister
	synced cache.InformerSynced
}

var (
	_ cloudprovider.Interface    = (*Cloud)(nil)
	_ cloudprovider.InformerUser = (*Cloud)(nil)
)

// New returns the provider. It sends no request: the CCM can start while the cloud cannot be reached.
func New(client *Client) *Cloud {
	return &Cloud{client: client, synced: func() bool { return false }}
}

// Initialize implements cloudprovider.Interface. Your own loops would start here, when this process becomes the leader.
func (c *Cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

// SetInformers implements cloudprovider.InformerUser.
func (c *Cloud) SetInformers(factory informers.SharedInformerFactory) {
	nodes := factory.Core().V1().Nodes()
	c.nodes, c.synced = nodes.Lister(), nodes.Informer().HasSynced
}

// InstancesV2 implements cloudprovider.Interface. While you write your CCM, begin with false everywhere, and one true after the other.
func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return instances{c}, true }

// LoadBalancer implements cloudprovider.Interface.
func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return loadBalancers{c}, true }

// Routes implements cloudprovider.Interface. Most clusters need no routes; say false then.
func (c *Cloud) Routes() (cloudprovider.Routes, bool) { return routes{c}, true }

// Instances implements cloudprovider.Interface. InstancesV2 replaces it.
func (c *Cloud) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones implements cloudprovider.Interface. InstancesV2 replaces it.
func (c *Cloud) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters implements cloudprovider.Interface. It is not supported.
func (c *Cloud) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// ProviderName implements cloudprovider.Interface.
func (c *Cloud) ProviderName() string { return Name }

// HasClusterID implements cloudprovider.Interface. The program ends if it is false, unless a flag is set.
func (c *Cloud) HasClusterID() bool { return true }

// MakeProviderID returns the provider ID of an instance: example://<zone>/<ID>. Kubernetes never allows a change of it, so choose the form
// once, and of parts that never change.
func MakeProviderID(zone, id string) string { return Name + "://" + zone + "/" + id }

// ParseProviderID returns the instance's ID in the provider ID of a node of ours.
func ParseProviderID(node *corev1.Node) (id string, err error) {
	if node.Spec.ProviderID == "" {
		return "", fmt.Errorf("the node %s has no provider ID yet: it gets one when it is initialised", node.Name)
	}
	if place, ours := strings.CutPrefix(node.Spec.ProviderID, Name+"://"); ours {
		if zone, id, ok := strings.Cut(place, "/"); ok && zone != "" && id != "" && !strings.Contains(id, "/") {
			return id, nil
		}
	}
	return "", fmt.Errorf("the node %s has the provider ID %q, which is not of the form %s: this CCM leaves the node alone",
		node.Name, node.Spec.ProviderID, MakeProviderID("<zone>", "<ID>"))
}
