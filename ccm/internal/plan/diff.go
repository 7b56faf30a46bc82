package plan

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/labels"
)

// OpKind is a kind of change to a load balancer. Each change is one API call.
type OpKind string

// The kinds of operations.
const (
	OpRecord        OpKind = "update"
	OpRename        OpKind = "rename"
	OpChangeType    OpKind = "change_type"
	OpAlgorithm     OpKind = "change_algorithm"
	OpEnablePublic  OpKind = "enable_public_interface"
	OpDisablePublic OpKind = "disable_public_interface"
	OpAttach        OpKind = "attach_to_network"
	OpDetach        OpKind = "detach_from_network"
	OpAddTarget     OpKind = "add_target"
	OpRemoveTarget  OpKind = "remove_target"
	OpAddService    OpKind = "add_service"
	OpUpdateService OpKind = "update_service"
	OpDeleteService OpKind = "delete_service"
	OpChangeReverse OpKind = "change_dns_ptr"
	OpLabel         OpKind = "change labels"
	OpProtect       OpKind = "change_protection"
)

// Part is a part of a load balancer that converges on its own: "network", "port 443", "server 7".
type Part string

// Parts other than ports and targets. A port's part is [PartPort].
const (
	partLabels    Part = "ownership labels"
	partName      Part = "name"
	PartType      Part = "type"
	partAlgorithm Part = "algorithm"
	partNetwork   Part = "network"
	partPublic    Part = "public interface"

	partUserLabels Part = "labels"
	PartProtection Part = "protection"
)

const portPrefix = "port "

// PartPort is the part that a port is.
func PartPort(port int) Part { return Part(portPrefix + strconv.Itoa(port)) }

// IsPort reports whether the part is a port.
func (p Part) IsPort() bool { return strings.HasPrefix(string(p), portPrefix) }

func partServer(id int64) Part { return Part("server " + strconv.FormatInt(id, 10)) }

func partReverse(ip netip.Addr) Part { return Part("reverse DNS of " + ip.String()) }

// Op is one change of a load balancer: its kind, and the fields that this kind needs.
type Op struct {
	Kind OpKind
	// Part is what the operation changes. If an operation fails, later ones of its part are not sent.
	Part Part
	// Needs lists parts without which the operation is wrong or useless. It is not sent if an earlier
	// operation of such a part has failed.
	Needs []Part
	// After and Least are about the removal of a target: so many targets must have been added before, less those that the API refuses,
	// but at least Least. That is -1 for a target that does not serve.
	After, Least int
	// Undo is sent after an error, because a failed operation may have taken effect: the part must serve traffic as before, or
	// as planned.
	Undo *Op

	Name      string            // rename
	UID       string            // update, change labels: UID of the Service that owns the load balancer
	Ports     []int             // update: ports to record as the Service's, in addition to those that are recorded and there
	Marks     map[string]string // update: see Ownership.Marks
	Type      string
	Algorithm hcloud.LoadBalancerAlgorithmType
	NetworkID int64
	IP        netip.Addr   // attach_to_network; change_dns_ptr; add_target and remove_target over IPv6
	IPRange   netip.Prefix // attach_to_network
	Target    Target
	Service   hcloud.LoadBalancerService // add_service, update_service
	Port      int                        // delete_service
	DNSPtr    string
	Labels    map[string]string // change labels
	// Shared and Guest: update: the Service allows guests, or is one.
	Shared, Guest bool
	Common        commonSettings // update: to record
	Protect       bool           // change_protection: against deletion
}

// String describes the operation for logs and events.
func (o Op) String() string {
	switch o.Kind {
	case OpRecord:
		return fmt.Sprintf("update (ports %s)", strings.Trim(fmt.Sprint(o.Ports), "[]"))
	case OpRename:
		return fmt.Sprintf("rename to %q", o.Name)
	case OpChangeType:
		return "change_type to " + o.Type
	case OpAlgorithm:
		return "change_algorithm to " + string(o.Algorithm)
	case OpAttach, OpDetach:
		return fmt.Sprintf("%s %d", o.Kind, o.NetworkID)
	case OpAddTarget, OpRemoveTarget:
		return fmt.Sprintf("%s server %d (private %t)", o.Kind, o.Target.ServerID, o.Target.Private)
	case OpAddService, OpUpdateService:
		return fmt.Sprintf("%s %s %d to %d", o.Kind, o.Service.Protocol, o.Service.ListenPort, o.Service.DestinationPort)
	case OpDeleteService:
		return fmt.Sprintf("delete_service %d", o.Port)
	case OpChangeReverse:
		return fmt.Sprintf("change_dns_ptr of %s to %s", o.IP, o.DNSPtr)
	case OpLabel:
		return "change labels to " + labels.FormatLabels(o.Labels)
	case OpProtect:
		return fmt.Sprintf("change_protection against deletion to %t", o.Protect)
	}
	return string(o.Kind)
}

// Diff returns the operations that bring the load balancer to the planned state. Without
// a difference it returns none. The order is one that the API accepts and that disturbs traffic
// least:
//
//   - A private load balancer is attached, then its targets become private, then its public interface
//     is disabled, and only then it gets new ports: no new port is ever reachable from the internet. What
//     can wait until it is hidden waits.
//   - A target is removed only after another one was added in its place, as far as the type has room.
//   - What serves traffic comes before what does not, such as the name.
func Diff(plan *LoadBalancer, lb *hcloud.LoadBalancer) []Op {
	d := difference{plan: plan, lb: lb}
	record, forget := d.labels()
	if plan.Guest {
		return slices.Concat(record, d.services(), forget)
	}
	typeFirst, typeLast := d.loadBalancerType()
	enable, disable := d.public()
	network, detaches := d.network()
	before, targets, hidden := d.targets(detaches)
	return slices.Concat(record, typeFirst, enable, before, network, targets, disable, hidden, d.services(),
		d.settings(), typeLast, forget)
}

// difference compares a plan with a load balancer, part by part.
type difference struct {
	plan *LoadBalancer
	lb   *hcloud.LoadBalancer
}

// labels compares the labels. A port is recorded before it is added, and until it is gone: all our ports are recorded whenever the
// process dies.
func (d *difference) labels() (first, last []Op) {
	record := Op{Kind: OpRecord, Part: partLabels, UID: d.plan.UID, Ports: d.plan.ports(), Marks: d.plan.Marks,
		Shared: d.plan.Shared, Guest: d.plan.Guest, Common: d.plan.Common}
	if d.changesLabels(record) {
		first = append(first, record)
	}
	for _, port := range PortsToDelete(d.plan, d.lb) {
		record.Needs = append(record.Needs, PartPort(port))
	}
	if len(record.Needs) > 0 {
		last = append(last, record)
	}
	return first, last
}

// changesLabels reports whether the load balancer's labels lack what an OpRecord or OpLabel says.
func (d *difference) changesLabels(op Op) bool {
	r := RecordOf(d.lb)
	r.note(op, d.lb)
	return !maps.Equal(r.Encode(), d.lb.Labels)
}

// PortsToDelete returns the load balancer's recorded ports that the plan lacks.
func PortsToDelete(plan *LoadBalancer, lb *hcloud.LoadBalancer) []int {
	recorded, wanted := PortsOf(lb, plan.UID), plan.ports()
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
func (d *difference) loadBalancerType() (first, last []Op) {
	plan, lb := d.plan, d.lb
	if plan.Type == "" || lb.LoadBalancerType == nil || plan.Type == lb.LoadBalancerType.Name {
		return nil, nil
	}
	op := []Op{{Kind: OpChangeType, Part: PartType, Type: plan.Type}}
	size := func(name string) int {
		n, _ := strconv.Atoi(strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz")) // 0 without one
		return n
	}
	if size(plan.Type) >= size(lb.LoadBalancerType.Name) {
		return op, nil
	}
	return nil, op
}

// public compares the public interface. It is disabled after the last public target is gone, because the API
// refuses it before.
func (d *difference) public() (enable, disable []Op) {
	switch {
	case d.plan.Public && !d.lb.PublicNet.Enabled:
		enable = append(enable, Op{Kind: OpEnablePublic, Part: partPublic})
	case !d.plan.Public && d.lb.PublicNet.Enabled:
		disable = append(disable, Op{Kind: OpDisablePublic, Part: partPublic, Needs: []Part{partNetwork}})
	}
	return enable, disable
}

// ChangesNetwork reports whether the plan changes the load balancer's attachment to a network.
func ChangesNetwork(plan *LoadBalancer, lb *hcloud.LoadBalancer) bool {
	ops, _ := (&difference{plan: plan, lb: lb}).network()
	return len(ops) > 0
}

// network compares the attachment to a network. detaches reports whether the operations detach the load
// balancer first. If it cannot be attached as planned, it returns to the address that it had.
func (d *difference) network() (ops []Op, detaches bool) {
	plan := d.plan
	if plan.NetworkID == 0 {
		return nil, false
	}
	attach := Op{Kind: OpAttach, Part: partNetwork, NetworkID: plan.NetworkID, IP: plan.PrivateIPv4, IPRange: plan.PrivateSubnet}
	if len(d.lb.PrivateNet) == 0 {
		return []Op{attach}, false
	}
	current := d.lb.PrivateNet[0] // the API allows one network
	ip, _ := netip.AddrFromSlice(current.IP)
	ip = ip.Unmap()
	if current.Network.ID == plan.NetworkID &&
		(!plan.PrivateIPv4.IsValid() || plan.PrivateIPv4 == ip) &&
		(!plan.PrivateSubnet.IsValid() || plan.PrivateSubnet.Contains(ip)) {
		return nil, false
	}
	detach := Op{Kind: OpDetach, Part: partNetwork, NetworkID: current.Network.ID}
	for _, t := range ServerTargets(d.lb) {
		if t.Private {
			detach.Needs = append(detach.Needs, partServer(t.ServerID))
		}
	}
	attach.Undo = &Op{Kind: OpAttach, Part: partNetwork, NetworkID: current.Network.ID, IP: ip}
	return []Op{detach, attach}, true
}

// services compares the services of the plan and removes recorded ones that the plan lacks.
func (d *difference) services() []Op {
	current := map[int]hcloud.LoadBalancerService{}
	for _, s := range d.lb.Services {
		current[s.ListenPort] = s
	}
	var adds, updates, redirecting, deletes []Op
	for _, want := range d.plan.Services {
		have, exists := current[want.ListenPort]
		op := Op{Kind: OpUpdateService, Part: PartPort(want.ListenPort), Service: want}
		isNew := !exists || !d.plan.Guest && !IsSettled(d.lb, d.plan.UID) // or it may be what was there before an adoption
		if isNew && !d.plan.Public {                                      // a private port must not be reachable from the internet
			op.Needs = append(op.Needs, partPublic)
		}
		switch {
		case !exists:
			op.Kind, op.Needs = OpAddService, append([]Part{partLabels}, op.Needs...)
			adds = append(adds, op)
		case sameService(want, have):
		case want.HTTP.RedirectHTTP:
			redirecting = append(redirecting, op)
		default:
			updates = append(updates, op)
		}
	}
	for _, port := range PortsToDelete(d.plan, d.lb) {
		deletes = append(deletes, Op{Kind: OpDeleteService, Part: PartPort(port), Port: port})
	}
	// A redirect begins after no other service redirects, and after port 80 is free.
	updates = append(updates, redirecting...)
	freesPort80 := slices.ContainsFunc(deletes, func(op Op) bool { return op.Port == redirectPort }) &&
		slices.ContainsFunc(slices.Concat(redirecting, adds), func(op Op) bool { return op.Service.HTTP.RedirectHTTP })
	if len(d.lb.Services)+len(adds) <= d.limit(maxServices) && !freesPort80 {
		return slices.Concat(updates, adds, deletes)
	}
	return slices.Concat(deletes, updates, adds)
}

// sameService reports whether an update would change nothing. The plan never sets the response text of an HTTP check, and a TCP
// service needs no HTTP settings: both are ignored.
func sameService(want, have hcloud.LoadBalancerService) bool {
	if want.HealthCheck.HTTP == nil {
		have.HealthCheck.HTTP = nil
	}
	return reflect.DeepEqual(orderedUpdate(want), orderedUpdate(have))
}

// orderedUpdate is UpdateServiceRequest with the lists in order, and with no more of the certificates than their IDs.
func orderedUpdate(s hcloud.LoadBalancerService) hcloud.LoadBalancerUpdateServiceOpts {
	certificates := certificateIDs(s.HTTP.Certificates)
	s.HTTP.Certificates = nil
	for _, id := range certificates {
		if s.Protocol == hcloud.LoadBalancerServiceProtocolHTTPS {
			s.HTTP.Certificates = append(s.HTTP.Certificates, &hcloud.Certificate{ID: id})
		}
	}
	update := UpdateServiceRequest(s)
	if check := update.HealthCheck.HTTP; check != nil {
		check.StatusCodes = slices.Sorted(slices.Values(check.StatusCodes))
	}
	return update
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

// settings compares what depends on no other part.
func (d *difference) settings() (ops []Op) {
	plan, lb := d.plan, d.lb
	if plan.Algorithm != "" && plan.Algorithm != lb.Algorithm.Type {
		ops = append(ops, Op{Kind: OpAlgorithm, Part: partAlgorithm, Algorithm: plan.Algorithm})
	}
	reverse := func(address net.IP, want, have string) {
		if ip, ok := netip.AddrFromSlice(address); ok && want != "" && want != have {
			ip = ip.Unmap()
			ops = append(ops, Op{Kind: OpChangeReverse, Part: partReverse(ip), IP: ip, DNSPtr: want})
		}
	}
	reverse(lb.PublicNet.IPv4.IP, plan.IPv4RDNS, lb.PublicNet.IPv4.DNSPtr)
	reverse(lb.PublicNet.IPv6.IP, plan.IPv6RDNS, lb.PublicNet.IPv6.DNSPtr)
	if plan.Name != "" && plan.Name != lb.Name {
		ops = append(ops, Op{Kind: OpRename, Part: partName, Name: plan.Name})
	}
	label := Op{Kind: OpLabel, Part: partUserLabels, UID: plan.UID, Labels: plan.Labels}
	if plan.Labels != nil && d.changesLabels(label) {
		ops = append(ops, label)
	}
	if want := plan.DeleteProtection; want != nil && *want != lb.Protection.Delete {
		ops = append(ops, Op{Kind: OpProtect, Part: PartProtection, Protect: *want})
	}
	return ops
}

// ChangesAddresses reports whether the operation may change the addresses in the Service's status.
func ChangesAddresses(op Op) bool {
	return slices.Contains([]OpKind{OpEnablePublic, OpDisablePublic, OpAttach, OpDetach}, op.Kind)
}

// DescribeOps describes at most n of the operations.
func DescribeOps(ops []Op, n int) string {
	var texts []string
	for _, op := range ops[:min(len(ops), n)] {
		texts = append(texts, op.String())
	}
	if len(ops) > n {
		texts = append(texts, fmt.Sprintf("and %d more", len(ops)-n))
	}
	return strings.Join(texts, "; ")
}
