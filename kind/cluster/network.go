package cluster

import (
	"fmt"
	"net/netip"
)

// Defaults of Options.
var (
	DefaultSubnet  = netip.MustParsePrefix("172.30.0.0/16")
	DefaultPodCIDR = netip.MustParsePrefix("10.244.0.0/16")
)

// serviceCIDR is the range of ClusterIPs.
var serviceCIDR = netip.MustParsePrefix("10.96.0.0/16")

// Metadata is the address of a server's metadata service at Hetzner.
var Metadata = netip.MustParseAddr("169.254.169.254")

// PublicIPv4 is the range of the cloud's public addresses, including Floating IPs. It lies outside of every cluster's network, so that
// nodes send packets for a Floating IP to the router.
var PublicIPv4 = netip.MustParsePrefix("198.18.0.0/15")

// subnetBits is the size of the network that the plan below divides.
const subnetBits = 16

// Network is the Docker network that plays a network of the cloud, and how its addresses are divided. Of 172.30.0.0/16 that is:
//
//	172.30.0.1       the host, as Docker has it
//	172.30.0.10      the network's router: whatever plays the cloud's data plane
//	172.30.0.20      whatever plays the world outside of the cluster
//	172.30.1.0/24    servers: nodes have 172.30.1.2, .3, … in order; it is a subnet
//	                 of the cloud, and .1 is never given out
//	172.30.100.0/24  addresses of load balancers
//	172.30.200.0/24  what Docker gives to containers that ask for no address
type Network struct {
	// Name of the Docker network, the same as the cluster's.
	Name string
	// Subnet is a /16.
	Subnet netip.Prefix
	// PodCIDR is the range that every node's pod CIDR is cut out of.
	PodCIDR netip.Prefix
}

// Host is the host's address in the network, on Linux.
func (n Network) Host() netip.Addr { return n.at(0, 1) }

// Router is the address that nodes send packets to other nodes' pods and to PublicIPv4 to.
func (n Network) Router() netip.Addr { return n.at(0, 10) }

// Outside is the address of a client that is on the network but does not belong to the cluster.
func (n Network) Outside() netip.Addr { return n.at(0, 20) }

// Servers is the range that nodes' addresses lie in.
func (n Network) Servers() netip.Prefix { return netip.PrefixFrom(n.at(1, 0), 24) }

// LoadBalancers is the range for addresses of load balancers.
func (n Network) LoadBalancers() netip.Prefix { return netip.PrefixFrom(n.at(100, 0), 24) }

// Anonymous is the range that Docker takes addresses from by itself.
func (n Network) Anonymous() netip.Prefix { return netip.PrefixFrom(n.at(200, 0), 24) }

// Server is the address of the i-th server, from 0: the control plane's node is
// the first.
func (n Network) Server(i int) netip.Addr { return n.at(1, byte(2+i)) }

// maxServers is how many addresses Servers has for nodes.
const maxServers = 253

func (n Network) at(third, fourth byte) netip.Addr {
	bytes := n.Subnet.Addr().As4()
	bytes[2], bytes[3] = third, fourth
	return netip.AddrFrom4(bytes)
}

// validate returns an error if the ranges cannot be used.
func (n Network) validate() error {
	switch {
	case !n.Subnet.Addr().Is4() || n.Subnet.Bits() != subnetBits || n.Subnet != n.Subnet.Masked() || !n.Subnet.Addr().IsGlobalUnicast():
		return errSubnet(n.Subnet.String())
	case !n.PodCIDR.Addr().Is4() || n.PodCIDR != n.PodCIDR.Masked() || n.PodCIDR.Bits() > 23:
		return fmt.Errorf("the pods' range %s is not an IPv4 range with room for a /24 per node", n.PodCIDR)
	case n.PodCIDR.Overlaps(PublicIPv4) || n.Subnet.Overlaps(PublicIPv4):
		return fmt.Errorf("KIND_SUBNET=%s or the pods' range %s overlaps the cloud's public addresses %s: choose another one, such as %s",
			n.Subnet, n.PodCIDR, PublicIPv4, DefaultSubnet)
	case n.PodCIDR.Overlaps(n.Subnet):
		return fmt.Errorf("KIND_SUBNET=%s overlaps the pods' range %s: choose another one, such as %s", n.Subnet, n.PodCIDR, DefaultSubnet)
	}
	return nil
}

// ParseSubnet returns the subnet in a text that a person wrote.
func ParseSubnet(text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, errSubnet(text)
	}
	return p, nil
}

func errSubnet(text string) error {
	return fmt.Errorf("KIND_SUBNET=%s: must be an IPv4 /%d, such as %s", text, subnetBits, DefaultSubnet)
}

// Offset returns a /16 for the n-th cluster that runs at the same time: the 0th
// has DefaultSubnet, others count down from there to 172.20.0.0/16, and around.
func Offset(n int) netip.Prefix {
	const highest = 30
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(highest - n%offsets), 0, 0}), subnetBits)
}

// offsets is how many subnets Offset has.
const offsets = 11
