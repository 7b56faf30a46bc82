package plan

import (
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
)

// A user lends an existing load balancer (the annotation adopt) or Primary IPs to a Service. The annotation is the consent. A lent load
// balancer is not deleted with the Service, keeps its public interface and network unless an annotation says otherwise, and keeps the
// servers that were its targets.

// IsLent reports whether a user has lent the load balancer to the Service.
func IsLent(lb *hcloud.LoadBalancer) bool { return RecordOf(lb).Lent }

// planLent copies the public interface and the network of a lent load balancer into the plan, unless an annotation says otherwise.
func planLent(plan *LoadBalancer, in Input) (notes []Note) {
	if !IsLent(in.Current) {
		return nil
	}
	if !IsSet(in.Service, "disable-public-network") {
		plan.Public = in.Current.PublicNet.Enabled
	}
	if nets := in.Current.PrivateNet; plan.NetworkID != 0 && len(nets) > 0 && nets[0].Network.ID != plan.NetworkID {
		notes = append(notes, Note{Reason: event.IgnoredSetting, Text: fmt.Sprintf(
			"Load balancer %d is attached to network %d and stays there: detach it to have it attached to network %d of HCLOUD_NETWORK",
			in.Current.ID, nets[0].Network.ID, plan.NetworkID)})
		plan.NetworkID, plan.PrivateIPv4, plan.PrivateSubnet = 0, ipAddr{}, ipPrefix{}
	}
	return notes
}

// Retains reports whether the load balancer is retained: it outlives its Service.
func Retains(settings *Settings, lb *hcloud.LoadBalancer) bool {
	if settings.KeepOnDelete != nil {
		return *settings.KeepOnDelete
	}
	r := RecordOf(lb)
	return r.Lent || r.Found
}
