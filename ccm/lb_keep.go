package ccm

import (
	"net/netip"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// A setting that cannot be applied (see lbPlanInput.Wrong) must not take away what serves traffic: the
// functions of this file make the plan keep what the load balancer has. Each annotation is in one of the
// two maps, or in keptElsewhere.

// keptOnLoadBalancer maps an annotation to the function that keeps its setting.
var keptOnLoadBalancer = map[string]func(plan *lbPlan, lb *hcloud.LoadBalancer){
	"name":                    func(p *lbPlan, _ *hcloud.LoadBalancer) { p.Name = "" },
	"type":                    func(p *lbPlan, _ *hcloud.LoadBalancer) { p.Type = "" },
	"algorithm-type":          func(p *lbPlan, _ *hcloud.LoadBalancer) { p.Algorithm = "" },
	"ipv4-rdns":               func(p *lbPlan, _ *hcloud.LoadBalancer) { p.IPv4RDNS = "" },
	"ipv6-rdns":               func(p *lbPlan, _ *hcloud.LoadBalancer) { p.IPv6RDNS = "" },
	"disable-public-network":  func(p *lbPlan, lb *hcloud.LoadBalancer) { p.Public = lb.PublicNet.Enabled },
	"private-ipv4":            func(p *lbPlan, _ *hcloud.LoadBalancer) { p.PrivateIPv4 = netip.Addr{} },
	"private-subnet-ip-range": func(p *lbPlan, _ *hcloud.LoadBalancer) { p.PrivateSubnet = netip.Prefix{} },
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
	"use-private-ip":          "usesPrivateIP",
	"node-selector":           "selectedNodes",
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
func keepLoadBalancerSettings(plan *lbPlan, in lbPlanInput) {
	if in.Current == nil {
		return
	}
	for name := range in.Wrong {
		if keep, ok := keptOnLoadBalancer[name]; ok {
			keep(plan, in.Current)
		}
	}
}

// keepPortSettings applies keptOnPort to a port. All ports of a Service have the same settings: a new port
// gets what another one of the Service has. It returns false if there is none: then the port has to wait
// until the settings are corrected.
func keepPortSettings(want hcloud.LoadBalancerService, in lbPlanInput) (hcloud.LoadBalancerService, bool) {
	have, found := portToKeep(want.ListenPort, in.Current)
	for name := range keptOnPort { // a wrong protocol keeps the most, and comes first
		if in.Wrong[name] && !found {
			return want, false
		}
	}
	if in.Wrong["protocol"] {
		keptOnPort["protocol"](&want, have)
	}
	for name, keep := range keptOnPort {
		if in.Wrong[name] && name != "protocol" {
			keep(&want, have)
		}
	}
	return want, true
}

// portToKeep returns the Service's port on the load balancer: this one, or else any other.
func portToKeep(port int, lb *hcloud.LoadBalancer) (have hcloud.LoadBalancerService, found bool) {
	if lb == nil {
		return have, false
	}
	ours := decodePorts(lb.Labels)
	for _, s := range lb.Services {
		if ours[s.ListenPort] && (!found || s.ListenPort == port) {
			have, found = s, true
		}
	}
	return have, found
}
