package ccm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// Several Services share a load balancer if they have the same name and the annotation shared. The first one
// owns it: all settings and targets are its. The others are guests, which own only their ports. When the
// owner goes, a guest becomes the owner; with the last one, the load balancer goes. All of that is in its
// labels: what a process has begun, its successor can finish.
const (
	// labelShared is the owner's consent to guests.
	labelShared = labelPrefix + "shared"
	// labelGuest + UID marks a guest; labelGuestPorts + UID lists its ports as labelPorts does. labelLastGuest + UID stays
	// when a person removes these two.
	labelGuest      = labelPrefix + "guest-"
	labelGuestPorts = labelPrefix + "guestports-"
	labelLastGuest  = labelPrefix + "last-guest-"
)

// isGuest reports whether the Service is a guest on the load balancer.
func isGuest(lb *hcloud.LoadBalancer, uid string) bool {
	if lb == nil || lb.Labels[labelServiceUID] == uid {
		return false
	}
	_, marked := lb.Labels[labelGuest+uid]
	return marked
}

// guestsOf returns the UIDs of all guests, in order.
func guestsOf(lb *hcloud.LoadBalancer) (uids []string) {
	if lb == nil {
		return nil
	}
	for key := range lb.Labels {
		if uid, ok := strings.CutPrefix(key, labelGuest); ok && uid != lb.Labels[labelServiceUID] {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// withGuest returns a copy of labels with the Service as a guest that has these ports.
func withGuest(labels map[string]string, uid string, ports []int) map[string]string {
	result := withoutGuest(labels, uid)
	result[labelGuest+uid], result[labelLastGuest+uid] = "", ""
	maps.Copy(result, encodeList(labelGuestPorts+uid, portWords(ports)))
	return result
}

func withoutGuest(labels map[string]string, uid string) map[string]string {
	result := maps.Clone(labels)
	maps.DeleteFunc(result, func(k, _ string) bool {
		return k == labelGuest+uid || k == labelLastGuest+uid || isListLabel(k, labelGuestPorts+uid)
	})
	return result
}

// portsOf returns the ports that the Service, the owner or a guest, has recorded on the load balancer.
func portsOf(lb *hcloud.LoadBalancer, uid string) map[int]bool {
	if lb.Labels[labelServiceUID] == uid {
		return decodePorts(lb.Labels)
	}
	return parsePorts(decodeList(lb.Labels, labelGuestPorts+uid))
}

// portsOfOthers returns the ports that the Service cannot have, with the UIDs of their owners. A guest cannot
// have ports without an owner either ("").
func portsOfOthers(lb *hcloud.LoadBalancer, uid string) map[int]string {
	taken := map[int]string{}
	if lb == nil {
		return taken
	}
	own := portsOf(lb, uid)
	for _, s := range lb.Services {
		if isGuest(lb, uid) && !own[s.ListenPort] {
			taken[s.ListenPort] = ""
		}
	}
	owner := lb.Labels[labelServiceUID]
	for _, other := range append(guestsOf(lb), owner) {
		if other == uid || other == "" || owner == "" {
			continue
		}
		for port := range portsOf(lb, other) {
			taken[port] = other
		}
	}
	return taken
}

// freePorts returns the usable ports that no other Service on the load balancer has, and a note about the
// others.
func freePorts(in lbPlanInput) (free []corev1.ServicePort, notes []lbNote) {
	usable, _, _ := usablePorts(in.Service)
	taken := portsOfOthers(in.Current, string(in.Service.UID))
	for _, p := range usable {
		owner, is := taken[int(p.Port)]
		switch {
		case !is:
			free = append(free, p)
		case owner == "":
			notes = append(notes, lbNote{EventPortTaken, fmt.Sprintf("Port %d of load balancer %d (%s) is in use and belongs to no Service: choose another port", p.Port, in.Current.ID, in.Current.Name)})
		default:
			notes = append(notes, lbNote{EventPortTaken, fmt.Sprintf("Port %d of load balancer %d (%s) belongs to the Service with UID %s: choose another port", p.Port, in.Current.ID, in.Current.Name, owner)})
		}
	}
	return free, notes
}

// keepHidden keeps a load balancer with guests private: the ports of the guests must not become reachable
// from the internet by the decision of another Service.
func keepHidden(plan *lbPlan, in lbPlanInput) (notes []lbNote) {
	lb := in.Current
	if isGuest(lb, plan.UID) || len(guestsOf(lb)) == 0 || !plan.Public || lb.PublicNet.Enabled {
		return nil
	}
	plan.Public = false
	return []lbNote{{EventIgnoredSetting, fmt.Sprintf("Load balancer %d (%s) stays without a public interface, because other Services share it: set %sdisable-public-network to true", lb.ID, lb.Name, annotationPrefix)}}
}

// planGuest reduces the plan to what a guest owns. The note names what the guest's settings would change if
// it were the owner.
func planGuest(plan *lbPlan, in lbPlanInput) (notes []lbNote) {
	uid, lb := string(in.Service.UID), in.Current
	if !isGuest(lb, uid) {
		return nil
	}
	var parts []string
	for _, op := range diffLoadBalancer(plan, lb) {
		part := string(op.Part)
		switch {
		case op.Part == partLabels || op.Part.isPort():
			continue
		case slices.Contains([]lbOpKind{opAddTarget, opRemoveTarget, opAddSelector, opRemoveSelector}, op.Kind):
			part = "targets"
		}
		if !slices.Contains(parts, part) {
			parts = append(parts, part)
		}
	}
	if len(parts) > 0 {
		notes = append(notes, lbNote{EventIgnoredSetting, fmt.Sprintf("Load balancer %d (%s) is shared, and the Service with UID %s decides about it: this Service's settings for %s have no effect",
			lb.ID, lb.Name, lb.Labels[labelServiceUID], strings.Join(parts, ", "))})
	}
	if !in.Settings.Shared && !in.Wrong["shared"] {
		notes = append(notes, lbNote{EventIgnoredSetting, fmt.Sprintf("Load balancer %d (%s) stays shared, although %sshared is not true any more: delete and create the Service to give it a load balancer of its own",
			lb.ID, lb.Name, annotationPrefix)})
	}
	*plan = lbPlan{UID: uid, Guest: true, CreateName: plan.CreateName, Public: lb.PublicNet.Enabled, Limits: plan.Limits, Services: plan.Services}
	return notes
}

// checkShared returns the mistakes in the settings of a Service that shares a load balancer.
func checkShared(s *lbSettings) (errs []error) {
	if s.Shared && s.Name == "" {
		errs = append(errs, annotationError{Source: annotationPrefix + "shared", Value: "true", Reason: "needs the annotation name: Services with the same name share a load balancer"})
	}
	return errs
}

// lookUp returns the load balancers with the Service's label, as their owner or as a guest. A Service that shows no address
// is probably new, and may yet be a guest that is no longer shared: one page of all load balancers answers both.
func (l *loadBalancers) lookUp(ctx context.Context, svc *corev1.Service) ([]*hcloud.LoadBalancer, error) {
	if len(svc.Status.LoadBalancer.Ingress) == 0 {
		if lbs, complete, err := l.store.findOnPage(ctx, string(svc.UID)); complete || err != nil {
			return lbs, err
		}
	}
	if lbs, err := l.store.findNow(ctx, string(svc.UID)); err != nil || len(lbs) > 0 {
		return lbs, err
	}
	return l.store.findGuest(ctx, string(svc.UID))
}

// wasGuest reports whether the Service, which is no guest on the load balancer now, has been one. Private addresses prove
// nothing: a load balancer that replaces a deleted one gets the same.
func wasGuest(lb *hcloud.LoadBalancer, svc *corev1.Service) bool {
	_, marked := lb.Labels[labelLastGuest+string(svc.UID)]
	return marked || lb.Labels[labelLastOwner] == string(svc.UID) || showsPublicAddressOf(svc, lb)
}

// join makes the Service a guest on a load balancer of another Service. Both must have the annotation shared.
func (l *loadBalancers) join(ctx context.Context, svc *corev1.Service, plan *lbPlan, lb *hcloud.LoadBalancer) (*hcloud.LoadBalancer, error) {
	if isGuest(lb, plan.UID) {
		return lb, nil // recorded by an earlier request whose answer was lost
	}
	if wasGuest(lb, svc) {
		text := fmt.Sprintf("load balancer %d (%s) was this Service's, but lacks the label %s: nothing was changed; set the label to give it to the Service again", lb.ID, lb.Name, labelGuest+plan.UID)
		l.events.warning(svc, EventNotOwned, "%s", text)
		return nil, errors.New(text)
	}
	if plan.Public != lb.PublicNet.Enabled {
		return nil, invalidSettings(annotationError{Source: annotationPrefix + "disable-public-network", Value: strconv.FormatBool(!plan.Public),
			Reason: fmt.Sprintf("differs from load balancer %d (%s), which other Services share: must be %t", lb.ID, lb.Name, !lb.PublicNet.Enabled)})
	}
	updated, err := l.changeLabels(ctx, plan.UID, lb.ID, func(now *hcloud.LoadBalancer) (map[string]string, error) {
		if now.Labels[labelShared] == "" || now.Labels[labelServiceUID] == "" {
			return nil, fmt.Errorf("%w: it is not shared any more", errNotOwner)
		}
		return withGuest(now.Labels, plan.UID, nil), nil
	})
	if err != nil {
		return nil, fmt.Errorf("joining load balancer %d (%s): %w", lb.ID, lb.Name, err)
	}
	l.events.normal(svc, EventJoined, "Shares load balancer %d (%s) with the Service with UID %s", lb.ID, lb.Name, lb.Labels[labelServiceUID])
	return updated, nil
}

// changeLabels replaces the labels of a load balancer, based on its current state. Several Services may change
// the labels of one load balancer, one after the other.
func (l *loadBalancers) changeLabels(ctx context.Context, uid string, id int64, change func(*hcloud.LoadBalancer) (map[string]string, error)) (*hcloud.LoadBalancer, error) {
	unlock, err := l.labelling.lock(ctx, strconv.FormatInt(id, 10))
	if err != nil {
		return nil, err
	}
	defer unlock()
	now, err := l.get(ctx, id)
	if err != nil {
		return nil, err
	}
	labels, err := change(now)
	if err != nil {
		return nil, err
	}
	defer l.store.writing(uid)()
	updated, _, err := l.client.LoadBalancer.Update(ctx, now, hcloud.LoadBalancerUpdateOpts{Labels: labels})
	return updated, err
}

// removePorts deletes the Service's ports. Their node ports may belong to another Service soon, which must
// not be reachable.
func (l *loadBalancers) removePorts(ctx context.Context, svc *corev1.Service, lb *hcloud.LoadBalancer) error {
	var ops []lbOp
	for _, port := range portsToDelete(&lbPlan{UID: string(svc.UID)}, lb) {
		ops = append(ops, lbOp{Kind: opDeleteService, Part: partPort(port), Port: port})
	}
	_, err := l.applyOps(ctx, lb, ops)
	return err
}

// endShare removes a Service from a shared load balancer. If it is the owner, a guest becomes the owner. It
// reports false if the Service does not share the load balancer with any other.
func (l *loadBalancers) endShare(ctx context.Context, svc *corev1.Service, lb *hcloud.LoadBalancer) (bool, error) {
	uid := string(svc.UID)
	if !isGuest(lb, uid) && len(guestsOf(lb)) == 0 {
		return false, nil
	}
	defer l.store.writing(uid)()
	if err := l.removePorts(ctx, svc, lb); err != nil {
		return true, err
	}
	heir := ""
	_, err := l.changeLabels(ctx, uid, lb.ID, func(now *hcloud.LoadBalancer) (map[string]string, error) {
		if guests := guestsOf(now); now.Labels[labelServiceUID] == uid && len(guests) > 0 {
			heir = guests[0]
			others := withoutGuest(withoutGuest(now.Labels, uid), heir)
			labels := withOwnership(others, heir, slices.Sorted(maps.Keys(portsOf(now, heir))), l.own.marks(heir))
			labels[labelGuest+heir] = "" // lookUp may ask for the owner before this write, and for the guest after it
			labels[labelLastOwner] = heir
			return labels, nil
		}
		if now.Labels[labelServiceUID] == uid {
			return nil, errors.New("the last guest has left: will delete the load balancer")
		}
		return withoutGuest(now.Labels, uid), nil
	})
	if err != nil {
		return true, fmt.Errorf("leaving the shared load balancer %d (%s): %w", lb.ID, lb.Name, err)
	}
	klog.InfoS("Left shared load balancer", "service", klog.KObj(svc), "loadBalancer", lb.ID, "newOwner", heir)
	if heir != "" {
		defer l.store.writing(heir)()
		l.events.normal(svc, EventKept, "Load balancer %d (%s) belongs to the Service with UID %s now, which shares it", lb.ID, lb.Name, heir)
	}
	return true, nil
}
