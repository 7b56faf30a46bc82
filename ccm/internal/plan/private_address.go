package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// AddressCheck knows which addresses of a network are free.
type AddressCheck struct {
	Network *hcloud.Network
	Members []*hcloud.NetworkMember
	Own     int64  // ID of the load balancer, whose own address counts as free
	Zone    string // network zone of the load balancer; "" if unknown
}

// reservedAddress is the gateway of the servers' public interface. No private network can use it.
var reservedAddress = netip.AddrFrom4([4]byte{172, 31, 1, 1})

// Check returns the name of the annotation that is wrong, its value and the reason, or "" if the load
// balancer can have the address or range.
func (a AddressCheck) Check(ip netip.Addr, subnet netip.Prefix) (annotation, value, reason string) {
	subnets := a.subnets()
	if subnet.IsValid() && !slices.Contains(subnets, subnet) {
		return "private-subnet-ip-range", subnet.String(), "is not a subnet for load balancers of network " + a.Network.Name +
			": must be one of " + joinPrefixes(subnets)
	}
	if !ip.IsValid() {
		for free := subnet.Addr().Next(); subnet.Contains(free); free = free.Next() {
			if a.taken(free, subnet) == "" {
				return "", "", ""
			}
		}
		return "private-subnet-ip-range", subnet.String(), "has no free address: must be a subnet with a free address"
	}
	i := slices.IndexFunc(subnets, func(p netip.Prefix) bool { return p.Contains(ip) })
	if i < 0 {
		return "private-ipv4", ip.String(), "is in no subnet for load balancers of network " + a.Network.Name +
			": must be a free address of " + joinPrefixes(subnets)
	}
	if by := a.taken(ip, subnets[i]); by != "" {
		return "private-ipv4", ip.String(), "is not available (" + by + "): must be a free address of " + subnets[i].String()
	}
	return "", "", ""
}

// subnets returns the ranges for load balancers.
func (a AddressCheck) subnets() (ranges []netip.Prefix) {
	for _, s := range a.Network.Subnets {
		if s.Type == hcloud.NetworkSubnetTypeVSwitch || s.IPRange == nil || a.Zone != "" && string(s.NetworkZone) != a.Zone {
			continue
		}
		if p, err := netip.ParsePrefix(s.IPRange.String()); err == nil {
			ranges = append(ranges, p)
		}
	}
	return ranges
}

// taken says what has the address, or returns "" if it is free.
func (a AddressCheck) taken(ip netip.Addr, subnet netip.Prefix) string {
	if ip == subnet.Addr() || !subnet.Contains(ip.Next()) {
		return "it is the first or last address of the subnet"
	}
	if ip == reservedAddress || a.Network.IPRange != nil && a.Network.IPRange.IP.String() == ip.Prev().String() {
		return "it is reserved for a gateway"
	}
	for _, s := range a.Network.Subnets {
		if s.Gateway.String() == ip.String() {
			return "it is reserved for a gateway"
		}
	}
	for _, m := range a.Members {
		if m.Type == hcloud.NetworkMemberTypeLoadBalancer && m.ID == a.Own {
			continue
		}
		used := m.IP.String() == ip.String()
		for _, alias := range m.AliasIPs {
			used = used || alias.String() == ip.String()
		}
		if used {
			return fmt.Sprintf("%s %d has it", strings.ReplaceAll(string(m.Type), "_", " "), m.ID)
		}
	}
	return ""
}

func joinPrefixes(all []netip.Prefix) string {
	var texts []string
	for _, p := range all {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}
