package ccm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	cloudapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"
)

// syncTimeout bounds one sync of one Service; what is left is done by the next. The service
// controller calls UpdateLoadBalancer without any deadline.
const syncTimeout = 2 * time.Minute

// loadBalancers implements cloudprovider.LoadBalancer: one cloud load balancer per Service.
//
// A sync reads settings (no API call if they are wrong), looks up servers and the load balancer,
// plans, compares and sends the difference. Syncs of one Service never overlap. The service
// controller calls for Services without a loadBalancerClass only; it filters nodes.
//
// Left out: spec.loadBalancerSourceRanges (Hetzner load balancers have no firewall; a warning says
// so) and spec.loadBalancerIP; one load balancer for several Services; settings per port.
type loadBalancers struct {
	client   *hcloud.Client
	waiter   *actionWaiter
	servers  *serverCache
	network  *networkResolver
	store    *lbStore
	certs    *ttlCache[[]*hcloud.Certificate]
	defaults map[string]string
	events   *eventRecorder

	services keyLock    // by UID
	adopting sync.Mutex // two Services must not adopt the same load balancer

	mu      sync.Mutex
	managed map[string]managedService // by UID: what the resync looks after
	// issuances holds when a certificate that was not issued was last tried.
	issuances map[int64]time.Time
}

// managedService is a Service that the service controller wants to have a load balancer.
type managedService struct {
	namespace, name string
	nodes           []*corev1.Node
}

var _ cloudprovider.LoadBalancer = (*loadBalancers)(nil)

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (l *loadBalancers) GetLoadBalancerName(_ context.Context, _ string, svc *corev1.Service) string {
	if name := strings.TrimSpace(svc.Annotations[annotationPrefix+"name"]); name != "" {
		return name
	}
	return cloudprovider.DefaultLoadBalancerName(svc)
}

// GetLoadBalancer implements cloudprovider.LoadBalancer. For a Service that wants no load balancer
// (any more), what was ordered for it counts too: the service controller calls
// EnsureLoadBalancerDeleted only if something exists, and a certificate may be all that a crash
// has left.
func (l *loadBalancers) GetLoadBalancer(ctx context.Context, _ string, svc *corev1.Service) (*corev1.LoadBalancerStatus, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	unlock, err := l.services.lock(ctx, string(svc.UID))
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	unwanted := svc.DeletionTimestamp != nil || svc.Spec.Type != corev1.ServiceTypeLoadBalancer
	if unwanted {
		l.release(svc)
	}
	lbs, err := l.store.findNow(ctx, string(svc.UID))
	if err != nil {
		return nil, false, err
	}
	lb, _ := pickOwned(lbs, shownAddresses(svc))
	if lb != nil {
		settings, _, _ := parseAnnotations(svc.Annotations, l.defaults)
		return ingressStatus(lb, &settings), true, nil
	}
	if !unwanted {
		return nil, false, nil
	}
	certs, err := l.ownedCertificates(ctx, string(svc.UID))
	return &corev1.LoadBalancerStatus{}, len(certs) > 0, err
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer.
func (l *loadBalancers) EnsureLoadBalancer(ctx context.Context, _ string, svc *corev1.Service, nodes []*corev1.Node) (*corev1.LoadBalancerStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	unlock, err := l.services.lock(ctx, string(svc.UID))
	if err != nil {
		return nil, err
	}
	defer unlock()
	l.manage(svc, nodes)
	result, err := l.sync(ctx, svc, nodes, syncOptions{create: true})
	if err != nil {
		return nil, err
	}
	return result.status, nil
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer: the nodes have changed. It does not
// create a load balancer, because it could not tell the Service its address.
func (l *loadBalancers) UpdateLoadBalancer(ctx context.Context, _ string, svc *corev1.Service, nodes []*corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	unlock, err := l.services.lock(ctx, string(svc.UID))
	if err != nil {
		return err
	}
	defer unlock()
	l.manage(svc, nodes)
	_, err = l.sync(ctx, svc, nodes, syncOptions{})
	return err
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer. Only what carries the Service's
// ownership label is deleted.
func (l *loadBalancers) EnsureLoadBalancerDeleted(ctx context.Context, _ string, svc *corev1.Service) error {
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	unlock, err := l.services.lock(ctx, string(svc.UID))
	if err != nil {
		return err
	}
	defer unlock()
	l.release(svc)
	lbs, err := l.store.findNow(ctx, string(svc.UID))
	if err != nil {
		return err
	}
	for _, lb := range lbs {
		if err := l.delete(ctx, svc, lb); err != nil {
			return err
		}
	}
	certs, err := l.ownedCertificates(ctx, string(svc.UID))
	if err != nil {
		return err
	}
	return l.deleteCertificates(ctx, certs)
}

func (l *loadBalancers) delete(ctx context.Context, svc *corev1.Service, lb *hcloud.LoadBalancer) error {
	if lb.Protection.Delete {
		l.events.warning(svc, EventProtected, "Load balancer %d (%s) is protected against deletion: remove the protection, or the label %s to keep it", lb.ID, lb.Name, labelServiceUID)
		return fmt.Errorf("load balancer %d (%s) is protected against deletion", lb.ID, lb.Name)
	}
	defer l.store.writing(string(svc.UID))()
	result, resp, err := l.client.LoadBalancer.DeleteWithResult(ctx, lb)
	switch {
	case err == nil:
		err = l.waiter.wait(ctx, result.Action)
	case hcloud.IsError(err, hcloud.ErrorCodeNotFound):
		err = nil
	case resp != nil && resp.Response != nil && resp.StatusCode == http.StatusNoContent:
		err = nil // as the API answered until October 2026: no action, no body for hcloud-go to read
	case hcloud.IsError(err, hcloud.ErrorCodeProtected):
		l.events.warning(svc, EventProtected, "Load balancer %d (%s) is protected against deletion: remove the protection, or the label %s to keep it", lb.ID, lb.Name, labelServiceUID)
	}
	if err != nil {
		return fmt.Errorf("deleting load balancer %d (%s): %w", lb.ID, lb.Name, err)
	}
	klog.InfoS("Deleted load balancer", "service", klog.KObj(svc), "loadBalancer", lb.ID)
	return nil
}

// manage and release tell the resync which Services the service controller has load balancers for.
// Between release and the Service's end nothing may create a load balancer for it: nobody would
// delete it.
func (l *loadBalancers) manage(svc *corev1.Service, nodes []*corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.managed[string(svc.UID)] = managedService{svc.Namespace, svc.Name, nodes}
}

func (l *loadBalancers) release(svc *corev1.Service) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.managed, string(svc.UID))
}

// managedServices returns the Services that have load balancers, by UID.
func (l *loadBalancers) managedServices() map[string]managedService {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.managed)
}

type syncOptions struct {
	// create a load balancer if there is none.
	create bool
	// quiet leaves out the warnings that do not change from one sync to the next.
	quiet bool
}

type syncResult struct {
	status *corev1.LoadBalancerStatus
	// created and ops say what was written.
	created bool
	ops     []lbOp
}

// sync makes the load balancer of svc what it should be. The caller holds the Service's lock.
func (l *loadBalancers) sync(ctx context.Context, svc *corev1.Service, nodes []*corev1.Node, opts syncOptions) (syncResult, error) {
	result, err := l.trySync(ctx, svc, nodes, opts)
	if err == nil {
		return result, nil
	}
	var invalid settingsError
	var pending *actionPendingError
	switch {
	case errors.As(err, &invalid):
		if !opts.quiet {
			for _, mistake := range invalid.mistakes {
				l.events.warning(svc, EventInvalidSettings, "%v; nothing was changed", mistake)
			}
		}
	case errors.As(err, &pending), hcloud.IsError(err, hcloud.ErrorCodeLocked, hcloud.ErrorCodeConflict):
		l.events.normal(svc, EventPending, "Waiting for the cloud: %s", stableError(err))
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		err = cloudapi.NewRetryError(fmt.Sprintf("not finished within %v, will go on: %v", syncTimeout, err), time.Second)
	}
	return result, toRetryError(err)
}

func (l *loadBalancers) trySync(ctx context.Context, svc *corev1.Service, nodes []*corev1.Node, opts syncOptions) (result syncResult, err error) {
	settings, unknown, mistakes := parseAnnotations(svc.Annotations, l.defaults)
	mistakes = append(mistakes, checkService(svc, &settings, l.network.configured())...)
	if err := invalidSettings(mistakes...); err != nil {
		return result, err
	}
	networkID, err := l.network.ID(ctx)
	if err != nil {
		return result, err
	}
	lb, err := l.find(ctx, svc)
	if err != nil {
		return result, err
	}
	if lb == nil && !opts.create {
		return result, fmt.Errorf("the load balancer of the Service does not exist")
	}
	if lb != nil && settings.Type != "" && lb.LoadBalancerType != nil && settings.Type != lb.LoadBalancerType.Name {
		// It will be changed, so that a mistake would be found out halfway through the operations.
		if err := l.checkNames(ctx, svc, catalogueNames{Type: settings.Type}); err != nil {
			return result, err
		}
	}
	servers, err := l.serversOf(ctx, nodes)
	if err != nil {
		return result, err
	}
	in := lbPlanInput{Service: svc, Settings: &settings, Nodes: nodes, Servers: servers, NetworkID: networkID}
	var obsolete []*hcloud.Certificate
	if settings.Protocol == hcloud.LoadBalancerServiceProtocolHTTPS {
		if in.CertificateIDs, obsolete, err = l.certificates(ctx, svc, &settings); err != nil {
			return result, err
		}
	} else if lb != nil && servesCertificates(lb) {
		// HTTPS ends with this sync, and what was ordered for it with HTTPS.
		if obsolete, err = l.ownedCertificates(ctx, string(svc.UID)); err != nil {
			return result, err
		}
	}
	plan, skipped := planLoadBalancer(in)
	if !opts.quiet {
		l.warn(svc, unknown, skipped)
	}
	if lb == nil {
		if lb, result.created, err = l.obtain(ctx, svc, plan); err != nil {
			return result, err
		}
	}
	if !opts.quiet {
		l.warnImmutable(svc, lb, plan)
	}
	if lb, result.ops, err = l.reconcile(ctx, svc, plan, lb); err != nil {
		return result, err
	}
	if err := l.deleteCertificates(ctx, obsolete); err != nil {
		return result, err
	}
	result.status = ingressStatus(lb, &settings)
	if len(result.status.Ingress) == 0 {
		return result, cloudapi.NewRetryError(fmt.Sprintf("load balancer %d (%s) has no address yet that the Service may show", lb.ID, lb.Name), 5*time.Second)
	}
	return result, nil
}

// warn puts on the Service what it should know although the sync goes on.
func (l *loadBalancers) warn(svc *corev1.Service, unknown, skipped []string) {
	if len(unknown) > 0 {
		l.events.warning(svc, EventUnknownAnnotation, "Ignored annotations that do not exist: %s", strings.Join(unknown, ", "))
	}
	if len(svc.Spec.LoadBalancerSourceRanges) > 0 {
		l.events.warning(svc, EventIgnoredSetting, "spec.loadBalancerSourceRanges is ignored: Hetzner load balancers cannot filter by source address")
	}
	for _, s := range skipped {
		l.events.warning(svc, EventSkippedNodes, "%s", s)
	}
}

func (l *loadBalancers) warnImmutable(svc *corev1.Service, lb *hcloud.LoadBalancer, plan *lbPlan) {
	if lb.Location == nil {
		return
	}
	if plan.Location != "" && plan.Location != lb.Location.Name {
		l.events.warning(svc, EventImmutable, "Load balancer %d is in location %s and cannot move to %s; delete and create the Service to move it", lb.ID, lb.Location.Name, plan.Location)
	}
	if plan.NetworkZone != "" && plan.NetworkZone != string(lb.Location.NetworkZone) {
		l.events.warning(svc, EventImmutable, "Load balancer %d is in network zone %s and cannot move to %s; delete and create the Service to move it", lb.ID, lb.Location.NetworkZone, plan.NetworkZone)
	}
}

// find returns the Service's load balancer, nil if there is none. Further ones that carry its
// label are deleted: nobody else would.
func (l *loadBalancers) find(ctx context.Context, svc *corev1.Service) (*hcloud.LoadBalancer, error) {
	lbs, err := l.store.find(ctx, string(svc.UID))
	if err != nil {
		return nil, err
	}
	if len(lbs) > 1 {
		// What is deleted must still carry the label now.
		if lbs, err = l.store.findNow(ctx, string(svc.UID)); err != nil {
			return nil, err
		}
	}
	lb, rest := pickOwned(lbs, shownAddresses(svc))
	for _, extra := range rest {
		if err := l.delete(ctx, svc, extra); err != nil {
			return nil, err
		}
		l.events.warning(svc, EventDuplicate, "Deleted load balancer %d (%s): it carried the ownership label of this Service beside load balancer %d", extra.ID, extra.Name, lb.ID)
	}
	return lb, nil
}

func shownAddresses(svc *corev1.Service) []string {
	var shown []string
	for _, i := range svc.Status.LoadBalancer.Ingress {
		shown = append(shown, i.IP)
	}
	return shown
}

// serversOf returns the servers of the nodes that have one.
func (l *loadBalancers) serversOf(ctx context.Context, nodes []*corev1.Node) (map[int64]*hcloud.Server, error) {
	servers := map[int64]*hcloud.Server{}
	for _, node := range nodes {
		id, err := parseProviderID(node.Spec.ProviderID)
		if err != nil {
			continue // not initialized, or not ours
		}
		server, err := l.servers.ByID(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("server of node %s: %w", node.Name, err)
		}
		if server != nil {
			servers[id] = server
		}
	}
	return servers, nil
}

// obtain returns a load balancer for a Service that has none: one that exists under the wanted
// name and has no owner, else a new one.
func (l *loadBalancers) obtain(ctx context.Context, svc *corev1.Service, plan *lbPlan) (lb *hcloud.LoadBalancer, created bool, err error) {
	unplaced := plan.Location == "" && plan.NetworkZone == ""
	// A name that was asked for may name a load balancer that was made beforehand. The default
	// name contains the Service's UID: under it there is one only if its label was lost, which the
	// create request finds out for nothing.
	if plan.Name != "" || unplaced {
		if lb, err = l.adopt(ctx, svc, plan); lb != nil || err != nil {
			return lb, false, err
		}
	}
	if unplaced {
		return nil, false, invalidSettings(annotationError{annotationPrefix + "location", "", "is missing: set it to the name of a location or set " +
			annotationPrefix + "network-zone, for this Service or for all through HCLOUD_LOAD_BALANCERS_LOCATION or HCLOUD_LOAD_BALANCERS_NETWORK_ZONE"})
	}
	l.events.normal(svc, EventCreating, "Creating load balancer %q", plan.CreateName)
	defer l.store.writing(string(svc.UID))()
	result, _, err := l.client.LoadBalancer.Create(ctx, createOpts(plan))
	if hcloud.IsError(err, hcloud.ErrorCodeUniquenessError) {
		if lb, adoptErr := l.adopt(ctx, svc, plan); lb != nil || adoptErr != nil {
			return lb, false, adoptErr
		}
	}
	if hcloud.IsError(err, hcloud.ErrorCodeInvalidInput, hcloud.ErrorCodeNotFound) {
		names := catalogueNames{Type: plan.Type, Location: plan.Location, NetworkZone: plan.NetworkZone}
		if wrong := l.checkNames(ctx, svc, names); wrong != nil {
			return nil, false, wrong
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("creating load balancer %q: %w", plan.CreateName, err)
	}
	klog.InfoS("Created load balancer", "service", klog.KObj(svc), "loadBalancer", result.LoadBalancer.ID, "name", plan.CreateName)
	if err := l.waiter.wait(ctx, result.Action); err != nil {
		return nil, false, fmt.Errorf("creating load balancer %d (%s): %w", result.LoadBalancer.ID, plan.CreateName, err)
	}
	if lb, err = l.get(ctx, result.LoadBalancer.ID); err != nil {
		return nil, false, err
	}
	l.events.normal(svc, EventCreated, "Created load balancer %d (%s)", lb.ID, lb.Name)
	return lb, true, nil
}

func (l *loadBalancers) get(ctx context.Context, id int64) (*hcloud.LoadBalancer, error) {
	lb, _, err := l.client.LoadBalancer.GetByID(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("getting load balancer %d: %w", id, err)
	}
	if lb == nil {
		return nil, fmt.Errorf("load balancer %d has disappeared", id)
	}
	return lb, nil
}

// adopt makes the load balancer of the wanted name the Service's, unless it belongs to another
// Service. It returns nil if there is none of that name.
func (l *loadBalancers) adopt(ctx context.Context, svc *corev1.Service, plan *lbPlan) (*hcloud.LoadBalancer, error) {
	l.adopting.Lock()
	defer l.adopting.Unlock()
	lb, _, err := l.client.LoadBalancer.GetByName(ctx, plan.CreateName)
	if err != nil {
		return nil, fmt.Errorf("looking for a load balancer named %q: %w", plan.CreateName, err)
	}
	if lb == nil {
		return nil, nil
	}
	if lb.Labels[labelServiceUID] == plan.UID {
		return lb, nil // ours already: created by a request whose answer was lost
	}
	if owner := otherOwner(lb.Labels, plan.UID); owner != "" {
		l.events.warning(svc, EventNotAdoptable, "Load balancer %d (%s) belongs to the Service with UID %s; choose another name", lb.ID, lb.Name, owner)
		return nil, fmt.Errorf("load balancer %d (%s) belongs to the Service with UID %s", lb.ID, lb.Name, owner)
	}
	// No ports are recorded as ours yet: what is there now is somebody else's.
	defer l.store.writing(plan.UID)()
	updated, _, err := l.client.LoadBalancer.Update(ctx, lb, hcloud.LoadBalancerUpdateOpts{Labels: withOwnership(lb.Labels, plan.UID, nil)})
	if err != nil {
		return nil, fmt.Errorf("adopting load balancer %d (%s): %w", lb.ID, lb.Name, err)
	}
	l.events.normal(svc, EventAdopted, "Adopted load balancer %d (%s)", lb.ID, lb.Name)
	return updated, nil
}

// reconcile sends the difference between plan and lb and returns the load balancer as it is then.
func (l *loadBalancers) reconcile(ctx context.Context, svc *corev1.Service, plan *lbPlan, lb *hcloud.LoadBalancer) (*hcloud.LoadBalancer, []lbOp, error) {
	ops := diffLoadBalancer(plan, lb)
	if len(ops) == 0 {
		return lb, nil, nil
	}
	klog.InfoS("Updating load balancer", "service", klog.KObj(svc), "loadBalancer", lb.ID, "operations", describeOps(ops, len(ops)))
	defer l.store.writing(plan.UID)()
	if err := l.applyOps(ctx, lb, ops); err != nil {
		return nil, nil, err
	}
	l.events.normal(svc, EventUpdated, "Updated load balancer %d: %s", lb.ID, describeOps(ops, 6))
	if !slices.ContainsFunc(ops, changesAddresses) {
		return lb, ops, nil
	}
	lb, err := l.get(ctx, lb.ID)
	return lb, ops, err
}

// changesAddresses reports whether the operation may change what the Service's status shows.
func changesAddresses(op lbOp) bool {
	return slices.Contains([]lbOpKind{opEnablePublic, opDisablePublic, opAttach, opDetach}, op.Kind)
}

// describeOps describes operations, at most n of them.
func describeOps(ops []lbOp, n int) string {
	var texts []string
	for _, op := range ops[:min(len(ops), n)] {
		texts = append(texts, op.String())
	}
	if len(ops) > n {
		texts = append(texts, fmt.Sprintf("and %d more", len(ops)-n))
	}
	return strings.Join(texts, "; ")
}
