package plan

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

func TestWhichPrivateAddressesALoadBalancerCanHave(t *testing.T) {
	t.Parallel()
	ipNet := func(text string) *net.IPNet { _, n, _ := net.ParseCIDR(text); return n }
	subnet := func(kind hcloud.NetworkSubnetType, zone, text string) hcloud.NetworkSubnet {
		return hcloud.NetworkSubnet{Type: kind, NetworkZone: hcloud.NetworkZone(zone), IPRange: ipNet(text)}
	}
	network := &hcloud.Network{Name: "internal", IPRange: ipNet("10.0.0.0/8"), Subnets: []hcloud.NetworkSubnet{
		subnet(hcloud.NetworkSubnetTypeCloud, "eu-central", "10.0.1.0/24"),
		subnet(hcloud.NetworkSubnetTypeCloud, "eu-central", "10.0.2.0/29"),
		subnet(hcloud.NetworkSubnetTypeCloud, "us-east", "10.0.3.0/24"),
		subnet(hcloud.NetworkSubnetTypeVSwitch, "eu-central", "10.0.4.0/24"),
		subnet(hcloud.NetworkSubnetTypeCloud, "eu-central", "172.31.1.0/24"),
		{Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: "eu-central"},
	}}
	network.Subnets[0].Gateway = net.ParseIP("10.0.1.9")
	member := func(kind hcloud.NetworkMemberType, id int64, ip string, aliases ...string) *hcloud.NetworkMember {
		m := &hcloud.NetworkMember{Type: kind, ID: id, IP: net.ParseIP(ip)}
		for _, a := range aliases {
			m.AliasIPs = append(m.AliasIPs, net.ParseIP(a))
		}
		return m
	}
	members := []*hcloud.NetworkMember{
		member(hcloud.NetworkMemberTypeServer, 1, "10.0.1.2", "10.0.1.50", "10.0.1.51"),
		member(hcloud.NetworkMemberTypeLoadBalancer, 7, "10.0.1.3"),
		member(hcloud.NetworkMemberTypeLoadBalancer, 8, "10.0.1.4"),
		member(hcloud.NetworkMemberTypeServer, 7, "10.0.1.5"), // has the same ID as the load balancer
		member(hcloud.NetworkMemberTypeServer, 2, "10.0.2.1"), member(hcloud.NetworkMemberTypeServer, 3, "10.0.2.2"),
		member(hcloud.NetworkMemberTypeServer, 4, "10.0.2.3"),
		member(hcloud.NetworkMemberTypeServer, 5, "10.0.2.4"), member(hcloud.NetworkMemberTypeServer, 6, "10.0.2.5"),
	}
	for _, tc := range []struct {
		name, ip, subnet, zone string
		annotation, reason     string // "": it can have the address
	}{
		{"a free address", "10.0.1.10", "", "eu-central", "", ""},
		{"a free address of a range", "10.0.1.10", "10.0.1.0/24", "eu-central", "", ""},
		{"its own address", "10.0.1.3", "", "eu-central", "", ""},
		{"another load balancer's address", "10.0.1.4", "", "eu-central", "private-ipv4", "load balancer 8 has it"},
		{"a server's address", "10.0.1.2", "", "eu-central", "private-ipv4", "server 1 has it"},
		{"the address of a server with its ID", "10.0.1.5", "", "eu-central", "private-ipv4", "server 7 has it"},
		{"a server's alias", "10.0.1.50", "", "eu-central", "private-ipv4", "server 1 has it"},
		{"a server's last alias", "10.0.1.51", "", "eu-central", "private-ipv4", "server 1 has it"},
		{"the first address", "10.0.1.0", "", "eu-central", "private-ipv4", "first or last"},
		{"the last address", "10.0.1.255", "", "eu-central", "private-ipv4", "first or last"},
		{"the second address", "10.0.1.1", "", "eu-central", "", ""},
		{"the last address but one", "10.0.1.254", "", "eu-central", "", ""},
		{"the gateway of its subnet", "10.0.1.9", "", "eu-central", "private-ipv4", "reserved for a gateway"},
		{"the gateway of public interfaces", "172.31.1.1", "", "eu-central", "private-ipv4", "reserved for a gateway"},
		{"an address of another zone", "10.0.3.10", "", "eu-central", "private-ipv4",
			"must be a free address of 10.0.1.0/24, 10.0.2.0/29, 172.31.1.0/24"},
		{"an address of any zone", "10.0.3.10", "", "", "", ""},
		{"an address of a vSwitch", "10.0.4.10", "", "eu-central", "private-ipv4", "is in no subnet"},
		{"a range", "", "10.0.1.0/24", "eu-central", "", ""},
		{"a range of another zone", "", "10.0.3.0/24", "eu-central", "private-subnet-ip-range", "must be one of 10.0.1.0/24"},
		{"a part of a range", "", "10.0.1.0/25", "eu-central", "private-subnet-ip-range", "must be one of 10.0.1.0/24"},
		{"a range with one free address", "", "10.0.2.0/29", "eu-central", "", ""},
	} {
		a := AddressCheck{Network: network, Members: members, Own: 7, Zone: tc.zone}
		ip, _ := netip.ParseAddr(tc.ip)
		within, _ := netip.ParsePrefix(tc.subnet)
		annotation, value, reason := a.Check(ip, within)
		if annotation != tc.annotation || !strings.Contains(reason, tc.reason) || (reason == "") != (tc.reason == "") || reason != "" &&
			value != tc.ip+tc.subnet {
			t.Errorf("%s: %s, %s: %s; want %s: %s", tc.name, annotation, value, reason, tc.annotation, tc.reason)
		}
	}
	full := AddressCheck{Network: network, Members: append(members, member(hcloud.NetworkMemberTypeServer, 9, "10.0.2.6")), Own: 7,
		Zone: "eu-central"}
	if annotation, _, reason := full.Check(netip.Addr{}, netip.MustParsePrefix("10.0.2.0/29")); annotation != "private-subnet-ip-range" ||
		!strings.Contains(reason, "has no free address") {
		t.Errorf("a range without a free address: %s: %s", annotation, reason)
	}
	whole := AddressCheck{Network: &hcloud.Network{IPRange: ipNet("10.0.0.0/16"),
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, IPRange: ipNet("10.0.0.0/16")}}}}
	if _, _, reason := whole.Check(netip.MustParseAddr("10.0.0.1"), netip.Prefix{}); !strings.Contains(reason, "reserved for a gateway") {
		t.Errorf("the gateway of the network: %q", reason)
	}
}
