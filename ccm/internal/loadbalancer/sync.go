package loadbalancer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	cloudapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

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
	s.in.LingerOver, s.in.Refused = s.waited(string(s.svc.UID))
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
	err = apicall.JoinErrors(s.errs)
	if errors.Is(err, plan.ErrNotOwner) {
		return err
	}
	if findPart(err, plan.Part.IsPort) == nil {
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

// readSettings reads the settings of the Service on the load balancer. Without one, lb is nil.
func (s *serviceSync) readSettings(lb *hcloud.LoadBalancer) {
	var contradictions []error
	s.svc, s.in.SettingsOf, contradictions = plan.WithSharedSettings(s.asked, lb, s.defaults)
	settings, unknown, mistakes := plan.ParseAnnotations(s.svc.Annotations, s.defaults)
	mistakes = append(mistakes, plan.CheckService(s.svc, &settings, s.network.Configured())...)
	s.in.Service, s.in.Settings, s.in.Wrong, s.unknown = s.svc, &settings, map[string]bool{}, unknown
	s.failed(plan.InvalidSettings(mistakes...))
	if len(contradictions) > 0 { // the others decide, so that nothing is wrong with the settings that apply
		s.errs = append(s.errs, plan.InvalidSettings(contradictions...))
	}
	for _, m := range contradictions {
		// A Service that wants to be private gets no further ports that are public.
		if a, ok := errors.AsType[plan.AnnotationError](m); ok && a.Setting() == "disable-public-network" {
			s.in.Wrong[a.Setting()] = true
		}
	}
}

// failed notes an error of a part, and that the load balancer keeps what it has for these settings.
func (s *serviceSync) failed(err error, settings ...string) {
	if err == nil {
		return
	}
	s.errs = append(s.errs, err)
	for _, name := range settings {
		s.in.Wrong[name] = true
	}
	for _, e := range apicall.EachError(err) {
		var invalid plan.SettingsError
		if !errors.As(e, &invalid) {
			continue
		}
		for _, mistake := range invalid.Mistakes {
			if a, ok := errors.AsType[plan.AnnotationError](mistake); ok {
				s.in.Wrong[a.Setting()], s.in.Wrong[a.With] = true, true
			}
		}
	}
}

// reconcileAll sends the difference between plan and lb, and returns the resulting load balancer. If the
// API refuses the planned type, the load balancer gets what there is room for without it.
func (s *serviceSync) reconcileAll(ctx context.Context, planned *plan.LoadBalancer, lb *hcloud.LoadBalancer) *hcloud.LoadBalancer {
	lb, ops, err := s.reconcile(ctx, planned, lb)
	s.result.Ops = ops
	refused := findPart(err, func(p plan.Part) bool { return p == plan.PartType })
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

// findPart returns the error of a part, or nil.
func findPart(err error, match func(plan.Part) bool) error {
	for _, e := range apicall.EachError(err) {
		if part, ok := errors.AsType[*partError](e); ok && match(part.op.Part) {
			return part
		}
	}
	return nil
}

// setStatus sets what the Service shows. The settings may hide all addresses. If one of these settings is
// wrong, the Service keeps what it shows.
func (s *serviceSync) setStatus(lb *hcloud.LoadBalancer) {
	for name := range s.in.Wrong {
		general, _, _ := strings.Cut(name, ".")
		if slices.Contains([]string{"hostname", "ipv6-disabled", "disable-private-ingress", "uses-proxyprotocol"}, general) {
			return
		}
	}
	status := plan.Ingress(lb, s.in.Settings)
	hidden := s.in.Settings.DisablePrivateIngress && !lb.PublicNet.Enabled
	switch {
	case len(status.Ingress) > 0 || hidden:
		s.result.Status = status
	case len(s.errs) == 0:
		s.failed(fmt.Errorf("load balancer %d (%s) has no address yet for the Service's status", lb.ID, lb.Name))
	}
}

// warnInvalid reports invalid settings.
func (s *serviceSync) warnInvalid(invalid plan.SettingsError) {
	if s.opts.Quiet {
		return
	}
	effect := "no load balancer is created until this is corrected"
	if s.in.Current != nil {
		effect = "the load balancer keeps what it has for this"
	}
	for _, mistake := range invalid.Mistakes {
		s.events.Warning(s.svc, event.InvalidSettings, "%v; %s", mistake, effect)
	}
}

// warn records warnings that do not stop the sync.
func (s *serviceSync) warn(ctx context.Context, lb *hcloud.LoadBalancer, planned *plan.LoadBalancer, notes []plan.Note) {
	if s.opts.Quiet {
		return
	}
	if len(s.unknown) > 0 {
		s.events.Warning(s.svc, event.UnknownAnnotation, "Ignored unknown annotations: %s", strings.Join(s.unknown, ", "))
	}
	for _, text := range plan.Unsupported(s.svc) {
		s.events.Seldom(s.svc, event.IgnoredSetting, "%s", text)
	}
	for _, n := range notes {
		s.events.Warning(s.svc, n.Reason, "%s", n.Text)
	}
	if len(planned.Excess) > 0 {
		types, err := s.types.Get(ctx)
		if err != nil {
			klog.ErrorS(err, "Could not find a larger load balancer type", "service", klog.KObj(s.svc))
		}
		s.events.Warning(s.svc, event.TypeLimit, "%s", plan.ExcessText(s.in.Limits.Name, planned.Excess, types))
	}
	s.warnImmutable(s.svc, lb, planned)
	s.warnFixed(ctx, lb)
}

func (l *Controller) warnImmutable(svc *corev1.Service, lb *hcloud.LoadBalancer, plan *plan.LoadBalancer) {
	if lb.Location == nil {
		return
	}
	if plan.Location != "" && plan.Location != lb.Location.Name {
		l.events.Warning(svc, event.Immutable,
			"Load balancer %d is in location %s and cannot move to %s: delete and create the Service to move it", lb.ID, lb.Location.Name,
			plan.Location)
	}
	if plan.NetworkZone != "" && plan.NetworkZone != string(lb.Location.NetworkZone) {
		l.events.Warning(svc, event.Immutable,
			"Load balancer %d is in network zone %s and cannot move to %s: delete and create the Service to move it", lb.ID,
			lb.Location.NetworkZone, plan.NetworkZone)
	}
}

// warnFixed reports annotations that name another address or load balancer than the Service has. Both are
// for its whole life.
func (s *serviceSync) warnFixed(ctx context.Context, lb *hcloud.LoadBalancer) {
	settings := s.in.Settings
	if want := settings.Adopt; want != "" && want != lb.Name && want != strconv.FormatInt(lb.ID, 10) && !plan.IsLent(lb) {
		s.events.Warning(s.svc, event.IgnoredSetting,
			"Ignored %sadopt: %q: the Service has load balancer %d (%s) already; delete and create the Service to change it",
			plan.AnnotationPrefix, want, lb.ID, lb.Name)
	}
	for _, a := range []struct {
		name, want string
		has        int64
		ip         fmt.Stringer
	}{
		{"primary-ipv4", settings.PrimaryIPv4, lb.PublicNet.IPv4.ID, lb.PublicNet.IPv4.IP},
		{"primary-ipv6", settings.PrimaryIPv6, lb.PublicNet.IPv6.ID, lb.PublicNet.IPv6.IP},
	} {
		if a.want == "" || a.has != 0 && a.want == strconv.FormatInt(a.has, 10) {
			continue
		}
		all, err := s.primaryIPs.Get(ctx) // hardly ever fetched: no decision needs it to be new
		if err != nil {
			continue
		}
		if ip := plan.FindPrimaryIP(all, a.want); ip == nil || ip.ID != a.has {
			s.events.Warning(s.svc, event.AddressImmutable,
				"Ignored %s: %q: load balancer %d has the address %s for its whole life; delete and create the Service to change it",
				s.sourceOf(s.svc, a.name), a.want, lb.ID, a.ip)
		}
	}
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
	s.noteRefused(ctx, planned.UID, err)
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
