//go:build sim

package sim

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// onLB returns the act of a person on the load balancer of a Service.
func onLB(do func(*world, *hcloud.LoadBalancer, int) error) act {
	return func(w *world, who string, n, _ int) {
		s := w.kube.service(who)
		if s == nil {
			return
		}
		if own := w.guard.owned(s); len(own) == 1 {
			w.guard.personChanges(own[0])
			w.try(do(w, own[0], n))
		}
	}
}

// fillLB adds targets of type ip, so that there is room for so many servers.
func fillLB(w *world, lb *hcloud.LoadBalancer, room int) error {
	if w.guard.ownerOf(lb) == nil {
		return nil
	}
	for i := range lb.LoadBalancerType.MaxTargets - len(lb.Targets) {
		if i >= lb.LoadBalancerType.MaxTargets-room-(len(lb.Targets)-len(serverTargets(lb))) {
			break
		}
		for attempt := 0; ; attempt++ {
			_, _, err := w.api.LoadBalancer.AddIPTarget(ctx, lb,
				hcloud.LoadBalancerAddIPTargetOpts{IP: net.IPv4(203, 0, 113, byte(len(lb.Targets)+i+1))})
			if err == nil {
				break
			}
			if attempt == 20 {
				return err
			}
			w.pass(time.Second, 0)
		}
	}
	return nil
}

func togglePublic(w *world, lb *hcloud.LoadBalancer, _ int) error {
	if lb.PublicNet.Enabled {
		_, _, err := w.api.LoadBalancer.DisablePublicInterface(ctx, lb)
		return err
	}
	w.guard.opened[lb.ID] = true
	_, _, err := w.api.LoadBalancer.EnablePublicInterface(ctx, lb)
	return err
}

// removeLabel takes a load balancer away from its Service: only the label, or all of ours. One that the Service names is Terraform's.
// Terraform replaces all labels, or all but the production CCM's, and means nothing by it.
func removeLabel(w *world, lb *hcloud.LoadBalancer, n int) error {
	labels := maps.Clone(lb.Labels)
	delete(labels, uidLabel)
	s := w.guard.ownerOf(lb)
	named := n%2 == 1 && s != nil && slices.Contains([]string{setting(s, "name"), setting(s, "adopt")}, lb.Name)
	if n%2 == 1 {
		const theirs = "hcloud-ccm/service-uid"
		maps.DeleteFunc(labels, func(key, _ string) bool { return !named || n%4 == 1 || key != theirs })
	}
	_, _, err := w.api.LoadBalancer.Update(ctx, lb, hcloud.LoadBalancerUpdateOpts{Labels: labels})
	if err == nil && !named {
		w.guard.released[lb.ID] = time.Now()
	}
	return err
}

// copyLabel makes a load balancer of a person's own, with the labels of another one.
func copyLabel(w *world, lb *hcloud.LoadBalancer, n int) error {
	name := fmt.Sprintf("copy-of-%d", lb.ID)
	return w.createLB(name, lb.Labels, n)
}

// createLB makes a load balancer as a person does, with a port and a target.
func (w *world) createLB(name string, labels map[string]string, n int) error {
	port := foreignPort + 1 + n%2
	opts := hcloud.LoadBalancerCreateOpts{Name: name, LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"},
		Location: &hcloud.Location{Name: "fsn1"}, Labels: labels,
		Services: []hcloud.LoadBalancerCreateOptsService{{Protocol: "tcp", ListenPort: &port, DestinationPort: &port}}}
	r, _, err := w.api.LoadBalancer.Create(ctx, opts)
	if err == nil {
		w.guard.person[r.LoadBalancer.ID] = time.Now()
	}
	return err
}
