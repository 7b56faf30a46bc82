package ccm

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// applyOps sends the operations one by one and waits for each action, because the API locks a load
// balancer during an action. An operation that fails holds up only what needs it (see lbOp); the error is
// a partErrors. If what should bring a target back fails too, a target may be missing: then no other one is
// removed. It returns the operations that succeeded, also with an error.
func (l *loadBalancers) applyOps(ctx context.Context, lb *hcloud.LoadBalancer, ops []lbOp) (done []lbOp, err error) {
	failed := map[lbPart]bool{}
	missing := false
	var errs partErrors
	for _, op := range ops {
		if failed[op.Part] || slices.ContainsFunc(op.Needs, func(p lbPart) bool { return failed[p] }) || missing && op.Kind == opRemoveTarget {
			failed[op.Part] = true
			continue
		}
		err := l.apply(ctx, lb, op)
		if err == nil {
			done = append(done, op)
			continue
		}
		failed[op.Part] = true
		errs = append(errs, &partError{lb: lb, op: op, err: err})
		if endsSync(ctx, err) {
			break
		}
		if op.Undo != nil {
			if err := l.apply(ctx, lb, *op.Undo); err != nil && !hcloud.IsError(err, hcloud.ErrorCodeTargetAlreadyDefined) {
				errs = append(errs, &partError{lb: lb, op: *op.Undo, err: err})
				missing = missing || op.Undo.Kind == opAddTarget
			}
		}
	}
	if len(errs) == 0 {
		return done, nil
	}
	return done, errs
}

// apply sends one operation and waits for its action. To remove what is gone already is no error.
func (l *loadBalancers) apply(ctx context.Context, lb *hcloud.LoadBalancer, op lbOp) error {
	action, err := l.send(ctx, lb, op)
	if slices.Contains([]lbOpKind{opRemoveTarget, opRemoveSelector, opDeleteService}, op.Kind) && hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.slow.wait(ctx, lb.ID, action)
}

// send makes the API call of one operation. The action may be nil.
func (l *loadBalancers) send(ctx context.Context, lb *hcloud.LoadBalancer, op lbOp) (action *hcloud.Action, err error) {
	client := &l.client.LoadBalancer
	switch op.Kind {
	case opRecord, opLabel:
		err = l.sendLabels(ctx, lb.ID, op)
	case opRename:
		_, _, err = client.Update(ctx, lb, hcloud.LoadBalancerUpdateOpts{Name: op.Name})
	case opChangeType:
		action, _, err = client.ChangeType(ctx, lb, hcloud.LoadBalancerChangeTypeOpts{LoadBalancerType: &hcloud.LoadBalancerType{Name: op.Type}})
	case opAlgorithm:
		action, _, err = client.ChangeAlgorithm(ctx, lb, hcloud.LoadBalancerChangeAlgorithmOpts{Type: op.Algorithm})
	case opEnablePublic:
		action, _, err = client.EnablePublicInterface(ctx, lb)
	case opDisablePublic:
		action, _, err = client.DisablePublicInterface(ctx, lb)
	case opAttach:
		action, _, err = client.AttachToNetwork(ctx, lb, attachOpts(op))
	case opDetach:
		action, _, err = client.DetachFromNetwork(ctx, lb, hcloud.LoadBalancerDetachFromNetworkOpts{Network: &hcloud.Network{ID: op.NetworkID}})
	case opAddTarget:
		if op.IP.IsValid() {
			return l.changeIPv6Target(ctx, lb, "add_target", op.Target.ServerID, op.IP)
		}
		action, _, err = client.AddServerTarget(ctx, lb, hcloud.LoadBalancerAddServerTargetOpts{
			Server: &hcloud.Server{ID: op.Target.ServerID}, UsePrivateIP: &op.Target.Private})
	case opRemoveTarget:
		return l.removeTarget(ctx, lb, op.Target)
	case opAddService:
		action, _, err = client.AddService(ctx, lb, addServiceOpts(op.Service))
	case opUpdateService:
		action, _, err = client.UpdateService(ctx, lb, op.Service.ListenPort, updateServiceOpts(op.Service))
	case opDeleteService:
		action, _, err = client.DeleteService(ctx, lb, op.Port)
	case opChangeReverse:
		action, _, err = client.ChangeDNSPtr(ctx, lb, op.IP.String(), &op.DNSPtr)
	case opAddSelector:
		action, _, err = client.AddLabelSelectorTarget(ctx, lb, hcloud.LoadBalancerAddLabelSelectorTargetOpts{
			Selector: op.Selector.Selector, UsePrivateIP: &op.Selector.Private})
	case opRemoveSelector:
		action, _, err = client.RemoveLabelSelectorTarget(ctx, lb, op.Selector.Selector)
	case opProtect:
		action, _, err = client.ChangeProtection(ctx, lb, hcloud.LoadBalancerChangeProtectionOpts{Delete: &op.Protect})
	default:
		err = fmt.Errorf("unknown operation %q", op.Kind)
	}
	return action, err
}

// sendLabels reads the load balancer again before it writes. An update replaces all labels, and the
// API has no conditional write: a label that another client has set since the sync read the load
// balancer would be lost. A label that is set between the two calls of sendLabels is still lost.
func (l *loadBalancers) sendLabels(ctx context.Context, id int64, op lbOp) error {
	_, err := l.changeLabels(ctx, op.UID, id, func(now *hcloud.LoadBalancer) (map[string]string, error) { return labelsAfter(now, op) })
	return err
}

// labelsAfter returns the labels after an opRecord or opLabel, based on the load balancer's current state. It
// fails if the load balancer does not have the Service's ownership label any more: a user who removes
// that label wants to keep the load balancer.
func labelsAfter(now *hcloud.LoadBalancer, op lbOp) (map[string]string, error) {
	if owner := now.Labels[labelServiceUID]; owner != op.UID && (!op.Guest || !isGuest(now, op.UID)) {
		return nil, fmt.Errorf("%w: the label %s is %q, want %q", errNotOwner, labelServiceUID, owner, op.UID)
	}
	taken := portsOfOthers(now, op.UID)
	for _, port := range op.Ports {
		if owner := taken[port]; owner != "" {
			return nil, fmt.Errorf("port %d belongs to the Service with UID %s since a moment ago: will choose again", port, owner)
		}
	}
	if op.Kind == opLabel {
		return withUserLabels(now.Labels, op.Labels), nil
	}
	return recordedIn(now.Labels, op), nil
}

func attachOpts(op lbOp) hcloud.LoadBalancerAttachToNetworkOpts {
	opts := hcloud.LoadBalancerAttachToNetworkOpts{Network: &hcloud.Network{ID: op.NetworkID}}
	switch {
	case op.IP.IsValid():
		opts.IP = net.IP(op.IP.AsSlice())
	case op.IPRange.IsValid():
		opts.IPRange = ipNet(op.IPRange)
	}
	return opts
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// createOpts returns the request that creates the planned load balancer, with all settings if
// possible. The request cannot choose an address in the network. If the plan has one, the network and the
// targets that need it follow as operations, and so do targets over IPv6. A private load balancer never has a public interface: the
// API accepts that without a network.
func createOpts(plan *lbPlan) hcloud.LoadBalancerCreateOpts {
	record := lbOp{UID: plan.UID, Ports: plan.ports(), Marks: plan.Marks, Selectors: []selectorTarget{plan.Selector}, Shared: plan.Shared}
	opts := hcloud.LoadBalancerCreateOpts{
		Name:             plan.CreateName,
		LoadBalancerType: &hcloud.LoadBalancerType{Name: cmp.Or(plan.Type, defaultLoadBalancerType)},
		Algorithm:        &hcloud.LoadBalancerAlgorithm{Type: cmp.Or(plan.Algorithm, hcloud.LoadBalancerAlgorithmTypeRoundRobin)},
		NetworkZone:      hcloud.NetworkZone(plan.NetworkZone),
		Labels:           withUserLabels(recordedIn(map[string]string{labelLastOwner: plan.UID}, record), plan.Labels),
		PublicInterface:  &plan.Public,
	}
	if plan.PrimaryIPv4 != nil || plan.PrimaryIPv6 != nil {
		opts.PublicNet = &hcloud.LoadBalancerCreateOptsPublicNet{IPv4: plan.PrimaryIPv4, IPv6: plan.PrimaryIPv6}
	}
	if plan.Location != "" {
		opts.Location = &hcloud.Location{Name: plan.Location}
	}
	for _, s := range plan.Services {
		opts.Services = append(opts.Services, createServiceOpts(s))
	}
	chosen := plan.PrivateIPv4.IsValid() || plan.PrivateSubnet.IsValid()
	if plan.NetworkID != 0 && !chosen {
		opts.Network = &hcloud.Network{ID: plan.NetworkID}
	}
	for _, t := range plan.Targets {
		if t.Private && opts.Network == nil || plan.IPv6[t.ServerID].IsValid() {
			continue
		}
		opts.Targets = append(opts.Targets, hcloud.LoadBalancerCreateOptsTarget{
			Type:         hcloud.LoadBalancerTargetTypeServer,
			Server:       hcloud.LoadBalancerCreateOptsTargetServer{Server: &hcloud.Server{ID: t.ServerID}},
			UsePrivateIP: &t.Private,
		})
	}
	if s := plan.Selector; s.Selector != "" && (!s.Private || opts.Network != nil) {
		opts.Targets = append(opts.Targets, hcloud.LoadBalancerCreateOptsTarget{
			Type:          hcloud.LoadBalancerTargetTypeLabelSelector,
			LabelSelector: hcloud.LoadBalancerCreateOptsTargetLabelSelector{Selector: s.Selector},
			UsePrivateIP:  &s.Private,
		})
	}
	return opts
}

// hcloud-go has a type per request for the same data: the next three functions fill them.

func createServiceOpts(s hcloud.LoadBalancerService) hcloud.LoadBalancerCreateOptsService {
	hc := s.HealthCheck
	opts := hcloud.LoadBalancerCreateOptsService{
		Protocol: s.Protocol, ListenPort: &s.ListenPort, DestinationPort: &s.DestinationPort, Proxyprotocol: &s.Proxyprotocol,
		HealthCheck: &hcloud.LoadBalancerCreateOptsServiceHealthCheck{
			Protocol: hc.Protocol, Port: &hc.Port, Interval: &hc.Interval, Timeout: &hc.Timeout, Retries: &hc.Retries},
	}
	if h := hc.HTTP; h != nil {
		opts.HealthCheck.HTTP = &hcloud.LoadBalancerCreateOptsServiceHealthCheckHTTP{
			Domain: nonEmpty(h.Domain), Path: &h.Path, StatusCodes: h.StatusCodes, TLS: &h.TLS}
	}
	if s.Protocol != hcloud.LoadBalancerServiceProtocolTCP {
		h := s.HTTP
		opts.HTTP = &hcloud.LoadBalancerCreateOptsServiceHTTP{
			CookieName: &h.CookieName, CookieLifetime: &h.CookieLifetime, Certificates: h.Certificates,
			RedirectHTTP: onlyHTTPS(s), StickySessions: &h.StickySessions, TimeoutIdle: &h.TimeoutIdle}
	}
	return opts
}

func addServiceOpts(s hcloud.LoadBalancerService) hcloud.LoadBalancerAddServiceOpts {
	hc := s.HealthCheck
	opts := hcloud.LoadBalancerAddServiceOpts{
		Protocol: s.Protocol, ListenPort: &s.ListenPort, DestinationPort: &s.DestinationPort, Proxyprotocol: &s.Proxyprotocol,
		HealthCheck: &hcloud.LoadBalancerAddServiceOptsHealthCheck{
			Protocol: hc.Protocol, Port: &hc.Port, Interval: &hc.Interval, Timeout: &hc.Timeout, Retries: &hc.Retries},
	}
	if h := hc.HTTP; h != nil {
		opts.HealthCheck.HTTP = &hcloud.LoadBalancerAddServiceOptsHealthCheckHTTP{
			Domain: nonEmpty(h.Domain), Path: &h.Path, StatusCodes: h.StatusCodes, TLS: &h.TLS}
	}
	if s.Protocol != hcloud.LoadBalancerServiceProtocolTCP {
		h := s.HTTP
		opts.HTTP = &hcloud.LoadBalancerAddServiceOptsHTTP{
			CookieName: &h.CookieName, CookieLifetime: &h.CookieLifetime, Certificates: h.Certificates,
			RedirectHTTP: onlyHTTPS(s), StickySessions: &h.StickySessions, TimeoutIdle: &h.TimeoutIdle}
	}
	return opts
}

func updateServiceOpts(s hcloud.LoadBalancerService) hcloud.LoadBalancerUpdateServiceOpts {
	hc := s.HealthCheck
	opts := hcloud.LoadBalancerUpdateServiceOpts{
		Protocol: s.Protocol, DestinationPort: &s.DestinationPort, Proxyprotocol: &s.Proxyprotocol,
		HealthCheck: &hcloud.LoadBalancerUpdateServiceOptsHealthCheck{
			Protocol: hc.Protocol, Port: &hc.Port, Interval: &hc.Interval, Timeout: &hc.Timeout, Retries: &hc.Retries},
	}
	if h := hc.HTTP; h != nil {
		// Send the domain even if it is empty: the request is a patch, and an empty domain clears it.
		opts.HealthCheck.HTTP = &hcloud.LoadBalancerUpdateServiceOptsHealthCheckHTTP{
			Domain: &h.Domain, Path: &h.Path, StatusCodes: h.StatusCodes, TLS: &h.TLS}
	}
	if s.Protocol != hcloud.LoadBalancerServiceProtocolTCP {
		h := s.HTTP
		opts.HTTP = &hcloud.LoadBalancerUpdateServiceOptsHTTP{
			CookieName: &h.CookieName, CookieLifetime: &h.CookieLifetime, Certificates: h.Certificates,
			RedirectHTTP: onlyHTTPS(s), StickySessions: &h.StickySessions, TimeoutIdle: &h.TimeoutIdle}
	}
	return opts
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// onlyHTTPS returns redirect_http, or nil for an HTTP service: the API accepts it only with protocol
// https.
func onlyHTTPS(s hcloud.LoadBalancerService) *bool {
	if s.Protocol != hcloud.LoadBalancerServiceProtocolHTTPS {
		return nil
	}
	return &s.HTTP.RedirectHTTP
}
