package ccm

import (
	"context"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/ccmtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/resync"
)

// This file exports internals for the external tests.

// NewAutoClock returns a clock on which each wait of the provider ends at once.
func NewAutoClock() *ccmtest.AutoClock { return ccmtest.NewAutoClock() }

// WithoutJitter makes backoff predictable.
func WithoutJitter() Option { return WithJitter(func() float64 { return 1 }) }

// The labels and annotations that tests check.
const (
	AnnotationPrefix = plan.AnnotationPrefix
	LabelServiceUID  = plan.LabelServiceUID
)

// RecordedPorts returns the ports that the load balancer's labels record for its owner.
func RecordedPorts(lb *hcloud.LoadBalancer) []int { return plan.RecordOf(lb).Ports }

// IsHealthy reports whether a target is healthy on all ports.
func IsHealthy(t hcloud.LoadBalancerTarget) bool { return plan.IsHealthy(t) }

// NewResync returns the periodic comparison of a provider, for tests that call it directly.
func NewResync(c *Cloud, kube kubernetes.Interface, nodes corelisters.NodeLister, services corelisters.ServiceLister) *Resync {
	c.routes.UseNodes(nodes)
	c.evidence.SetListers(nodes, services)
	return &Resync{resync.New(c.clock, &c.unrest, kube, c.loadBalancers, c.routes, nodes, services, c.events, func() bool { return true },
		c.retryRoutes)}
}

// UseServices sets the Services that the cluster has.
func UseServices(c *Cloud, services corelisters.ServiceLister) { c.evidence.SetListers(nil, services) }

// Resync exports the two parts of the comparison.
type Resync struct{ *resync.Comparison }

// LoadBalancers compares the load balancers.
func (r *Resync) LoadBalancers(ctx context.Context) { r.SyncLoadBalancers(ctx) }

// Routes compares the routes.
func (r *Resync) Routes(ctx context.Context) bool { return r.SyncRoutes(ctx) }

// SetKube sets the client with which the provider writes the status of Services, as Initialize does.
func SetKube(c *Cloud, kube kubernetes.Interface) { c.loadBalancers.Kube = kube }

// Run compares periodically until ctx ends.
func (r *Resync) Run(ctx context.Context, interval time.Duration) {
	r.Interval = interval
	r.Comparison.Run(ctx)
}

// Unrest counts what makes the next comparison come soon.
func Unrest(c *Cloud) int64 { return c.unrest.Load() }

// RouteFailed reports that a route operation has failed.
func (c *Cloud) RouteFailed() { c.routeFailed() }

// LockRoutes keeps the routes from being changed until unlock is called. queued returns the number of changes that wait.
func LockRoutes(c *Cloud) (queued func() int32, unlock func()) {
	_ = c.routes.Lock(context.Background()) // it ends when it has the lock
	return c.routes.Queued.Load, c.routes.Unlock
}
