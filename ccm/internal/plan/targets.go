package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/event"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/nodeinfo"
)

// usesPrivateIP reports whether the load balancer uses the private addresses of targets.
func usesPrivateIP(plan *LoadBalancer, in Input) bool {
	switch {
	case !plan.Public:
		return true
	case in.Wrong["use-private-ip"] && in.Current != nil:
		return hasPrivate(ServerTargets(in.Current))
	}
	return in.Settings.UsePrivateIP != nil && *in.Settings.UsePrivateIP
}

// stayInNetwork keeps a load balancer with private targets in its network, if HCLOUD_NETWORK names another one with fewer of
// the nodes' servers: it would lose targets. A load balancer can be in one network.
func stayInNetwork(plan *LoadBalancer, in Input) []Note {
	lb := in.Current
	if lb == nil || in.NetworkID == 0 || IsLent(lb) || len(lb.PrivateNet) == 0 || lb.PrivateNet[0].Network.ID == in.NetworkID {
		return nil
	}
	private := slices.ContainsFunc(lb.Targets, func(t hcloud.LoadBalancerTarget) bool { return t.UsePrivateIP })
	current := lb.PrivateNet[0].Network.ID
	var here, there int
	for _, node := range selectedNodes(in, currentTargets(lb)) {
		id, err := nodeinfo.ParseProviderID(node.Spec.ProviderID)
		server := in.Servers[id]
		if err != nil || server == nil {
			continue
		}
		if nodeinfo.PrivateIP(server, current).IsValid() {
			here++
		}
		if nodeinfo.PrivateIP(server, in.NetworkID).IsValid() {
			there++
		} else {
			plan.Outside = append(plan.Outside, id)
		}
	}
	if !private || !in.Unread && there >= here && there > 0 {
		return nil
	}
	plan.NetworkID, plan.PrivateIPv4, plan.PrivateSubnet = current, netip.Addr{}, netip.Prefix{}
	return []Note{{Reason: event.SkippedNodes, Text: fmt.Sprintf("Load balancer %d (%s) stays in network %d, because only "+
		"%d of the nodes' servers are attached to network %d of HCLOUD_NETWORK, and %d to its own: attach the servers, or "+
		"correct HCLOUD_NETWORK",
		lb.ID, lb.Name, current, there, in.NetworkID, here), Unmet: true}}
}

// planTargets sets the plan's targets.
func planTargets(plan *LoadBalancer, in Input, private bool) (notes []Note) {
	var noAddress, noRoute []string
	var targets, public []Target
	network := in.NetworkID
	current, foreign := currentTargets(in.Current), RecordOf(in.Current).ForeignServers
	if lb := in.Current; lb != nil && (network == 0 || IsLent(lb)) && len(lb.PrivateNet) > 0 {
		network = lb.PrivateNet[0].Network.ID // HCLOUD_NETWORK is not known, or another one
	}
	for _, node := range selectedNodes(in, current) {
		// A Node without a provider ID is not initialized yet; its initialization causes another sync.
		// A Node of another provider, or without a server, cannot be a target.
		id, err := nodeinfo.ParseProviderID(node.Spec.ProviderID)
		if err != nil {
			if !nodeinfo.IsForeign(node) {
				plan.Fresh++
			}
			continue
		}
		plan.Chosen = append(plan.Chosen, id)
		server := in.Servers[id]
		if server == nil {
			continue
		}
		target, address := chooseAddress(in, node, server, network, private)
		if target.ServerID == 0 {
			plan.Outside = append(plan.Outside, id)
			has, is := current[id]
			if private && has.Private { // the cloud drops it when the server leaves the network of the load balancer
				targets = append(targets, has)
				continue
			}
			if is && private && plan.Public {
				public = append(public, has)
			}
			noAddress = append(noAddress, node.Name)
			continue
		}
		if _, is := current[id]; !is && nodeinfo.LacksRoute(node) {
			noRoute = append(noRoute, node.Name)
			continue
		}
		if slices.Contains(foreign, id) {
			continue // a target already, and not ours
		}
		targets = append(targets, target)
		if address.IsValid() {
			if plan.IPv6 == nil {
				plan.IPv6 = map[int64]netip.Addr{}
			}
			plan.IPv6[id] = address
		}
	}
	if len(targets) == 0 && len(public) > 0 { // as with a wrong network
		targets, noAddress = public, nil
		notes = append(notes, Note{Reason: event.SkippedNodes, Text: fmt.Sprintf("%d targets keep their public addresses, because none of "+
			"the nodes' servers is attached to the network of HCLOUD_NETWORK: attach the servers, or correct HCLOUD_NETWORK", len(public)),
			Unmet: true})
	}
	if in.unsure() {
		for id, t := range current {
			if !slices.ContainsFunc(targets, func(t Target) bool { return t.ServerID == id }) {
				targets = append(targets, t)
			}
		}
	}
	slices.SortFunc(targets, compareTargets)
	slices.Sort(plan.Chosen)
	plan.Chosen = slices.Compact(plan.Chosen) // two Nodes may name one server
	plan.Targets, plan.unrouted = slices.Compact(targets), len(noRoute) > 0
	return append(notes, skippedNotes(noAddress, noRoute, private)...)
}

// currentTargets returns the Service's targets of type server by server ID.
func currentTargets(lb *hcloud.LoadBalancer) map[int64]Target {
	current := map[int64]Target{}
	if lb != nil {
		for _, t := range ServerTargets(lb) {
			current[t.ServerID] = t
		}
	}
	return current
}

// allForeign reports whether all nodes belong to another provider.
func (in Input) allForeign() bool {
	return len(in.Nodes) > 0 && !slices.ContainsFunc(in.Nodes, func(n *corev1.Node) bool { return !nodeinfo.IsForeign(n) })
}

// foreignNotes warns about nodes of another provider, such as dedicated servers.
func foreignNotes(in Input) []Note {
	var names []string
	id := ""
	for _, n := range selectedNodes(in, currentTargets(in.Current)) {
		if nodeinfo.IsForeign(n) {
			names, id = append(names, n.Name), n.Spec.ProviderID
		}
	}
	switch {
	case len(names) == 0:
		return nil
	case in.allForeign():
		return []Note{{Reason: event.SkippedNodes, Text: fmt.Sprintf(
			"All %d nodes have provider IDs of another provider, such as %q: targets are neither added nor removed until a "+
				"node begins with %s or %s", len(names), id, nodeinfo.ConventionOwn.Prefix(), nodeinfo.ConventionHcloud.Prefix())}}
	}
	return []Note{{Reason: event.SkippedNodes, Text: fmt.Sprintf("%d nodes are not targets because they belong to another provider (%q); "+
		"add their addresses to the load balancer as targets of type ip: %s", len(names), id, Abbreviate(names))}}
}

// unsure reports whether the replacement of a target is unknown. All targets stay then.
func (in Input) unsure() bool { return in.Unread || in.allForeign() }

// skippedNotes warns about nodes that are not targets.
func skippedNotes(noAddress, noRoute []string, private bool) (notes []Note) {
	if len(noAddress) > 0 {
		why := "their servers have no public address of the Service's IP family (set use-private-ip to use private addresses)"
		if private {
			why = "their servers are not attached to the network of HCLOUD_NETWORK"
		}
		notes = append(notes, Note{Reason: event.SkippedNodes, Text: fmt.Sprintf(
			"%d nodes are not targets because %s: %s", len(noAddress), why,
			Abbreviate(noAddress))})
	}
	if len(noRoute) > 0 {
		notes = append(notes, Note{Reason: event.SkippedNodes, Text: fmt.Sprintf(
			"%d nodes are not targets yet because they have no route: %s",
			len(noRoute), Abbreviate(noRoute))})
	}
	return notes
}

// selectorNotes warns about a selector that no node has.
func selectorNotes(plan *LoadBalancer, in Input) []Note {
	selector := in.Settings.NodeSelector
	if len(plan.Chosen) > 0 || selector == nil || len(in.Nodes) == 0 {
		return nil
	}
	return []Note{{Reason: event.SkippedNodes, Text: fmt.Sprintf("No node can be a target: correct %snode-selector, or label nodes: %s",
		AnnotationPrefix, selector), Unmet: true}}
}

func compareTargets(a, b Target) int { return cmp.Compare(a.ServerID, b.ServerID) }

// selectedNodes returns the nodes that match the node selector. If it is invalid, they are the nodes that
// are targets already, or else all nodes, because an endless wait for targets helps no client.
func selectedNodes(in Input, current map[int64]Target) []*corev1.Node {
	selector := in.Settings.NodeSelector
	matches := func(n *corev1.Node) bool { return selector == nil || selector.Matches(labels.Set(n.Labels)) }
	if in.Wrong["node-selector"] {
		matches = func(n *corev1.Node) bool {
			id, err := nodeinfo.ParseProviderID(n.Spec.ProviderID)
			_, is := current[id]
			return err == nil && is
		}
		if !slices.ContainsFunc(in.Nodes, matches) {
			return in.Nodes
		}
	}
	return without(in.Nodes, func(n *corev1.Node) bool { return !matches(n) })
}

// Abbreviate joins at most five of the names.
func Abbreviate(names []string) string {
	const most = 5
	slices.Sort(names)
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
