package ccm

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/cloud-provider"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Cloud is the cloud provider: cloudprovider.Interface with InstancesV2, LoadBalancer and Routes.
type Cloud struct {
	cfg      Config
	clock    clock.WithTicker
	client   *hcloud.Client
	registry *prometheus.Registry
	network  *networkResolver

	instances     *instances
	loadBalancers *loadBalancers
	routes        *routes
	events        *event.Recorder
	evidence      *evidence
	kube          kubernetes.Interface

	election     *leaderFence                // nil: no leader election
	fence        atomic.Pointer[leaderFence] // nil: no leader election, or not won yet
	stop         context.Context             // ends when the process must stop
	routesAsked  atomic.Bool                 // the route controller runs
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
		jitter:       defaultJitter,
	}
	for _, o := range options {
		o(c)
	}
	c.events.Clock = c.clock
	token := &tokenSource{static: cfg.Token, file: cfg.TokenFile}
	c.client = newClient(cfg.client(), token, c.clock, c.registry, c.roundTripper, c.jitter, c.mayWrite)
	c.network = &networkResolver{client: c.client, clock: c.clock, idOrName: cfg.Network}
	waiter := &actionWaiter{client: c.client, clock: c.clock, timeout: cmp.Or(cfg.ActionTimeout, defaultActionTimeout)}
	c.evidence = newEvidence(c.clock, c.registry)
	c.evidence.disabled, c.evidence.token = cfg.ProjectCheckDisabled, token.Token
	servers := newServerCache(c.client, c.clock, cfg.ServerCacheTTL, c.evidence)
	c.evidence.listServers = servers.refresh
	c.instances = &instances{servers: servers, network: c.network, labels: &nodeLabelSync{}, events: c.events,
		show:  nodeSettings{family: cfg.AddressFamily, providerIDs: cfg.ProviderIDPrefix, topology: cfg.TopologyLabels, noZone: cfg.ZoneLabelDisabled},
		guard: &routeGuard{clock: c.clock, routesOn: c.routesAsked.Load}, from: &fromServer{labels: cfg.NodeLabels, taints: cfg.NodeTaints}}
	own := plan.Ownership{ClusterID: cfg.ClusterID, Both: !cfg.OwnLabelsOnly}
	if cfg.LoadBalancersEnabled {
		lb := &loadBalancers{
			client: c.client, waiter: waiter, slow: &slowActions{waiter: waiter}, servers: servers, network: c.network,
			evidence: c.evidence, store: newLBStore(c.client, c.clock, c.evidence), defaults: cfg.LoadBalancerDefaults,
			events: c.events, managed: map[string]managedService{}, issuances: map[int64]time.Time{},
			leaving: map[string]time.Time{}, waits: make(chan struct{}, 1), own: own,
		}
		lb.certs = newTTLCache(c.clock, maxLoadBalancerAge, lb.listCertificates)
		lb.types = newTTLCache(c.clock, maxCatalogueAge, lb.listTypes)
		c.evidence.visibleServices, c.evidence.allLoadBalancers = lb.store.refresh, lb.store.everything
		lb.primaryIPs = newTTLCache(c.clock, maxCatalogueAge, lb.listPrimaryIPs)
		c.loadBalancers = lb
	}
	if cfg.RoutesEnabled && cfg.Network != "" {
		c.routes = &routes{
			client: c.client, waiter: waiter, servers: servers, network: c.network, evidence: c.evidence, own: own,
			clusterCIDRs: cfg.ClusterCIDRs, changing: make(chan struct{}, 1), unconfirmed: map[netRoute]*routeChange{}, failed: c.routeFailed,
		}
		c.routes.state = newTTLCache(c.clock, maxRouteAge, c.routes.readNetwork)
	}
	return c
}

// client returns the settings of the API client.
func (c *Config) client() clientSettings {
	return clientSettings{endpoint: c.Endpoint, application: ProviderName, version: Version(), requestTimeout: c.RequestTimeout, debug: c.Debug}
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
	c.instances.labels.kube = kube
	c.instances.guard.kube = kube
	c.instances.from.kube = kube
	if c.loadBalancers != nil {
		c.loadBalancers.kube = kube
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
	fence.host, fence.clock, fence.since = host, c.clock, c.clock.Now().Round(0)
	c.fence.Store(fence)
	ctx, cancel := context.WithTimeout(c.stop, 5*time.Second)
	defer cancel()
	if err := fence.check(ctx); err != nil {
		klog.ErrorS(err, "Could not confirm that this process leads; will check again before the next write")
	}
}

// mayWrite returns an error if this process must not change the cloud now.
func (c *Cloud) mayWrite(ctx context.Context) error {
	c.unrest.Add(1)
	if fence := c.fence.Load(); fence != nil {
		return fence.check(ctx)
	}
	return nil
}

// SetInformers implements cloudprovider.InformerUser. The controller manager calls it after
// Initialize, before it starts controllers and informers.
func (c *Cloud) SetInformers(factory informers.SharedInformerFactory) {
	nodes := factory.Core().V1().Nodes()
	services := factory.Core().V1().Services()
	synced := []cache.InformerSynced{nodes.Informer().HasSynced, services.Informer().HasSynced}
	c.evidence.setListers(nodes.Lister(), services.Lister())
	if c.routes != nil {
		c.routes.nodes = nodes.Lister()
	}
	r := &resync{
		clock: c.clock, interval: c.cfg.ResyncInterval, maxInterval: c.cfg.ResyncMaxInterval, unrest: &c.unrest, kube: c.kube, lbs: c.loadBalancers, routes: c.routes,
		nodes: nodes.Lister(), services: services.Lister(), events: c.events, retryRoutes: c.retryRoutes,
		routesOn: c.routesAsked.Load, toRoute: newNodeQueue(), routed: make(chan struct{}, 1),
	}
	r.watch(nodes.Informer())
	go func() {
		if cache.WaitForCacheSync(c.stop.Done(), synced...) {
			r.run(c.stop)
		}
	}()
}

// Check returns an error if the API is unreachable, refuses the token or does not know the network, or
// if the server of this node is not attached to the network. It exists to log such an error early. The
// provider works without it and recovers by itself.
func (c *Cloud) Check(ctx context.Context) error {
	if c.network.configured() {
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
	server, err := c.instances.servers.ByName(ctx, serverAsk{name: c.cfg.NodeName})
	if err != nil || server == nil || nodeinfo.PrivateIP(server, networkID).IsValid() {
		return err
	}
	return fmt.Errorf("server %d (%s), on which this program runs, is not attached to network %d (HCLOUD_NETWORK=%q): attach it, or set HCLOUD_NETWORK to its network; "+
		"HCLOUD_NETWORK_DISABLE_ATTACHED_CHECK=true switches this check off", server.ID, server.Name, networkID, c.cfg.Network)
}

// Ready returns an error while the provider does not believe the API's answers, for example because the
// token may belong to another project.
func (c *Cloud) Ready() error { return c.evidence.ready() }

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
