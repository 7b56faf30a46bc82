package plan

import (
	"fmt"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
)

// What a user has made before the Service and lends to it: a load balancer (the annotation adopt) and Primary
// IPs. The annotation is the consent. Such a load balancer is not deleted with the Service, keeps its public
// interface and network unless an annotation says otherwise, and keeps the servers that were its targets.

// IsLent reports whether a user has lent the load balancer to the Service.
func IsLent(lb *hcloud.LoadBalancer) bool { return RecordOf(lb).Lent }

// planLent takes what a user has set up on the load balancer into the plan, unless an annotation of the
// Service says otherwise.
func planLent(plan *LoadBalancer, in Input) (notes []Note) {
	if !IsLent(in.Current) {
		return nil
	}
	if _, set := in.Service.Annotations[AnnotationPrefix+"disable-public-network"]; !set {
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
