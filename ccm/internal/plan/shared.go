package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
)

// Several Services share a load balancer if they have the same name and the annotation shared. The first one
// owns it: it decides about all settings and targets. The others are guests and own only their ports. When the
// owner goes, a guest becomes the owner, and the settings stay (shared_settings.go); with the last one, the load balancer goes.

// LabelGuest + UID marks a guest.
const LabelGuest = labelPrefix + "guest-"

// IsGuest reports whether the Service is a guest on the load balancer.
func IsGuest(lb *hcloud.LoadBalancer, uid string) bool {
	if lb == nil || lb.Labels[LabelServiceUID] == uid {
		return false
	}
	_, marked := lb.Labels[LabelGuest+uid]
	return marked
}

// Serves reports whether the Service is the owner of the load balancer, or a guest on it.
func Serves(lb *hcloud.LoadBalancer, uid string) bool {
	return lb.Labels[LabelServiceUID] == uid || IsGuest(lb, uid)
}

// GuestsOf returns the UIDs of all guests, in order.
func GuestsOf(lb *hcloud.LoadBalancer) (uids []string) {
	if lb == nil {
		return nil
	}
	for key := range lb.Labels {
		if uid, ok := strings.CutPrefix(key, LabelGuest); ok && uid != lb.Labels[LabelServiceUID] {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// portsOfOthers returns the ports that the Service cannot have, with the UIDs of their owners. A guest cannot
// have ports without an owner either (""). wanted are the ports that the Service asks for.
func portsOfOthers(lb *hcloud.LoadBalancer, uid string, wanted []int) map[int]string {
	taken := map[int]string{}
	if lb == nil {
		return taken
	}
	own := PortsOf(lb, uid)
	for _, s := range lb.Services {
		if IsGuest(lb, uid) && !own[s.ListenPort] {
			taken[s.ListenPort] = ""
		}
	}
	owner := lb.Labels[LabelServiceUID]
	for _, other := range append(GuestsOf(lb), owner) {
		if other == uid || other == "" {
			continue
		}
		for port := range PortsOf(lb, other) {
			taken[port] = other
		}
	}
	for _, s := range lb.Services {
		// A redirect occupies another port, but one that was made for the Service before its ports were recorded is its own.
		if other, is := taken[s.ListenPort]; s.HTTP.RedirectHTTP && !own[s.ListenPort] && (is || !slices.Contains(wanted, s.ListenPort)) {
			taken[redirectPort] = other
		}
	}
	return taken
}

// freePorts returns the usable ports that no other Service on the load balancer has, and a note about the
// others.
func freePorts(in Input) (free []corev1.ServicePort, notes []Note) {
	usable, _, _ := UsablePorts(in.Service)
	var wanted []int
	for _, p := range usable {
		wanted = append(wanted, int(p.Port))
	}
	taken := portsOfOthers(in.Current, string(in.Service.UID), wanted)
	for _, p := range usable {
		owner, is := taken[int(p.Port)]
		switch {
		case !is || owner == "" && slices.Contains(PortsTo(in.Service, in.Current), int(p.Port)):
			free = append(free, p)
		default:
			notes = append(notes, Note{Reason: event.PortTaken, Unmet: true, Text: fmt.Sprintf(
				"Port %d of load balancer %d (%s) %s: choose another port", p.Port, in.Current.ID, in.Current.Name, belongs(owner))})
		}
	}
	return free, notes
}

// stayHidden makes a load balancer with guests stay private: the ports of the guests must not become reachable
// from the internet by the decision of another Service.
func stayHidden(plan *LoadBalancer, in Input) (notes []Note) {
	lb := in.Current
	if IsGuest(lb, plan.UID) || len(GuestsOf(lb)) == 0 || !plan.Public || lb.PublicNet.Enabled {
		return nil
	}
	plan.Public = false
	return []Note{{Reason: event.IgnoredSetting, Text: fmt.Sprintf("Load balancer %d (%s) stays without a public interface, "+
		"because other Services share it: set %sdisable-public-network to true", lb.ID, lb.Name, AnnotationPrefix)}}
}

// dropRedirect leaves out the redirect of a port if another Service has port 80. A redirect occupies that port, and the API would
// refuse the whole service.
func dropRedirect(plan *LoadBalancer, in Input) (notes []Note) {
	if in.Current == nil {
		return nil
	}
	owner, taken := portsOfOthers(in.Current, plan.UID, plan.ports())[redirectPort]
	if !taken && !PortsOf(in.Current, plan.UID)[redirectPort] {
		taken = slices.ContainsFunc(in.Current.Services, func(s hcloud.LoadBalancerService) bool { return s.ListenPort == redirectPort })
	}
	for i := range plan.Services {
		s := &plan.Services[i]
		if !taken || !s.HTTP.RedirectHTTP {
			continue
		}
		s.HTTP.RedirectHTTP = false
		notes = append(notes, Note{Reason: event.PortTaken, Unmet: true, Text: fmt.Sprintf(
			"Port %d of load balancer %d (%s) serves without http-redirect-http, because port %d %s: remove the annotation, or "+
				"free the port",
			s.ListenPort, in.Current.ID, in.Current.Name, redirectPort, belongs(owner))})
	}
	return notes
}

// belongs completes a sentence about a port by its owner; "": none.
func belongs(owner string) string {
	if owner == "" {
		return "is in use and belongs to no Service"
	}
	return "belongs to the Service with UID " + owner
}

// planGuest reduces the plan to the ports of a guest.
func planGuest(plan *LoadBalancer, in Input) (notes []Note) {
	uid, lb := string(in.Service.UID), in.Current
	if !IsGuest(lb, uid) {
		return nil
	}
	if !in.Settings.Shared && !in.Wrong["shared"] {
		notes = append(notes, Note{Reason: event.IgnoredSetting, Text: fmt.Sprintf(
			"Load balancer %d (%s) stays shared, although %sshared is not true any more: delete and create the Service to "+
				"give it a load balancer of its own",
			lb.ID, lb.Name, AnnotationPrefix)})
	}
	*plan = LoadBalancer{UID: uid, Guest: true, CreateName: plan.CreateName, Public: lb.PublicNet.Enabled, Limits: plan.Limits,
		Services: plan.Services}
	return notes
}

// AllowsNamespace reports whether Services of a namespace may join the load balancer of one in another namespace.
func AllowsNamespace(lb *hcloud.LoadBalancer, namespace string) bool {
	allowed, err := listOf(parseNamespace)(RecordOf(lb).Common.Values["shared-namespaces"])
	return err == nil && (slices.Contains(allowed, namespace) || slices.Contains(allowed, "*"))
}

// checkShared returns the mistakes in the settings of a Service that shares a load balancer.
func checkShared(s *Settings) (errs []error) {
	if s.Shared && s.Name == "" {
		errs = append(errs, AnnotationError{Source: AnnotationPrefix + "shared", Value: "true",
			Reason: "needs the annotation name: Services with the same name share a load balancer"})
	}
	return errs
}

// WasGuest reports whether the Service was a guest on the load balancer earlier, and a person has removed it. Addresses prove nothing: a
// client such as Terraform may have replaced all labels.
func WasGuest(lb *hcloud.LoadBalancer, uid string) bool {
	_, marked := RecordOf(lb).Guests[uid]
	return marked || lb.Labels[LabelLastOwner] == uid
}

// PortsTo returns the load balancer's ports that are the Service's and lead to its node ports, even if its record is lost.
func PortsTo(svc *corev1.Service, lb *hcloud.LoadBalancer) (ports []int) {
	for _, p := range svc.Spec.Ports {
		if slices.ContainsFunc(lb.Services, func(s hcloud.LoadBalancerService) bool {
			return s.ListenPort == int(p.Port) && s.DestinationPort == int(p.NodePort)
		}) {
			ports = append(ports, int(p.Port))
		}
	}
	return ports
}
