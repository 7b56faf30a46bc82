package ccm

import (
	cloudprovider "k8s.io/cloud-provider"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/loadbalancer"
)

// The service controller wants a load balancer for each Service of type LoadBalancer. It selects the Nodes, asks for the load
// balancer when a Service or the selection changes, and writes the address that it gets to the Service's status.

// newLoadBalancers returns the load balancers of Services; nil if the settings disable them.
func (c *Cloud) newLoadBalancers() *loadbalancer.Controller {
	if !c.cfg.LoadBalancersEnabled {
		return nil
	}
	lbs := loadbalancer.New(c.waiter, c.servers, c.network, c.evidence, c.own, c.cfg.LoadBalancerDefaults, c.events)
	c.registry.MustRegister(lbs.OrphansMetric())
	return lbs
}

// LoadBalancer implements cloudprovider.Interface.
func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	if c.loadBalancers == nil {
		return nil, false
	}
	return c.loadBalancers, true
}
