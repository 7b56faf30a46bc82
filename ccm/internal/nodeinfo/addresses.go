package nodeinfo

import (
	"net/netip"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// PrivateIP returns the server's address in the network, or the zero Addr if it is not attached.
func PrivateIP(s *hcloud.Server, networkID int64) netip.Addr {
	for _, n := range s.PrivateNet {
		if n.Network != nil && n.Network.ID == networkID {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				return a.Unmap()
			}
		}
	}
	return netip.Addr{}
}

// PublicIPv4 returns the server's public IPv4 address, or the zero Addr if it has none.
func PublicIPv4(s *hcloud.Server) netip.Addr {
	if s.PublicNet.IPv4.IsUnspecified() {
		return netip.Addr{}
	}
	a, _ := netip.AddrFromSlice(s.PublicNet.IPv4.IP)
	return a.Unmap()
}

// PublicIPv6 returns the first address of the server's public IPv6 network, or the zero Addr if it
// has none. The API gives a server a /64, and images configure <network>::1.
func PublicIPv6(s *hcloud.Server) netip.Addr {
	if s.PublicNet.IPv6.IsUnspecified() {
		return netip.Addr{}
	}
	a, ok := netip.AddrFromSlice(s.PublicNet.IPv6.IP)
	if !ok {
		return netip.Addr{}
	}
	b := a.As16()
	b[15] |= 1
	return netip.AddrFrom16(b)
}

// AnnotationIPv6 on a Node is the address that its server uses of its public IPv6 network. The production
// CCM reads it too (hcloud-cloud-controller-manager#1343).
const AnnotationIPv6 = "instance.hetzner.cloud/external-ipv6"

// NodeIPs returns the addresses that kubelet got as --node-ip. The node controller of k8s.io/cloud-provider
// initializes a Node only if they are among the addresses of its server.
func NodeIPs(node *corev1.Node) (ips []netip.Addr) {
	for text := range strings.SplitSeq(node.Annotations[cloudproviderapi.AnnotationAlphaProvidedIPAddr], ",") {
		if ip, err := netip.ParseAddr(strings.TrimSpace(text)); err == nil {
			ips = append(ips, ip.Unmap())
		}
	}
	return ips
}

// IPv6 returns the server's address in its public IPv6 network, or the zero Addr without such a network. The
// API knows only the network: the address is the one of AnnotationIPv6, or kubelet's --node-ip, or the
// first one, as in the images.
func IPv6(s *hcloud.Server, node *corev1.Node) netip.Addr {
	first := PublicIPv6(s)
	if !first.IsValid() {
		return first
	}
	network, err := first.Prefix(64)
	if err != nil {
		return first // an IPv6 address has this prefix
	}
	chosen, _ := netip.ParseAddr(strings.TrimSpace(node.Annotations[AnnotationIPv6]))
	for _, ip := range append([]netip.Addr{chosen}, NodeIPs(node)...) {
		if network.Contains(ip) {
			return ip
		}
	}
	return first
}
