package loadbalancer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	cloudapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// Options of one sync.
type Options struct {
	// Create allows the sync to create a load balancer.
	Create bool
	// Quiet suppresses warnings that each sync would repeat.
	Quiet bool
}

// Result of one sync.
type Result struct {
	// Status is set even with an error, if it is known: it shows the addresses that serve traffic.
	Status  *corev1.LoadBalancerStatus
	Created bool      // the sync created the load balancer
	Ops     []plan.Op // the operations that succeeded
	Waits   bool      // servers of nodes are not in the network yet, and nothing tells when they are
}

// Sync brings the load balancer of svc to its desired state. The caller holds the Service's lock. The error
// joins the errors of all parts that did not reach it.
func (l *Controller) Sync(ctx context.Context, svc *corev1.Service, nodes []*corev1.Node, opts Options) (Result, error) {
	s := &serviceSync{Controller: l, asked: svc, svc: svc, opts: opts}
	err := s.run(ctx, nodes)
	l.setCondition(ctx, svc, err)
	if err == nil {
		return s.result, nil
	}
	for _, e := range apicall.EachError(err) {
		if hcloud.IsError(e, hcloud.ErrorCodeInvalidInput, hcloud.ErrorCodeNotFound) {
			l.network.Forget() // the network may be the object that the API did not find
		}
		var invalid plan.SettingsError
		switch {
		case errors.As(e, &invalid):
			s.warnInvalid(invalid)
		case apicall.IsBusy(e):
			l.events.Normal(svc, event.Pending, "Waiting for the cloud: %s", apicall.StableText(e))
		case errors.Is(e, context.DeadlineExceeded) && ctx.Err() != nil:
			err = cloudapi.NewRetryError(fmt.Sprintf("sync not finished within %v, will continue: %v", SyncTimeout, err), time.Second)
		}
	}
	return s.result, apicall.ToRetryError(err)
}

// serviceSync is one sync of one Service.
type serviceSync struct {
	*Controller
	asked *corev1.Service
	svc   *corev1.Service // asked, with its settings on the load balancer
	opts  Options

	in       plan.Input
	unknown  []string              // annotations
	obsolete []*hcloud.Certificate // to delete when no port uses them
	errs     []error
	result   Result
}

// run makes the sync. A new load balancer is created only if all settings are right: a mistyped
// disable-public-network must not expose a Service. An existing one gets all that is right.
func (s *serviceSync) run(ctx context.Context, nodes []*corev1.Node) error {
	lb, err := s.find(ctx, s.svc)
	if err != nil {
		return err
	}
	if lb == nil && !s.opts.Create {
		return errors.New("the load balancer of the Service does not exist")
	}
	s.in = plan.Input{Own: s.own, Nodes: nodes}
	s.waited(string(s.svc.UID), &s.in)
	s.readSettings(lb)
	if lb != nil && !plan.IsGuest(lb, string(s.svc.UID)) {
		lb, err = s.evict(ctx, lb)
		s.failed(err)
	}
	planned, notes, err := s.prepare(ctx, lb)
	if err != nil {
		return err
	}
	if lb == nil {
		if err := s.checkHeld(ctx, s.asked); err != nil {
			return err
		}
		if lb, planned, notes, err = s.obtain(ctx, planned, notes); err != nil {
			return err
		}
	}
	s.noteLingering(planned)
	for _, n := range notes {
		if n.Unmet {
			s.failed(errors.New(n.Text))
		}
	}
	s.result.Waits = len(planned.Outside) > 0
	s.warn(ctx, lb, planned, notes)
	lb = s.reconcileAll(ctx, planned, lb)
	s.closeExposed(ctx, lb)
	err = apicall.JoinErrors(s.errs)
	if errors.Is(err, plan.ErrNotOwner) {
		return err
	}
	if findOp(err, func(op plan.Op) bool { return op.Part.IsPort() }) == nil {
		s.failed(s.deleteCertificates(ctx, s.obsolete))
	}
	if planned.Guest && len(planned.Services) == 0 {
		s.failed(fmt.Errorf("load balancer %d (%s) is shared and has none of the Service's ports", lb.ID, lb.Name))
		return apicall.JoinErrors(s.errs)
	}
	if len(s.errs) == 0 && !planned.Guest && !plan.IsSettled(lb, planned.UID) {
		s.failed(s.settle(ctx, lb.ID, planned.UID))
	}
	s.setStatus(lb)
	return apicall.JoinErrors(s.errs)
}
