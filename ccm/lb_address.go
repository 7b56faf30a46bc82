package ccm

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
)

// checkAddress returns a settingsError if the load balancer cannot have the private address or range of
// the plan. A load balancer has to leave its network to change its address, so this is checked before
// the first operation. It makes no API call if the attachment does not change.
func (l *loadBalancers) checkAddress(ctx context.Context, svc *corev1.Service, plan *lbPlan, lb *hcloud.LoadBalancer) error {
	if !plan.PrivateIPv4.IsValid() && !plan.PrivateSubnet.IsValid() {
		return nil
	}
	a := addressCheck{zone: plan.NetworkZone}
	if lb != nil {
		d := lbDiff{plan: plan, lb: lb}
		if ops, _ := d.network(); len(ops) == 0 {
			return nil
		}
		a.own = lb.ID
		if lb.Location != nil {
			a.zone = string(lb.Location.NetworkZone)
		}
	}
	var err error
	if a.network, _, err = l.client.Network.GetByID(ctx, plan.NetworkID); err != nil {
		return fmt.Errorf("checking the private address: getting network %d: %w", plan.NetworkID, err)
	}
	if a.network == nil {
		return fmt.Errorf("checking the private address: network %d does not exist", plan.NetworkID)
	}
	a.members, err = l.client.Network.AllMembers(ctx, a.network)
	if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeNotFound) { // the API has had it since September 2026
		return fmt.Errorf("checking the private address: listing the members of network %d: %w", plan.NetworkID, err)
	}
	name, value, reason := a.check(plan.PrivateIPv4, plan.PrivateSubnet)
	if reason == "" {
		return nil
	}
	return invalidSettings(annotationError{Source: l.sourceOf(svc, name), Value: value, Reason: reason})
}

// addressCheck knows which addresses of a network are free.
type addressCheck struct {
	network *hcloud.Network
	members []*hcloud.NetworkMember
	own     int64  // ID of the load balancer, whose own address counts as free
	zone    string // network zone of the load balancer; "" if unknown
}

// reservedAddress is the gateway of the servers' public interface. No private network can use it.
var reservedAddress = netip.AddrFrom4([4]byte{172, 31, 1, 1})

// check returns the name of the annotation that is wrong, its value and the reason, or "" if the load
// balancer can have the address or range.
func (a addressCheck) check(ip netip.Addr, subnet netip.Prefix) (annotation, value, reason string) {
	subnets := a.subnets()
	if subnet.IsValid() && !slices.Contains(subnets, subnet) {
		return "private-subnet-ip-range", subnet.String(), "is no subnet for load balancers of network " + a.network.Name + ": must be one of " + joinPrefixes(subnets)
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
		return "private-ipv4", ip.String(), "is in no subnet for load balancers of network " + a.network.Name + ": must be a free address of " + joinPrefixes(subnets)
	}
	if by := a.taken(ip, subnets[i]); by != "" {
		return "private-ipv4", ip.String(), "is not available (" + by + "): must be a free address of " + subnets[i].String()
	}
	return "", "", ""
}

// subnets returns the ranges in which a load balancer can be.
func (a addressCheck) subnets() (ranges []netip.Prefix) {
	for _, s := range a.network.Subnets {
		if s.Type == hcloud.NetworkSubnetTypeVSwitch || s.IPRange == nil || a.zone != "" && string(s.NetworkZone) != a.zone {
			continue
		}
		if p, err := netip.ParsePrefix(s.IPRange.String()); err == nil {
			ranges = append(ranges, p)
		}
	}
	return ranges
}

// taken says what has the address, or returns "" if it is free.
func (a addressCheck) taken(ip netip.Addr, subnet netip.Prefix) string {
	if ip == subnet.Addr() || !subnet.Contains(ip.Next()) {
		return "it is the first or last address of the subnet"
	}
	if ip == reservedAddress || a.network.IPRange != nil && a.network.IPRange.IP.String() == ip.Prev().String() {
		return "it is reserved for a gateway"
	}
	for _, s := range a.network.Subnets {
		if s.Gateway.String() == ip.String() {
			return "it is reserved for a gateway"
		}
	}
	for _, m := range a.members {
		if m.Type == hcloud.NetworkMemberTypeLoadBalancer && m.ID == a.own {
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
