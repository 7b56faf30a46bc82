package ccm

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
)

type syncOptions struct {
	// create allows the sync to create a load balancer.
	create bool
	// quiet suppresses warnings that each sync would repeat.
	quiet bool
}

type syncResult struct {
	// status is set also with an error, if it is known: it shows what serves traffic.
	status  *corev1.LoadBalancerStatus
	created bool   // the sync created the load balancer
	ops     []lbOp // the operations that succeeded
}

// sync brings the load balancer of svc to its desired state. The caller holds the Service's lock. The error
// joins the errors of all parts that did not reach it.
func (l *loadBalancers) sync(ctx context.Context, svc *corev1.Service, nodes []*corev1.Node, opts syncOptions) (syncResult, error) {
	s := &lbSync{loadBalancers: l, svc: svc, opts: opts}
	err := s.run(ctx, nodes)
	l.setCondition(ctx, svc, err)
	if err == nil {
		return s.result, nil
	}
	for _, e := range eachError(err) {
		if hcloud.IsError(e, hcloud.ErrorCodeInvalidInput, hcloud.ErrorCodeNotFound) {
			l.network.forget() // the network may be the object that the API did not find
		}
		var invalid settingsError
		switch {
		case errors.As(e, &invalid):
			s.warnInvalid(invalid)
		case isBusy(e):
			l.events.normal(svc, EventPending, "Waiting for the cloud: %s", stableError(e))
		case errors.Is(e, context.DeadlineExceeded) && ctx.Err() != nil:
			err = cloudapi.NewRetryError(fmt.Sprintf("sync not finished within %v, will continue: %v", syncTimeout, err), time.Second)
		}
	}
	return s.result, toRetryError(err)
}

// lbSync is one sync of one Service.
type lbSync struct {
	*loadBalancers
	svc  *corev1.Service
	opts syncOptions

	in       lbPlanInput
	obsolete []*hcloud.Certificate // to delete when no port uses them
	errs     []error
	result   syncResult
}

// run makes the sync. A new load balancer is created only if all settings are right: a mistyped
// disable-public-network must not expose a Service. An existing one gets all that is right.
func (s *lbSync) run(ctx context.Context, nodes []*corev1.Node) error {
	settings, unknown, mistakes := parseAnnotations(s.svc.Annotations, s.defaults)
	mistakes = append(mistakes, checkService(s.svc, &settings, s.network.configured())...)
	lb, err := s.find(ctx, s.svc)
	if err != nil {
		return err
	}
	if lb == nil && !s.opts.create {
		return errors.New("the load balancer of the Service does not exist")
	}
	s.in = lbPlanInput{Service: s.svc, Settings: &settings, Own: s.own, Nodes: nodes, Wrong: map[string]bool{}, LeaveNow: s.leaveNow(string(s.svc.UID))}
	s.keep(invalidSettings(mistakes...))
	plan, notes, err := s.prepare(ctx, lb)
	if err != nil {
		return err
	}
	if lb == nil {
		if lb, plan, notes, err = s.obtainLoadBalancer(ctx, plan, notes); err != nil {
			return err
		}
	}
	s.noteLeaving(plan)
	s.warn(ctx, lb, plan, unknown, notes)
	lb = s.reconcileAll(ctx, plan, lb)
	err = joinErrors(s.errs)
	if errors.Is(err, errNotOwner) {
		return err
	}
	if findPart(err, lbPart.isPort) == nil {
		s.keep(s.deleteCertificates(ctx, s.obsolete))
	}
	if plan.Guest && len(plan.Services) == 0 {
		s.keep(fmt.Errorf("load balancer %d (%s) is shared and has none of the Service's ports: %s", lb.ID, lb.Name, describeNotes(notes)))
		return joinErrors(s.errs)
	}
	if len(s.errs) == 0 && !plan.Guest && !isSettled(lb, plan.UID) {
		s.keep(s.settle(ctx, lb.ID, plan.UID))
	}
	s.setStatus(lb)
	return joinErrors(s.errs)
}

// keep notes an error of a part, and that the load balancer keeps what it has for these settings.
func (s *lbSync) keep(err error, settings ...string) {
	if err == nil {
		return
	}
	s.errs = append(s.errs, err)
	for _, name := range settings {
		s.in.Wrong[name] = true
	}
	for _, e := range eachError(err) {
		var invalid settingsError
		if !errors.As(e, &invalid) {
			continue
		}
		for _, mistake := range invalid.mistakes {
			if a, ok := errors.AsType[annotationError](mistake); ok {
				s.in.Wrong[a.setting()], s.in.Wrong[a.With] = true, true
			}
		}
	}
}

// prepare reads what the plan depends on, and returns the plan. lb is nil if there is no load balancer yet:
// then any error ends the sync.
func (s *lbSync) prepare(ctx context.Context, lb *hcloud.LoadBalancer) (plan *lbPlan, notes []lbNote, err error) {
	s.in.Current = lb
	for _, read := range []func(context.Context){
		s.readNetwork, s.readType, s.readPrimaryIPs, s.readServers, s.readCertificates,
	} {
		if lb == nil && len(s.errs) > 0 {
			break
		}
		read(ctx)
		if err := context.Cause(ctx); err != nil {
			return nil, nil, joinErrors(append(s.errs, err))
		}
	}
	if lb == nil && len(s.errs) > 0 {
		return nil, nil, joinErrors(s.errs)
	}
	plan, notes = planLoadBalancer(s.in)
	if lb != nil && isSmaller(s.in.Limits, lb.LoadBalancerType, plan.Excess) {
		s.keep(invalidSettings(annotationError{Source: s.sourceOf(s.svc, "type"), Value: plan.Type,
			Reason: "is too small: " + excessText(plan.Type, plan.Excess, nil)}))
		s.in.Limits = lb.LoadBalancerType
		plan, notes = planLoadBalancer(s.in)
	}
	if err := s.checkAddress(ctx, s.svc, plan, lb); err != nil {
		s.keep(err, "private-ipv4", "private-subnet-ip-range")
		if lb == nil {
			return nil, nil, joinErrors(s.errs)
		}
		plan, notes = planLoadBalancer(s.in)
	}
	return plan, notes, nil
}

func (s *lbSync) readNetwork(ctx context.Context) {
	id, err := s.network.ID(ctx)
	s.in.NetworkID = id
	s.keep(err, "use-private-ip", "disable-public-network", "private-ipv4", "private-subnet-ip-range")
}

// readType checks a new type of an existing load balancer before the first operation. The default type is
// only for new ones.
func (s *lbSync) readType(ctx context.Context) {
	lb, settings := s.in.Current, s.in.Settings
	if lb == nil { // to ask costs a call, which few new load balancers need: see obtainLoadBalancer
		types, _ := s.types.peek()
		s.in.Limits = typeNamed(types, cmp.Or(settings.Type, defaultLoadBalancerType))
		return
	}
	s.in.Limits = lb.LoadBalancerType
	if isGuest(lb, string(s.svc.UID)) {
		return
	}
	if _, chosen := s.svc.Annotations[annotationPrefix+"type"]; !chosen {
		settings.Type = ""
	}
	if settings.Type == "" || lb.LoadBalancerType == nil || settings.Type == lb.LoadBalancerType.Name {
		return
	}
	if err := s.checkNames(ctx, s.svc, catalogueNames{Type: settings.Type}); err != nil {
		s.keep(err, "type")
		return
	}
	s.in.Limits = s.limitsOf(ctx, settings.Type)
}

// readCertificates finds the certificates of the ports, and orders those that are missing. The Service's
// managed certificates that no port uses are obsolete, if the certificates of all ports are known.
func (s *lbSync) readCertificates(ctx context.Context) {
	s.in.Certificates, s.obsolete = map[int][]int64{}, nil
	var unused []*hcloud.Certificate
	var used []int64
	type found struct {
		ids []int64
		err error
	}
	bySettings := map[*lbSettings]found{} // ports without settings of their own share one answer
	known, https := true, false
	ports, _, _ := usablePorts(s.svc)
	for _, p := range ports {
		port, settings := int(p.Port), s.in.Settings.forPort(int(p.Port))
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
			at := settingAt(s.svc, s.in.Settings, "http-certificates", port)
			s.keep(atPort(answer.err, s.svc, s.in.Settings, port), at)
			bySettings[settings], unused, used = answer, append(unused, others...), append(used, answer.ids...)
		}
		s.in.Certificates[port], known = answer.ids, known && answer.err == nil
	}
	if !https && known && s.in.Current != nil && servesCertificates(s.in.Current, string(s.svc.UID)) {
		// This sync ends HTTPS, so its managed certificates are obsolete.
		var err error
		unused, err = s.ownedCertificates(ctx, string(s.svc.UID))
		s.keep(err)
	}
	if known {
		s.obsolete = slices.DeleteFunc(unused, func(c *hcloud.Certificate) bool { return slices.Contains(used, c.ID) })
	}
}

// wrongCertificates reports whether a setting that decides about the certificates of a port is wrong.
func (s *lbSync) wrongCertificates(port int) bool {
	for _, a := range annotations {
		about := a.Name == "protocol" || strings.Contains(a.Name, "certificate") && !strings.HasPrefix(a.Name, "health-check-")
		if about && s.in.isWrong(a.Name, port) {
			return true
		}
	}
	return false
}

// atPort makes mistakes in settings name the annotations from which the port has them.
func atPort(err error, svc *corev1.Service, settings *lbSettings, port int) error {
	invalid, ok := errors.AsType[settingsError](err)
	if !ok {
		return err
	}
	mistakes := slices.Clone(invalid.mistakes)
	for i, m := range mistakes {
		if a, ok := errors.AsType[annotationError](m); ok && a.setting() != "" {
			a.Source = annotationPrefix + settingAt(svc, settings, a.setting(), port)
			mistakes[i] = a
		}
	}
	return invalidSettings(mistakes...)
}

// obtainLoadBalancer creates or adopts the load balancer. It returns the plan for what it is then.
func (s *lbSync) obtainLoadBalancer(ctx context.Context, plan *lbPlan, notes []lbNote) (*hcloud.LoadBalancer, *lbPlan, []lbNote, error) {
	lb, created, err := s.obtain(ctx, s.svc, plan)
	if hcloud.IsError(err, hcloud.ErrorCodeResourceLimitExceeded) && s.in.Limits == nil {
		// Find out whether the type has too little room. Otherwise the project's limit is reached.
		s.in.Limits = s.limitsOf(ctx, cmp.Or(plan.Type, defaultLoadBalancerType))
		if plan, notes = planLoadBalancer(s.in); len(plan.Excess) > 0 {
			lb, created, err = s.obtain(ctx, s.svc, plan)
		}
	}
	if refusesTargets(err) && len(plan.Targets) > 0 {
		if lb, created, plan, notes, err = s.obtainConfirmed(ctx, plan, err); err != nil {
			return nil, plan, notes, err
		}
	}
	s.result.created = created
	if err == nil && !created { // adopted: it has settings of its own
		plan, notes, err = s.prepare(ctx, lb)
	}
	return lb, plan, notes, err
}

// refusesTargets reports whether the cloud may have refused a new load balancer because of its targets.
func refusesTargets(err error) bool {
	return hcloud.IsError(err, hcloud.ErrorCodeInvalidInput, hcloud.ErrorCodeNotFound, "resolve_cloud_public_targets_error", "resolve_cloud_private_targets_error")
}

// obtainConfirmed is obtain after the cloud has refused the plan, if the servers are not what they seemed to be. What was
// known about them may be old.
func (s *lbSync) obtainConfirmed(ctx context.Context, refused *lbPlan, refusal error) (lb *hcloud.LoadBalancer, created bool, plan *lbPlan, notes []lbNote, err error) {
	if err := s.confirmTargets(ctx); err != nil {
		return nil, false, refused, nil, err
	}
	plan, notes = planLoadBalancer(s.in)
	if slices.Equal(plan.Targets, refused.Targets) && maps.Equal(plan.IPv6, refused.IPv6) {
		return nil, false, refused, nil, refusal
	}
	lb, created, err = s.obtain(ctx, s.svc, plan)
	return lb, created, plan, notes, err
}

// reconcileAll sends the difference between plan and lb, and returns the resulting load balancer. If the
// API refuses the planned type, the load balancer gets what there is room for without it.
func (s *lbSync) reconcileAll(ctx context.Context, plan *lbPlan, lb *hcloud.LoadBalancer) *hcloud.LoadBalancer {
	lb, ops, err := s.reconcile(ctx, s.svc, plan, lb)
	s.result.ops = ops
	refused := findPart(err, func(p lbPart) bool { return p == partType })
	if refused == nil || endsSync(ctx, err) {
		s.keep(err)
		return lb
	}
	s.keep(refused, "type")
	now, err := s.get(ctx, lb.ID)
	if err != nil {
		s.keep(err)
		return lb
	}
	s.in.Current, s.in.Limits = now, now.LoadBalancerType
	plan, _ = planLoadBalancer(s.in)
	lb, ops, err = s.reconcile(ctx, s.svc, plan, now)
	s.result.ops = append(s.result.ops, ops...)
	s.keep(err)
	return lb
}

// findPart returns the error of a part, or nil.
func findPart(err error, match func(lbPart) bool) error {
	for _, e := range eachError(err) {
		if part, ok := errors.AsType[*partError](e); ok && match(part.op.Part) {
			return part
		}
	}
	return nil
}

// setStatus sets what the Service shows. The settings may hide all addresses. If one of these settings is
// wrong, the Service keeps what it shows.
func (s *lbSync) setStatus(lb *hcloud.LoadBalancer) {
	for name := range s.in.Wrong {
		general, _, _ := strings.Cut(name, ".")
		if slices.Contains([]string{"hostname", "ipv6-disabled", "disable-private-ingress", "uses-proxyprotocol"}, general) {
			return
		}
	}
	s.result.status = ingressStatus(lb, s.in.Settings)
	hidden := s.in.Settings.DisablePrivateIngress && !lb.PublicNet.Enabled
	if len(s.result.status.Ingress) == 0 && !hidden && len(s.errs) == 0 {
		s.keep(fmt.Errorf("load balancer %d (%s) has no address yet for the Service's status", lb.ID, lb.Name))
	}
}

// warnInvalid reports invalid settings.
func (s *lbSync) warnInvalid(invalid settingsError) {
	if s.opts.quiet {
		return
	}
	effect := "no load balancer is created until this is corrected"
	if s.in.Current != nil {
		effect = "the load balancer keeps what it has for this"
	}
	for _, mistake := range invalid.mistakes {
		s.events.warning(s.svc, EventInvalidSettings, "%v; %s", mistake, effect)
	}
}

// warn records warnings that do not stop the sync.
func (s *lbSync) warn(ctx context.Context, lb *hcloud.LoadBalancer, plan *lbPlan, unknown []string, notes []lbNote) {
	if s.opts.quiet {
		return
	}
	if len(unknown) > 0 {
		s.events.warning(s.svc, EventUnknownAnnotation, "Ignored unknown annotations: %s", strings.Join(unknown, ", "))
	}
	for _, text := range unsupported(s.svc) {
		s.events.seldom(s.svc, EventIgnoredSetting, "%s", text)
	}
	for _, n := range notes {
		s.events.warning(s.svc, n.Reason, "%s", n.Text)
	}
	if len(plan.Excess) > 0 {
		types, err := s.types.get(ctx)
		if err != nil {
			klog.ErrorS(err, "Could not find a larger load balancer type", "service", klog.KObj(s.svc))
		}
		s.events.warning(s.svc, EventTypeLimit, "%s", excessText(s.in.Limits.Name, plan.Excess, types))
	}
	s.warnImmutable(s.svc, lb, plan)
	s.warnExisting(ctx, lb)
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

// reconcile sends the difference between plan and lb, and returns the resulting load balancer and the
// operations that succeeded, also with an error.
func (l *loadBalancers) reconcile(ctx context.Context, svc *corev1.Service, plan *lbPlan, lb *hcloud.LoadBalancer) (*hcloud.LoadBalancer, []lbOp, error) {
	ops := diffLoadBalancer(plan, lb)
	if !plan.Guest {
		ops = giveFirst(ops, lb, plan.UID)
	}
	if len(ops) == 0 {
		return lb, nil, nil
	}
	if plan.Guest || len(guestsOf(lb)) > 0 {
		unlock, err := l.sharing.lock(ctx, strconv.FormatInt(lb.ID, 10))
		if err != nil {
			return lb, nil, err
		}
		defer unlock()
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

func describeNotes(notes []lbNote) string {
	var texts []string
	for _, n := range notes {
		texts = append(texts, n.Text)
	}
	return strings.Join(texts, "; ")
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
