package ccm

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/labels"
)

// lbOpKind is a kind of change to a load balancer. Each change is one API call.
type lbOpKind string

const (
	opRecord         lbOpKind = "update"
	opRename         lbOpKind = "rename"
	opChangeType     lbOpKind = "change_type"
	opAlgorithm      lbOpKind = "change_algorithm"
	opEnablePublic   lbOpKind = "enable_public_interface"
	opDisablePublic  lbOpKind = "disable_public_interface"
	opAttach         lbOpKind = "attach_to_network"
	opDetach         lbOpKind = "detach_from_network"
	opAddTarget      lbOpKind = "add_target"
	opRemoveTarget   lbOpKind = "remove_target"
	opAddService     lbOpKind = "add_service"
	opUpdateService  lbOpKind = "update_service"
	opDeleteService  lbOpKind = "delete_service"
	opChangeReverse  lbOpKind = "change_dns_ptr"
	opAddSelector    lbOpKind = "add_target by label"
	opRemoveSelector lbOpKind = "remove_target by label"
	opLabel          lbOpKind = "change labels"
	opProtect        lbOpKind = "change_protection"
)

// lbPart is a part of a load balancer that converges on its own: "network", "port 443", "server 7".
type lbPart string

const (
	partLabels    lbPart = "ownership labels"
	partName      lbPart = "name"
	partType      lbPart = "type"
	partAlgorithm lbPart = "algorithm"
	partNetwork   lbPart = "network"
	partPublic    lbPart = "public interface"

	partUserLabels lbPart = "labels"
	partProtection lbPart = "protection"
)

const portPrefix = "port "

func partPort(port int) lbPart         { return lbPart(portPrefix + strconv.Itoa(port)) }
func (p lbPart) isPort() bool          { return strings.HasPrefix(string(p), portPrefix) }
func partServer(id int64) lbPart       { return lbPart("server " + strconv.FormatInt(id, 10)) }
func partReverse(ip netip.Addr) lbPart { return lbPart("reverse DNS of " + ip.String()) }

// lbOp is one change of a load balancer: its kind, and the fields that this kind needs.
type lbOp struct {
	Kind lbOpKind
	// Part is what the operation changes. If an operation fails, later ones of its part are not sent.
	Part lbPart
	// Needs lists parts without which the operation is wrong or useless. It is not sent if an earlier
	// operation of such a part has failed.
	Needs []lbPart
	// Undo is sent if the operation fails, which may have had its effect nevertheless: the part must serve
	// traffic as before, or as planned.
	Undo *lbOp

	Name      string            // rename
	UID       string            // update, change labels: UID of the Service that owns the load balancer
	Ports     []int             // update: ports to record as owned by the Service
	Marks     map[string]string // update: see ownership.marks
	Type      string
	Algorithm hcloud.LoadBalancerAlgorithmType
	NetworkID int64
	IP        netip.Addr   // attach_to_network; change_dns_ptr; add_target over IPv6
	IPRange   netip.Prefix // attach_to_network
	Target    lbTarget
	Service   hcloud.LoadBalancerService // add_service, update_service
	Port      int                        // delete_service
	DNSPtr    string
	Selector  selectorTarget    // add_target, remove_target by label
	Selectors []selectorTarget  // update: selectors to record as owned by the Service
	Labels    map[string]string // change labels
	// Shared and Guest: update: the Service allows guests, or is one.
	Shared, Guest bool
	Protect       bool // change_protection: against deletion
}

// String describes the operation for logs and events.
func (o lbOp) String() string {
	switch o.Kind {
	case opRecord:
		return "update (ports " + joinPorts(o.Ports) + ")"
	case opRename:
		return fmt.Sprintf("rename to %q", o.Name)
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
	case opAddSelector, opRemoveSelector:
		verb, _, _ := strings.Cut(string(o.Kind), " ")
		return verb + " " + o.Selector.String()
	case opLabel:
		return "change labels to " + labels.FormatLabels(o.Labels)
	case opProtect:
		return fmt.Sprintf("change_protection against deletion to %t", o.Protect)
	}
	return string(o.Kind)
}

// diffLoadBalancer returns the operations that bring the load balancer to the planned state. If there
// is no difference it returns none. The order is one that the API accepts and that disturbs traffic
// least:
//
//   - A private load balancer is attached, then its targets become private, then its public interface
//     is disabled, and only then it gets new ports: no new port is ever reachable from the internet. What
//     can wait until it is hidden waits.
//   - A target is removed only after another one was added in its place, as far as the type has room.
//   - What serves traffic comes before what does not, such as the name.
func diffLoadBalancer(plan *lbPlan, lb *hcloud.LoadBalancer) []lbOp {
	d := lbDiff{plan: plan, lb: lb}
	record, forget := d.labels()
	if plan.Guest {
		return slices.Concat(record, d.services(), forget)
	}
	typeFirst, typeLast := d.loadBalancerType()
	enable, disable := d.public()
	network, detaches := d.network()
	before, targets, hidden := d.targets(detaches)
	return slices.Concat(record, typeFirst, enable, before, network, targets, disable, hidden, d.services(),
		d.algorithm(), d.reverse(), d.name(), d.userLabels(), d.protection(), typeLast, forget)
}

// lbDiff compares a plan with a load balancer, part by part.
type lbDiff struct {
	plan *lbPlan
	lb   *hcloud.LoadBalancer
}

// labels compares the labels. A port or selector is recorded before it is added, and its record is removed
// after it: all that is ours is recorded whenever the process dies.
func (d *lbDiff) labels() (first, last []lbOp) {
	ports := portsToDelete(d.plan, d.lb)
	selectors := d.obsoleteSelectors()
	kept := slices.DeleteFunc(ownSelectors(d.lb), func(s selectorTarget) bool { return slices.Contains(selectors, s) })
	final := lbOp{Kind: opRecord, Part: partLabels, UID: d.plan.UID, Ports: d.plan.ports(), Marks: d.plan.Marks, Selectors: append(kept, d.plan.Selector), Shared: d.plan.Shared, Guest: d.plan.Guest}
	during := final
	during.Ports = slices.Sorted(slices.Values(slices.Concat(final.Ports, ports)))
	during.Selectors = slices.Concat(final.Selectors, ownSelectors(d.lb))
	if !maps.Equal(recordedIn(d.lb.Labels, during), d.lb.Labels) {
		first = append(first, during)
	}
	for _, port := range ports {
		final.Needs = append(final.Needs, partPort(port))
	}
	for _, s := range selectors {
		final.Needs = append(final.Needs, s.part())
	}
	if len(final.Needs) > 0 {
		last = append(last, final)
	}
	return first, last
}

// recordedIn returns a copy of labels with what an opRecord records.
func recordedIn(labels map[string]string, op lbOp) map[string]string {
	if op.Guest {
		return withGuest(labels, op.UID, op.Ports)
	}
	result := withSelectors(withOwnership(withoutGuest(labels, op.UID), op.UID, op.Ports, op.Marks), op.Selectors)
	delete(result, labelShared)
	if op.Shared {
		result[labelShared] = "true"
	}
	return result
}

func (d *lbDiff) name() []lbOp {
	if d.plan.Name == "" || d.plan.Name == d.lb.Name {
		return nil
	}
	return []lbOp{{Kind: opRename, Part: partName, Name: d.plan.Name}}
}

func (d *lbDiff) userLabels() []lbOp {
	if d.plan.Labels == nil || maps.Equal(withUserLabels(d.lb.Labels, d.plan.Labels), d.lb.Labels) {
		return nil
	}
	return []lbOp{{Kind: opLabel, Part: partUserLabels, UID: d.plan.UID, Labels: d.plan.Labels}}
}

func (d *lbDiff) protection() []lbOp {
	want := d.plan.DeleteProtection
	if want == nil || *want == d.lb.Protection.Delete {
		return nil
	}
	return []lbOp{{Kind: opProtect, Part: partProtection, Protect: *want}}
}

func (d *lbDiff) algorithm() []lbOp {
	if d.plan.Algorithm == "" || d.plan.Algorithm == d.lb.Algorithm.Type {
		return nil
	}
	return []lbOp{{Kind: opAlgorithm, Part: partAlgorithm, Algorithm: d.plan.Algorithm}}
}

// portsToDelete returns the load balancer's recorded ports that the plan lacks.
func portsToDelete(plan *lbPlan, lb *hcloud.LoadBalancer) []int {
	recorded, wanted := portsOf(lb, plan.UID), plan.ports()
	var ports []int
	for _, s := range lb.Services {
		if recorded[s.ListenPort] && !slices.Contains(wanted, s.ListenPort) {
			ports = append(ports, s.ListenPort)
		}
	}
	return slices.Sorted(slices.Values(ports))
}

// loadBalancerType compares the type. A change to a larger type comes first, because it makes room for targets
// and ports; a change to a smaller type comes last. The number in the name (lb11, lb21, …) is the size.
func (d *lbDiff) loadBalancerType() (first, last []lbOp) {
	plan, lb := d.plan, d.lb
	if plan.Type == "" || lb.LoadBalancerType == nil || plan.Type == lb.LoadBalancerType.Name {
		return nil, nil
	}
	op := []lbOp{{Kind: opChangeType, Part: partType, Type: plan.Type}}
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

// public compares the public interface. It is disabled after the last public target is gone, because the API
// refuses it before.
func (d *lbDiff) public() (enable, disable []lbOp) {
	switch {
	case d.plan.Public && !d.lb.PublicNet.Enabled:
		enable = append(enable, lbOp{Kind: opEnablePublic, Part: partPublic})
	case !d.plan.Public && d.lb.PublicNet.Enabled:
		disable = append(disable, lbOp{Kind: opDisablePublic, Part: partPublic, Needs: []lbPart{partNetwork}})
	}
	return enable, disable
}

// network compares the attachment to a network. detaches reports whether the operations detach the load
// balancer first. If it cannot be attached as planned, it returns to the address that it had.
func (d *lbDiff) network() (ops []lbOp, detaches bool) {
	plan := d.plan
	if plan.NetworkID == 0 {
		return nil, false
	}
	attach := lbOp{Kind: opAttach, Part: partNetwork, NetworkID: plan.NetworkID, IP: plan.PrivateIPv4, IPRange: plan.PrivateSubnet}
	if len(d.lb.PrivateNet) == 0 {
		return []lbOp{attach}, false
	}
	current := d.lb.PrivateNet[0] // the API allows one network
	ip, _ := netip.AddrFromSlice(current.IP)
	ip = ip.Unmap()
	if current.Network.ID == plan.NetworkID &&
		(!plan.PrivateIPv4.IsValid() || plan.PrivateIPv4 == ip) &&
		(!plan.PrivateSubnet.IsValid() || plan.PrivateSubnet.Contains(ip)) {
		return nil, false
	}
	detach := lbOp{Kind: opDetach, Part: partNetwork, NetworkID: current.Network.ID}
	for _, t := range serverTargets(d.lb) {
		if t.Private {
			detach.Needs = append(detach.Needs, partServer(t.ServerID))
		}
	}
	attach.Undo = &lbOp{Kind: opAttach, Part: partNetwork, NetworkID: current.Network.ID, IP: ip}
	return []lbOp{detach, attach}, true
}

// services compares the services of the plan and removes recorded ones that the plan lacks.
func (d *lbDiff) services() []lbOp {
	current := map[int]hcloud.LoadBalancerService{}
	for _, s := range d.lb.Services {
		current[s.ListenPort] = s
	}
	var adds, updates, redirecting, deletes []lbOp
	for _, want := range d.plan.Services {
		have, exists := current[want.ListenPort]
		op := lbOp{Kind: opUpdateService, Part: partPort(want.ListenPort), Service: want}
		switch {
		case !exists:
			op.Kind, op.Needs = opAddService, []lbPart{partLabels}
			if !d.plan.Public { // a private port must not be reachable from the internet
				op.Needs = append(op.Needs, partPublic)
			}
			adds = append(adds, op)
		case sameService(want, have):
		case want.HTTP.RedirectHTTP:
			redirecting = append(redirecting, op)
		default:
			updates = append(updates, op)
		}
	}
	for _, port := range portsToDelete(d.plan, d.lb) {
		deletes = append(deletes, lbOp{Kind: opDeleteService, Part: partPort(port), Port: port})
	}
	// A redirect begins after no other service redirects, and after port 80 is free.
	updates = append(updates, redirecting...)
	freesPort80 := slices.ContainsFunc(deletes, func(op lbOp) bool { return op.Port == redirectPort }) &&
		slices.ContainsFunc(slices.Concat(redirecting, adds), func(op lbOp) bool { return op.Service.HTTP.RedirectHTTP })
	if len(d.lb.Services)+len(adds) <= d.limit(maxServices) && !freesPort80 {
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

func (d *lbDiff) reverse() (ops []lbOp) {
	change := func(address net.IP, want, have string) {
		if ip, ok := netip.AddrFromSlice(address); ok && want != "" && want != have {
			ip = ip.Unmap()
			ops = append(ops, lbOp{Kind: opChangeReverse, Part: partReverse(ip), IP: ip, DNSPtr: want})
		}
	}
	change(d.lb.PublicNet.IPv4.IP, d.plan.IPv4RDNS, d.lb.PublicNet.IPv4.DNSPtr)
	change(d.lb.PublicNet.IPv6.IP, d.plan.IPv6RDNS, d.lb.PublicNet.IPv6.DNSPtr)
	return ops
}
