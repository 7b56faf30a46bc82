package loadbalancer

import (
	"context"
	"fmt"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// candidate returns the existing load balancer that the Service asks for: by the annotation adopt, or by its
// name. It returns nil if there is none with that name.
func (l *Controller) candidate(ctx context.Context, planned *plan.LoadBalancer) (*hcloud.LoadBalancer, error) {
	if planned.Adopt == "" {
		lb, _, err := l.client.LoadBalancer.GetByName(ctx, planned.CreateName)
		if err != nil {
			return nil, fmt.Errorf("finding the load balancer %q: %w", planned.CreateName, err)
		}
		return lb, nil
	}
	lb, _, err := l.client.LoadBalancer.Get(ctx, planned.Adopt)
	if err != nil {
		return nil, fmt.Errorf("finding the load balancer %q: %w", planned.Adopt, err)
	}
	if lb == nil {
		return nil, plan.InvalidSettings(plan.AnnotationError{Source: plan.AnnotationPrefix + "adopt", Value: planned.Adopt,
			Reason: "does not exist: must be the ID or name of a load balancer in the project"})
	}
	return lb, nil
}

// readPrimaryIPs finds the Primary IPs of a new load balancer. An existing one cannot change its addresses.
func (s *serviceSync) readPrimaryIPs(ctx context.Context) {
	settings := s.in.Settings
	if s.in.Current != nil || settings.PrimaryIPv4 == "" && settings.PrimaryIPv6 == "" {
		return
	}
	s.primaryIPs.Forget()
	all, err := s.primaryIPs.Get(ctx)
	if err != nil {
		s.failed(err)
		return
	}
	find := func(name, value string, kind hcloud.PrimaryIPType) *hcloud.PrimaryIP {
		if value == "" {
			return nil
		}
		ip := plan.FindPrimaryIP(all, value)
		if reason := plan.UnfitPrimaryIP(ip, kind, settings); reason != "" {
			s.failed(plan.InvalidSettings(plan.AnnotationError{Source: s.key(name), Value: value, Reason: reason}))
		}
		return ip
	}
	s.in.PrimaryIPv4 = find("primary-ipv4", settings.PrimaryIPv4, hcloud.PrimaryIPTypeIPv4)
	s.in.PrimaryIPv6 = find("primary-ipv6", settings.PrimaryIPv6, hcloud.PrimaryIPTypeIPv6)
}

// key returns the full name under which the Service has an annotation.
func (s *serviceSync) key(name string) string {
	return plan.AnnotationByName(name).KeyIn(s.svc.Annotations)
}

// listPrimaryIPs fetches all Primary IPs for the cache.
func (l *Controller) listPrimaryIPs(ctx context.Context) ([]*hcloud.PrimaryIP, error) {
	all, err := l.client.PrimaryIP.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing Primary IPs: %w", err)
	}
	return all, nil
}

// warnExisting reports annotations that name another address or load balancer than the Service has. Both are
// for its whole life.
func (s *serviceSync) warnExisting(ctx context.Context, lb *hcloud.LoadBalancer) {
	settings := s.in.Settings
	if want := settings.Adopt; want != "" && want != lb.Name && want != strconv.FormatInt(lb.ID, 10) && !plan.IsLent(lb) {
		s.events.Warning(s.svc, event.IgnoredSetting, "Ignored %sadopt: %q: the Service has load balancer %d (%s) already; delete and create the Service to change it", plan.AnnotationPrefix, want, lb.ID, lb.Name)
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
			s.events.Warning(s.svc, event.AddressImmutable, "Ignored %s: %q: load balancer %d has the address %s for its whole life; delete and create the Service to change it", s.key(a.name), a.want, lb.ID, a.ip)
		}
	}
}

// clusterServers returns the servers that belong to the cluster: those of all Nodes, and the plan's targets.
func (l *Controller) clusterServers(plan *plan.LoadBalancer) map[int64]bool {
	ours := l.evidence.KnownServers()
	for _, t := range plan.Targets {
		ours[t.ServerID] = true
	}
	return ours
}
