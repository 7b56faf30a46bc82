package cloud

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
)

// rfc1918 are the private ranges that networks and routes may use.
var rfc1918 = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
}

var defaultRoute = netip.MustParsePrefix("0.0.0.0/0")

// isPrivate reports whether a range is inside a range of RFC 1918.
func isPrivate(r netip.Prefix) bool {
	return slices.ContainsFunc(rfc1918, func(p netip.Prefix) bool { return contains(p, r) })
}

// contains reports whether all of inner is in outer.
func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// lastAddr returns the last address of an IPv4 range.
func lastAddr(r netip.Prefix) netip.Addr {
	var b [4]byte
	first := binary.BigEndian.Uint32(r.Masked().Addr().AsSlice())
	binary.BigEndian.PutUint32(b[:], first|(1<<(32-r.Bits())-1))
	return netip.AddrFrom4(b)
}

// rangeProblem returns the problem of an IPv4 range that must have at most maxBits bits, or "".
func rangeProblem(r netip.Prefix, maxBits int) string {
	switch {
	case !r.IsValid() || !r.Addr().Is4():
		return "must be an IPv4 range in CIDR notation"
	case r != r.Masked():
		return fmt.Sprintf("%s has host bits set; the range is %s", r, r.Masked())
	case r.Bits() > maxBits:
		return fmt.Sprintf("is too small: the smallest is /%d", maxBits)
	}
	return ""
}

// checkNetworkRange checks the ip_range of a network: RFC 1918, /24 or larger.
func checkNetworkRange(r netip.Prefix) error {
	if p := rangeProblem(r, 24); p != "" {
		return ErrField("ip_range", p)
	}
	if !isPrivate(r) {
		return ErrField("ip_range", "must be in one of the private ranges of RFC 1918: 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16")
	}
	return nil
}

// vSwitchZone is the only network zone with vSwitches (docs.hetzner.com, FAQ of Networks).
const vSwitchZone = "eu-central"

// addSubnet checks a subnet and adds it. In errors, prefix precedes the names of fields.
func (n *Network) addSubnet(s Subnet, zones []string, prefix string) error {
	fail := func(field, format string, args ...any) error {
		return ErrField(prefix+field, fmt.Sprintf(format, args...))
	}
	if len(n.Subnets) >= MaxSubnetsPerNetwork {
		return ErrLimitExceeded("subnet_limit", fmt.Sprintf("a network has at most %d subnets", MaxSubnetsPerNetwork))
	}
	if !slices.Contains(zones, s.NetworkZone) {
		return fail("network_zone", "network zone does not exist") // vitobotta/hetzner-k3s issue 532
	}
	if len(n.Subnets) > 0 && n.Subnets[0].NetworkZone != s.NetworkZone {
		return fail("network_zone", "all subnets of a network are in one network zone, here %s", n.Subnets[0].NetworkZone)
	}
	if (s.Type == SubnetVSwitch) != (s.VSwitchID != 0) {
		return fail("vswitch_id", "must be given for subnets of type vswitch, and only for those")
	}
	if s.Type == SubnetVSwitch && s.NetworkZone != vSwitchZone {
		return fail("network_zone", "vSwitches are only in the network zone %s", vSwitchZone)
	}
	if !s.IPRange.IsValid() {
		free, ok := n.freeSubnet(s.Type)
		if !ok {
			return fail("ip_range", "is not given, and the network has no free /24 range")
		}
		s.IPRange = free
	}
	if p := rangeProblem(s.IPRange, 30); p != "" {
		return fail("ip_range", "%s", p)
	}
	if !contains(n.IPRange, s.IPRange) {
		return fail("ip_range", "must be a part of the network's range %s", n.IPRange)
	}
	if s.Type == SubnetVSwitch && s.IPRange.Addr() == n.IPRange.Addr() {
		return fail("ip_range", "must not begin with the first IP of the network, if the subnet is a vSwitch's")
	}
	if other, ok := n.overlappingSubnet(s.IPRange); ok {
		return fail("ip_range", "overlaps with the subnet %s", other)
	}
	if other, ok := n.overlappingRoute(s.IPRange); ok {
		return fail("ip_range", "overlaps with the route to %s", other)
	}
	if s.Type == SubnetVSwitch && s.VSwitchID < MinVSwitchID {
		return ErrServiceError("vswitch not found")
	}
	s.Gateway = n.gateway()
	n.Subnets = append(n.Subnets, s)
	return nil
}

func (n *Network) overlappingSubnet(r netip.Prefix) (netip.Prefix, bool) {
	s, ok := find(n.Subnets, func(s Subnet) bool { return s.IPRange.Overlaps(r) })
	return s.IPRange, ok
}

// overlappingRoute finds a route with a destination that overlaps with a range. The default route does not count: it overlaps with
// everything.
func (n *Network) overlappingRoute(r netip.Prefix) (netip.Prefix, bool) {
	route, ok := find(n.Routes, func(x Route) bool {
		return x.Destination == r || x.Destination != defaultRoute && r != defaultRoute && x.Destination.Overlaps(r)
	})
	return route.Destination, ok
}

// freeSubnet returns the first /24 of the network that no subnet and no route overlaps, for a subnet of the given type.
func (n *Network) freeSubnet(kind string) (netip.Prefix, bool) {
	for i := range 1 << (24 - n.IPRange.Bits()) {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(n.IPRange.Addr().AsSlice())+uint32(i)<<8)
		candidate := netip.PrefixFrom(netip.AddrFrom4(b), 24)
		_, subnet := n.overlappingSubnet(candidate)
		_, route := n.overlappingRoute(candidate)
		if !subnet && !route && (kind != SubnetVSwitch || candidate.Addr() != n.IPRange.Addr()) {
			return candidate, true
		}
	}
	return netip.Prefix{}, false
}

// The messages of the real API: hcloud-cloud-controller-manager pull request 577, hetznercloud/cli issue 826.
const (
	routeOverlaps  = "network route destination overlaps with another subnetwork or network route"
	invalidGateway = "invalid gateway"
)

// checkRoute checks a new route. In errors, prefix precedes the names of fields.
func (n *Network) checkRoute(r Route, prefix string) error {
	fail := func(field, format string, args ...any) *Error {
		return ErrField(prefix+field, fmt.Sprintf(format, args...))
	}
	say := func(message, field, format string, args ...any) error {
		e := fail(field, format, args...)
		e.Message = message
		return e
	}
	if len(n.Routes) >= MaxRoutesPerNetwork {
		return ErrLimitExceeded("route_limit", fmt.Sprintf("a network has at most %d routes", MaxRoutesPerNetwork))
	}
	if p := rangeProblem(r.Destination, 32); p != "" {
		return fail("destination", "%s", p)
	}
	if r.Destination != defaultRoute {
		if !isPrivate(r.Destination) {
			return fail("destination", "must be in one of the private ranges of RFC 1918, or 0.0.0.0/0")
		}
		if r.Destination.Contains(gatewayOfPublicNet) {
			return fail("destination", "must not overlap with %s", gatewayOfPublicNet)
		}
		if other, ok := n.overlappingSubnet(r.Destination); ok {
			return say(routeOverlaps, "destination", "overlaps with the subnet %s", other)
		}
	}
	if other, ok := n.overlappingRoute(r.Destination); ok {
		return say(routeOverlaps, "destination", "overlaps with the route to %s", other)
	}
	switch {
	case !r.Gateway.Is4():
		return say(invalidGateway, "gateway", "must be an IPv4 address")
	case r.Gateway == n.gateway():
		return say(invalidGateway, "gateway", "must not be the first IP of the network, which is its own gateway")
	case r.Gateway == gatewayOfPublicNet:
		return say(invalidGateway, "gateway", "must not be %s", gatewayOfPublicNet)
	case !n.IPRange.Contains(r.Gateway):
		return say(invalidGateway, "gateway", "must be an IP of the network's range %s", n.IPRange)
	case slices.ContainsFunc(n.Subnets, func(s Subnet) bool { return s.Type == SubnetVSwitch && s.IPRange.Contains(r.Gateway) }):
		return say(invalidGateway, "gateway", "must not be an IP behind a vSwitch")
	}
	return nil
}

func (n *Network) addRoute(r Route, prefix string) error {
	if err := n.checkRoute(r, prefix); err != nil {
		return err
	}
	n.Routes = append(n.Routes, r)
	return nil
}

// checkGrowth checks a new ip_range: it must have the same first address and be at least as large.
func (n *Network) checkGrowth(r netip.Prefix) error {
	if err := checkNetworkRange(r); err != nil {
		return err
	}
	if r.Addr() != n.IPRange.Addr() || r.Bits() > n.IPRange.Bits() {
		return ErrField("ip_range", fmt.Sprintf("can only be extended: must begin with %s and be larger than /%d", n.IPRange.Addr(),
			n.IPRange.Bits()))
	}
	return nil
}
