// Package loadbalancer is the part of the service controller: one load balancer per Service. Package plan computes its desired state.
package loadbalancer

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/inventory"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// SyncTimeout limits one sync of one Service; the next sync continues. The service controller calls
// UpdateLoadBalancer without a deadline.
const SyncTimeout = 2 * time.Minute

// Controller implements cloudprovider.LoadBalancer: one cloud load balancer per Service.
//
// A sync (sync.go) has five steps. It finds the load balancer (find.go, or create.go makes it), reads the input of the plan (input.go),
// computes the plan (package plan), applies the difference (apply.go), and reports (report.go). Syncs of one Service never overlap.
// The service controller selects the nodes and calls only for Services without a loadBalancerClass.
//
// Not supported: spec.loadBalancerSourceRanges (Hetzner load balancers have no firewall; the Service
// gets a warning), spec.loadBalancerIP.
type Controller struct {
	client   *hcloud.Client
	waiter   *apicall.Waiter
	slow     *apicall.SlowActions
	servers  *inventory.Servers
	network  *inventory.Network
	store    *inventory.LoadBalancers
	evidence *inventory.Evidence
	own      plan.Ownership
	certs    *apicall.Cache[[]*hcloud.Certificate]
	types    *apicall.Cache[[]*hcloud.LoadBalancerType]

	primaryIPs *apicall.Cache[[]*hcloud.PrimaryIP]
	defaults   map[string]string
	events     *event.Recorder
	Kube       kubernetes.Interface // nil before the provider is initialized

	Services apicall.KeyLock // by UID
	adopting apicall.KeyLock // by name: two Services must not adopt the same load balancer

	sharing   apicall.KeyLock // by ID: Services that share a load balancer change it one after the other
	labelling apicall.KeyLock // by ID: the labels of a load balancer are replaced as a whole

	mu      sync.Mutex
	managed map[string]*corev1.Service // by UID: Services that resync compares
	// issuances holds the time of the last attempt for each certificate that was not issued.
	issuances map[int64]time.Time
	// lingering holds by UID since when targets wait before they leave, if any do.
	lingering map[string]wait
	// exposed holds by UID since when the load balancer of a Service that asks to be private is public.
	exposed map[string]time.Time
	// refused holds by UID when the API last refused a server as a target.
	refused map[string]map[int64]time.Time
	// reached holds the IPv6 addresses of targets, by load balancer and server.
	reached map[int64]map[int64]netip.Addr
	// ended holds the UIDs of Services without a load balancer: this process deleted it, and made no other.
	ended map[string]bool
	// orphans holds the IDs of the load balancers that had lost their Services at the last look.
	orphans map[int64]bool
	// Waits receives a signal when targets wait for another one to be healthy.
	Waits chan struct{}
}

// New returns the load balancers. They tell the evidence which Services' load balancers are visible.
func New(waiter *apicall.Waiter, servers *inventory.Servers, network *inventory.Network, e *inventory.Evidence,
	own plan.Ownership, defaults map[string]string, events *event.Recorder) *Controller {
	clk := waiter.Clock
	l := &Controller{
		client: waiter.Client, waiter: waiter, slow: &apicall.SlowActions{Waiter: waiter}, servers: servers, network: network,
		evidence: e, store: inventory.NewLoadBalancers(waiter.Client, clk, e, defaults), defaults: defaults, events: events, own: own,
		managed: map[string]*corev1.Service{}, issuances: map[int64]time.Time{}, lingering: map[string]wait{},
		refused: map[string]map[int64]time.Time{}, exposed: map[string]time.Time{}, ended: map[string]bool{},
		reached: map[int64]map[int64]netip.Addr{},
		Waits:   make(chan struct{}, 1),
	}
	l.certs = apicall.NewCache(clk, inventory.MaxLoadBalancerAge, apicall.Listing("certificates", l.client.Certificate.All))
	l.types = apicall.NewCache(clk, maxCatalogueAge, apicall.Listing("load balancer types", l.client.LoadBalancerType.All))
	l.primaryIPs = apicall.NewCache(clk, maxCatalogueAge, apicall.Listing("Primary IPs", l.client.PrimaryIP.All))
	return l
}

// Identify sets the UID of the cluster, before the first call; "": not known.
func (l *Controller) Identify(uid string) { l.own.ClusterUID = uid }

var _ cloudprovider.LoadBalancer = (*Controller)(nil)

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (l *Controller) GetLoadBalancerName(_ context.Context, _ string, svc *corev1.Service) string {
	if name := strings.TrimSpace(svc.Annotations[plan.AnnotationPrefix+"name"]); name != "" {
		return name
	}
	return l.own.DefaultName(svc)
}

// GetLoadBalancer implements cloudprovider.LoadBalancer. The status is empty: nobody reads it. If the Service wants no load balancer any
// more, a managed certificate of the Service counts as existing too. The service controller calls
// EnsureLoadBalancerDeleted only if something exists, and after a crash a certificate may be the only
// thing left.
func (l *Controller) GetLoadBalancer(ctx context.Context, _ string, svc *corev1.Service) (*corev1.LoadBalancerStatus, bool, error) {
	ctx, cancel := context.WithTimeout(apicall.Urgently(ctx, apicall.ControllerService, "find"), SyncTimeout)
	defer cancel()
	unlock, err := l.Services.Lock(ctx, string(svc.UID))
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	if plan.WantsLoadBalancer(svc) {
		all, err := l.store.LookUp(ctx, svc)
		lbs := l.own.OwnedBy(all, string(svc.UID))
		return &corev1.LoadBalancerStatus{}, len(lbs) > 0, err
	}
	l.unmanage(svc)
	lbs, inherited, err := l.remaining(ctx, svc)
	if err != nil || inherited != nil || len(lbs) > 0 {
		return &corev1.LoadBalancerStatus{}, err == nil, err
	}
	certs, err := l.ownedCertificates(ctx, string(svc.UID))
	return &corev1.LoadBalancerStatus{}, len(certs) > 0, err
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer.
func (l *Controller) EnsureLoadBalancer(ctx context.Context, _ string, svc *corev1.Service,
	nodes []*corev1.Node) (*corev1.LoadBalancerStatus, error) {
	ctx, cancel := context.WithTimeout(apicall.Urgently(ctx, apicall.ControllerService, "ensure"), SyncTimeout)
	defer cancel()
	unlock, err := l.Services.Lock(ctx, string(svc.UID))
	if err != nil {
		return nil, err
	}
	defer unlock()
	svc = l.newest(svc)
	l.manage(svc)
	result, err := l.Sync(ctx, svc, nodes, Options{Create: true})
	if err != nil {
		l.Publish(svc, result.Status)
		return nil, err
	}
	return result.Status, nil
}

// Publish writes the status of a Service after a sync that failed in some part. The service controller
// does not write it then, and clients need the addresses that serve traffic.
func (l *Controller) Publish(svc *corev1.Service, status *corev1.LoadBalancerStatus) {
	if status == nil {
		return
	}
	if err := PatchStatus(l.Kube, svc, status); err != nil {
		klog.ErrorS(err, "Could not write the status of a Service; will try again", "service", klog.KObj(svc))
	}
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer. The service controller calls it when the nodes change.
// It never creates a load balancer, because it cannot write the address to the Service.
func (l *Controller) UpdateLoadBalancer(ctx context.Context, _ string, svc *corev1.Service, nodes []*corev1.Node) error {
	ctx, cancel := context.WithTimeout(apicall.Urgently(ctx, apicall.ControllerService, "nodes"), SyncTimeout)
	defer cancel()
	unlock, err := l.Services.Lock(ctx, string(svc.UID))
	if err != nil {
		return err
	}
	defer unlock()
	_, err = l.Sync(ctx, l.newest(svc), nodes, Options{})
	return err
}

// newest returns the Service as it is now. A sync may have waited for another one, and the service controller
// keeps a Service until it has synced it: the settings of svc may be older than those that another sync has
// applied already. To return to them could expose a Service that is private now.
func (l *Controller) newest(svc *corev1.Service) *corev1.Service {
	_, services := l.evidence.Listers()
	if services == nil {
		return svc
	}
	now, err := services.Services(svc.Namespace).Get(svc.Name)
	if err != nil || now.UID != svc.UID || !plan.WantsLoadBalancer(now) {
		return svc // what follows its deletion undoes this sync
	}
	return now.DeepCopy()
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer. It deletes only resources with the Service's ownership label. With
// keep-on-delete, the load balancer loses its owner instead. That of a Service that has vanished stays: another one may have its name.
func (l *Controller) EnsureLoadBalancerDeleted(ctx context.Context, _ string, svc *corev1.Service) error {
	ctx, cancel := context.WithTimeout(apicall.Urgently(ctx, apicall.ControllerService, "delete"), SyncTimeout)
	defer cancel()
	unlock, err := l.Services.Lock(ctx, string(svc.UID))
	if err != nil {
		return err
	}
	defer unlock()
	if plan.WantsLoadBalancer(svc) {
		return l.leave(ctx, svc)
	}
	lbs, inherited, err := l.remaining(ctx, svc)
	if err == nil {
		err = l.checkUnwanted(ctx, svc) // just before the first write
	}
	if err != nil {
		return err
	}
	l.unmanage(svc)
	switch {
	case inherited != nil:
		return l.endInherited(ctx, svc, inherited)
	case len(lbs) > 1:
		return l.several(svc, lbs) // after the first deletion nothing would show that the others are foreign
	}
	effective := svc
	for _, lb := range lbs { // at most one
		if err := l.mark(ctx, string(svc.UID), lb); err != nil {
			return err
		}
		effective, _ = plan.WithSharedSettings(svc, lb, l.defaults)
	}
	settings, err := l.deletionSettings(svc, effective)
	if err != nil {
		return err
	}
	for _, lb := range lbs {
		if err := l.end(ctx, svc, &settings, lb); err != nil {
			return err
		}
	}
	certs, err := l.ownedCertificates(ctx, string(svc.UID))
	if err != nil {
		return err
	}
	err = l.deleteCertificates(ctx, certs)
	inUse := slices.ContainsFunc(certs, func(c *hcloud.Certificate) bool { return len(c.UsedBy) > 0 })
	if len(lbs) == 0 && inUse && hcloud.IsError(err, hcloud.ErrorCodeServiceError, hcloud.ErrorCodeResourceInUse) {
		// A person has removed the label of the load balancer to keep it: its certificates stay with it. service_error is the
		// API's answer (terraform-provider-hcloud issue 1065), and has other causes, too.
		return l.retainCertificates(ctx, svc, certs)
	}
	return err
}

// EndClassed deletes the load balancer of a Service that is another controller's now. One list answers for all of them.
func (l *Controller) EndClassed(ctx context.Context, svc *corev1.Service) error {
	lbs, err := l.store.Find(ctx, string(svc.UID))
	if err != nil || len(l.own.OwnedBy(lbs, string(svc.UID))) == 0 {
		return err
	}
	return l.EnsureLoadBalancerDeleted(ctx, "", svc)
}

// manage records that the service controller wants a load balancer for the Service, so that resync compares it.
func (l *Controller) manage(svc *corev1.Service) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.managed[string(svc.UID)] = svc
	delete(l.ended, string(svc.UID))
}

// unmanage ends manage. After it nothing may create a load balancer for the Service, because nothing would delete it.
func (l *Controller) unmanage(svc *corev1.Service) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.managed, string(svc.UID))
	delete(l.lingering, string(svc.UID))
	delete(l.refused, string(svc.UID))
	delete(l.exposed, string(svc.UID))
}

// ManagedServices returns the Services that want load balancers, by UID.
func (l *Controller) ManagedServices() map[string]*corev1.Service {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.managed)
}
