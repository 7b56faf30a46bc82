package plan

import (
	"net"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
)

// Ingress returns the Service's load balancer status. With a hostname the status contains only
// the hostname. With PROXY protocol the IP mode is Proxy: kube-proxy then sends traffic from inside
// the cluster to the load balancer too, instead of directly to a pod that expects the PROXY header.
func Ingress(lb *hcloud.LoadBalancer, s *Settings) *corev1.LoadBalancerStatus {
	if s.Hostname != "" {
		return &corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{Hostname: s.Hostname}}}
	}
	mode := corev1.LoadBalancerIPModeVIP
	if s.usesProxyProtocol() {
		mode = corev1.LoadBalancerIPModeProxy
	}
	status := &corev1.LoadBalancerStatus{}
	add := func(ip net.IP) {
		if len(ip) > 0 && !ip.IsUnspecified() {
			status.Ingress = append(status.Ingress, corev1.LoadBalancerIngress{IP: ip.String(), IPMode: &mode})
		}
	}
	if lb.PublicNet.Enabled {
		add(lb.PublicNet.IPv4.IP)
		if !s.IPv6Disabled {
			add(lb.PublicNet.IPv6.IP)
		}
	}
	if !s.DisablePrivateIngress {
		for _, n := range lb.PrivateNet {
			add(n.IP)
		}
	}
	return status
}

// HidesAddresses reports whether a Service shows no address although it has a load balancer.
func HidesAddresses(svc *corev1.Service, defaults map[string]string) bool {
	s, _, _ := ParseAnnotations(svc.Annotations, defaults)
	return s.Hostname == "" && s.DisablePublicNetwork && s.DisablePrivateIngress
}
