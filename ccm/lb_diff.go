package ccm

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// lbOpKind is a kind of change to a load balancer. Each change is one API call.
type lbOpKind string

const (
	opUpdate        lbOpKind = "update"
	opChangeType    lbOpKind = "change_type"
	opAlgorithm     lbOpKind = "change_algorithm"
	opEnablePublic  lbOpKind = "enable_public_interface"
	opDisablePublic lbOpKind = "disable_public_interface"
	opAttach        lbOpKind = "attach_to_network"
	opDetach        lbOpKind = "detach_from_network"
	opAddTarget     lbOpKind = "add_target"
	opRemoveTarget  lbOpKind = "remove_target"
	opAddService    lbOpKind = "add_service"
	opUpdateService lbOpKind = "update_service"
	opDeleteService lbOpKind = "delete_service"
	opChangeReverse lbOpKind = "change_dns_ptr"
)

// lbOp is one change of a load balancer: its kind, and the fields that this kind needs.
type lbOp struct {
	Kind      lbOpKind
	Name      string // update: the new name; "" keeps the name
	UID       string // update: UID of the Service that owns the load balancer
	Ports     []int  // update: ports to record as owned by the Service
	Type      string
	Algorithm hcloud.LoadBalancerAlgorithmType
	NetworkID int64
	IP        netip.Addr   // attach_to_network; change_dns_ptr
	IPRange   netip.Prefix // attach_to_network
	Target    lbTarget
	Service   hcloud.LoadBalancerService // add_service, update_service
	Port      int                        // delete_service
	DNSPtr    string
}

// String describes the operation for logs and events.
func (o lbOp) String() string {
	switch o.Kind {
	case opUpdate:
		text := "update (ports " + joinPorts(o.Ports)
		if o.Name != "" {
			text += fmt.Sprintf(", name %q", o.Name)
		}
		return text + ")"
	case opChangeType:
		return "change_type to " + o.Type
	case opAlgorithm:
		return "change_algorithm to " + string(o.Algorithm)
	case opAttach, opDetach:
		return fmt.Sprintf("%s %d", o.Kind, o.NetworkID)
	case opAddTarget, opRemoveTarget:
		return fmt.Sprintf("%s server %d (private %t)", o.Kind, o.Target.ServerID, o.Target.Private)
	case opAddService, opUpdateService:
		return fmt.Sprintf("%s %s %d to %d", o.Kind, o.Service.Protocol, o.Service.ListenPort, o.Service.DestinationPort)
	case opDeleteService:
		return fmt.Sprintf("delete_service %d", o.Port)
	case opChangeReverse:
		return fmt.Sprintf("change_dns_ptr of %s to %s", o.IP, o.DNSPtr)
	}
	return string(o.Kind)
}

// diffLoadBalancer returns the operations that bring the load balancer to the planned state. If there
// is no difference it returns none. The order is one that the API accepts and that disturbs traffic
// least:
//
//   - the network before private targets, and private targets before the public interface is disabled;
//   - new targets and ports before the removal of old ones, if the type has room for both.
func diffLoadBalancer(plan *lbPlan, lb *hcloud.LoadBalancer) []lbOp {
	labelsFirst, labelsLast := diffIdentity(plan, lb)
	typeFirst, typeLast := diffType(plan, lb)
	network, reattach := diffNetwork(plan, lb)
	targetsFirst, targets := diffTargets(plan, lb, reattach)

	var enable, disable []lbOp
	if plan.Public && !lb.PublicNet.Enabled || reattach && !lb.PublicNet.Enabled {
		enable = append(enable, lbOp{Kind: opEnablePublic})
	}
	if !plan.Public && (lb.PublicNet.Enabled || reattach) {
		disable = append(disable, lbOp{Kind: opDisablePublic})
	}
	var algorithm []lbOp
	if plan.Algorithm != lb.Algorithm.Type {
		algorithm = append(algorithm, lbOp{Kind: opAlgorithm, Algorithm: plan.Algorithm})
	}
	return slices.Concat(labelsFirst, typeFirst, algorithm, enable, targetsFirst, network, targets,
		diffServices(plan, lb), disable, diffReverse(plan, lb), typeLast, labelsLast)
}

// diffIdentity compares the name and the labels. A port is recorded before it is added, and its record
// is removed after the port: every port of ours is recorded whenever the process dies.
func diffIdentity(plan *lbPlan, lb *hcloud.LoadBalancer) (first, last []lbOp) {
	name := plan.Name
	if name == lb.Name {
		name = ""
	}
	final := plan.ports()
	during := slices.Sorted(slices.Values(slices.Concat(final, portsToDelete(plan, lb))))
	if name != "" || !maps.Equal(withOwnership(lb.Labels, plan.UID, during), lb.Labels) {
		first = append(first, lbOp{Kind: opUpdate, Name: name, UID: plan.UID, Ports: during})
	}
	if len(during) != len(final) {
		last = append(last, lbOp{Kind: opUpdate, UID: plan.UID, Ports: final})
	}
	return first, last
}

// portsToDelete returns the load balancer's recorded ports that the plan lacks.
func portsToDelete(plan *lbPlan, lb *hcloud.LoadBalancer) []int {
	recorded, wanted := decodePorts(lb.Labels), plan.ports()
	var ports []int
	for _, s := range lb.Services {
		if recorded[s.ListenPort] && !slices.Contains(wanted, s.ListenPort) {
			ports = append(ports, s.ListenPort)
		}
	}
	return slices.Sorted(slices.Values(ports))
}

// diffType compares the type. A change to a larger type comes first, because it makes room for targets
// and ports; a change to a smaller type comes last. The number in the name (lb11, lb21, …) is the size.
func diffType(plan *lbPlan, lb *hcloud.LoadBalancer) (first, last []lbOp) {
	if plan.Type == "" || lb.LoadBalancerType == nil || plan.Type == lb.LoadBalancerType.Name {
		return nil, nil
	}
	op := []lbOp{{Kind: opChangeType, Type: plan.Type}}
	size := func(name string) int {
		n, err := strconv.Atoi(strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz"))
		if err != nil {
			return 0
		}
		return n
	}
	if size(plan.Type) >= size(lb.LoadBalancerType.Name) {
		return op, nil
	}
	return nil, op
}

// diffNetwork compares the attachment to a network. reattach reports whether the operations detach the
// load balancer.
func diffNetwork(plan *lbPlan, lb *hcloud.LoadBalancer) (ops []lbOp, reattach bool) {
	if plan.NetworkID == 0 {
		return nil, false
	}
	attach := lbOp{Kind: opAttach, NetworkID: plan.NetworkID, IP: plan.PrivateIPv4, IPRange: plan.PrivateSubnet}
	if len(lb.PrivateNet) == 0 {
		return []lbOp{attach}, false
	}
	current := lb.PrivateNet[0] // the API allows one network
	ip, _ := netip.AddrFromSlice(current.IP)
	ip = ip.Unmap()
	if current.Network.ID == plan.NetworkID &&
		(!plan.PrivateIPv4.IsValid() || plan.PrivateIPv4 == ip) &&
		(!plan.PrivateSubnet.IsValid() || plan.PrivateSubnet.Contains(ip)) {
		return nil, false
	}
	return []lbOp{{Kind: opDetach, NetworkID: current.Network.ID}, attach}, true
}

// diffTargets compares the targets of type server. If a target changes between public and private
// address it is removed and added again, one target at a time, so that the others continue to serve.
// If the load balancer is detached from its network, first removes its private targets before that.
func diffTargets(plan *lbPlan, lb *hcloud.LoadBalancer, reattach bool) (first, ops []lbOp) {
	current := map[int64]bool{}
	for _, t := range lb.Targets {
		if t.Type == hcloud.LoadBalancerTargetTypeServer && t.Server != nil && t.Server.Server != nil {
			current[t.Server.Server.ID] = t.UsePrivateIP
		}
	}
	if reattach {
		for _, id := range slices.Sorted(maps.Keys(current)) {
			if current[id] {
				first = append(first, lbOp{Kind: opRemoveTarget, Target: lbTarget{id, true}})
				delete(current, id)
			}
		}
	}
	var adds, removes []lbOp
	for _, want := range plan.Targets {
		private, exists := current[want.ServerID]
		delete(current, want.ServerID)
		switch add := (lbOp{Kind: opAddTarget, Target: want}); {
		case !exists:
			adds = append(adds, add)
		case private != want.Private:
			ops = append(ops, lbOp{Kind: opRemoveTarget, Target: lbTarget{want.ServerID, private}}, add)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(current)) {
		removes = append(removes, lbOp{Kind: opRemoveTarget, Target: lbTarget{id, current[id]}})
	}
	room := len(removes) == 0 || lb.LoadBalancerType == nil || len(lb.Targets)+len(adds) <= lb.LoadBalancerType.MaxTargets
	if room {
		return first, slices.Concat(ops, adds, removes)
	}
	return first, slices.Concat(ops, removes, adds)
}

// diffServices compares the services of the plan and removes recorded ones that the plan lacks.
func diffServices(plan *lbPlan, lb *hcloud.LoadBalancer) []lbOp {
	current := map[int]hcloud.LoadBalancerService{}
	for _, s := range lb.Services {
		current[s.ListenPort] = s
	}
	var adds, updates, deletes []lbOp
	for _, want := range plan.Services {
		have, exists := current[want.ListenPort]
		switch {
		case !exists:
			adds = append(adds, lbOp{Kind: opAddService, Service: want})
		case !sameService(want, have):
			updates = append(updates, lbOp{Kind: opUpdateService, Service: want})
		}
	}
	for _, port := range portsToDelete(plan, lb) {
		deletes = append(deletes, lbOp{Kind: opDeleteService, Port: port})
	}
	room := lb.LoadBalancerType == nil || len(lb.Services)+len(adds) <= lb.LoadBalancerType.MaxServices
	if room {
		return slices.Concat(updates, adds, deletes)
	}
	return slices.Concat(deletes, updates, adds)
}

// sameService reports whether both services have the same planned settings. It ignores the expected
// response text of an HTTP check, which the plan does not set, and the HTTP settings of a TCP service.
func sameService(want, have hcloud.LoadBalancerService) bool {
	if want.Protocol != have.Protocol || want.DestinationPort != have.DestinationPort ||
		want.Proxyprotocol != have.Proxyprotocol || !sameHealthCheck(want.HealthCheck, have.HealthCheck) {
		return false
	}
	if want.Protocol == hcloud.LoadBalancerServiceProtocolTCP {
		return true
	}
	w, h := want.HTTP, have.HTTP
	if w.CookieName != h.CookieName || w.CookieLifetime != h.CookieLifetime || w.TimeoutIdle != h.TimeoutIdle ||
		w.StickySessions != h.StickySessions {
		return false
	}
	return want.Protocol != hcloud.LoadBalancerServiceProtocolHTTPS ||
		w.RedirectHTTP == h.RedirectHTTP && slices.Equal(certificateIDs(w.Certificates), certificateIDs(h.Certificates))
}

func sameHealthCheck(want, have hcloud.LoadBalancerServiceHealthCheck) bool {
	if want.Protocol != have.Protocol || want.Port != have.Port || want.Interval != have.Interval ||
		want.Timeout != have.Timeout || want.Retries != have.Retries {
		return false
	}
	if want.HTTP == nil {
		return true
	}
	return have.HTTP != nil && want.HTTP.Domain == have.HTTP.Domain && want.HTTP.Path == have.HTTP.Path &&
		want.HTTP.TLS == have.HTTP.TLS &&
		slices.Equal(slices.Sorted(slices.Values(want.HTTP.StatusCodes)), slices.Sorted(slices.Values(have.HTTP.StatusCodes)))
}

// certificateIDs returns the IDs in ascending order.
func certificateIDs(certs []*hcloud.Certificate) []int64 {
	ids := make([]int64, 0, len(certs))
	for _, c := range certs {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func diffReverse(plan *lbPlan, lb *hcloud.LoadBalancer) (ops []lbOp) {
	if ip, ok := netip.AddrFromSlice(lb.PublicNet.IPv4.IP); ok && plan.IPv4RDNS != "" && plan.IPv4RDNS != lb.PublicNet.IPv4.DNSPtr {
		ops = append(ops, lbOp{Kind: opChangeReverse, IP: ip.Unmap(), DNSPtr: plan.IPv4RDNS})
	}
	if ip, ok := netip.AddrFromSlice(lb.PublicNet.IPv6.IP); ok && plan.IPv6RDNS != "" && plan.IPv6RDNS != lb.PublicNet.IPv6.DNSPtr {
		ops = append(ops, lbOp{Kind: opChangeReverse, IP: ip, DNSPtr: plan.IPv6RDNS})
	}
	return ops
}
