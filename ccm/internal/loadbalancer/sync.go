package loadbalancer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
	// create allows the sync to create a load balancer.
	Create bool
	// quiet suppresses warnings that each sync would repeat.
	Quiet bool
}

// Result of one sync.
type Result struct {
	// status is set also with an error, if it is known: it shows what serves traffic.
	Status  *corev1.LoadBalancerStatus
	Created bool      // the sync created the load balancer
	Ops     []plan.Op // the operations that succeeded
}

// Sync brings the load balancer of svc to its desired state. The caller holds the Service's lock. The error
// joins the errors of all parts that did not reach it.
func (l *Controller) Sync(ctx context.Context, svc *corev1.Service, nodes []*corev1.Node, opts Options) (Result, error) {
	s := &serviceSync{Controller: l, svc: svc, opts: opts}
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
	svc  *corev1.Service
	opts Options

	in       plan.Input
	obsolete []*hcloud.Certificate // to delete when no port uses them
	errs     []error
	result   Result
}

// run makes the sync. A new load balancer is created only if all settings are right: a mistyped
// disable-public-network must not expose a Service. An existing one gets all that is right.
func (s *serviceSync) run(ctx context.Context, nodes []*corev1.Node) error {
	settings, unknown, mistakes := plan.ParseAnnotations(s.svc.Annotations, s.defaults)
	mistakes = append(mistakes, plan.CheckService(s.svc, &settings, s.network.Configured())...)
	lb, err := s.find(ctx, s.svc)
	if err != nil {
		return err
	}
	if lb == nil && !s.opts.Create {
		return errors.New("the load balancer of the Service does not exist")
	}
	s.in = plan.Input{Service: s.svc, Settings: &settings, Own: s.own, Nodes: nodes, Wrong: map[string]bool{}, LeaveNow: s.leaveNow(string(s.svc.UID))}
	s.failed(plan.InvalidSettings(mistakes...))
	planned, notes, err := s.prepare(ctx, lb)
	if err != nil {
		return err
	}
	if lb == nil {
		if lb, planned, notes, err = s.obtainLoadBalancer(ctx, planned, notes); err != nil {
			return err
		}
	}
	s.noteLeaving(planned)
	s.warn(ctx, lb, planned, unknown, notes)
	lb = s.reconcileAll(ctx, planned, lb)
	err = apicall.JoinErrors(s.errs)
	if errors.Is(err, plan.ErrNotOwner) {
		return err
	}
	if findPart(err, plan.Part.IsPort) == nil {
		s.failed(s.deleteCertificates(ctx, s.obsolete))
	}
	if planned.Guest && len(planned.Services) == 0 {
		s.failed(fmt.Errorf("load balancer %d (%s) is shared and has none of the Service's ports: %s", lb.ID, lb.Name, plan.DescribeNotes(notes)))
		return apicall.JoinErrors(s.errs)
	}
	if len(s.errs) == 0 && !planned.Guest && !plan.IsSettled(lb, planned.UID) {
		s.failed(s.settle(ctx, lb.ID, planned.UID))
	}
	s.setStatus(lb)
	return apicall.JoinErrors(s.errs)
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

// prepare reads what the plan depends on, and returns the plan. lb is nil if there is no load balancer yet:
// then any error ends the sync.
func (s *serviceSync) prepare(ctx context.Context, lb *hcloud.LoadBalancer) (planned *plan.LoadBalancer, notes []plan.Note, err error) {
	s.in.Current = lb
	for _, read := range []func(context.Context){
		s.readNetwork, s.readType, s.readPrimaryIPs, s.readServers, s.readCertificates,
	} {
		if lb == nil && len(s.errs) > 0 {
			break
		}
		read(ctx)
		if err := context.Cause(ctx); err != nil {
			return nil, nil, apicall.JoinErrors(append(s.errs, err))
		}
	}
	if lb == nil && len(s.errs) > 0 {
		return nil, nil, apicall.JoinErrors(s.errs)
	}
	planned, notes = plan.Compute(s.in)
	if lb != nil && plan.IsSmaller(s.in.Limits, lb.LoadBalancerType, planned.Excess) {
		s.failed(plan.InvalidSettings(plan.AnnotationError{Source: s.sourceOf(s.svc, "type"), Value: planned.Type,
			Reason: "is too small: " + plan.ExcessText(planned.Type, planned.Excess, nil)}))
		s.in.Limits = lb.LoadBalancerType
		planned, notes = plan.Compute(s.in)
	}
	if err := s.checkAddress(ctx, s.svc, planned, lb); err != nil {
		s.failed(err, "private-ipv4", "private-subnet-ip-range")
		if lb == nil {
			return nil, nil, apicall.JoinErrors(s.errs)
		}
		planned, notes = plan.Compute(s.in)
	}
	return planned, notes, nil
}

func (s *serviceSync) readNetwork(ctx context.Context) {
	id, err := s.network.ID(ctx)
	s.in.NetworkID = id
	s.failed(err, "use-private-ip", "disable-public-network", "private-ipv4", "private-subnet-ip-range")
}

// readType checks a new type of an existing load balancer before the first operation. The default type is
// only for new ones.
func (s *serviceSync) readType(ctx context.Context) {
	lb, settings := s.in.Current, s.in.Settings
	if lb == nil { // to ask costs a call, which few new load balancers need: see obtainLoadBalancer
		types, _ := s.types.Peek()
		s.in.Limits = plan.TypeNamed(types, cmp.Or(settings.Type, plan.DefaultLoadBalancerType))
		return
	}
	s.in.Limits = lb.LoadBalancerType
	if plan.IsGuest(lb, string(s.svc.UID)) {
		return
	}
	if _, chosen := s.svc.Annotations[plan.AnnotationPrefix+"type"]; !chosen {
		settings.Type = ""
	}
	if settings.Type == "" || lb.LoadBalancerType == nil || settings.Type == lb.LoadBalancerType.Name {
		return
	}
	if err := s.checkNames(ctx, s.svc, catalogueNames{Type: settings.Type}); err != nil {
		s.failed(err, "type")
		return
	}
	s.in.Limits = s.limitsOf(ctx, settings.Type)
}

// readCertificates finds the certificates of the ports, and orders those that are missing. The Service's
// managed certificates that no port uses are obsolete, if the certificates of all ports are known.
func (s *serviceSync) readCertificates(ctx context.Context) {
	s.in.Certificates, s.obsolete = map[int][]int64{}, nil
	var unused []*hcloud.Certificate
	var used []int64
	type found struct {
		ids []int64
		err error
	}
	bySettings := map[*plan.Settings]found{} // ports without settings of their own share one answer
	known, https := true, false
	ports, _, _ := plan.UsablePorts(s.svc)
	for _, p := range ports {
		port, settings := int(p.Port), s.in.Settings.ForPort(int(p.Port))
		if s.wrongCertificates(port) {
			known = false
			continue
		}
		if settings.Protocol != hcloud.LoadBalancerServiceProtocolHTTPS {
			continue
		}
		https = true
		answer, asked := bySettings[settings]
		if !asked {
			var others []*hcloud.Certificate
			answer.ids, others, answer.err = s.certificates(ctx, s.svc, settings)
			at := plan.SettingAt(s.svc, s.in.Settings, "http-certificates", port)
			s.failed(plan.AtPort(answer.err, s.svc, s.in.Settings, port), at)
			bySettings[settings], unused, used = answer, append(unused, others...), append(used, answer.ids...)
		}
		s.in.Certificates[port], known = answer.ids, known && answer.err == nil
	}
	if !https && known && s.in.Current != nil && plan.ServesCertificates(s.in.Current, string(s.svc.UID)) {
		// This sync ends HTTPS, so its managed certificates are obsolete.
		var err error
		unused, err = s.ownedCertificates(ctx, string(s.svc.UID))
		s.failed(err)
	}
	if known {
		s.obsolete = slices.DeleteFunc(unused, func(c *hcloud.Certificate) bool { return slices.Contains(used, c.ID) })
	}
}

// wrongCertificates reports whether a setting that decides about the certificates of a port is wrong.
func (s *serviceSync) wrongCertificates(port int) bool {
	for _, a := range plan.Annotations {
		about := a.Name == "protocol" || strings.Contains(a.Name, "certificate") && !strings.HasPrefix(a.Name, "health-check-")
		if about && s.in.IsWrong(a.Name, port) {
			return true
		}
	}
	return false
}

// obtainLoadBalancer creates or adopts the load balancer. It returns the plan for what it is then.
func (s *serviceSync) obtainLoadBalancer(ctx context.Context, planned *plan.LoadBalancer, notes []plan.Note) (*hcloud.LoadBalancer, *plan.LoadBalancer, []plan.Note, error) {
	lb, created, err := s.obtain(ctx, s.svc, planned)
	if hcloud.IsError(err, hcloud.ErrorCodeResourceLimitExceeded) && s.in.Limits == nil {
		// Find out whether the type has too little room. Otherwise the project's limit is reached.
		s.in.Limits = s.limitsOf(ctx, cmp.Or(planned.Type, plan.DefaultLoadBalancerType))
		if planned, notes = plan.Compute(s.in); len(planned.Excess) > 0 {
			lb, created, err = s.obtain(ctx, s.svc, planned)
		}
	}
	if refusesTargets(err) && len(planned.Targets) > 0 {
		if lb, created, planned, notes, err = s.obtainConfirmed(ctx, planned, err); err != nil {
			return nil, planned, notes, err
		}
	}
	s.result.Created = created
	if err == nil && !created { // adopted: it has settings of its own
		planned, notes, err = s.prepare(ctx, lb)
	}
	return lb, planned, notes, err
}

// refusesTargets reports whether the cloud may have refused a new load balancer because of its targets.
func refusesTargets(err error) bool {
	return hcloud.IsError(err, hcloud.ErrorCodeInvalidInput, hcloud.ErrorCodeNotFound, "resolve_cloud_public_targets_error", "resolve_cloud_private_targets_error")
}

// obtainConfirmed is obtain after the cloud has refused the plan, if the servers are not what they seemed to be. What was
// known about them may be old.
func (s *serviceSync) obtainConfirmed(ctx context.Context, refused *plan.LoadBalancer, refusal error) (lb *hcloud.LoadBalancer, created bool, planned *plan.LoadBalancer, notes []plan.Note, err error) {
	if err := s.confirmTargets(ctx); err != nil {
		return nil, false, refused, nil, err
	}
	planned, notes = plan.Compute(s.in)
	if slices.Equal(planned.Targets, refused.Targets) && maps.Equal(planned.IPv6, refused.IPv6) {
		return nil, false, refused, nil, refusal
	}
	lb, created, err = s.obtain(ctx, s.svc, planned)
	return lb, created, planned, notes, err
}

// reconcileAll sends the difference between plan and lb, and returns the resulting load balancer. If the
// API refuses the planned type, the load balancer gets what there is room for without it.
func (s *serviceSync) reconcileAll(ctx context.Context, planned *plan.LoadBalancer, lb *hcloud.LoadBalancer) *hcloud.LoadBalancer {
	lb, ops, err := s.reconcile(ctx, s.svc, planned, lb)
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
	lb, ops, err = s.reconcile(ctx, s.svc, planned, now)
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
	s.result.Status = plan.Ingress(lb, s.in.Settings)
	hidden := s.in.Settings.DisablePrivateIngress && !lb.PublicNet.Enabled
	if len(s.result.Status.Ingress) == 0 && !hidden && len(s.errs) == 0 {
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
func (s *serviceSync) warn(ctx context.Context, lb *hcloud.LoadBalancer, planned *plan.LoadBalancer, unknown []string, notes []plan.Note) {
	if s.opts.Quiet {
		return
	}
	if len(unknown) > 0 {
		s.events.Warning(s.svc, event.UnknownAnnotation, "Ignored unknown annotations: %s", strings.Join(unknown, ", "))
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
	s.warnExisting(ctx, lb)
}

func (l *Controller) warnImmutable(svc *corev1.Service, lb *hcloud.LoadBalancer, plan *plan.LoadBalancer) {
	if lb.Location == nil {
		return
	}
	if plan.Location != "" && plan.Location != lb.Location.Name {
		l.events.Warning(svc, event.Immutable, "Load balancer %d is in location %s and cannot move to %s: delete and create the Service to move it", lb.ID, lb.Location.Name, plan.Location)
	}
	if plan.NetworkZone != "" && plan.NetworkZone != string(lb.Location.NetworkZone) {
		l.events.Warning(svc, event.Immutable, "Load balancer %d is in network zone %s and cannot move to %s: delete and create the Service to move it", lb.ID, lb.Location.NetworkZone, plan.NetworkZone)
	}
}

// reconcile sends the difference between plan and lb, and returns the resulting load balancer and the
// operations that succeeded, also with an error.
func (l *Controller) reconcile(ctx context.Context, svc *corev1.Service, planned *plan.LoadBalancer, lb *hcloud.LoadBalancer) (*hcloud.LoadBalancer, []plan.Op, error) {
	ops := plan.Diff(planned, lb)
	if !planned.Guest {
		ops = plan.GiveFirst(ops, lb, planned.UID)
	}
	if len(ops) == 0 {
		return lb, nil, nil
	}
	if planned.Guest || len(plan.GuestsOf(lb)) > 0 {
		unlock, err := l.sharing.Lock(ctx, strconv.FormatInt(lb.ID, 10))
		if err != nil {
			return lb, nil, err
		}
		defer unlock()
	}
	klog.InfoS("Updating load balancer", "service", klog.KObj(svc), "loadBalancer", lb.ID, "operations", plan.DescribeOps(ops, len(ops)))
	defer l.store.Writing(planned.UID)()
	done, err := l.applyOps(ctx, lb, ops)
	if len(done) > 0 {
		l.events.Normal(svc, event.Updated, "Updated load balancer %d: %s", lb.ID, plan.DescribeOps(done, 6))
	}
	if endsAll := err != nil && endsSync(ctx, err); endsAll || !slices.ContainsFunc(ops, plan.ChangesAddresses) {
		return lb, done, err
	}
	now, getErr := l.get(ctx, lb.ID)
	if getErr != nil {
		return lb, done, errors.Join(err, getErr)
	}
	return now, done, err
}
