package node

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

// AddressFamily selects the public addresses of a server that become ExternalIP addresses of its Node.
type AddressFamily string

// The address families: values of HCLOUD_INSTANCES_ADDRESS_FAMILY.
const (
	AddressFamilyIPv4      AddressFamily = "ipv4"
	AddressFamilyIPv6      AddressFamily = "ipv6"
	AddressFamilyDualStack AddressFamily = "dualstack"
)

// Other programs, such as the CSI driver, recognise a Node that is a server of the cloud by this label. The production CCM sets it too.
const (
	labelProvidedBy = "instance.hetzner.cloud/provided-by"
	providedByCloud = "cloud"
)

// Settings say how a Node shows its server. The zero value has the defaults, with both address families.
type Settings struct {
	Family      AddressFamily
	ProviderIDs nodeinfo.Convention
	Topology    nodeinfo.Convention
	NoZone      bool
}

// dataCenters are the last names of the data centers that the API has not shown since July 2026. The
// production CCM still writes them as zones of these locations (hcloud-cloud-controller-manager#1159).
var dataCenters = map[string]string{
	"fsn1": "fsn1-dc14", "nbg1": "nbg1-dc3", "hel1": "hel1-dc2", "ash": "ash-dc1", "hil": "hil-dc1", "sin": "sin-dc1",
}

// metadata returns the metadata of a server for Kubernetes.
func (n Settings) metadata(s *hcloud.Server, node *corev1.Node, networkID int64) *cloudprovider.InstanceMetadata {
	m := &cloudprovider.InstanceMetadata{
		// Kubernetes does not allow to change a provider ID.
		ProviderID:    cmp.Or(node.Spec.ProviderID, n.ProviderIDs.ProviderID(s.ID)),
		NodeAddresses: n.addresses(s, node, networkID),

		AdditionalLabels: map[string]string{labelProvidedBy: providedByCloud},
	}
	if s.ServerType != nil {
		m.InstanceType = s.ServerType.Name
	}
	if s.Location != nil {
		m.Region, m.Zone = n.regionAndZone(s.Location)
	}
	return m
}

// regionAndZone returns the topology of a location: its network zone and its name, or, as the production CCM
// does, its name and a data center. A location that never had a data center is its own zone there.
func (n Settings) regionAndZone(l *hcloud.Location) (region, zone string) {
	region, zone = string(l.NetworkZone), l.Name
	if n.Topology == nodeinfo.ConventionHcloud {
		region, zone = l.Name, cmp.Or(dataCenters[l.Name], l.Name)
	}
	if n.NoZone {
		zone = ""
	}
	return region, zone
}

// addresses returns the Node's addresses: its hostname, its public addresses of the family and its address in
// the configured network. The hostname is the name of the Node, because a server can be renamed while the
// machine keeps its host name.
//
// Two kinds of addresses are returned in addition, because a Node without them cannot be initialized or
// reached: those that kubelet got as --node-ip, and, as a last resort, the public address of the other
// family. Without a configured network, private addresses are returned only if the server has no public
// interface: then they are the only way to reach it.
func (n Settings) addresses(s *hcloud.Server, node *corev1.Node, networkID int64) []corev1.NodeAddress {
	v4, v6 := nodeinfo.PublicIPv4(s), nodeinfo.IPv6(s, node)
	wanted := nodeinfo.NodeIPs(node)
	var addrs []corev1.NodeAddress
	add := func(kind corev1.NodeAddressType, a netip.Addr) {
		if a.IsValid() {
			addrs = append(addrs, corev1.NodeAddress{Type: kind, Address: a.String()})
		}
	}
	if n.Family != AddressFamilyIPv6 || slices.Contains(wanted, v4) {
		add(corev1.NodeExternalIP, v4)
	}
	if n.Family != AddressFamilyIPv4 || slices.Contains(wanted, v6) {
		add(corev1.NodeExternalIP, v6)
	}
	public := v4.IsValid() || v6.IsValid()
	for _, p := range s.PrivateNet {
		ip, _ := netip.AddrFromSlice(p.IP)
		if ip = ip.Unmap(); networkID == 0 && !public || networkID != 0 && p.Network != nil && p.Network.ID == networkID ||
			slices.Contains(wanted, ip) {
			add(corev1.NodeInternalIP, ip)
		}
	}
	if len(addrs) == 0 {
		add(corev1.NodeExternalIP, v4)
		add(corev1.NodeExternalIP, v6)
	}
	return append([]corev1.NodeAddress{{Type: corev1.NodeHostName, Address: node.Name}}, addrs...)
}
