package loadbalancer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// maxLabelWrites is how often a change of labels is written before the sync gives up.
const maxLabelWrites = 3

// mayNotJoin returns the reason against a guest on the load balancer, or nil. An owner with an unknown UID is another cluster's, and its
// load balancer leads to that one's nodes. Owner and guest must be in one namespace, unless the owner allows the other one: a guest takes
// ports that the owner may want later.
func (l *Controller) mayNotJoin(svc *corev1.Service, lb *hcloud.LoadBalancer) error {
	uid := lb.Labels[plan.LabelServiceUID]
	owner, known := l.evidence.Services()[uid]
	switch {
	case !known:
		return fmt.Errorf("load balancer %d (%s) belongs to the Service with UID %s, which this cluster does not have: choose another name",
			lb.ID, lb.Name, uid)
	case owner.Namespace != svc.Namespace && !plan.AllowsNamespace(lb, svc.Namespace):
		return fmt.Errorf("load balancer %d (%s) belongs to the Service %s/%s, whose annotation %sshared-namespaces does not name the "+
			"namespace %s: choose another name, or add the namespace", lb.ID, lb.Name, owner.Namespace, owner.Name, plan.AnnotationPrefix,
			svc.Namespace)
	case plan.RecordOf(lb).Common.By == "":
		return fmt.Errorf("load balancer %d (%s) has not recorded the settings of its Service yet: will try again", lb.ID, lb.Name)
	}
	return nil
}

// evict removes guests without a Service, with their ports: a finalizer was removed by force. Such a guest would keep
// its ports from others, and might inherit the load balancer. It returns the current load balancer, even with an error.
func (l *Controller) evict(ctx context.Context, lb *hcloud.LoadBalancer) (*hcloud.LoadBalancer, error) {
	guests := plan.GuestsOf(lb)
	if len(guests) == 0 {
		return lb, nil // most are not shared
	}
	known := l.evidence.Services()
	guests = slices.DeleteFunc(guests, func(uid string) bool { return known == nil || known[uid] != nil })
	if len(guests) == 0 {
		return lb, nil
	}
	for _, uid := range guests {
		unlock, err := l.sharing.Lock(ctx, strconv.FormatInt(lb.ID, 10))
		if err != nil {
			return lb, err
		}
		err = l.removePorts(ctx, uid, lb)
		if err == nil {
			_, err = l.changeLabels(ctx, uid, lb.ID, func(now *hcloud.LoadBalancer) (*plan.Record, error) {
				r := plan.RecordOf(now)
				r.Leave(uid)
				return r, nil
			})
		}
		unlock()
		if err != nil {
			return lb, fmt.Errorf("removing the ports of the Service with UID %s, which is gone, from load balancer %d (%s): %w", uid,
				lb.ID, lb.Name, err)
		}
		klog.InfoS("Removed a Service that is gone from a shared load balancer", "uid", uid, "loadBalancer", lb.ID)
	}
	now, err := l.get(ctx, lb.ID)
	if err != nil {
		return lb, err
	}
	return now, nil
}

// join makes the Service a guest on a load balancer of another Service. Both must have the annotation shared.
func (l *Controller) join(ctx context.Context, svc *corev1.Service, planned *plan.LoadBalancer,
	lb *hcloud.LoadBalancer) (*hcloud.LoadBalancer, error) {
	if plan.IsGuest(lb, planned.UID) {
		return lb, nil // recorded by an earlier request whose answer was lost
	}
	if plan.WasGuest(lb, planned.UID) {
		return nil, l.refuse(svc, event.NotOwned, "load balancer %d (%s) was this Service's, but lacks the label %s: nothing was "+
			"changed; set the label to give it to the Service again", lb.ID, lb.Name, plan.LabelGuest+planned.UID)
	}
	if err := l.mayNotJoin(svc, lb); err != nil {
		return nil, l.refuse(svc, event.NotAdoptable, "%v", err)
	}
	if _, mistakes := plan.WithSharedSettings(svc, lb, l.defaults); len(mistakes) > 0 {
		return nil, plan.InvalidSettings(mistakes...)
	}
	if planned.Public != lb.PublicNet.Enabled {
		return nil, plan.Mistake("disable-public-network", strconv.FormatBool(!planned.Public),
			"differs from load balancer %d (%s), which other Services share: must be %t", lb.ID, lb.Name, !lb.PublicNet.Enabled)
	}
	updated, err := l.changeLabels(ctx, planned.UID, lb.ID, func(now *hcloud.LoadBalancer) (*plan.Record, error) {
		r := plan.RecordOf(now)
		if !r.Shared || now.Labels[plan.LabelServiceUID] == "" {
			return nil, fmt.Errorf("%w: it is not shared any more", plan.ErrNotOwner)
		}
		r.Join(planned.UID, nil)
		return r, nil
	})
	if err != nil {
		return nil, fmt.Errorf("joining load balancer %d (%s): %w", lb.ID, lb.Name, err)
	}
	l.events.Normal(svc, event.Joined, "Shares load balancer %d (%s) with the Service with UID %s", lb.ID, lb.Name,
		lb.Labels[plan.LabelServiceUID])
	return updated, nil
}

// changeLabels changes the labels of a load balancer. An update replaces all of them, and the API has no conditional write. So
// changeLabels reads, compares, writes, and reads again, until nothing differs: it notices another client that undoes the change because
// it read the labels earlier. A client must notice itself that changeLabels undoes a change between its read and its write. change may be
// called several times, even with its own result. Several Services may change the labels of one load balancer, one after the other.
func (l *Controller) changeLabels(ctx context.Context, uid string, id int64,
	change func(*hcloud.LoadBalancer) (*plan.Record, error)) (*hcloud.LoadBalancer, error) {
	unlock, err := l.labelling.Lock(ctx, strconv.FormatInt(id, 10))
	if err != nil {
		return nil, err
	}
	defer unlock()
	for writes := 0; ; writes++ {
		now, err := l.get(ctx, id)
		if err != nil {
			return nil, err
		}
		r, err := change(now)
		if err != nil {
			return nil, err
		}
		labels := r.Encode()
		if maps.Equal(labels, now.Labels) {
			return now, nil
		}
		if writes == maxLabelWrites {
			return nil, fmt.Errorf("another client has undone the change of the labels %d times: will try again", writes)
		}
		_, _, err = l.client.LoadBalancer.Update(ctx, now, hcloud.LoadBalancerUpdateOpts{Labels: labels})
		l.store.Written(uid)
		if err != nil {
			return nil, err
		}
	}
}

// removePorts deletes the ports that a Service has recorded, and others that have to go. Their node ports may belong to another Service
// soon, and that one must not be reachable.
func (l *Controller) removePorts(ctx context.Context, uid string, lb *hcloud.LoadBalancer, others ...int) error {
	var ops []plan.Op
	ports := slices.Concat(plan.PortsToDelete(&plan.LoadBalancer{UID: uid}, lb), others)
	for _, port := range slices.Compact(slices.Sorted(slices.Values(ports))) {
		ops = append(ops, plan.Op{Kind: plan.OpDeleteService, Part: plan.PartPort(port), Port: port})
	}
	_, err := l.applyOps(ctx, lb, ops, nil)
	return err
}

// endShare removes a Service from a shared load balancer. If it is the owner, a guest becomes the owner. It
// reports false if the Service does not share the load balancer with any other.
func (l *Controller) endShare(ctx context.Context, svc *corev1.Service, lb *hcloud.LoadBalancer) (bool, error) {
	uid := string(svc.UID)
	if !plan.IsGuest(lb, uid) {
		now, err := l.evict(ctx, lb) // one that is gone must not inherit
		if err != nil {
			return true, err
		}
		switch lb = now; {
		case !plan.Serves(lb, uid):
			return true, nil // its owner has removed it meanwhile
		case len(plan.GuestsOf(lb)) == 0:
			return false, nil
		}
	}
	defer l.store.Written(uid)
	if err := l.removePorts(ctx, uid, lb, plan.PortsTo(svc, lb)...); err != nil {
		return true, err
	}
	heir := ""
	_, err := l.changeLabels(ctx, uid, lb.ID, func(now *hcloud.LoadBalancer) (*plan.Record, error) {
		r, guests := plan.RecordOf(now), plan.GuestsOf(now)
		switch {
		case now.Labels[plan.LabelServiceUID] != uid:
			r.Leave(uid)
		case len(guests) == 0:
			return nil, errors.New("the last guest has left: will delete the load balancer")
		default:
			heir = guests[0]
			r.Inherit(heir, l.own.Marks(heir))
		}
		return r, nil
	})
	if err != nil {
		return true, fmt.Errorf("leaving the shared load balancer %d (%s): %w", lb.ID, lb.Name, err)
	}
	klog.InfoS("Left shared load balancer", "service", klog.KObj(svc), "loadBalancer", lb.ID, "newOwner", heir)
	if heir != "" {
		defer l.store.Written(heir)
		l.events.Normal(svc, event.Kept, "Load balancer %d (%s) belongs to the Service with UID %s now, which shares it; its settings stay",
			lb.ID, lb.Name, heir)
	}
	return true, nil
}
