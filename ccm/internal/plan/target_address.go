package plan

import (
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

// chooseAddress returns how the load balancer reaches a node's server, or no target if it cannot. The node ports of
// a Service serve only its IP families, and networks have only IPv4. So a server without a public IPv4 address
// is reached by its private one, unless an annotation or its default has decided that, or else over IPv6.
//
// An existing target keeps the address that it has: the API's answer about a target of type server does not show it to
// hcloud-go.
func chooseAddress(in Input, node *corev1.Node, server *hcloud.Server, network int64, private bool) (target Target, ipv6 netip.Addr) {
	families := in.Service.Spec.IPFamilies
	v4 := len(families) == 0 || slices.Contains(families, corev1.IPv4Protocol)
	v6 := slices.Contains(families, corev1.IPv6Protocol)
	hasPrivate := nodeinfo.PrivateIP(server, network).IsValid()
	undecided := in.Settings.UsePrivateIP == nil && !in.Wrong["use-private-ip"]
	switch ip := nodeinfo.IPv6(server, node); {
	case private && hasPrivate:
		return Target{ServerID: server.ID, Private: true}, ipv6
	case private:
		return target, ipv6
	case v4 && nodeinfo.PublicIPv4(server).IsValid():
		return Target{ServerID: server.ID}, ipv6
	case v4 && undecided && hasPrivate:
		return Target{ServerID: server.ID, Private: true}, ipv6
	case v6 && ip.IsValid():
		return Target{ServerID: server.ID}, ip
	}
	return target, ipv6
}

// familyNotes warns about private targets of a Service that has only IPv6.
func familyNotes(in Input, targets []Target) []Note {
	families := in.Service.Spec.IPFamilies
	if slices.Contains(families, corev1.IPv4Protocol) || len(families) == 0 ||
		!slices.ContainsFunc(targets, func(t Target) bool { return t.Private }) {
		return nil
	}
	return []Note{{Reason: event.IgnoredSetting, Text: "The Service has only the IP family IPv6, but private networks have only IPv4, " +
		"so that its private targets cannot serve: set ipFamilyPolicy: PreferDualStack, or use-private-ip to false"}}
}
