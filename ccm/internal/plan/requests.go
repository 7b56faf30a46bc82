package plan

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// RecordAfter returns the record after an OpRecord or OpLabel, based on the load balancer's current state. It
// fails if the load balancer does not have the Service's ownership label any more: a user who removes
// that label wants to keep the load balancer.
func RecordAfter(now *hcloud.LoadBalancer, op Op) (*Record, error) {
	if owner := now.Labels[LabelServiceUID]; owner != op.UID && (!op.Guest || !IsGuest(now, op.UID)) {
		return nil, fmt.Errorf("%w: the label %s is %q, want %q", ErrNotOwner, LabelServiceUID, owner, op.UID)
	}
	taken := portsOfOthers(now, op.UID, op.Ports)
	for _, port := range op.Ports {
		if owner := taken[port]; owner != "" {
			return nil, fmt.Errorf("port %d belongs to the Service with UID %s since a moment ago: will choose again", port, owner)
		}
	}
	r := RecordOf(now)
	r.note(op, now)
	return r, nil
}

// AttachRequest returns the request of an OpAttach.
func AttachRequest(op Op) hcloud.LoadBalancerAttachToNetworkOpts {
	opts := hcloud.LoadBalancerAttachToNetworkOpts{Network: &hcloud.Network{ID: op.NetworkID}}
	switch {
	case op.IP.IsValid():
		opts.IP = net.IP(op.IP.AsSlice())
	case op.IPRange.IsValid():
		opts.IPRange = IPNet(op.IPRange)
	}
	return opts
}

// IPNet returns the prefix in the form of hcloud-go.
func IPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// CreateRequest returns the request that creates the planned load balancer, with all settings if
// possible. The request cannot choose an address in the network. If the plan has one, the network and the
// targets that need it follow as operations, and so do targets over IPv6. A private load balancer never has a public interface: the
// API accepts that without a network.
func CreateRequest(plan *LoadBalancer) hcloud.LoadBalancerCreateOpts {
	record := Record{Labels: map[string]string{LabelLastOwner: plan.UID}}
	record.note(Op{Kind: OpRecord, UID: plan.UID, Ports: plan.ports(), Marks: plan.Marks,
		Shared: plan.Shared, Common: plan.Common}, &hcloud.LoadBalancer{})
	record.setUserLabels(plan.Labels)
	opts := hcloud.LoadBalancerCreateOpts{
		Name:             plan.CreateName,
		LoadBalancerType: &hcloud.LoadBalancerType{Name: cmp.Or(plan.Type, DefaultLoadBalancerType)},
		Algorithm:        &hcloud.LoadBalancerAlgorithm{Type: cmp.Or(plan.Algorithm, hcloud.LoadBalancerAlgorithmTypeRoundRobin)},
		NetworkZone:      hcloud.NetworkZone(plan.NetworkZone),
		Labels:           record.Encode(),
		PublicInterface:  &plan.Public,
	}
	if plan.PrimaryIPv4 != nil || plan.PrimaryIPv6 != nil {
		opts.PublicNet = &hcloud.LoadBalancerCreateOptsPublicNet{IPv4: plan.PrimaryIPv4, IPv6: plan.PrimaryIPv6}
	}
	if plan.Location != "" {
		opts.Location = &hcloud.Location{Name: plan.Location}
	}
	for _, s := range plan.Services {
		opts.Services = append(opts.Services, createServiceRequest(s))
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
	return opts
}

// hcloud-go has a type per request for the same data. Those of the settings under "http" are convertible.

func createServiceRequest(s hcloud.LoadBalancerService) hcloud.LoadBalancerCreateOptsService {
	add := AddServiceRequest(s)
	hc := add.HealthCheck
	return hcloud.LoadBalancerCreateOptsService{
		Protocol: s.Protocol, ListenPort: add.ListenPort, DestinationPort: add.DestinationPort, Proxyprotocol: add.Proxyprotocol,
		HTTP: (*hcloud.LoadBalancerCreateOptsServiceHTTP)(add.HTTP),
		HealthCheck: &hcloud.LoadBalancerCreateOptsServiceHealthCheck{
			Protocol: hc.Protocol, Port: hc.Port, Interval: hc.Interval, Timeout: hc.Timeout, Retries: hc.Retries,
			HTTP: (*hcloud.LoadBalancerCreateOptsServiceHealthCheckHTTP)(hc.HTTP)},
	}
}

// AddServiceRequest returns the request of an OpAddService.
func AddServiceRequest(s hcloud.LoadBalancerService) hcloud.LoadBalancerAddServiceOpts {
	update := UpdateServiceRequest(s)
	hc := update.HealthCheck
	if hc.HTTP != nil && *hc.HTTP.Domain == "" {
		hc.HTTP.Domain = nil
	}
	return hcloud.LoadBalancerAddServiceOpts{
		Protocol: s.Protocol, ListenPort: &s.ListenPort, DestinationPort: update.DestinationPort, Proxyprotocol: update.Proxyprotocol,
		HTTP: (*hcloud.LoadBalancerAddServiceOptsHTTP)(update.HTTP),
		HealthCheck: &hcloud.LoadBalancerAddServiceOptsHealthCheck{
			Protocol: hc.Protocol, Port: hc.Port, Interval: hc.Interval, Timeout: hc.Timeout, Retries: hc.Retries,
			HTTP: (*hcloud.LoadBalancerAddServiceOptsHealthCheckHTTP)(hc.HTTP)},
	}
}

// UpdateServiceRequest returns the request of an OpUpdateService.
func UpdateServiceRequest(s hcloud.LoadBalancerService) hcloud.LoadBalancerUpdateServiceOpts {
	hc := s.HealthCheck
	opts := hcloud.LoadBalancerUpdateServiceOpts{
		Protocol: s.Protocol, DestinationPort: &s.DestinationPort, Proxyprotocol: &s.Proxyprotocol,
		HealthCheck: &hcloud.LoadBalancerUpdateServiceOptsHealthCheck{
			Protocol: hc.Protocol, Port: &hc.Port, Interval: &hc.Interval, Timeout: &hc.Timeout, Retries: &hc.Retries},
	}
	if h := hc.HTTP; h != nil {
		// An empty domain clears it: the request is a patch.
		opts.HealthCheck.HTTP = &hcloud.LoadBalancerUpdateServiceOptsHealthCheckHTTP{
			Domain: &h.Domain, Path: &h.Path, StatusCodes: h.StatusCodes, TLS: &h.TLS}
	}
	if s.Protocol != hcloud.LoadBalancerServiceProtocolTCP {
		h := s.HTTP
		opts.HTTP = &hcloud.LoadBalancerUpdateServiceOptsHTTP{
			CookieName: &h.CookieName, CookieLifetime: &h.CookieLifetime, Certificates: h.Certificates,
			StickySessions: &h.StickySessions, TimeoutIdle: &h.TimeoutIdle}
		if s.Protocol == hcloud.LoadBalancerServiceProtocolHTTPS { // the API accepts it only there
			opts.HTTP.RedirectHTTP = &h.RedirectHTTP
		}
	}
	return opts
}

// ErrNotOwner is the error of a sync that finds its load balancer without the Service's label.
var ErrNotOwner = errors.New("the load balancer was changed during the sync, and does not belong to the Service any more")
