package plan

import (
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// A setting that cannot be applied (see Input.Wrong) must not take away what serves traffic: the
// functions of this file make the plan keep what the load balancer has. Each annotation is in one of the
// two maps, or in keptElsewhere.

// keptOnLoadBalancer maps an annotation to the function that keeps its setting.
var keptOnLoadBalancer = map[string]func(plan *LoadBalancer, lb *hcloud.LoadBalancer){
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

// keptOnPort maps an annotation to the function that keeps its setting on a port.
var keptOnPort = map[string]func(want *hcloud.LoadBalancerService, have hcloud.LoadBalancerService){
	"protocol": func(want *hcloud.LoadBalancerService, have hcloud.LoadBalancerService) {
		want.Protocol, want.HTTP = have.Protocol, have.HTTP
		keepHealthCheck(want, have)
	},
	"uses-proxyprotocol": func(want *hcloud.LoadBalancerService, have hcloud.LoadBalancerService) {
		want.Proxyprotocol = have.Proxyprotocol
	},
	"http-cookie-name": keepHTTP(func(want *hcloud.LoadBalancerServiceHTTP, have hcloud.LoadBalancerServiceHTTP) {
		want.CookieName = have.CookieName
	}),
	"http-cookie-lifetime": keepHTTP(func(want *hcloud.LoadBalancerServiceHTTP, have hcloud.LoadBalancerServiceHTTP) {
		want.CookieLifetime = have.CookieLifetime
	}),
	"http-timeout-idle": keepHTTP(func(want *hcloud.LoadBalancerServiceHTTP, have hcloud.LoadBalancerServiceHTTP) {
		want.TimeoutIdle = have.TimeoutIdle
	}),
	"http-sticky-sessions": keepHTTP(func(want *hcloud.LoadBalancerServiceHTTP, have hcloud.LoadBalancerServiceHTTP) {
		want.StickySessions = have.StickySessions
	}),
	"http-redirect-http": keepHTTP(func(want *hcloud.LoadBalancerServiceHTTP, have hcloud.LoadBalancerServiceHTTP) {
		want.RedirectHTTP = have.RedirectHTTP
	}),
	"certificate-type":                      keepCertificates,
	"http-certificates":                     keepCertificates,
	"http-managed-certificate-name":         keepCertificates,
	"http-managed-certificate-domains":      keepCertificates,
	"http-managed-certificate-acme-staging": keepCertificates,

	"health-check-protocol": keepHealthCheck,
	"health-check-port":     keepHealthCheck,
	"health-check-interval": func(want *hcloud.LoadBalancerService, have hcloud.LoadBalancerService) {
		want.HealthCheck.Interval = have.HealthCheck.Interval
	},
	"health-check-timeout": func(want *hcloud.LoadBalancerService, have hcloud.LoadBalancerService) {
		want.HealthCheck.Timeout = have.HealthCheck.Timeout
	},
	"health-check-retries": func(want *hcloud.LoadBalancerService, have hcloud.LoadBalancerService) {
		want.HealthCheck.Retries = have.HealthCheck.Retries
	},
	"health-check-http-domain":               keepHealthCheck,
	"health-check-http-path":                 keepHealthCheck,
	"health-check-http-validate-certificate": keepHealthCheck,
	"http-status-codes":                      keepHealthCheck,
}

// keptElsewhere holds the other annotations, and where they keep what they have.
var keptElsewhere = map[string]string{
	"location":                "cannot change",
	"network-zone":            "cannot change",
	"adopt":                   "cannot change",
	"shared":                  "the load balancer's labels: guests stay",
	"primary-ipv4":            "cannot change",
	"primary-ipv6":            "cannot change",
	"use-private-ip":          "usesPrivateIP",
	"node-selector":           "selectedNodes",
	"server-selector":         "planSelector",
	"keep-on-delete":          "deletionSettings",
	"hostname":                "the Service's status",
	"ipv6-disabled":           "the Service's status",
	"disable-private-ingress": "the Service's status",
}

func keepHTTP(keep func(want *hcloud.LoadBalancerServiceHTTP, have hcloud.LoadBalancerServiceHTTP)) func(*hcloud.LoadBalancerService, hcloud.LoadBalancerService) {
	return func(want *hcloud.LoadBalancerService, have hcloud.LoadBalancerService) {
		if have.Protocol != hcloud.LoadBalancerServiceProtocolTCP {
			keep(&want.HTTP, have.HTTP)
		}
	}
}

// keepCertificates keeps the certificates. A port that is not HTTPS yet keeps its protocol.
func keepCertificates(want *hcloud.LoadBalancerService, have hcloud.LoadBalancerService) {
	if want.Protocol != hcloud.LoadBalancerServiceProtocolHTTPS {
		return
	}
	if have.Protocol == hcloud.LoadBalancerServiceProtocolHTTPS {
		want.HTTP.Certificates = have.HTTP.Certificates
		return
	}
	want.Protocol, want.HTTP = have.Protocol, have.HTTP
}

// keepHealthCheck keeps what is checked. A check of the port's own destination follows a changed node port.
func keepHealthCheck(want *hcloud.LoadBalancerService, have hcloud.LoadBalancerService) {
	want.HealthCheck.Protocol, want.HealthCheck.HTTP = have.HealthCheck.Protocol, have.HealthCheck.HTTP
	want.HealthCheck.Port = have.HealthCheck.Port
	if have.HealthCheck.Port == have.DestinationPort {
		want.HealthCheck.Port = want.DestinationPort
	}
}

// keepLoadBalancerSettings applies keptOnLoadBalancer to the plan.
func keepLoadBalancerSettings(plan *LoadBalancer, in Input) {
	if in.Current == nil {
		return
	}
	for name := range in.Wrong {
		if keep, ok := keptOnLoadBalancer[name]; ok {
			keep(plan, in.Current)
		}
	}
}

// keepPortSettings applies keptOnPort to a port. Ports without settings of their own have the same settings:
// a new one gets what another one of the Service has. It returns false if there is none: then the port has
// to wait until the settings are corrected.
func keepPortSettings(want hcloud.LoadBalancerService, in Input) (hcloud.LoadBalancerService, bool) {
	var wrong []string
	for name := range keptOnPort {
		switch {
		case !in.IsWrong(name, want.ListenPort):
		case name == "protocol": // keeps the most, and comes first
			wrong = slices.Insert(wrong, 0, name)
		default:
			wrong = append(wrong, name)
		}
	}
	have, found := portToKeep(want.ListenPort, in)
	if len(wrong) > 0 && !found {
		return want, false
	}
	for _, name := range wrong {
		keptOnPort[name](&want, have)
	}
	return want, true
}

// portToKeep returns the Service's port on the load balancer: this one, or else one with the same settings.
func portToKeep(port int, in Input) (have hcloud.LoadBalancerService, found bool) {
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
