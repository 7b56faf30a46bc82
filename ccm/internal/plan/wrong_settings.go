package plan

import (
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// A setting that cannot be applied (see Input.Wrong) must not take away what serves traffic: the
// functions of this file copy the load balancer's own setting into the plan. A test tells which annotations need no function.

type (
	lbService = hcloud.LoadBalancerService
	lbHTTP    = hcloud.LoadBalancerServiceHTTP
)

// copiedOnLoadBalancer maps an annotation to the function that copies its setting.
var copiedOnLoadBalancer = map[string]func(plan *LoadBalancer, lb *hcloud.LoadBalancer){
	"name":                    func(p *LoadBalancer, _ *hcloud.LoadBalancer) { p.Name = "" },
	"type":                    func(p *LoadBalancer, _ *hcloud.LoadBalancer) { p.Type = "" },
	"algorithm-type":          func(p *LoadBalancer, _ *hcloud.LoadBalancer) { p.Algorithm = "" },
	"ipv4-rdns":               func(p *LoadBalancer, _ *hcloud.LoadBalancer) { p.IPv4RDNS = "" },
	"ipv6-rdns":               func(p *LoadBalancer, _ *hcloud.LoadBalancer) { p.IPv6RDNS = "" },
	"labels":                  func(p *LoadBalancer, _ *hcloud.LoadBalancer) { p.Labels = nil },
	"delete-protection":       func(p *LoadBalancer, _ *hcloud.LoadBalancer) { p.DeleteProtection = nil },
	"disable-public-network":  func(p *LoadBalancer, lb *hcloud.LoadBalancer) { p.Public = lb.PublicNet.Enabled },
	"private-ipv4":            func(p *LoadBalancer, _ *hcloud.LoadBalancer) { p.PrivateIPv4 = netip.Addr{} },
	"private-subnet-ip-range": func(p *LoadBalancer, _ *hcloud.LoadBalancer) { p.PrivateSubnet = netip.Prefix{} },
}

// copiedOnPort maps an annotation to the function that copies its setting on a port.
var copiedOnPort = map[string]func(want *lbService, have lbService){
	"protocol": func(want *lbService, have lbService) {
		want.Protocol, want.HTTP = have.Protocol, have.HTTP
		copyHealthCheck(want, have)
	},
	"uses-proxyprotocol":                    func(want *lbService, have lbService) { want.Proxyprotocol = have.Proxyprotocol },
	"http-cookie-name":                      copyHTTP(func(want *lbHTTP, have lbHTTP) { want.CookieName = have.CookieName }),
	"http-cookie-lifetime":                  copyHTTP(func(want *lbHTTP, have lbHTTP) { want.CookieLifetime = have.CookieLifetime }),
	"http-timeout-idle":                     copyHTTP(func(want *lbHTTP, have lbHTTP) { want.TimeoutIdle = have.TimeoutIdle }),
	"http-sticky-sessions":                  copyHTTP(func(want *lbHTTP, have lbHTTP) { want.StickySessions = have.StickySessions }),
	"http-redirect-http":                    copyHTTP(func(want *lbHTTP, have lbHTTP) { want.RedirectHTTP = have.RedirectHTTP }),
	"certificate-type":                      copyCertificates,
	"http-certificates":                     copyCertificates,
	"http-managed-certificate-name":         copyCertificates,
	"http-managed-certificate-domains":      copyCertificates,
	"http-managed-certificate-acme-staging": copyCertificates,

	"health-check-protocol":                  copyHealthCheck,
	"health-check-port":                      copyHealthCheck,
	"health-check-interval":                  func(want *lbService, has lbService) { want.HealthCheck.Interval = has.HealthCheck.Interval },
	"health-check-timeout":                   func(want *lbService, has lbService) { want.HealthCheck.Timeout = has.HealthCheck.Timeout },
	"health-check-retries":                   func(want *lbService, has lbService) { want.HealthCheck.Retries = has.HealthCheck.Retries },
	"health-check-http-domain":               copyHealthCheck,
	"health-check-http-path":                 copyHealthCheck,
	"health-check-http-validate-certificate": copyHealthCheck,
	"http-status-codes":                      copyHealthCheck,
}

func copyHTTP(copySetting func(want *lbHTTP, have lbHTTP)) func(*lbService, lbService) {
	return func(want *lbService, have lbService) {
		if have.Protocol != hcloud.LoadBalancerServiceProtocolTCP {
			copySetting(&want.HTTP, have.HTTP)
		}
	}
}

// copyCertificates copies the certificates. A port that is not HTTPS yet keeps its protocol.
func copyCertificates(want *hcloud.LoadBalancerService, have hcloud.LoadBalancerService) {
	if want.Protocol != hcloud.LoadBalancerServiceProtocolHTTPS {
		return
	}
	if have.Protocol == hcloud.LoadBalancerServiceProtocolHTTPS {
		want.HTTP.Certificates = have.HTTP.Certificates
		return
	}
	want.Protocol, want.HTTP = have.Protocol, have.HTTP
}

// copyHealthCheck copies what is checked. A check of the port's own destination follows a changed node port.
func copyHealthCheck(want *hcloud.LoadBalancerService, have hcloud.LoadBalancerService) {
	want.HealthCheck.Protocol, want.HealthCheck.HTTP = have.HealthCheck.Protocol, have.HealthCheck.HTTP
	want.HealthCheck.Port = have.HealthCheck.Port
	if have.HealthCheck.Port == have.DestinationPort {
		want.HealthCheck.Port = want.DestinationPort
	}
}

// copyPortSettings applies copiedOnPort to a port. A new port copies from another port of the Service, if both have the general
// settings. Otherwise copyPortSettings returns false, and the port waits until the settings are corrected.
func copyPortSettings(want hcloud.LoadBalancerService, in Input) (hcloud.LoadBalancerService, bool) {
	var wrong []string
	for name := range copiedOnPort {
		switch {
		case !in.IsWrong(name, want.ListenPort):
		case name == "protocol": // copies the most, and comes first
			wrong = slices.Insert(wrong, 0, name)
		default:
			wrong = append(wrong, name)
		}
	}
	have, found := portToCopy(want.ListenPort, in)
	if len(wrong) > 0 && !found {
		return want, false
	}
	for _, name := range wrong {
		copiedOnPort[name](&want, have)
	}
	return want, true
}

// portToCopy returns the Service's port on the load balancer: this one, or else one with the same settings.
func portToCopy(port int, in Input) (have hcloud.LoadBalancerService, found bool) {
	if in.Current == nil {
		return have, false
	}
	ours, own := PortsOf(in.Current, string(in.Service.UID)), in.Settings.ByPort
	for _, s := range in.Current.Services {
		switch {
		case !ours[s.ListenPort]:
		case s.ListenPort == port:
			return s, true
		case own[port] == nil && own[s.ListenPort] == nil:
			have, found = s, true
		}
	}
	return have, found
}
