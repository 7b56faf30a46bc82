package loadbalancer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// A sync reports in events, in the status and the condition of its Service, and in its errors.

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
		var texts []string
		for _, key := range s.unknown {
			texts = append(texts, key+plan.Suggestion(key))
		}
		s.events.Warning(s.svc, event.UnknownAnnotation, "Ignored unknown annotations: %s", strings.Join(texts, ", "))
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
	if want := settings.Adopt; want != "" && !adopts(want, lb) && !plan.IsLent(lb) {
		s.events.Warning(s.svc, event.IgnoredSetting,
			"Ignored %sadopt: %q: the Service has load balancer %d (%s) already; delete and create the Service to change it",
			plan.AnnotationPrefix, want, lb.ID, lb.Name)
	}
	const id = plan.AnnotationPrefix + "id"
	if has := strconv.FormatInt(lb.ID, 10); s.svc.Annotations[id] != "" && s.svc.Annotations[id] != has {
		s.events.Seldom(s.svc, event.IgnoredSetting, "Ignored %s: %q: it chooses nothing, and the Service has load balancer %s (%s); "+
			"delete and create the Service with %sadopt to choose one", id, s.svc.Annotations[id], has, lb.Name, plan.AnnotationPrefix)
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

// noteLingering remembers since when targets wait, and has the comparison look again. It reports an error if one cannot go on even
// now, because no other target is healthy.
func (s *serviceSync) noteLingering(planned *plan.LoadBalancer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.lingering[planned.UID]
	switch n := len(planned.Lingering) + len(planned.Waiting); {
	case n == 0:
		s.lingering[planned.UID] = wait{known: planned.Chosen, fresh: planned.Fresh}
		return
	case w.targets == 0:
		s.tellWaiting(planned)
		fallthrough
	case n < w.targets:
		s.lingering[planned.UID] = wait{s.waiter.Clock.Now(), n, w.known, w.fresh}
	case s.in.LingerOver:
		s.failWaiting(planned)
		return
	}
	select {
	case s.Waits <- struct{}{}:
	default: // a look is due already
	}
}

// tellWaiting says what targets wait for.
func (s *serviceSync) tellWaiting(planned *plan.LoadBalancer) {
	if len(planned.Lingering) > 0 {
		s.events.Normal(s.svc, event.Pending,
			"Targets leave when others are healthy in their place, or one after the other, each %v: servers %s", maxLinger,
			serversOf(planned.Lingering))
	}
	if len(planned.Waiting) > 0 {
		s.events.Normal(s.svc, event.Pending, "Targets change their addresses in turns, each when the others are healthy: servers %s",
			serversOf(planned.Waiting))
	}
}

// failWaiting says why targets still wait.
func (s *serviceSync) failWaiting(planned *plan.LoadBalancer) {
	if len(planned.Lingering) > 0 {
		s.failed(fmt.Errorf("server %s stays a target although its node is not chosen: no other target is healthy; check the pods of the "+
			"Service and its other nodes", serversOf(planned.Lingering)))
	}
	if len(planned.Waiting) > 0 {
		s.failed(fmt.Errorf("servers %s keep their address: no other target is healthy with the one that the Service asks for; "+
			"check whether the nodes serve there, or change use-private-ip back", serversOf(planned.Waiting)))
	}
}

func serversOf(targets []plan.Target) string {
	var servers []string
	for _, t := range targets {
		servers = append(servers, strconv.FormatInt(t.ServerID, 10))
	}
	return plan.Abbreviate(servers)
}
