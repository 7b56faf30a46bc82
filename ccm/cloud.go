package ccm

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/inventory"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/loadbalancer"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/node"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/resync"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/route"
)

// Cloud is the cloud provider: cloudprovider.Interface with InstancesV2, LoadBalancer and Routes.
type Cloud struct {
	cfg      Config
	clock    clock.WithTicker
	client   *hcloud.Client
	registry *prometheus.Registry
	network  *inventory.Network

	instances     *node.Instances
	loadBalancers *loadbalancer.Controller
	routes        *route.Routes
	events        *event.Recorder
	evidence      *inventory.Evidence
	kube          kubernetes.Interface

	election     *apicall.LeaderFence                // nil: no leader election
	fence        atomic.Pointer[apicall.LeaderFence] // nil: no leader election, or not won yet
	stop         context.Context                     // ends when the process must stop
	routesAsked  atomic.Bool                         // the route controller runs
	retryRoutes  chan struct{}
	unrest       atomic.Int64 // see resync
	roundTripper http.RoundTripper
	jitter       func() float64
}

var (
	_ cloudprovider.Interface    = (*Cloud)(nil)
	_ cloudprovider.InformerUser = (*Cloud)(nil)
)

// Option changes how New builds a Cloud.
type Option func(*Cloud)

// WithClock makes all timers and caches of the provider use c. The default is the wall clock.
func WithClock(c clock.WithTicker) Option { return func(cloud *Cloud) { cloud.clock = c } }

// WithRoundTripper makes the API client send its requests through rt. rt sees each attempt,
// including retries. The default is http.DefaultTransport.
func WithRoundTripper(rt http.RoundTripper) Option {
	return func(cloud *Cloud) { cloud.roundTripper = rt }
}

// WithEventRecorder sends events to r, also before Initialize.
func WithEventRecorder(r record.EventRecorder) Option {
	return func(cloud *Cloud) { cloud.events.Sink = r }
}

// WithJitter replaces the random factor, around 1, by which the delays between retries vary.
func WithJitter(j func() float64) Option { return func(cloud *Cloud) { cloud.jitter = j } }

// New returns the provider. It makes no API call: the CCM can start before the cloud is reachable.
func New(cfg Config, options ...Option) *Cloud {
	c := &Cloud{
		cfg:          cfg,
		clock:        clock.RealClock{},
		registry:     prometheus.NewRegistry(),
		events:       event.NewRecorder(),
		stop:         context.Background(),
		retryRoutes:  make(chan struct{}, 1),
		roundTripper: http.DefaultTransport,
		jitter:       apicall.DefaultJitter,
	}
	for _, o := range options {
		o(c)
	}
	c.events.Clock = c.clock
	token := apicall.NewTokenSource(cfg.Token, cfg.TokenFile)
	c.client = apicall.NewClient(cfg.client(), token, c.clock, c.registry, c.roundTripper, c.jitter, c.mayWrite)
	c.network = inventory.NewNetwork(c.client, c.clock, cfg.Network)
	waiter := apicall.NewWaiter(c.client, c.clock, cfg.ActionTimeout)
	c.evidence = inventory.NewEvidence(c.clock, c.registry, cfg.ProjectCheckDisabled, token.Token)
	servers := inventory.NewServers(c.client, c.clock, cfg.ServerCacheTTL, c.evidence)
	show := node.Settings{Family: cfg.AddressFamily, ProviderIDs: cfg.ProviderIDPrefix, Topology: cfg.TopologyLabels, NoZone: cfg.ZoneLabelDisabled}
	c.instances = node.NewInstances(servers, c.network, show, cfg.NodeLabels, cfg.NodeTaints, c.events, c.routesAsked.Load)
	own := plan.Ownership{ClusterID: cfg.ClusterID, Both: !cfg.OwnLabelsOnly}
	if cfg.LoadBalancersEnabled {
		c.loadBalancers = loadbalancer.New(waiter, servers, c.network, c.evidence, own, cfg.LoadBalancerDefaults, c.events)
	}
	if cfg.RoutesEnabled && cfg.Network != "" {
		c.routes = route.New(waiter, servers, c.network, c.evidence, own, cfg.ClusterCIDRs, c.routeFailed)
	}
	return c
}

// client returns the settings of the API client.
func (c *Config) client() apicall.ClientSettings {
	return apicall.ClientSettings{Endpoint: c.Endpoint, Application: ProviderName, Version: Version(), RequestTimeout: c.RequestTimeout, Debug: c.Debug}
}

func (c *Cloud) routeFailed() {
	select {
	case c.retryRoutes <- struct{}{}:
	default: // a retry is scheduled already
	}
}

// Initialize implements cloudprovider.Interface. The controller manager calls it when this process
// has become the leader.
func (c *Cloud) Initialize(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	c.stop = wait.ContextForChannel(stop)
	kube, err := clients.Client(ProviderName)
	if err != nil {
		klog.ErrorS(err, "Could not create a Kubernetes client; events, label updates and the periodic comparison are disabled")
		return
	}
	c.kube = kube
	c.instances.UseKube(kube)
	if c.loadBalancers != nil {
		c.loadBalancers.Kube = kube
	}
	c.raiseFence()
	if c.events.Sink == nil {
		broadcaster := record.NewBroadcaster(record.WithContext(c.stop))
		broadcaster.StartStructuredLogging(0)
		broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.CoreV1().Events("")})
		c.events.Sink = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: ProviderName})
	}
}

// raiseFence makes all writes depend on the leader's Lease. It is called when this process has just
// become the leader.
func (c *Cloud) raiseFence() {
	fence := c.election
	if fence == nil {
		return
	}
	host, err := os.Hostname() // the controller manager has called it before and ends if it fails
	if err != nil {
		klog.ErrorS(err, "Could not get the host name; set one on this machine")
	}
	fence.Raise(host, c.clock)
	c.fence.Store(fence)
	ctx, cancel := context.WithTimeout(c.stop, 5*time.Second)
	defer cancel()
	if err := fence.Check(ctx); err != nil {
		klog.ErrorS(err, "Could not confirm that this process leads; will check again before the next write")
	}
}

// mayWrite returns an error if this process must not change the cloud now.
func (c *Cloud) mayWrite(ctx context.Context) error {
	c.unrest.Add(1)
	if fence := c.fence.Load(); fence != nil {
		return fence.Check(ctx)
	}
	return nil
}

// SetInformers implements cloudprovider.InformerUser. The controller manager calls it after
// Initialize, before it starts controllers and informers.
func (c *Cloud) SetInformers(factory informers.SharedInformerFactory) {
	nodes := factory.Core().V1().Nodes()
	services := factory.Core().V1().Services()
	synced := []cache.InformerSynced{nodes.Informer().HasSynced, services.Informer().HasSynced}
	c.evidence.SetListers(nodes.Lister(), services.Lister())
	if c.routes != nil {
		c.routes.UseNodes(nodes.Lister())
	}
	r := resync.New(c.clock, &c.unrest, c.kube, c.loadBalancers, c.routes, nodes.Lister(), services.Lister(), c.events, c.routesAsked.Load, c.retryRoutes)
	r.Interval, r.MaxInterval = c.cfg.ResyncInterval, c.cfg.ResyncMaxInterval
	r.Watch(nodes.Informer())
	go func() {
		if cache.WaitForCacheSync(c.stop.Done(), synced...) {
			r.Run(c.stop)
		}
	}()
}

// Check returns an error if the API is unreachable, refuses the token or does not know the network, or
// if the server of this node is not attached to the network. It exists to log such an error early. The
// provider works without it and recovers by itself.
func (c *Cloud) Check(ctx context.Context) error {
	if c.network.Configured() {
		id, err := c.network.ID(ctx)
		if err != nil || c.cfg.NetworkCheckDisabled || c.cfg.NodeName == "" {
			return err
		}
		return c.checkAttached(ctx, id)
	}
	if _, _, err := c.client.Location.List(ctx, hcloud.LocationListOpts{ListOpts: hcloud.ListOpts{PerPage: 1}}); err != nil {
		return fmt.Errorf("listing locations at %s: %w", c.cfg.Endpoint, err)
	}
	return nil
}

// checkAttached returns an error if the server of this node is not attached to the network. The node
// must have the name of its server; otherwise there is nothing to check.
func (c *Cloud) checkAttached(ctx context.Context, networkID int64) error {
	server, err := c.instances.Detached(ctx, c.cfg.NodeName, networkID)
	if err != nil || server == nil {
		return err
	}
	return fmt.Errorf("server %d (%s), on which this program runs, is not attached to network %d (HCLOUD_NETWORK=%q): attach it, or set HCLOUD_NETWORK to its network; "+
		"HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK=true switches this check off", server.ID, server.Name, networkID, c.cfg.Network)
}

// Ready returns an error while the provider does not believe the API's answers, for example because the
// token may belong to another project.
func (c *Cloud) Ready() error { return c.evidence.Ready() }

// Metrics returns the metrics of API calls.
func (c *Cloud) Metrics() prometheus.Gatherer { return c.registry }

// ProviderName implements cloudprovider.Interface.
func (c *Cloud) ProviderName() string { return ProviderName }

// HasClusterID implements cloudprovider.Interface. It returns true also without HCLOUD_CLUSTER_ID: ownership is by
// Service UID, which only a cluster that was made from a backup of another one shares.
func (c *Cloud) HasClusterID() bool { return true }

// InstancesV2 implements cloudprovider.Interface.
func (c *Cloud) InstancesV2() (cloudprovider.InstancesV2, bool) { return c.instances, true }

// LoadBalancer implements cloudprovider.Interface.
func (c *Cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) {
	if c.loadBalancers == nil {
		return nil, false
	}
	return c.loadBalancers, true
}

// Routes implements cloudprovider.Interface.
func (c *Cloud) Routes() (cloudprovider.Routes, bool) {
	if c.routes == nil {
		return nil, false
	}
	c.routesAsked.Store(true)
	return c.routes, true
}

// Instances implements cloudprovider.Interface. InstancesV2 replaces it.
func (c *Cloud) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones implements cloudprovider.Interface. InstancesV2 replaces it.
func (c *Cloud) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters implements cloudprovider.Interface. It is not supported.
func (c *Cloud) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// WithLeaderLease makes the provider check before a write that this process holds the leader election
// Lease. leases should be the client that renews the Lease; it must at least be allowed to read it.
func WithLeaderLease(leases typedcoordinationv1.LeaseInterface, name string) Option {
	return func(c *Cloud) {
		c.election = apicall.NewLeaderFence(leases, name)
	}
}
