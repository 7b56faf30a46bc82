package dataplane

import (
	"net"

	"github.com/pires/go-proxyproto"
)

// defaultProxyProtocolVersion is the default version of the PROXY protocol to targets.
//
// The API has a switch but no version, and Hetzner's page about it
// (docs.hetzner.com/cloud/load-balancers/faq/#what-does-proxy-protocol-mean-and-should-i-enable-it)
// could not be read here. The only text found that shows a header of a Hetzner load balancer shows
// version 1: P. Stolz, A. Fink, "How Kubernetes violates the Principle of Least Surprise when used with
// PROXY Protocol on Hetzner Load Balancers", 9 September 2022, peterstolz.github.io. That is weak
// evidence, so Options.ProxyProtocolVersion can be 2. Most programs that accept version 2 also accept
// version 1 (nginx, Traefik, Envoy, HAProxy, Cilium).
const defaultProxyProtocolVersion = 1

// writeHeader sends the addresses of the client and of the load balancer in the cloud to a target. If
// their families differ, both are sent as IPv6, as the protocol requires.
func writeHeader(target net.Conn, version int, client net.Addr, front *front) error {
	h := proxyproto.HeaderProxyFromAddrs(byte(version), client, net.TCPAddrFromAddrPort(front.at))
	_, err := h.WriteTo(target)
	return err
}

// writeLocalHeader sends the header of a connection without a client: PROXY UNKNOWN in version 1, the
// LOCAL command in version 2. HAProxy's probes send it too (haproxy issue 511).
func writeLocalHeader(target net.Conn, version int) error {
	h := &proxyproto.Header{Version: byte(version), Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}
	_, err := h.WriteTo(target)
	return err
}
