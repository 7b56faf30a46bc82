package ccm

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
)

// Who owns what on a load balancer (hcloud-cloud-controller-manager#249):
//
//   - The load balancer belongs to the Service whose UID is in the label ccm-from-scratch/service-uid.
//     The create request contains the label, so a load balancer never exists without its owner. The
//     CCM changes and deletes only load balancers with this label.
//   - A load balancer without that label is adopted only by its name, and only if the Service asks for
//     the name with an annotation. One that has belonged to the Service is not adopted again: a person has
//     removed the label to keep it.
//   - If several load balancers have the label of one Service, a person has copied it. The CCM changes
//     only the one with the address in the Service's status, and deletes none of them.
//   - The CCM owns the services (listen ports) that the label ccm-from-scratch/ports lists. A port is
//     added to the label before it is created, and removed from it after it is deleted. Other ports
//     are foreign and stay, unless the Service uses the same port.
//   - The CCM owns all targets of type server, because it must also remove the server of a Node that
//     was deleted while the CCM was down. Targets of type ip and label_selector are foreign and stay:
//     users add machines outside the cluster to a Service's load balancer with them.
//   - Labels without our prefix stay. Reverse DNS entries and the attachment to a network stay unless
//     an annotation or HCLOUD_NETWORK sets them.
const (
	labelPrefix     = "ccm-from-scratch/"
	labelServiceUID = labelPrefix + "service-uid"
	labelPorts      = labelPrefix + "ports"

	// labelLastOwner remembers the Service after a person has removed labelServiceUID. It is set once the
	// load balancer serves the Service: by the create request, and at the end of an adoption.
	labelLastOwner = labelPrefix + "last-owner"

	// labelServiceUIDHcloud is the ownership label of the production CCM. A load balancer on which it
	// holds another Service's UID is never adopted.
	labelServiceUIDHcloud = "hcloud-ccm/service-uid"

	maxLabelValue = 63
)

// ownerSelector returns the label selector for resources of the Service.
func ownerSelector(uid string) string { return labelServiceUID + "=" + uid }

// otherOwner returns the UID of another Service that owns the resource with these labels, or "" if
// there is none.
func otherOwner(labels map[string]string, uid string) string {
	for _, key := range []string{labelServiceUID, labelServiceUIDHcloud} {
		if owner := labels[key]; owner != "" && owner != uid {
			return owner
		}
	}
	return ""
}

// wasReleased reports whether the load balancer, which has no owner now, has belonged to the Service.
// Then a person has removed its label to keep it. If the person has removed all labels, the address in
// the Service's status still shows it, unless the Service has a hostname.
func wasReleased(lb *hcloud.LoadBalancer, svc *corev1.Service) bool {
	return lb.Labels[labelLastOwner] == string(svc.UID) || showsAddressOf(svc, lb)
}

// isSettled reports whether the load balancer serves the Service. Before that, an adoption must not take
// away anything that a person has set up on it.
func isSettled(lb *hcloud.LoadBalancer, uid string) bool { return lb.Labels[labelLastOwner] == uid }

// withOwnership returns a copy of labels with the ownership labels for uid and ports.
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

// encodePorts encodes ports as labels: ports=80.443, ports-2=8080.… The value of a label can have 63
// characters and no comma, so several labels may be needed.
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

// joinPorts formats ports like the value of a label.
func joinPorts(ports []int) string {
	var texts []string
	for _, p := range ports {
		texts = append(texts, strconv.Itoa(p))
	}
	return strings.Join(texts, ".")
}

// decodePorts decodes the labels of encodePorts. It ignores values that are not numbers: a port that
// is not recorded counts as foreign and stays.
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

// inUse returns the only load balancer with an address that the Service's status shows, or nil if there
// is none or more than one. A status with a hostname shows no address.
func inUse(lbs []*hcloud.LoadBalancer, svc *corev1.Service) *hcloud.LoadBalancer {
	var found []*hcloud.LoadBalancer
	for _, lb := range lbs {
		if showsAddressOf(svc, lb) {
			found = append(found, lb)
		}
	}
	if len(found) != 1 {
		return nil
	}
	return found[0]
}

// showsAddressOf reports whether the Service's status shows an address of the load balancer.
func showsAddressOf(svc *corev1.Service, lb *hcloud.LoadBalancer) bool {
	addresses := []string{lb.PublicNet.IPv4.IP.String(), lb.PublicNet.IPv6.IP.String()}
	for _, n := range lb.PrivateNet {
		addresses = append(addresses, n.IP.String())
	}
	return slices.ContainsFunc(svc.Status.LoadBalancer.Ingress, func(i corev1.LoadBalancerIngress) bool {
		return i.IP != "" && slices.Contains(addresses, i.IP)
	})
}
