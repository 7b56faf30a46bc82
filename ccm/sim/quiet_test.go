//go:build sim

package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// This file says what the state must be when nothing has happened for some minutes. It is written from the
// documentation of the settings, not from the CCM's plan.

func isPrivate(s *corev1.Service) bool {
	value, set := s.Annotations[prefix+"disable-public-network"]
	return set && value != "false"
}

// isMistyped reports whether a setting of the Service is wrong. Then only what is right must converge.
func isMistyped(s *corev1.Service) bool {
	return s.Annotations[prefix+"disable-public-network"] == "ture" || s.Annotations[prefix+"algorithm-type"] == "fastest" ||
		s.Annotations[prefix+"private-ipv4"] == "10.9.9.9"
}

func usesPrivateIP(s *corev1.Service, lb *hcloud.LoadBalancer) bool {
	if s.Annotations[prefix+"disable-public-network"] == "ture" {
		return !lb.PublicNet.Enabled
	}
	return isPrivate(s) || s.Annotations[prefix+"use-private-ip"] == "true"
}

// wantedTargets returns the servers that the Service's load balancer should have if there is room.
func (g *guard) wantedTargets(s *corev1.Service, lb *hcloud.LoadBalancer, nodes []*corev1.Node) (ids []int64) {
	for _, n := range nodes {
		server := g.servers[serverIDOf(n)]
		_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
		if server == nil || excluded || n.DeletionTimestamp != nil {
			continue
		}
		if lacksRoute(n) && !slices.Contains(serverTargets(lb), server.ID) {
			continue // it becomes a target once its route exists; as a target it stays
		}
		if usesPrivateIP(s, lb) && privateIP(server, g.networkLocked()) == "" {
			continue
		}
		ids = append(ids, server.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func lacksRoute(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeNetworkUnavailable && c.Status == corev1.ConditionTrue
	})
}

// quiet returns what is not as it should be, or nil.
func (g *guard) quiet() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.world.kube.services() {
		if err := g.quietService(s); err != nil {
			return fmt.Errorf("Service %s: %w", s.Name, err)
		}
	}
	for _, lb := range g.sortedLBs() {
		uid := lb.Labels[uidLabel]
		if uid != "" && g.person[lb.ID].IsZero() && g.serviceByUID(uid) == nil && !lb.Protection.Delete {
			return fmt.Errorf("load balancer %d (%s) is an orphan of %s", lb.ID, lb.Name, uid)
		}
	}
	if err := g.quietNodes(); err != nil {
		return err
	}
	if err := g.quietRoutes(); err != nil {
		return err
	}
	g.noteAll(true)
	return nil
}

func (g *guard) quietService(s *corev1.Service) error {
	own := g.ownedLocked(s)
	if s.DeletionTimestamp != nil || s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		if len(own) == 1 && !own[0].Protection.Delete || len(own) == 0 && s.DeletionTimestamp != nil {
			return fmt.Errorf("it wants no load balancer: %d are left, deletion at %v", len(own), s.DeletionTimestamp)
		}
		return nil
	}
	switch {
	case len(own) == 0:
		if g.mayHaveNone(s) {
			return nil
		}
		return fmt.Errorf("it has no load balancer")
	case len(own) > 1:
		for _, lb := range own {
			if !g.person[lb.ID].IsZero() {
				return nil // a person has copied the label, and decides
			}
		}
		return fmt.Errorf("it has %d load balancers", len(own))
	}
	lb := own[0]
	if !g.person[lb.ID].IsZero() && !g.adopted[lb.ID] {
		return nil // a person has copied the label, and deleted the other one
	}
	checks := []func(*corev1.Service, *hcloud.LoadBalancer) error{g.quietTargets, quietPorts, g.quietSettings, g.quietNetwork, quietStatus}
	if isPrivate(s) && lb.PublicNet.Enabled && len(lb.Targets) > len(serverTargets(lb)) {
		checks = checks[:1] // a person's targets of type ip keep the public interface, and new ports wait
	}
	for _, check := range checks {
		if err := check(s, lb); err != nil {
			return fmt.Errorf("load balancer %d: %w", lb.ID, err)
		}
	}
	return nil
}

// mayHaveNone reports whether something that a person has to change stands in the way of a load balancer.
func (g *guard) mayHaveNone(s *corev1.Service) bool {
	name := s.Annotations[prefix+"name"]
	if name == "" {
		name = cloudprovider.DefaultLoadBalancerName(s)
	}
	taken := slices.ContainsFunc(g.sortedLBs(), func(lb *hcloud.LoadBalancer) bool {
		_, released := g.released[lb.ID]
		return lb.Name == name && (released || lb.Labels[uidLabel] != "" || name != s.Annotations[prefix+"name"])
	})
	return taken || isMistyped(s) || g.addressTaken(s)
}

func (g *guard) nameTaken(name string) bool {
	return slices.ContainsFunc(g.sortedLBs(), func(lb *hcloud.LoadBalancer) bool { return lb.Name == name })
}

// addressTaken reports whether another load balancer has the private address that the Service asks for.
func (g *guard) addressTaken(s *corev1.Service) bool {
	want := s.Annotations[prefix+"private-ipv4"]
	return want != "" && slices.ContainsFunc(g.sortedLBs(), func(lb *hcloud.LoadBalancer) bool {
		return len(lb.PrivateNet) > 0 && lb.PrivateNet[0].IP.String() == want && lb.Labels[uidLabel] != string(s.UID)
	})
}

func (g *guard) quietTargets(s *corev1.Service, lb *hcloud.LoadBalancer) error {
	want, has := g.wantedTargets(s, lb, g.world.kube.nodes()), serverTargets(lb)
	for _, id := range has {
		if !slices.Contains(want, id) {
			return fmt.Errorf("targets %v, want %v", has, want)
		}
	}
	if len(has) != min(len(want), room(lb)) {
		return fmt.Errorf("targets %v, want %v, room %d", has, want, room(lb))
	}
	for _, t := range lb.Targets {
		if t.Server != nil && t.UsePrivateIP != usesPrivateIP(s, lb) && !isMistyped(s) {
			return fmt.Errorf("target %d: private %t", t.Server.Server.ID, t.UsePrivateIP)
		}
	}
	return nil
}

// quietPorts compares the ports. A port that a mistyped setting keeps waiting may be missing.
func quietPorts(s *corev1.Service, lb *hcloud.LoadBalancer) error {
	has, want := map[int]hcloud.LoadBalancerService{}, map[int]bool{}
	for _, l := range lb.Services {
		has[l.ListenPort] = l
	}
	for _, p := range s.Spec.Ports {
		if p.Protocol != corev1.ProtocolTCP {
			continue
		}
		want[int(p.Port)] = true
		l, there := has[int(p.Port)]
		switch {
		case !there && !isMistyped(s):
			return fmt.Errorf("port %d is missing", p.Port)
		case there && l.DestinationPort != int(p.NodePort):
			return fmt.Errorf("port %d goes to %d, want %d", p.Port, l.DestinationPort, p.NodePort)
		case there && l.Proxyprotocol != (s.Annotations[prefix+"uses-proxyprotocol"] == "true"):
			return fmt.Errorf("port %d: PROXY protocol %t", p.Port, l.Proxyprotocol)
		}
	}
	for port := range has {
		if !want[port] && port < foreignPort {
			return fmt.Errorf("port %d is not wanted", port)
		}
	}
	return nil
}

func (g *guard) quietSettings(s *corev1.Service, lb *hcloud.LoadBalancer) error {
	setting := func(name string) string { return s.Annotations[prefix+name] }
	switch {
	case setting("name") != "" && setting("name") != lb.Name && !g.nameTaken(setting("name")):
		return fmt.Errorf("name %s, want %s", lb.Name, setting("name"))
	case setting("type") != "" && setting("type") != lb.LoadBalancerType.Name:
		return fmt.Errorf("type %s, want %s", lb.LoadBalancerType.Name, setting("type"))
	case setting("algorithm-type") != "" && !isMistyped(s) && setting("algorithm-type") != string(lb.Algorithm.Type):
		return fmt.Errorf("algorithm %s, want %s", lb.Algorithm.Type, setting("algorithm-type"))
	}
	return nil
}

func (g *guard) quietNetwork(s *corev1.Service, lb *hcloud.LoadBalancer) error {
	if setting := s.Annotations[prefix+"disable-public-network"]; setting != "ture" && lb.PublicNet.Enabled == isPrivate(s) {
		return fmt.Errorf("public interface %t", lb.PublicNet.Enabled)
	}
	network := g.networkLocked()
	if network == nil {
		return nil
	}
	if len(lb.PrivateNet) != 1 || lb.PrivateNet[0].Network.ID != network.ID {
		return fmt.Errorf("networks %+v, want %d", lb.PrivateNet, network.ID)
	}
	if want := s.Annotations[prefix+"private-ipv4"]; want != "" && !isMistyped(s) && !g.addressTaken(s) && lb.PrivateNet[0].IP.String() != want {
		return fmt.Errorf("private address %s, want %s", lb.PrivateNet[0].IP, want)
	}
	return nil
}

func quietStatus(s *corev1.Service, lb *hcloud.LoadBalancer) error {
	var want, has []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		has = append(has, i.IP+i.Hostname)
	}
	if hostname := s.Annotations[prefix+"hostname"]; hostname != "" {
		want = []string{hostname}
	} else {
		if lb.PublicNet.Enabled {
			want = append(want, lb.PublicNet.IPv4.IP.String(), lb.PublicNet.IPv6.IP.String())
		}
		if s.Annotations[prefix+"disable-private-ingress"] != "true" {
			want = append(want, lb.PrivateNet[0].IP.String())
		}
	}
	if !slices.Equal(has, want) {
		return fmt.Errorf("status %v, want %v", has, want)
	}
	return nil
}

func (g *guard) quietNodes() error {
	for _, n := range g.world.kube.nodes() {
		server := g.servers[serverIDOf(n)]
		ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		tainted := func(key string) bool {
			return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
		}
		switch {
		case n.Spec.ProviderID == "" && !slices.ContainsFunc(g.sortedServers(), func(s *hcloud.Server) bool { return s.Name == n.Name }):
		case server == nil:
			return fmt.Errorf("Node %s: it has no server (provider ID %q)", n.Name, n.Spec.ProviderID)
		case tainted(cloudproviderapi.TaintExternalCloudProvider):
			return fmt.Errorf("Node %s is not initialized", n.Name)
		case !ready && server.Status == hcloud.ServerStatusOff && !tainted(cloudproviderapi.TaintNodeShutdown):
			return fmt.Errorf("Node %s is off and has no taint", n.Name)
		}
	}
	return nil
}

func (g *guard) sortedServers() (all []*hcloud.Server) {
	for _, s := range g.servers {
		all = append(all, s)
	}
	return all
}

func (g *guard) quietRoutes() error {
	network := g.networkLocked()
	if network == nil {
		return nil
	}
	possible := map[string]bool{}
	for _, n := range g.world.kube.nodes() {
		for _, r := range n.Spec.PodCIDRs {
			possible[r] = true
			server := g.servers[serverIDOf(n)]
			if server == nil {
				continue
			}
			ip := privateIP(server, network)
			if ip == "" {
				continue
			}
			if !slices.ContainsFunc(network.Routes, func(have hcloud.NetworkRoute) bool {
				return have.Destination.String() == r && have.Gateway.String() == ip
			}) {
				return fmt.Errorf("the route of Node %s is missing: %s via %s in %s", n.Name, r, ip, routesText(network))
			}
		}
	}
	for _, r := range network.Routes {
		to, has := r.Destination.String(), func(s *hcloud.Server) bool { return privateIP(s, network) == r.Gateway.String() }
		if strings.HasPrefix(to, "10.244.") && (!possible[to] || !slices.ContainsFunc(g.sortedServers(), has)) {
			return fmt.Errorf("the route %s via %s belongs to no Node", to, r.Gateway)
		}
	}
	return nil
}

func routesText(n *hcloud.Network) string {
	var all []string
	for _, r := range n.Routes {
		all = append(all, r.Destination.String()+" via "+r.Gateway.String())
	}
	return strconv.Quote(strings.Join(all, ", "))
}
