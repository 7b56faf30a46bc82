package loadbalancer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	cloudapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/apicall"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/inventory"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// readSettings reads the settings of the Service on the load balancer. Without one, lb is nil.
func (s *serviceSync) readSettings(lb *hcloud.LoadBalancer) {
	var contradictions []error
	s.svc, contradictions = plan.WithSharedSettings(s.asked, lb, s.defaults)
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

// isPortOnly reports whether an error concerns one port: its certificate is not issued yet.
func isPortOnly(err error) bool {
	_, is := errors.AsType[*cloudapi.RetryError](err)
	return is
}

// prepare reads the input of the plan, and returns the plan. Without a load balancer, lb is nil, and an error ends the sync, unless
// it concerns one port of several.
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
	ends := lb == nil && slices.ContainsFunc(s.errs, func(err error) bool { return !isPortOnly(err) })
	if !ends {
		planned, notes = plan.Compute(s.in)
		ends = lb == nil && len(s.errs) > 0 && len(planned.Services) == 0
	}
	if ends {
		return nil, nil, apicall.JoinErrors(s.errs)
	}
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
	s.failed(s.noteFormer(ctx, planned, lb))
	return planned, notes, nil
}

func (s *serviceSync) readNetwork(ctx context.Context) {
	id, err := s.network.ID(ctx)
	s.in.NetworkID = id
	attached := func(n hcloud.LoadBalancerPrivateNet) bool { return n.Network.ID == id }
	if !plan.IsSet(s.svc, "private-subnet-ip-range") && s.in.Current != nil &&
		slices.ContainsFunc(s.in.Current.PrivateNet, attached) {
		s.in.Settings.PrivateSubnet = netip.Prefix{} // the default is for what joins the network, and takes nothing out of it
	}
	s.failed(err, "use-private-ip", "disable-public-network", "private-ipv4", "private-subnet-ip-range")
}

// readType checks a new type of an existing load balancer before the first operation. The default type is
// only for new ones.
func (s *serviceSync) readType(ctx context.Context) {
	lb, settings := s.in.Current, s.in.Settings
	if lb == nil { // to ask costs a call, which few new load balancers need: see obtain
		types, _ := s.types.Peek()
		s.in.Limits = plan.TypeNamed(types, cmp.Or(settings.Type, plan.DefaultLoadBalancerType))
		if _, err := strconv.Atoi(settings.Type); err == nil { // the plan compares names
			if s.in.Limits = s.limitsOf(ctx, settings.Type); s.in.Limits != nil {
				settings.Type = s.in.Limits.Name
			}
		}
		return
	}
	s.in.Limits = lb.LoadBalancerType
	if plan.IsGuest(lb, string(s.svc.UID)) {
		return
	}
	if !plan.IsSet(s.svc, "type") {
		settings.Type = ""
	}
	if settings.Type == "" || lb.LoadBalancerType == nil {
		return
	}
	if has := plan.TypeNamed([]*hcloud.LoadBalancerType{lb.LoadBalancerType}, settings.Type); has != nil {
		settings.Type = has.Name
		return
	}
	if err := s.checkNames(ctx, s.svc, settings.Type, "", ""); err != nil {
		s.failed(err, "type")
		return
	}
	if s.in.Limits = s.limitsOf(ctx, settings.Type); s.in.Limits != nil {
		settings.Type = s.in.Limits.Name
	}
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
			s.failed(plan.InvalidSettings(plan.AnnotationError{Source: s.sourceOf(s.svc, name), Value: value, Reason: reason}))
		}
		return ip
	}
	s.in.PrimaryIPv4 = find("primary-ipv4", settings.PrimaryIPv4, hcloud.PrimaryIPTypeIPv4)
	s.in.PrimaryIPv6 = find("primary-ipv6", settings.PrimaryIPv6, hcloud.PrimaryIPTypeIPv6)
}

// readServers finds the servers of the nodes. Of targets only the existence matters. The load balancer itself
// proves that, so that old data will do. For a new one, the cloud proves it: it refuses a target that does not exist
// (serviceSync.obtain).
func (s *serviceSync) readServers(ctx context.Context) {
	asks := map[int64]inventory.Ask{}
	for _, node := range s.in.Nodes {
		// A Node may be not initialized, or of another provider.
		if ask, err := inventory.AskFor(node, inventory.Ask{MaxAge: inventory.CalmServerAge}); err == nil && ask.ID != 0 {
			asks[ask.ID] = ask
		}
	}
	var err error
	s.in.Servers, err = s.serversFor(ctx, slices.SortedFunc(maps.Values(asks), func(a, b inventory.Ask) int { return int(a.ID - b.ID) }))
	if err == nil && s.in.Current != nil {
		err = s.confirmTargets(ctx)
	}
	s.in.Unread = err != nil
	s.failed(err)
}

// serversFor returns the servers that exist and are the cluster's: a copy of a cluster also has the original's Nodes. With an
// error, some are missing: each further question would wait for the same error.
func (l *Controller) serversFor(ctx context.Context, asks []inventory.Ask) (map[int64]*hcloud.Server, error) {
	servers := map[int64]*hcloud.Server{}
	for _, ask := range asks {
		ask.Likely = func() []inventory.Ask { return asks }
		server, err := l.servers.ByID(ctx, ask)
		if err != nil {
			return servers, fmt.Errorf("finding the server of a node: %w", err)
		}
		if server != nil && l.own.IsHere(server.Labels) {
			servers[ask.ID] = server
		}
	}
	return servers, nil
}

// confirmTargets asks again for the servers that would become targets, if what is known about them is older than
// the load balancer: a server that the cloud has dropped as a target does not exist any more. Those that are targets
// exist. One that is left out may make room for another. A server that lacks an address in the network may have joined it.
func (s *serviceSync) confirmTargets(ctx context.Context) error {
	confirmed := map[int64]bool{}
	if s.in.Current != nil {
		for _, t := range plan.ServerTargets(s.in.Current) {
			confirmed[t.ServerID] = true
		}
	}
	for {
		plan, _ := plan.Compute(s.in)
		var asks []inventory.Ask
		for _, t := range plan.Targets {
			if !confirmed[t.ServerID] {
				asks = append(asks, inventory.Ask{ID: t.ServerID, MaxAge: inventory.MaxLoadBalancerAge})
			}
		}
		for _, id := range plan.Outside {
			if !confirmed[id] {
				asks = append(asks, inventory.Ask{ID: id})
			}
		}
		if len(asks) == 0 {
			return nil
		}
		servers, err := s.serversFor(ctx, asks)
		for _, ask := range asks {
			confirmed[ask.ID] = true
			if delete(s.in.Servers, ask.ID); servers[ask.ID] != nil {
				s.in.Servers[ask.ID] = servers[ask.ID]
			}
		}
		if err != nil {
			return err
		}
	}
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
			s.failed(plan.AtPort(answer.err, s.svc, s.in.Settings, port))
			bySettings[settings], unused, used = answer, append(unused, others...), append(used, answer.ids...)
		}
		s.in.Certificates[port], known = answer.ids, known && answer.err == nil
		if answer.err != nil {
			s.in.Wrong["http-certificates."+strconv.Itoa(port)] = true
		}
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

// checkAddress returns a plan.SettingsError if the load balancer cannot have the private address or range of
// the plan. A load balancer has to leave its network to change its address, so this is checked before
// the first operation. It makes no API call if the attachment does not change.
func (l *Controller) checkAddress(ctx context.Context, svc *corev1.Service, planned *plan.LoadBalancer, lb *hcloud.LoadBalancer) error {
	if !planned.PrivateIPv4.IsValid() && !planned.PrivateSubnet.IsValid() {
		return nil
	}
	a := plan.AddressCheck{Zone: planned.NetworkZone}
	if lb != nil {
		if !plan.ChangesNetwork(planned, lb) {
			return nil
		}
		a.Own = lb.ID
		if lb.Location != nil {
			a.Zone = string(lb.Location.NetworkZone)
		}
	}
	var err error
	if a.Network, _, err = l.client.Network.GetByID(ctx, planned.NetworkID); err != nil {
		return fmt.Errorf("checking the private address: getting network %d: %w", planned.NetworkID, err)
	}
	if a.Network == nil {
		return fmt.Errorf("checking the private address: network %d does not exist", planned.NetworkID)
	}
	a.Members, err = l.client.Network.AllMembers(ctx, a.Network)
	if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeNotFound) { // the API has had it since September 2026
		return fmt.Errorf("checking the private address: listing the members of network %d: %w", planned.NetworkID, err)
	}
	name, value, reason := a.Check(planned.PrivateIPv4, planned.PrivateSubnet)
	if reason == "" {
		return nil
	}
	return plan.InvalidSettings(plan.AnnotationError{Source: l.sourceOf(svc, name), Value: value, Reason: reason})
}
