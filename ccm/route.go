package ccm

import (
	cloudprovider "k8s.io/cloud-provider"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/route"
)

// The route controller wants a route from each Node's pod range to its server. It lists the routes, compares them with the Nodes,
// and creates and deletes what differs.

// newRoutes returns the routes of the network; nil without a network, or if the settings disable them.
func (c *Cloud) newRoutes() *route.Routes {
	if !c.cfg.RoutesEnabled || c.cfg.Network == "" {
		return nil
	}
	return route.New(c.waiter, c.servers, c.network, c.evidence, c.own, c.cfg.ClusterCIDRs, c.routeFailed)
}

// Routes implements cloudprovider.Interface. The controller manager asks only if it starts the route controller.
func (c *Cloud) Routes() (cloudprovider.Routes, bool) {
	if c.routes == nil {
		return nil, false
	}
	c.routesAsked.Store(true)
	return c.routes, true
}

// routeFailed has the comparison try again: the route controller does not.
func (c *Cloud) routeFailed() {
	select {
	case c.retryRoutes <- struct{}{}:
	default: // a retry is scheduled already
	}
}
