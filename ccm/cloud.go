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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
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
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/route"
)

// Cloud is the cloud provider: cloudprovider.Interface. What the controllers get from it is in a file for each: node.go,
// node_lifecycle.go, service.go and route.go.
type Cloud struct {
	cfg          Config
	clock        clock.WithTicker
	roundTripper http.RoundTripper
	jitter       func() float64
	registry     *prometheus.Registry
	events       *event.Recorder
	kube         kubernetes.Interface
	stop         context.Context // ends when the process must stop

	// What the controllers share.
	client   *hcloud.Client
	waiter   *apicall.Waiter
	network  *inventory.Network
	servers  *inventory.Servers
	evidence *inventory.Evidence
	own      plan.Ownership

	// What the controllers call.
	instances     *node.Instances
	loadBalancers *loadbalancer.Controller // nil: disabled
	routes        *route.Routes            // nil: disabled
	routesAsked   atomic.Bool              // the route controller runs
	retryRoutes   chan struct{}
	unrest        atomic.Int64 // see resync

	election *apicall.LeaderFence                // nil: no leader election
	fence    atomic.Pointer[apicall.LeaderFence] // nil: no leader election, or not won yet
}

var _ cloudprovider.Interface = (*Cloud)(nil)

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
	c.waiter = apicall.NewWaiter(c.client, c.clock, cfg.ActionTimeout)
	c.evidence = inventory.NewEvidence(c.clock, c.registry, cfg.ProjectCheckDisabled, token.Token)
	c.evidence.WaitFor(cfg.DisappearanceWait)
	c.servers = inventory.NewServers(c.client, c.clock, cfg.ServerCacheTTL, c.evidence)
	c.own = plan.Ownership{ClusterID: cfg.ClusterID, Both: !cfg.OwnLabelsOnly}
	c.instances, c.loadBalancers, c.routes = c.newInstances(), c.newLoadBalancers(), c.newRoutes()
	return c
}

// client returns the settings of the API client.
func (c *Config) client() apicall.ClientSettings {
	return apicall.ClientSettings{Endpoint: c.Endpoint, Application: ProviderName, Version: Version(), RequestTimeout: c.RequestTimeout,
		Debug: c.Debug}
}

// Initialize implements cloudprovider.Interface. The controller manager calls it when this process
// becomes the leader.
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
		c.loadBalancers.Identify(clusterUID(c.stop, kube))
	}
	c.raiseFence()
	if c.events.Sink == nil {
		broadcaster := record.NewBroadcaster(record.WithContext(c.stop))
		broadcaster.StartStructuredLogging(0)
		broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.CoreV1().Events("")})
		c.events.Sink = broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: ProviderName})
	}
}

// clusterUID returns the UID of the namespace kube-system, or "" if it cannot be read. Then the cluster has no identity until
// the next start, and all works as without one.
func clusterUID(ctx context.Context, kube kubernetes.Interface) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	namespace, err := kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		klog.ErrorS(err, "Could not read the namespace kube-system, whose UID is the identity of the cluster; allow get of it, and restart")
		return ""
	}
	return string(namespace.UID)
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
	if err := fence.Check(c.stop); err != nil {
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

// Metrics returns the metrics of API calls.
func (c *Cloud) Metrics() prometheus.Gatherer { return c.registry }

// ProviderName implements cloudprovider.Interface.
func (c *Cloud) ProviderName() string { return ProviderName }

// HasClusterID implements cloudprovider.Interface. It returns true even without HCLOUD_CLUSTER_ID: ownership is by
// Service UID, and two clusters share these only if one was made from a backup of the other.
func (c *Cloud) HasClusterID() bool { return true }

// Clusters implements cloudprovider.Interface. It is not supported.
func (c *Cloud) Clusters() (cloudprovider.Clusters, bool) { return nil, false }
