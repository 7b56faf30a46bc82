package ccm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	cloudapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"
)

type syncOptions struct {
	// create allows the sync to create a load balancer.
	create bool
	// quiet suppresses warnings that each sync would repeat.
	quiet bool
}

type syncResult struct {
	status  *corev1.LoadBalancerStatus
	created bool   // the sync created the load balancer
	ops     []lbOp // the operations that the sync sent
}

// sync brings the load balancer of svc to its desired state. The caller holds the Service's lock.
func (l *loadBalancers) sync(ctx context.Context, svc *corev1.Service, nodes []*corev1.Node, opts syncOptions) (syncResult, error) {
	result, err := l.trySync(ctx, svc, nodes, opts)
	if err == nil {
		return result, nil
	}
	if hcloud.IsError(err, hcloud.ErrorCodeInvalidInput, hcloud.ErrorCodeNotFound) {
		l.network.forget() // the network may be the object that the API did not find
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
		err = cloudapi.NewRetryError(fmt.Sprintf("sync not finished within %v, will continue: %v", syncTimeout, err), time.Second)
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
		return result, errors.New("the load balancer of the Service does not exist")
	}
	if lb != nil && settings.Type != "" && lb.LoadBalancerType != nil && settings.Type != lb.LoadBalancerType.Name {
		// Find a wrong name before the first operation.
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
		// This sync ends HTTPS, so its managed certificates are obsolete.
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
	if !isSettled(lb, plan.UID) {
		if err := l.settle(ctx, lb.ID, plan.UID); err != nil {
			return result, err
		}
	}
	if err := l.deleteCertificates(ctx, obsolete); err != nil {
		return result, err
	}
	result.status = ingressStatus(lb, &settings)
	if len(result.status.Ingress) == 0 {
		return result, cloudapi.NewRetryError(fmt.Sprintf("load balancer %d (%s) has no address yet for the Service's status", lb.ID, lb.Name), 5*time.Second)
	}
	return result, nil
}

// warn records warnings that do not stop the sync.
func (l *loadBalancers) warn(svc *corev1.Service, unknown, skipped []string) {
	if len(unknown) > 0 {
		l.events.warning(svc, EventUnknownAnnotation, "Ignored unknown annotations: %s", strings.Join(unknown, ", "))
	}
	if len(svc.Spec.LoadBalancerSourceRanges) > 0 {
		l.events.warning(svc, EventIgnoredSetting, "Ignored spec.loadBalancerSourceRanges: Hetzner load balancers cannot filter by source address")
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
		l.events.warning(svc, EventImmutable, "Load balancer %d is in location %s and cannot move to %s: delete and create the Service to move it", lb.ID, lb.Location.Name, plan.Location)
	}
	if plan.NetworkZone != "" && plan.NetworkZone != string(lb.Location.NetworkZone) {
		l.events.warning(svc, EventImmutable, "Load balancer %d is in network zone %s and cannot move to %s: delete and create the Service to move it", lb.ID, lb.Location.NetworkZone, plan.NetworkZone)
	}
}

// serversOf returns the servers of the nodes that have one.
func (l *loadBalancers) serversOf(ctx context.Context, nodes []*corev1.Node) (map[int64]*hcloud.Server, error) {
	servers := map[int64]*hcloud.Server{}
	for _, node := range nodes {
		id, err := parseProviderID(node.Spec.ProviderID)
		if err != nil {
			continue // not initialized, or of another provider
		}
		server, err := l.servers.ByID(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("finding the server of node %s: %w", node.Name, err)
		}
		if server != nil {
			servers[id] = server
		}
	}
	return servers, nil
}

// reconcile sends the difference between plan and lb, and returns the resulting load balancer and the
// operations that succeeded, also with an error.
func (l *loadBalancers) reconcile(ctx context.Context, svc *corev1.Service, plan *lbPlan, lb *hcloud.LoadBalancer) (*hcloud.LoadBalancer, []lbOp, error) {
	ops := giveFirst(diffLoadBalancer(plan, lb), lb, plan.UID)
	if len(ops) == 0 {
		return lb, nil, nil
	}
	klog.InfoS("Updating load balancer", "service", klog.KObj(svc), "loadBalancer", lb.ID, "operations", describeOps(ops, len(ops)))
	defer l.store.writing(plan.UID)()
	done, err := l.applyOps(ctx, lb, ops)
	if len(done) > 0 {
		l.events.normal(svc, EventUpdated, "Updated load balancer %d: %s", lb.ID, describeOps(done, 6))
	}
	if endsAll := err != nil && endsSync(ctx, err); endsAll || !slices.ContainsFunc(ops, changesAddresses) {
		return lb, done, err
	}
	now, getErr := l.get(ctx, lb.ID)
	if getErr != nil {
		return lb, done, errors.Join(err, getErr)
	}
	return now, done, err
}

// changesAddresses reports whether the operation may change the addresses in the Service's status.
func changesAddresses(op lbOp) bool {
	return slices.Contains([]lbOpKind{opEnablePublic, opDisablePublic, opAttach, opDetach}, op.Kind)
}

// describeOps describes at most n of the operations.
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
