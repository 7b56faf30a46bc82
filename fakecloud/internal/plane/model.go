package plane

import (
	"net/netip"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/dataplane"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// target returns the engine's target with an address. Its key is the address: targets of the cloud with the same address are one target.
// Traffic to a private address does not count: the API's metrics are those of the public interface.
func (d *Balancers) target(b *balancer, address netip.Addr) dataplane.Target {
	out := dataplane.Target{Key: address.String(), Address: address}
	if h := b.holder(address); h.server != 0 && !h.private {
		if d.traffic[h.server] == nil {
			d.traffic[h.server] = &serverTraffic{}
		}
		out.Traffic = &d.traffic[h.server].Traffic
	}
	return out
}

// loadBalancerModel translates a load balancer without its targets for the engine.
func loadBalancerModel(st *cloud.State, lb *cloud.LoadBalancer) dataplane.LoadBalancer {
	out := dataplane.LoadBalancer{
		ID: lb.ID, Name: lb.Name, Algorithm: dataplane.Algorithm(lb.Algorithm), MaxConnections: lb.Type.MaxConnections,
	}
	if lb.PublicEnabled {
		for _, ip := range []netip.Addr{lb.IPv4.Addr, lb.IPv6.Addr} {
			if ip.IsValid() {
				out.Addresses = append(out.Addresses, ip)
			}
		}
	}
	for _, n := range lb.PrivateNets {
		out.Addresses = append(out.Addresses, n.IP)
	}
	for _, s := range lb.Services {
		out.Services = append(out.Services, serviceModel(st, s))
	}
	return out
}

func serviceModel(st *cloud.State, s cloud.LoadBalancerService) dataplane.Service {
	out := dataplane.Service{
		Protocol:        dataplane.Protocol(s.Protocol),
		ListenPort:      uint16(s.ListenPort),
		DestinationPort: uint16(s.DestinationPort),
		ProxyProtocol:   s.ProxyProtocol,
		HealthCheck: dataplane.HealthCheck{
			Protocol: dataplane.Protocol(s.HealthCheck.Protocol), Port: uint16(s.HealthCheck.Port),
			Interval: s.HealthCheck.Interval, Timeout: s.HealthCheck.Timeout, Retries: s.HealthCheck.Retries,
		},
	}
	if h := s.HealthCheck.HTTP; h != nil {
		out.HealthCheck.HTTP = dataplane.HTTPCheck{
			Domain: h.Domain, Path: h.Path, Response: h.Response, StatusCodes: h.StatusCodes, TLS: h.TLS,
		}
	}
	if h := s.HTTP; h != nil {
		out.HTTP = dataplane.HTTPConfig{
			StickySessions: h.StickySessions, CookieName: h.CookieName, CookieLifetime: h.CookieLifetime,
			TimeoutIdle: h.TimeoutIdle, RedirectHTTP: h.RedirectHTTP,
		}
		for _, id := range h.Certificates {
			if c, ok := st.Certificates.Get(id); ok && c.Certificate != "" {
				out.HTTP.Certificates = append(out.HTTP.Certificates, dataplane.Certificate{
					Chain: c.Certificate, PrivateKey: c.PrivateKey,
				})
			}
		}
	}
	return out
}
