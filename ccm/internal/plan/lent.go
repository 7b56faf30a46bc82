package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
)

// What a user has made before the Service and lends to it: a load balancer (the annotation adopt) and Primary
// IPs. The annotation is the consent. Such a load balancer is not deleted with the Service, keeps its public
// interface and network unless an annotation says otherwise, and keeps the servers that were its targets.
const (
	// labelAdopted marks a load balancer that the annotation adopt names.
	labelAdopted = labelPrefix + "adopted"
	// LabelFound marks a load balancer that was there before the Service got it by its name. It is the Service's like any other,
	// but not the CCM's to delete.
	LabelFound = labelPrefix + "found"
	// labelForeignServers lists the servers without a Node that were its targets at the adoption.
	labelForeignServers = labelPrefix + "foreign-servers"
)

// IsLent reports whether a user has lent the load balancer to the Service.
func IsLent(lb *hcloud.LoadBalancer) bool { return lb != nil && lb.Labels[labelAdopted] != "" }

// WithLent returns a copy of the labels with what an adoption by the annotation adopt records.
func WithLent(labels map[string]string, lb *hcloud.LoadBalancer, ours map[int64]bool) map[string]string {
	result := maps.Clone(labels)
	var foreign []string
	for _, t := range ServerTargets(lb) {
		if !ours[t.ServerID] {
			foreign = append(foreign, strconv.FormatInt(t.ServerID, 10))
		}
	}
	result[labelAdopted] = "true"
	maps.Copy(result, encodeList(labelForeignServers, foreign))
	return result
}

// isForeignServer reports whether a target is a server that was there before the adoption.
func isForeignServer(lb *hcloud.LoadBalancer, id int64) bool {
	return lb != nil && slices.Contains(decodeList(lb.Labels, labelForeignServers), strconv.FormatInt(id, 10))
}

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
	return IsLent(lb) || lb.Labels[LabelFound] != ""
}
