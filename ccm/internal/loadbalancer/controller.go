// Package loadbalancer is the part of the service controller: one load balancer per Service. What it should be, package plan says.
package loadbalancer

import (
	"cmp"
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
// A sync (sync.go) finds the load balancer, reads what the plan depends on, computes the plan, compares,
// and sends the difference. Syncs of one Service never overlap.
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
	managed map[string]managedService // by UID: Services that resync compares
	// issuances holds the time of the last attempt for each certificate whose issuance failed.
	issuances map[int64]time.Time
	// leaving holds by UID since when targets wait before they leave.
	leaving map[string]wait
	// waits receives a signal when targets wait for another one to be healthy.
	Waits chan struct{}
}

// New returns the load balancers. They tell the evidence which Services' load balancers are visible.
func New(waiter *apicall.Waiter, servers *inventory.Servers, network *inventory.Network, e *inventory.Evidence,
	own plan.Ownership, defaults map[string]string, events *event.Recorder) *Controller {
	clk := waiter.Clock
	l := &Controller{
		client: waiter.Client, waiter: waiter, slow: &apicall.SlowActions{Waiter: waiter}, servers: servers, network: network,
		evidence: e, store: inventory.NewLoadBalancers(waiter.Client, clk, e), defaults: defaults, events: events, own: own,
		managed: map[string]managedService{}, issuances: map[int64]time.Time{}, leaving: map[string]wait{}, Waits: make(chan struct{}, 1),
	}
	l.certs = apicall.NewCache(clk, inventory.MaxLoadBalancerAge, l.listCertificates)
	l.types = apicall.NewCache(clk, maxCatalogueAge, l.listTypes)
	l.primaryIPs = apicall.NewCache(clk, maxCatalogueAge, l.listPrimaryIPs)
	return l
}

// managedService is a Service for which the service controller wants a load balancer.
type managedService struct {
	Namespace, Name string
	Nodes           []*corev1.Node
}

var _ cloudprovider.LoadBalancer = (*Controller)(nil)

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (l *Controller) GetLoadBalancerName(_ context.Context, _ string, svc *corev1.Service) string {
	if name := strings.TrimSpace(svc.Annotations[plan.AnnotationPrefix+"name"]); name != "" {
		return name
	}
	return l.own.DefaultName(svc)
}

// GetLoadBalancer implements cloudprovider.LoadBalancer. If the Service wants no load balancer any
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
	unwanted := svc.DeletionTimestamp != nil || svc.Spec.Type != corev1.ServiceTypeLoadBalancer
	if unwanted {
		l.release(svc)
	}
	sameToken := l.evidence.SameToken()
	lbs, err := l.ownedNow(ctx, svc)
	if err != nil {
		return nil, false, err
	}
	if len(lbs) == 0 && unwanted {
		if lb, err := l.inherited(ctx, svc); lb != nil || err != nil {
			return &corev1.LoadBalancerStatus{}, lb != nil, err
		}
	}
	if len(lbs) > 1 {
		return svc.Status.LoadBalancer.DeepCopy(), true, nil
	}
	if len(lbs) == 1 {
		settings, _, _ := plan.ParseAnnotations(svc.Annotations, l.defaults)
		return plan.Ingress(lbs[0], &settings), true, nil
	}
	if !unwanted {
		return nil, false, nil
	}
	// Otherwise a load balancer in the right project would outlive its Service.
	if err := cmp.Or(l.doubt(svc, l.evidence.Project(ctx)), sameToken()); err != nil {
		return nil, false, err
	}
	certs, err := l.ownedCertificates(ctx, string(svc.UID))
	return &corev1.LoadBalancerStatus{}, len(certs) > 0, err
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer.
func (l *Controller) EnsureLoadBalancer(ctx context.Context, _ string, svc *corev1.Service, nodes []*corev1.Node) (*corev1.LoadBalancerStatus, error) {
	ctx, cancel := context.WithTimeout(apicall.Urgently(ctx, apicall.ControllerService, "ensure"), SyncTimeout)
	defer cancel()
	unlock, err := l.Services.Lock(ctx, string(svc.UID))
	if err != nil {
		return nil, err
	}
	defer unlock()
	svc = l.newest(svc)
	l.manage(svc, nodes)
	result, err := l.Sync(ctx, svc, nodes, Options{Create: true})
	if err != nil {
		l.Publish(svc, result.Status)
		return nil, err
	}
	return result.Status, nil
}

// Publish writes the status of a Service whose sync has failed in some part, because the service controller
// does not write it then: what serves traffic must be known.
func (l *Controller) Publish(svc *corev1.Service, status *corev1.LoadBalancerStatus) {
	if status == nil || len(status.Ingress) == 0 {
		return
	}
	if err := PatchStatus(l.Kube, svc, status); err != nil {
		klog.ErrorS(err, "Could not write the status of a Service; will try again", "service", klog.KObj(svc))
	}
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer. It is called when the nodes have changed.
// It never creates a load balancer, because it cannot write the address to the Service.
func (l *Controller) UpdateLoadBalancer(ctx context.Context, _ string, svc *corev1.Service, nodes []*corev1.Node) error {
	ctx, cancel := context.WithTimeout(apicall.Urgently(ctx, apicall.ControllerService, "nodes"), SyncTimeout)
	defer cancel()
	unlock, err := l.Services.Lock(ctx, string(svc.UID))
	if err != nil {
		return err
	}
	defer unlock()
	svc = l.newest(svc)
	l.manage(svc, nodes)
	_, err = l.Sync(ctx, svc, nodes, Options{})
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
	if err != nil || now.UID != svc.UID || now.DeletionTimestamp != nil || now.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return svc // what follows its deletion undoes this sync
	}
	return now.DeepCopy()
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer. It deletes only resources with the
// Service's ownership label. With keep-on-delete, the load balancer loses its owner instead.
func (l *Controller) EnsureLoadBalancerDeleted(ctx context.Context, _ string, svc *corev1.Service) error {
	ctx, cancel := context.WithTimeout(apicall.Urgently(ctx, apicall.ControllerService, "delete"), SyncTimeout)
	defer cancel()
	unlock, err := l.Services.Lock(ctx, string(svc.UID))
	if err != nil {
		return err
	}
	defer unlock()
	l.release(svc)
	sameToken := l.evidence.SameToken()
	lbs, err := l.ownedNow(ctx, svc)
	if err != nil {
		return err
	}
	if len(lbs) == 0 {
		if lb, err := l.inherited(ctx, svc); lb != nil || err != nil {
			return l.endInherited(ctx, svc, lb, err)
		}
		if err := cmp.Or(l.doubt(svc, l.evidence.Project(ctx)), sameToken()); err != nil {
			return err
		}
	}
	if len(lbs) > 1 {
		return l.several(svc, lbs) // after the first deletion nothing would show that the others are foreign
	}
	settings, err := l.deletionSettings(svc)
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
		return l.leaveCertificates(ctx, svc, certs)
	}
	return err
}

// end ends the Service's use of the load balancer.
func (l *Controller) end(ctx context.Context, svc *corev1.Service, settings *plan.Settings, lb *hcloud.LoadBalancer) error {
	if lb.Labels[plan.LabelShared] != "" {
		unlock, err := l.adopting.Lock(ctx, lb.Name) // no Service may join now
		if err != nil {
			return err
		}
		defer unlock()
		if lb, err = l.get(ctx, lb.ID); err != nil {
			return err
		}
	}
	if shared, err := l.endShare(ctx, svc, lb); shared || err != nil {
		return err
	}
	if plan.KeepsOnDelete(settings, lb) {
		return l.keepWithoutService(ctx, svc, lb)
	}
	return l.delete(ctx, svc, settings, lb)
}

func (l *Controller) delete(ctx context.Context, svc *corev1.Service, settings *plan.Settings, lb *hcloud.LoadBalancer) error {
	if lb.Protection.Delete {
		if err := l.unprotect(ctx, svc, settings, lb); err != nil {
			return err
		}
	}
	defer l.store.Writing(string(svc.UID))()
	result, resp, err := l.client.LoadBalancer.DeleteWithResult(ctx, lb)
	switch {
	case err == nil:
		err = l.slow.Wait(ctx, lb.ID, result.Action)
	case hcloud.IsError(err, hcloud.ErrorCodeNotFound):
		err = nil
	case resp != nil && resp.Response != nil && resp.StatusCode == http.StatusNoContent:
		err = nil // the API's answer until October 2026: no action, and no body that hcloud-go could read
	case hcloud.IsError(err, hcloud.ErrorCodeProtected):
		l.warnProtected(svc, lb)
	}
	if err != nil {
		return fmt.Errorf("deleting load balancer %d (%s): %w", lb.ID, lb.Name, err)
	}
	klog.InfoS("Deleted load balancer", "service", klog.KObj(svc), "loadBalancer", lb.ID)
	return nil
}

// manage records that the service controller wants a load balancer for the Service, so that resync
// compares it.
func (l *Controller) manage(svc *corev1.Service, nodes []*corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.managed[string(svc.UID)] = managedService{svc.Namespace, svc.Name, nodes}
}

// release ends manage. After it nothing may create a load balancer for the Service, because nothing
// would delete it.
func (l *Controller) release(svc *corev1.Service) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.managed, string(svc.UID))
	delete(l.leaving, string(svc.UID))
}

// ManagedServices returns the Services that want load balancers, by UID.
func (l *Controller) ManagedServices() map[string]managedService {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.managed)
}

// find returns the Service's load balancer, or nil if there is none. If several have its label it
// returns the one that is certainly in use, or else an error.
func (l *Controller) find(ctx context.Context, svc *corev1.Service) (*hcloud.LoadBalancer, error) {
	sameToken := l.evidence.SameToken()
	all, err := l.findOwned(ctx, svc)
	lbs := l.own.OwnedBy(all, string(svc.UID))
	switch {
	case err != nil:
		return nil, err
	case len(lbs) == 0:
		if lb, err := l.findElsewhere(ctx, svc, all); lb != nil || err != nil {
			return lb, err
		}
		return nil, cmp.Or(l.doubt(svc, l.evidence.LoadBalancerGone(ctx, svc)), sameToken())
	case len(lbs) == 1:
		ended, err := l.slow.Check(ctx, lbs[0].ID)
		if ended {
			return l.get(ctx, lbs[0].ID) // it was read before the action ended
		}
		return lbs[0], err
	}
	err = l.several(svc, lbs)
	if lb := plan.InUse(lbs, svc); lb != nil {
		return lb, nil
	}
	return nil, err
}

// doubt reports err if it is a doubt, and returns it.
func (l *Controller) doubt(svc *corev1.Service, err error) error {
	if d, ok := errors.AsType[*apicall.DoubtError](err); ok {
		l.events.Warning(svc, event.Doubted, "%s", d)
	}
	return err
}

// several reports that more than one load balancer has the Service's label, and returns an error that
// says so. One of them serves the Service, and a person may need the others.
func (l *Controller) several(svc *corev1.Service, lbs []*hcloud.LoadBalancer) error {
	var names []string
	for _, lb := range lbs {
		names = append(names, fmt.Sprintf("%d (%s)", lb.ID, lb.Name))
	}
	slices.Sort(names)
	text := fmt.Sprintf("the load balancers %s all have the label %s: none of them is deleted, and only one whose address the Service shows is changed; remove the label from those that do not belong to the Service",
		strings.Join(names, ", "), plan.OwnerSelector(string(svc.UID)))
	l.events.Warning(svc, event.Several, "%s", text)
	return errors.New(text)
}

// ownedNow returns the Service's load balancers, from an answer about its label.
func (l *Controller) ownedNow(ctx context.Context, svc *corev1.Service) ([]*hcloud.LoadBalancer, error) {
	lbs, err := l.lookUp(ctx, svc)
	return l.own.OwnedBy(lbs, string(svc.UID)), err
}

// findOwned returns the load balancers with the Service's label, of all clusters. Only an answer about this label proves
// that there is none or more than one: the shared list may be some seconds old, and an entry that moves
// to an earlier page while the list is read is missing in it. For a Service that shows no address, the
// shared list would hardly help.
func (l *Controller) findOwned(ctx context.Context, svc *corev1.Service) ([]*hcloud.LoadBalancer, error) {
	if len(svc.Status.LoadBalancer.Ingress) > 0 {
		if lbs, err := l.store.Find(ctx, string(svc.UID)); err != nil || len(l.own.OwnedBy(lbs, string(svc.UID))) == 1 {
			return lbs, err
		}
	}
	return l.lookUp(ctx, svc)
}

func (l *Controller) get(ctx context.Context, id int64) (*hcloud.LoadBalancer, error) {
	lb, _, err := l.client.LoadBalancer.GetByID(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("getting load balancer %d: %w", id, err)
	}
	if lb == nil {
		return nil, fmt.Errorf("getting load balancer %d: it does not exist any more", id)
	}
	return lb, nil
}

// settle records that the load balancer serves the Service, after an adoption.
func (l *Controller) settle(ctx context.Context, id int64, uid string) error {
	_, err := l.changeLabels(ctx, uid, id, func(lb *hcloud.LoadBalancer) (map[string]string, error) {
		if owner := lb.Labels[plan.LabelServiceUID]; owner != uid {
			return nil, fmt.Errorf("the label %s was changed during the sync: it is %q, want %q", plan.LabelServiceUID, owner, uid)
		}
		lb.Labels[plan.LabelLastOwner] = uid
		return lb.Labels, nil
	})
	if err != nil {
		return fmt.Errorf("setting the label %s of load balancer %d: %w", plan.LabelLastOwner, id, err)
	}
	return nil
}

// adopt sets the Service's ownership label on the load balancer that the plan names. It returns nil
// if no load balancer has that name, and an error if the Service must not have it.
func (l *Controller) adopt(ctx context.Context, svc *corev1.Service, planned *plan.LoadBalancer) (*hcloud.LoadBalancer, error) {
	name := planned.CreateName
	if planned.Adopt != "" { // may be an ID: the lock is by name
		lb, err := l.candidate(ctx, planned)
		if err != nil {
			return nil, err
		}
		name = lb.Name
	}
	unlock, err := l.adopting.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	lb, err := l.candidate(ctx, planned)
	if lb == nil || err != nil {
		return nil, err
	}
	if l.own.Owns(lb.Labels, planned.UID) {
		return lb, nil // created by an earlier request whose answer was lost
	}
	if l.own.IsHere(lb.Labels) && lb.Labels[plan.LabelServiceUID] != "" && lb.Labels[plan.LabelShared] != "" && planned.Shared {
		return l.join(ctx, svc, planned, lb)
	}
	if owner := l.own.OtherOwner(lb.Labels, planned.UID); owner != "" {
		l.events.Warning(svc, event.NotAdoptable, "Load balancer %d (%s) belongs to %s: choose another name", lb.ID, lb.Name, owner)
		return nil, fmt.Errorf("load balancer %d (%s) belongs to %s: choose another name", lb.ID, lb.Name, owner)
	}
	if l.own.Inherits(lb.Labels, planned.UID) {
		return l.takeOver(ctx, svc, lb)
	}
	if planned.Name == "" && planned.Adopt == "" || plan.WasReleased(lb, svc) {
		text := fmt.Sprintf("load balancer %d (%s) has the name of this Service's load balancer, but not the label %s: nothing was changed; set the label to give it to the Service, or rename it to get a new one",
			lb.ID, lb.Name, plan.OwnerSelector(planned.UID))
		l.events.Warning(svc, event.NotOwned, "%s", text)
		return nil, errors.New(text)
	}
	labels := plan.WithOwnership(lb.Labels, planned.UID, nil, planned.Marks) // records no ports yet: the existing ones are foreign
	if planned.Adopt != "" {
		labels = plan.WithLent(labels, lb, l.clusterServers(planned))
	}
	defer l.store.Writing(planned.UID)()
	updated, _, err := l.client.LoadBalancer.Update(ctx, lb, hcloud.LoadBalancerUpdateOpts{Labels: labels})
	if err != nil {
		return nil, fmt.Errorf("adopting load balancer %d (%s): %w", lb.ID, lb.Name, err)
	}
	l.events.Normal(svc, event.Adopted, "Adopted load balancer %d (%s)", lb.ID, lb.Name)
	return updated, nil
}
