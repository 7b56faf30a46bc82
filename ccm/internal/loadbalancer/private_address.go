package loadbalancer

import (
	"context"
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// checkAddress returns a plan.SettingsError if the load balancer cannot have the private address or range of
// the plan. A load balancer has to leave its network to change its address, so this is checked before
// the first operation. It makes no API call if the attachment does not change.
func (l *Controller) checkAddress(ctx context.Context, svc *corev1.Service, planned *plan.LoadBalancer, lb *hcloud.LoadBalancer) error {
	if !planned.PrivateIPv4.IsValid() && !planned.PrivateSubnet.IsValid() {
		return nil
	}
	a := plan.AddressCheck{Zone: planned.NetworkZone}
	if lb != nil {
		if !plan.ChangesNetwork(planned, lb) {
			return nil
		}
		a.Own = lb.ID
		if lb.Location != nil {
			a.Zone = string(lb.Location.NetworkZone)
		}
	}
	var err error
	if a.Network, _, err = l.client.Network.GetByID(ctx, planned.NetworkID); err != nil {
		return fmt.Errorf("checking the private address: getting network %d: %w", planned.NetworkID, err)
	}
	if a.Network == nil {
		return fmt.Errorf("checking the private address: network %d does not exist", planned.NetworkID)
	}
	a.Members, err = l.client.Network.AllMembers(ctx, a.Network)
	if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeNotFound) { // the API has had it since September 2026
		return fmt.Errorf("checking the private address: listing the members of network %d: %w", planned.NetworkID, err)
	}
	name, value, reason := a.Check(planned.PrivateIPv4, planned.PrivateSubnet)
	if reason == "" {
		return nil
	}
	return plan.InvalidSettings(plan.AnnotationError{Source: l.sourceOf(svc, name), Value: value, Reason: reason})
}
