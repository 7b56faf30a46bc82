package ccm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// What a user has made before the Service and lends to it: a load balancer (the annotation adopt) and Primary
// IPs. The annotation is the consent. Such a load balancer is not deleted with the Service, keeps its public
// interface and network unless an annotation says otherwise, and keeps the servers that were its targets.
const (
	// labelAdopted marks a load balancer that the annotation adopt names.
	labelAdopted = labelPrefix + "adopted"
	// labelForeignServers lists the servers without a Node that were its targets at the adoption.
	labelForeignServers = labelPrefix + "foreign-servers"
)

// isLent reports whether a user has lent the load balancer to the Service.
func isLent(lb *hcloud.LoadBalancer) bool { return lb != nil && lb.Labels[labelAdopted] != "" }

// withLoan returns a copy of the labels with what an adoption by the annotation adopt records.
func withLoan(labels map[string]string, lb *hcloud.LoadBalancer, ours map[int64]bool) map[string]string {
	result := maps.Clone(labels)
	var foreign []string
	for _, t := range serverTargets(lb) {
		if !ours[t.ServerID] {
			foreign = append(foreign, strconv.FormatInt(t.ServerID, 10))
		}
	}
	result[labelAdopted] = "true"
	maps.Copy(result, encodeList(labelForeignServers, foreign))
	return result
}

// isForeignServer reports whether a target is a server that was there before the adoption.
func isForeignServer(lb *hcloud.LoadBalancer, id int64) bool {
	return lb != nil && slices.Contains(decodeList(lb.Labels, labelForeignServers), strconv.FormatInt(id, 10))
}

// keepLoan makes the plan keep what a user has set up on the load balancer, unless an annotation of the
// Service says otherwise.
func keepLoan(plan *lbPlan, in lbPlanInput) (notes []lbNote) {
	if !isLent(in.Current) {
		return nil
	}
	if _, set := in.Service.Annotations[annotationPrefix+"disable-public-network"]; !set {
		plan.Public = in.Current.PublicNet.Enabled
	}
	if nets := in.Current.PrivateNet; plan.NetworkID != 0 && len(nets) > 0 && nets[0].Network.ID != plan.NetworkID {
		notes = append(notes, lbNote{EventIgnoredSetting, fmt.Sprintf(
			"Load balancer %d is attached to network %d and stays there: detach it to have it attached to network %d of HCLOUD_NETWORK", in.Current.ID, nets[0].Network.ID, plan.NetworkID)})
		plan.NetworkID, plan.PrivateIPv4, plan.PrivateSubnet = 0, ipAddr{}, ipPrefix{}
	}
	return notes
}

// keepsOnDelete reports whether the load balancer outlives its Service.
func keepsOnDelete(settings *lbSettings, lb *hcloud.LoadBalancer) bool {
	if settings.KeepOnDelete != nil {
		return *settings.KeepOnDelete
	}
	return isLent(lb)
}

// candidate returns the existing load balancer that the Service asks for: by the annotation adopt, or by its
// name. It returns nil if there is none with that name.
func (l *loadBalancers) candidate(ctx context.Context, plan *lbPlan) (*hcloud.LoadBalancer, error) {
	if plan.Adopt == "" {
		lb, _, err := l.client.LoadBalancer.GetByName(ctx, plan.CreateName)
		if err != nil {
			return nil, fmt.Errorf("finding the load balancer %q: %w", plan.CreateName, err)
		}
		return lb, nil
	}
	lb, _, err := l.client.LoadBalancer.Get(ctx, plan.Adopt)
	if err != nil {
		return nil, fmt.Errorf("finding the load balancer %q: %w", plan.Adopt, err)
	}
	if lb == nil {
		return nil, invalidSettings(annotationError{Source: annotationPrefix + "adopt", Value: plan.Adopt,
			Reason: "does not exist: must be the ID or name of a load balancer in the project"})
	}
	return lb, nil
}

// readPrimaryIPs finds the Primary IPs of a new load balancer. An existing one cannot change its addresses.
func (s *lbSync) readPrimaryIPs(ctx context.Context) {
	settings := s.in.Settings
	if s.in.Current != nil || settings.PrimaryIPv4 == "" && settings.PrimaryIPv6 == "" {
		return
	}
	s.primaryIPs.forget()
	all, err := s.primaryIPs.get(ctx)
	if err != nil {
		s.keep(err)
		return
	}
	find := func(name, value string, kind hcloud.PrimaryIPType) *hcloud.PrimaryIP {
		if value == "" {
			return nil
		}
		ip := findPrimaryIP(all, value)
		if reason := unfitPrimaryIP(ip, kind, settings.Location); reason != "" {
			s.keep(invalidSettings(annotationError{Source: annotationPrefix + name, Value: value, Reason: reason}))
		}
		return ip
	}
	s.in.PrimaryIPv4 = find("primary-ipv4", settings.PrimaryIPv4, hcloud.PrimaryIPTypeIPv4)
	s.in.PrimaryIPv6 = find("primary-ipv6", settings.PrimaryIPv6, hcloud.PrimaryIPTypeIPv6)
}

// findPrimaryIP returns the Primary IP with this ID or name, or nil. An ID takes precedence.
func findPrimaryIP(all []*hcloud.PrimaryIP, idOrName string) *hcloud.PrimaryIP {
	i := slices.IndexFunc(all, func(p *hcloud.PrimaryIP) bool { return strconv.FormatInt(p.ID, 10) == idOrName })
	if i < 0 {
		i = slices.IndexFunc(all, func(p *hcloud.PrimaryIP) bool { return p.Name == idOrName })
	}
	if i < 0 {
		return nil
	}
	return all[i]
}

// unfitPrimaryIP says why a new load balancer in the location cannot have the Primary IP, or returns "".
func unfitPrimaryIP(ip *hcloud.PrimaryIP, kind hcloud.PrimaryIPType, location string) string {
	switch {
	case ip == nil:
		return "does not exist: must be the ID or name of a Primary IP in the project"
	case ip.Type != kind:
		return fmt.Sprintf("is of type %s: must be a Primary IP of type %s", ip.Type, kind)
	case ip.AssigneeID != 0:
		return fmt.Sprintf("is assigned to %s %d: must be a Primary IP that is not assigned", ip.AssigneeType, ip.AssigneeID)
	case ip.Location != nil && location != "" && ip.Location.Name != location:
		return fmt.Sprintf("is in location %s: must be in %s, the location of the load balancer", ip.Location.Name, location)
	}
	return ""
}

// listPrimaryIPs fetches all Primary IPs for the cache.
func (l *loadBalancers) listPrimaryIPs(ctx context.Context) ([]*hcloud.PrimaryIP, error) {
	all, err := l.client.PrimaryIP.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing Primary IPs: %w", err)
	}
	return all, nil
}

// warnExisting reports annotations that name another address or load balancer than the Service has. Both are
// for its whole life.
func (s *lbSync) warnExisting(ctx context.Context, lb *hcloud.LoadBalancer) {
	settings := s.in.Settings
	if want := settings.Adopt; want != "" && want != lb.Name && want != strconv.FormatInt(lb.ID, 10) && !isLent(lb) {
		s.events.warning(s.svc, EventIgnoredSetting, "Ignored %sadopt: %q: the Service has load balancer %d (%s) already; delete and create the Service to change it", annotationPrefix, want, lb.ID, lb.Name)
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
		all, err := s.primaryIPs.get(ctx) // hardly ever fetched: no decision needs it to be new
		if err != nil {
			continue
		}
		if ip := findPrimaryIP(all, a.want); ip == nil || ip.ID != a.has {
			s.events.warning(s.svc, EventAddressImmutable, "Ignored %s%s: %q: load balancer %d has the address %s for its whole life; delete and create the Service to change it", annotationPrefix, a.name, a.want, lb.ID, a.ip)
		}
	}
}

// primaryIPNotes warns of Primary IPs that do not outlive the load balancer.
func primaryIPNotes(in lbPlanInput) (notes []lbNote) {
	for _, ip := range []*hcloud.PrimaryIP{in.PrimaryIPv4, in.PrimaryIPv6} {
		if ip != nil && ip.AutoDelete {
			notes = append(notes, lbNote{EventAddressImmutable, fmt.Sprintf("Primary IP %d (%s) is deleted together with the load balancer: set its auto_delete to false to keep the address", ip.ID, ip.Name)})
		}
	}
	return notes
}

// clusterServers returns the servers that belong to the cluster: those of all Nodes, and the plan's targets.
func (l *loadBalancers) clusterServers(plan *lbPlan) map[int64]bool {
	ours := l.evidence.knownServers()
	for _, t := range plan.Targets {
		ours[t.ServerID] = true
	}
	return ours
}
