package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// Who owns what on a load balancer (hcloud-cloud-controller-manager#249):
//
//   - The label ccm-from-scratch/service-uid of a load balancer holds the UID of the Service that owns it. The create request contains
//     the label, so a load balancer never exists without its owner. The CCM changes and deletes only load balancers with this label.
//   - A load balancer with the Service's UID in the production CCM's label, hcloud-ccm/service-uid, is inherited as it is
//     (loadbalancer/production_ccm.go).
//   - Any other load balancer without our label is adopted only by its name, and only if the Service asks for the name with an
//     annotation. A former load balancer of the Service is not adopted again: a person removed the label to keep it.
//   - A resource with the label ccm-from-scratch/cluster belongs to the cluster with that HCLOUD_CLUSTER_ID only: a cluster that was
//     made from a backup of another one has the same UIDs. One without that label, and with ccm-from-scratch/cluster-uid, belongs to
//     the cluster with that UID of the namespace kube-system. One without both gets them.
//   - If several load balancers have the label of one Service, a person has copied it. The CCM changes only the one with the address
//     in the Service's status, and deletes none of them.
//   - The CCM owns the services (listen ports) of the record (record.go). A port is added to it before it is created, and removed
//     from it after it is deleted. Other ports are foreign and stay, unless the Service uses the same port.
//   - The CCM owns all targets of type server, because it must also remove the server of a Node that was deleted while the CCM was
//     down. Targets of type ip and label_selector are foreign and stay: users add machines outside the cluster with them.
//   - Labels without our prefix stay. Reverse DNS entries and the attachment to a network stay unless an annotation or HCLOUD_NETWORK
//     sets them.
const (
	labelPrefix     = "ccm-from-scratch/"
	LabelServiceUID = labelPrefix + "service-uid"

	// LabelLastOwner remembers the Service after a person has removed LabelServiceUID. It is set once the
	// load balancer serves the Service: by the create request, and at the end of an adoption.
	LabelLastOwner = labelPrefix + "last-owner"

	// LabelCluster holds HCLOUD_CLUSTER_ID, if it is set.
	LabelCluster = labelPrefix + "cluster"

	// LabelClusterUID holds the UID of the namespace kube-system. It is the same for the whole life of a cluster.
	LabelClusterUID = labelPrefix + "cluster-uid"

	// LabelServiceUIDHcloud is the ownership label of the production CCM. A load balancer with another Service's UID in it is never
	// adopted. We write it too, so that an operator can return to the production CCM at any time.
	LabelServiceUIDHcloud = "hcloud-ccm/service-uid"

	maxLabelValue = 63
)

// OwnerSelector returns the label selector for resources of the Service.
func OwnerSelector(uid string) string { return LabelServiceUID + "=" + uid }

// Ownership decides for one cluster which resources belong to it.
type Ownership struct {
	// ClusterID is HCLOUD_CLUSTER_ID; "" if it is not set.
	ClusterID string
	// ClusterUID is the UID of the namespace kube-system; "" if it is not known. Then LabelClusterUID does not matter.
	ClusterUID string
	// Both makes the CCM write the label of the production CCM too.
	Both bool
}

// Marks returns the labels, in addition to LabelServiceUID, that each resource of the Service must have. It may return nil.
func (o Ownership) Marks(uid string) map[string]string {
	marks := map[string]string{LabelCluster: o.ClusterID, LabelClusterUID: o.ClusterUID}
	if o.Both {
		marks[LabelServiceUIDHcloud] = uid
	}
	if maps.DeleteFunc(marks, func(_, value string) bool { return value == "" }); len(marks) == 0 {
		return nil
	}
	return marks
}

// IsHere reports whether a resource does not belong to another cluster. HCLOUD_CLUSTER_ID decides where it was set. One without
// LabelCluster was made before that, and gets the label.
func (o Ownership) IsHere(labels map[string]string) bool {
	if id := labels[LabelCluster]; id != "" {
		return id == o.ClusterID
	}
	uid := labels[LabelClusterUID]
	return uid == "" || o.ClusterUID == "" || uid == o.ClusterUID
}

// IsOurs reports whether a resource has a mark of this cluster.
func (o Ownership) IsOurs(labels map[string]string) bool {
	return o.IsHere(labels) && (labels[LabelCluster] != "" || o.ClusterUID != "" && labels[LabelClusterUID] == o.ClusterUID)
}

// Owns reports whether a resource with these labels belongs to the Service.
func (o Ownership) Owns(labels map[string]string, uid string) bool {
	return labels[LabelServiceUID] == uid && o.IsHere(labels)
}

// Inherits reports whether a resource belongs to the Service because the production CCM made it. If a person has
// removed our label from a resource that was ours, it does not.
func (o Ownership) Inherits(labels map[string]string, uid string) bool {
	return labels[LabelServiceUIDHcloud] == uid && labels[LabelServiceUID] == "" && labels[LabelLastOwner] != uid && o.IsHere(labels)
}

// OtherOwner names the other Service or cluster that owns the resource with these labels, or returns "".
func (o Ownership) OtherOwner(labels map[string]string, uid string) string {
	if !o.IsHere(labels) && labels[LabelCluster] == "" {
		return "the cluster whose namespace kube-system has the UID " + labels[LabelClusterUID]
	} else if !o.IsHere(labels) {
		return fmt.Sprintf("the cluster with HCLOUD_CLUSTER_ID=%q", labels[LabelCluster])
	}
	for _, key := range []string{LabelServiceUID, LabelServiceUIDHcloud} {
		owner := labels[key]
		released := key == LabelServiceUIDHcloud && owner == labels[LabelLastOwner] // we wrote it, and our label was removed
		if owner != "" && owner != uid && !released {
			return "the Service with UID " + owner
		}
	}
	return ""
}

// OwnedBy returns the load balancers of the Service, or else those with the Service as a guest.
func (o Ownership) OwnedBy(lbs []*hcloud.LoadBalancer, uid string) []*hcloud.LoadBalancer {
	if owned := without(lbs, func(lb *hcloud.LoadBalancer) bool { return !o.Owns(lb.Labels, uid) }); len(owned) > 0 {
		return owned
	}
	return without(lbs, func(lb *hcloud.LoadBalancer) bool { return !o.IsHere(lb.Labels) || !IsGuest(lb, uid) })
}

// without returns a copy of all without those for which leaveOut is true.
func without[T any](all []T, leaveOut func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), leaveOut)
}

// DefaultName returns the name of a new load balancer without the annotation. Names are unique in a project,
// and a cluster that was made from a backup has the same UIDs.
func (o Ownership) DefaultName(svc *corev1.Service) string {
	name := cloudprovider.DefaultLoadBalancerName(svc)
	if o.ClusterID != "" {
		name += "-" + o.ClusterID
	}
	return name
}

// IsSettled reports whether the load balancer serves the Service. Before that, an adoption must not remove a person's settings. One without
// an owner was released: a person has removed the owner's label to keep it. If none of our labels is left, a client such as Terraform may
// have replaced all of them.
func IsSettled(lb *hcloud.LoadBalancer, uid string) bool { return lb.Labels[LabelLastOwner] == uid }

// InUse returns the only load balancer with an address that the Service's status shows. It returns nil if several have one, or if
// none has: a status with a hostname shows no address.
func InUse(lbs []*hcloud.LoadBalancer, svc *corev1.Service) *hcloud.LoadBalancer {
	found := without(lbs, func(lb *hcloud.LoadBalancer) bool { return !ShowsAddressOf(svc, lb) })
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// ShowsAnyAddress reports whether the Service's status shows an address, and not only a hostname.
func ShowsAnyAddress(svc *corev1.Service) bool {
	return slices.ContainsFunc(svc.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool { return i.IP != "" })
}

// ShowsAddressOf reports whether the Service's status shows an address of the load balancer.
func ShowsAddressOf(svc *corev1.Service, lb *hcloud.LoadBalancer) bool {
	return showsOneOf(svc, addressesOf(lb))
}

// ShowsPublicAddressOf is ShowsAddressOf for public addresses. They are unique, and two projects may have the same private ones.
func ShowsPublicAddressOf(svc *corev1.Service, lb *hcloud.LoadBalancer) bool {
	return showsOneOf(svc, addressesOf(lb)[:2])
}

func showsOneOf(svc *corev1.Service, addresses []string) bool {
	return slices.ContainsFunc(svc.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool {
		return slices.Contains(addresses, i.IP)
	})
}

// addressesOf returns the two public addresses of the load balancer, then the private ones. None is "".
func addressesOf(lb *hcloud.LoadBalancer) []string {
	all := []string{lb.PublicNet.IPv4.IP.String(), lb.PublicNet.IPv6.IP.String()}
	for _, n := range lb.PrivateNet {
		all = append(all, n.IP.String())
	}
	return all
}

// WithoutOurs returns a copy of labels without those that make something a Service's.
func WithoutOurs(labels map[string]string) map[string]string {
	result := maps.Clone(labels)
	maps.DeleteFunc(result, func(k, _ string) bool { return strings.HasPrefix(k, labelPrefix) || k == LabelServiceUIDHcloud })
	return result
}
