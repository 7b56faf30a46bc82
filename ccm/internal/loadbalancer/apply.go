package loadbalancer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/klog/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// reconcileAll sends the difference between plan and lb, and returns the resulting load balancer. If the
// API refuses the planned type, the load balancer gets what there is room for without it.
func (s *serviceSync) reconcileAll(ctx context.Context, planned *plan.LoadBalancer, lb *hcloud.LoadBalancer) *hcloud.LoadBalancer {
	lb, ops, err := s.reconcile(ctx, planned, lb)
	s.result.Ops = ops
	refused := findOp(err, func(op plan.Op) bool { return op.Kind == plan.OpChangeType })
	if refused == nil || endsSync(ctx, err) {
		s.failed(err)
		return lb
	}
	s.failed(refused, "type")
	now, err := s.get(ctx, lb.ID)
	if err != nil {
		s.failed(err)
		return lb
	}
	s.in.Current, s.in.Limits = now, now.LoadBalancerType
	planned, _ = plan.Compute(s.in)
	lb, ops, err = s.reconcile(ctx, planned, now)
	s.result.Ops = append(s.result.Ops, ops...)
	s.failed(err)
	return lb
}

// reconcile sends the difference between plan and lb, and returns the resulting load balancer and the
// operations that succeeded, even with an error.
func (s *serviceSync) reconcile(ctx context.Context, planned *plan.LoadBalancer,
	lb *hcloud.LoadBalancer) (*hcloud.LoadBalancer, []plan.Op, error) {
	ops := plan.Diff(planned, lb)
	if !planned.Guest {
		ops = plan.GiveFirst(ops, lb, planned.UID, s.in.Refused)
	}
	if len(ops) == 0 {
		return lb, nil, nil
	}
	if planned.Guest || len(plan.GuestsOf(lb)) > 0 {
		unlock, err := s.sharing.Lock(ctx, strconv.FormatInt(lb.ID, 10))
		if err != nil {
			return lb, nil, err
		}
		defer unlock()
	}
	klog.InfoS("Updating load balancer", "service", klog.KObj(s.svc), "loadBalancer", lb.ID, "operations", plan.DescribeOps(ops, len(ops)))
	defer s.store.Written(planned.UID)
	done, err := s.applyOps(ctx, lb, ops, s.checkNode)
	s.noteRefused(ctx, planned.UID, done, err)
	if len(done) > 0 {
		s.events.Normal(s.svc, event.Updated, "Updated load balancer %d: %s", lb.ID, plan.DescribeOps(done, 6))
	}
	if endsAll := err != nil && endsSync(ctx, err); endsAll || !slices.ContainsFunc(ops, plan.ChangesAddresses) {
		return lb, done, err
	}
	now, getErr := s.get(ctx, lb.ID)
	if getErr != nil {
		return lb, done, errors.Join(err, getErr)
	}
	return now, done, err
}

// closeExposed deletes the ports of a Service that asks to be private, if its load balancer has been public for maxLinger: something holds
// the public interface up, such as a target of another owner, the owner of a shared load balancer, or a missing network. New ones wait
// (see plan.Op.Needs and plan.Input.Wrong). What was there before an adoption stays.
func (s *serviceSync) closeExposed(ctx context.Context, lb *hcloud.LoadBalancer) {
	uid := string(s.svc.UID)
	defaults := s.defaults
	if plan.IsLent(lb) || plan.IsGuest(lb, uid) {
		defaults = nil // they are not for an interface that somebody else decides about
	}
	asked, _, _ := plan.ParseAnnotations(s.asked.Annotations, defaults)
	exposed := asked.DisablePublicNetwork && lb.PublicNet.Enabled && (plan.IsGuest(lb, uid) || plan.IsSettled(lb, uid))
	s.mu.Lock()
	since, known := s.exposed[uid]
	if !exposed {
		delete(s.exposed, uid)
	} else if !known {
		since = s.waiter.Clock.Now()
		s.exposed[uid] = since
	}
	s.mu.Unlock()
	if exposed && s.waiter.Clock.Since(since) >= maxLinger {
		s.failed(s.removePorts(ctx, uid, lb))
	}
}

// findOp returns the error of an operation that matches, or nil.
func findOp(err error, match func(plan.Op) bool) error {
	for _, e := range apicall.EachError(err) {
		if part, ok := errors.AsType[*partError](e); ok && match(part.op) {
			return part
		}
	}
	return nil
}

// applyOps sends the operations one by one and waits for each action, because the API locks a load
// balancer during an action. An operation that fails holds up only what needs it (see plan.Op); the error is
// a apicall.Errors. No target is removed before others were added in its place, nor after one may have been lost: an operation that
// should bring it back failed, too. An error of the optional check ends it before an operation. It returns the operations that
// succeeded, even with an error.
func (l *Controller) applyOps(ctx context.Context, lb *hcloud.LoadBalancer, ops []plan.Op, check func(plan.Op) error) (done []plan.Op,
	err error) {
	failed := map[plan.Part]bool{}
	missing, added, refused := false, 0, 0
	var errs apicall.Errors
	for _, op := range ops {
		if failed[op.Part] || slices.ContainsFunc(op.Needs, func(p plan.Part) bool { return failed[p] }) ||
			op.Kind == plan.OpRemoveTarget && (missing || added < max(op.Least, op.After-refused)) {
			failed[op.Part] = true
			continue
		}
		if check != nil {
			if err := check(op); err != nil {
				errs = append(errs, &partError{lb: lb, op: op, err: err})
				break
			}
		}
		err := l.apply(ctx, lb, op)
		adds := op.Kind == plan.OpAddTarget && op.Undo == nil
		if err == nil {
			if done = append(done, op); adds {
				added++
			}
			continue
		}
		if failed[op.Part] = true; adds && isTargetRefusal(ctx, err) {
			refused++
		}
		errs = append(errs, &partError{lb: lb, op: op, err: err})
		if endsSync(ctx, err) {
			break
		}
		if op.Undo != nil {
			if err := l.apply(ctx, lb, *op.Undo); err != nil && !hcloud.IsError(err, hcloud.ErrorCodeTargetAlreadyDefined) {
				errs = append(errs, &partError{lb: lb, op: *op.Undo, err: err})
				missing = missing || op.Undo.Kind == plan.OpAddTarget
			}
		}
	}
	if len(errs) == 0 {
		return done, nil
	}
	return done, errs
}

// apply sends one operation and waits for its action. To remove a target that is gone already succeeds, with either code of the API
// (hcloud-cloud-controller-manager issue 505): the next comparison sees one that is not. For a port, "not found" is an error: a gateway may
// answer it for everything, and without the label that records the port no later comparison would find it.
func (l *Controller) apply(ctx context.Context, lb *hcloud.LoadBalancer, op plan.Op) error {
	action, err := l.send(ctx, lb, op)
	if op.Kind == plan.OpRemoveTarget && notFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.slow.Wait(ctx, lb.ID, action)
}

// send makes the API call of one operation. The action may be nil.
func (l *Controller) send(ctx context.Context, lb *hcloud.LoadBalancer, op plan.Op) (action *hcloud.Action, err error) {
	client := &l.client.LoadBalancer
	switch op.Kind {
	case plan.OpRecord, plan.OpLabel:
		_, err = l.changeLabels(ctx, op.UID, lb.ID, func(now *hcloud.LoadBalancer) (*plan.Record, error) {
			return plan.RecordAfter(now, op)
		})
	case plan.OpRename:
		err = l.rename(ctx, lb, op.Name)
	case plan.OpChangeType:
		to := &hcloud.LoadBalancerType{Name: op.Type}
		action, _, err = client.ChangeType(ctx, lb, hcloud.LoadBalancerChangeTypeOpts{LoadBalancerType: to})
	case plan.OpAlgorithm:
		action, _, err = client.ChangeAlgorithm(ctx, lb, hcloud.LoadBalancerChangeAlgorithmOpts{Type: op.Algorithm})
	case plan.OpEnablePublic:
		action, _, err = client.EnablePublicInterface(ctx, lb)
	case plan.OpDisablePublic:
		action, _, err = client.DisablePublicInterface(ctx, lb)
	case plan.OpAttach:
		action, _, err = client.AttachToNetwork(ctx, lb, plan.AttachRequest(op))
	case plan.OpDetach:
		from := &hcloud.Network{ID: op.NetworkID}
		action, _, err = client.DetachFromNetwork(ctx, lb, hcloud.LoadBalancerDetachFromNetworkOpts{Network: from})
	case plan.OpAddTarget, plan.OpRemoveTarget:
		switch {
		case op.IP.IsValid():
			return l.changeIPv6Target(ctx, lb, string(op.Kind), op.Target.ServerID, op.IP)
		case op.Kind == plan.OpRemoveTarget:
			return l.removeTarget(ctx, lb, op.Target)
		}
		action, _, err = client.AddServerTarget(ctx, lb, hcloud.LoadBalancerAddServerTargetOpts{
			Server: &hcloud.Server{ID: op.Target.ServerID}, UsePrivateIP: &op.Target.Private})
	case plan.OpAddService:
		action, _, err = client.AddService(ctx, lb, plan.AddServiceRequest(op.Service))
	case plan.OpUpdateService:
		action, _, err = client.UpdateService(ctx, lb, op.Service.ListenPort, plan.UpdateServiceRequest(op.Service))
	case plan.OpDeleteService:
		action, _, err = client.DeleteService(ctx, lb, op.Port)
	case plan.OpChangeReverse:
		action, _, err = client.ChangeDNSPtr(ctx, lb, op.IP.String(), &op.DNSPtr)
	case plan.OpProtect:
		action, _, err = client.ChangeProtection(ctx, lb, hcloud.LoadBalancerChangeProtectionOpts{Delete: &op.Protect})
	default:
		err = fmt.Errorf("unknown operation %q", op.Kind)
	}
	return action, err
}

// rename gives the load balancer its name.
func (l *Controller) rename(ctx context.Context, lb *hcloud.LoadBalancer, name string) error {
	_, _, err := l.client.LoadBalancer.Update(ctx, lb, hcloud.LoadBalancerUpdateOpts{Name: name})
	if e, ok := errors.AsType[hcloud.Error](err); ok && e.Code == hcloud.ErrorCodeUniquenessError {
		e.Message += ": choose a third name, or rename the other load balancer first"
		return e
	}
	return err
}

// partError is the error of one operation.
type partError struct {
	lb  *hcloud.LoadBalancer
	op  plan.Op
	err error
}

func (e *partError) Error() string {
	return fmt.Sprintf("load balancer %d (%s): %v: %s", e.lb.ID, e.lb.Name, e.op, apicall.StableText(e.err))
}

func (e *partError) Unwrap() error { return e.err }

// StableText implements what apicall.StableText asks for.
func (e *partError) StableText() string { return e.Error() }

// isRefusal reports whether the API has refused a request for what it asks: another one may succeed.
func isRefusal(ctx context.Context, err error) bool {
	status := apicall.StatusOf(err)
	return status >= http.StatusBadRequest && status < http.StatusInternalServerError && !endsSync(ctx, err)
}

// isTargetRefusal reports whether the API has refused a target: at once, or by its action.
func isTargetRefusal(ctx context.Context, err error) bool {
	_, failed := errors.AsType[hcloud.ActionError](err)
	return failed || isRefusal(ctx, err)
}

// endsSync reports whether the error concerns the whole load balancer or this process: further operations
// would fail too, and each would cost calls.
func endsSync(ctx context.Context, err error) bool {
	if ctx.Err() != nil || errors.Is(err, apicall.ErrNotLeader) || errors.Is(err, plan.ErrNotOwner) {
		return true
	}
	return slices.ContainsFunc(apicall.EachError(err), func(e error) bool {
		return apicall.IsBusy(e) || apicall.IsRateLimit(e) || apicall.StatusOf(e) == http.StatusUnauthorized ||
			hcloud.IsError(e, hcloud.ErrorCodeForbidden)
	})
}
