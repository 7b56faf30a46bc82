package ccm

import (
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/resync"
)

var _ cloudprovider.InformerUser = (*Cloud)(nil)

// SetInformers implements cloudprovider.InformerUser. The controller manager calls it after
// Initialize, before it starts controllers and informers. The controllers act on events of Kubernetes only; the comparison
// that starts here repairs what changes outside of it.
func (c *Cloud) SetInformers(factory informers.SharedInformerFactory) {
	nodes := factory.Core().V1().Nodes()
	services := factory.Core().V1().Services()
	synced := []cache.InformerSynced{nodes.Informer().HasSynced, services.Informer().HasSynced}
	c.evidence.SetListers(nodes.Lister(), services.Lister())
	if c.routes != nil {
		c.routes.UseNodes(nodes.Lister())
	}
	r := resync.New(c.clock, &c.unrest, c.kube, c.loadBalancers, c.routes, nodes.Lister(), services.Lister(), c.events, c.routesAsked.Load,
		c.retryRoutes)
	r.Interval, r.MaxInterval = c.cfg.ResyncInterval, c.cfg.ResyncMaxInterval
	r.Watch(nodes.Informer())
	go func() {
		if cache.WaitForCacheSync(c.stop.Done(), synced...) {
			r.Run(c.stop)
		}
	}()
}
