package dataplane

import (
	"net"

	"github.com/pires/go-proxyproto"
)

// DefaultProxyProtocolVersion is the version of the PROXY protocol that is sent to targets.
//
// The API has a switch but no version, and Hetzner's page about it
// (docs.hetzner.com/cloud/load-balancers/faq/#what-does-proxy-protocol-mean-and-should-i-enable-it)
// could not be read here. The one text found that shows a header in the context of Hetzner's load
// balancers shows version 1: P. Stolz, A. Fink, "How Kubernetes violates the Principle of Least
// Surprise when used with PROXY Protocol on Hetzner Load Balancers", 9 September 2022,
// peterstolz.github.io. That is weak evidence, so Options.ProxyProtocolVersion can say 2. Whoever
// accepts version 2 nearly always accepts 1 too (nginx, Traefik, Envoy, HAProxy, Cilium do).
const DefaultProxyProtocolVersion = 1

// writeHeader tells a target who the client is. The destination is the address that the load
// balancer has in the cloud; families that differ make both addresses IPv6, as the protocol demands.
func writeHeader(target net.Conn, version int, client net.Addr, front *front) error {
	h := proxyproto.HeaderProxyFromAddrs(byte(version), client, net.TCPAddrFromAddrPort(front.at))
	_, err := h.WriteTo(target)
	return err
}

// writeLocalHeader says that the load balancer speaks for itself: PROXY UNKNOWN in version 1, the
// LOCAL command in version 2. HAProxy's probes do so (haproxy issue 511).
func writeLocalHeader(target net.Conn, version int) error {
	h := &proxyproto.Header{Version: byte(version), Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}
	_, err := h.WriteTo(target)
	return err
}
