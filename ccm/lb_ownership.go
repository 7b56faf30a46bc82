package ccm

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Who owns what on a load balancer (hcloud-cloud-controller-manager#249):
//
//   - The load balancer belongs to the Service whose UID is in the label ccm-from-scratch/service-uid.
//     The label is part of the create request, so there is no moment at which it exists without
//     owner. It is changed, and deleted with the Service, because of that label only.
//   - Services (listen ports) are ours if the label ccm-from-scratch/ports names them; it is written
//     before a port is added and shortened after one is removed. Other ports are somebody else's
//     and stay, unless the Service asks for the same port.
//   - Targets of type server are ours: nodes are servers, and a Node that was deleted while the CCM
//     was down must go too. Targets of type ip and label_selector are never ours and stay: that is
//     how a machine outside the cluster is added to a Service's load balancer.
//   - Labels other than those with our prefix stay, as do reverse DNS entries and the attachment to
//     a network, unless an annotation or HCLOUD_NETWORK asks for something else.
const (
	labelPrefix     = "ccm-from-scratch/"
	labelServiceUID = labelPrefix + "service-uid"
	labelPorts      = labelPrefix + "ports"

	// labelServiceUIDHcloud is how the production CCM marks its load balancers. One that carries
	// another Service's UID is not adopted by name.
	labelServiceUIDHcloud = "hcloud-ccm/service-uid"

	maxLabelValue = 63
)

// ownerSelector selects what belongs to the Service.
func ownerSelector(uid string) string { return labelServiceUID + "=" + uid }

// otherOwner returns the UID of a Service other than uid that owns the labelled resource, "" if
// there is none.
func otherOwner(labels map[string]string, uid string) string {
	for _, key := range []string{labelServiceUID, labelServiceUIDHcloud} {
		if owner := labels[key]; owner != "" && owner != uid {
			return owner
		}
	}
	return ""
}

// withOwnership returns labels with ours for uid and ports set, and everybody else's kept.
func withOwnership(labels map[string]string, uid string, ports []int) map[string]string {
	result := map[string]string{}
	for k, v := range labels {
		if k != labelPorts && !strings.HasPrefix(k, labelPorts+"-") {
			result[k] = v
		}
	}
	result[labelServiceUID] = uid
	maps.Copy(result, encodePorts(ports))
	return result
}

// encodePorts writes ports into as many labels as their values need: ports=80.443,
// ports-2=8080.…; a label's value may have 63 characters and no comma.
func encodePorts(ports []int) map[string]string {
	result := map[string]string{}
	key, value := labelPorts, ""
	for _, p := range slices.Sorted(slices.Values(ports)) {
		text := strconv.Itoa(p)
		if value != "" && len(value)+1+len(text) > maxLabelValue {
			result[key] = value
			key, value = fmt.Sprintf("%s-%d", labelPorts, len(result)+1), ""
		}
		if value != "" {
			value += "."
		}
		value += text
	}
	if value != "" {
		result[key] = value
	}
	return result
}

// joinPorts writes ports as one label would.
func joinPorts(ports []int) string {
	var texts []string
	for _, p := range ports {
		texts = append(texts, strconv.Itoa(p))
	}
	return strings.Join(texts, ".")
}

// decodePorts reads what encodePorts wrote. What is not a number was not written by us and is
// ignored: a port that is not recorded is treated as somebody else's, which is the safe side.
func decodePorts(labels map[string]string) map[int]bool {
	ports := map[int]bool{}
	for k, v := range labels {
		if k != labelPorts && !strings.HasPrefix(k, labelPorts+"-") {
			continue
		}
		for text := range strings.SplitSeq(v, ".") {
			if p, err := strconv.Atoi(text); err == nil {
				ports[p] = true
			}
		}
	}
	return ports
}

// pickOwned chooses the load balancer of a Service among those that carry its label, and returns
// the others. There is more than one only if a person copied labels or changed the name annotation
// while a create request was on its way. The one whose address the Service shows is kept, else the
// oldest.
func pickOwned(lbs []*hcloud.LoadBalancer, shown []string) (keep *hcloud.LoadBalancer, rest []*hcloud.LoadBalancer) {
	if len(lbs) == 0 {
		return nil, nil
	}
	sorted := slices.SortedFunc(slices.Values(lbs), func(a, b *hcloud.LoadBalancer) int { return int(a.ID - b.ID) })
	chosen := max(0, slices.IndexFunc(sorted, func(lb *hcloud.LoadBalancer) bool {
		return slices.Contains(shown, lb.PublicNet.IPv4.IP.String())
	}))
	return sorted[chosen], slices.Delete(slices.Clone(sorted), chosen, chosen+1)
}
