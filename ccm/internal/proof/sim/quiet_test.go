//go:build sim

package sim

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// This file says what the state must be when nothing has happened for some minutes. It is written from the
// documentation of the settings, not from the CCM's plan.

func usesPrivateIP(s *corev1.Service, lb *hcloud.LoadBalancer) bool {
	if setting(s, "disable-public-network") == "ture" || keepsInterface(s, lb) {
		return !lb.PublicNet.Enabled || setting(s, "use-private-ip") == "true"
	}
	return isPrivate(s) || setting(s, "use-private-ip") == "true"
}

// keepsInterface reports whether the public interface stays as it is: a person has lent the load balancer, or other
// Services share it.
func keepsInterface(s *corev1.Service, lb *hcloud.LoadBalancer) bool {
	lent := plan.RecordOf(lb).Lent && setting(s, "disable-public-network") == ""
	shared := slices.ContainsFunc(slices.Collect(maps.Keys(lb.Labels)), func(key string) bool { return strings.HasPrefix(key, guestLabel) })
	return lent || shared && !lb.PublicNet.Enabled
}

// wantedTargets returns the servers that the Service's load balancer should have if there is room.
func (g *guard) wantedTargets(s *corev1.Service, lb *hcloud.LoadBalancer, nodes []*corev1.Node) (ids []int64) {
	for _, n := range nodes {
		server := g.servers[serverIDOf(n)]
		if server == nil || isExcluded(n) || n.DeletionTimestamp != nil || g.unfit[server.Name] {
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
	protected := map[int64]bool{} // certificates that a load balancer uses that nobody may delete
	for _, lb := range g.sortedLBs() {
		uid := lb.Labels[uidLabel]
		for _, service := range lb.Services {
			for _, c := range service.HTTP.Certificates {
				protected[c.ID] = protected[c.ID] || lb.Protection.Delete
			}
		}
		if uid != "" && g.person[lb.ID].IsZero() && g.serviceByUID(uid) == nil && !lb.Protection.Delete && !g.sudden[uid] {
			return fmt.Errorf("load balancer %d (%s) is an orphan of %s", lb.ID, lb.Name, uid)
		}
	}
	for id, c := range g.certs {
		if uid := c.Labels[uidLabel]; uid != "" && g.serviceByUID(uid) == nil && !protected[id] && !g.sudden[uid] {
			return fmt.Errorf("certificate %d is an orphan of %s", id, uid)
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
	if s.DeletionTimestamp != nil || !wantsOurs(s) {
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
		return fmt.Errorf("it has no load balancer, with %v", s.Annotations)
	case len(own) > 1:
		if g.waitsForPerson(s) {
			return nil
		}
		return fmt.Errorf("it has %d load balancers", len(own))
	}
	lb := own[0]
	if !g.person[lb.ID].IsZero() && !g.adopted[lb.ID] {
		return nil // a person has copied the label, and deleted the other one
	}
	checks := []func(*corev1.Service, *hcloud.LoadBalancer) error{g.quietTargets, g.quietPorts, g.quietSettings, g.quietNetwork,
		quietStatus, g.quietCondition}
	if isGuest(lb, s) {
		if lb.Labels[uidLabel] == "" {
			return nil // a person has taken the owner's label away
		}
		return g.quietPorts(s, lb)
	}
	var err error
	for _, served := range g.asServed(s, lb) {
		if err = g.quietLoadBalancer(served, lb, checks); err == nil {
			return nil
		}
	}
	return err
}

func (g *guard) quietLoadBalancer(s *corev1.Service, lb *hcloud.LoadBalancer,
	checks []func(*corev1.Service, *hcloud.LoadBalancer) error) error {
	if isPrivate(s) && lb.PublicNet.Enabled &&
		slices.ContainsFunc(lb.Targets, func(t hcloud.LoadBalancerTarget) bool { return t.IP != nil }) {
		checks = checks[:2] // a person's targets of type ip keep the public interface
	}
	for _, check := range checks {
		if err := check(s, lb); err != nil {
			return fmt.Errorf("load balancer %d: %w", lb.ID, err)
		}
	}
	return nil
}

// waitsForPerson reports whether a person has copied the label of the Service's load balancer. Then the person decides, and
// nothing follows the Service meanwhile.
func (g *guard) waitsForPerson(s *corev1.Service) bool {
	own := g.ownedLocked(s)
	return len(own) > 1 && slices.ContainsFunc(own, func(lb *hcloud.LoadBalancer) bool { return !g.person[lb.ID].IsZero() })
}

// mayHaveNone reports whether something that a person has to change stands in the way of a load balancer.
func (g *guard) mayHaveNone(s *corev1.Service) bool {
	name, chosen := setting(s, "name"), true
	if adopt := setting(s, "adopt"); adopt != "" {
		name = adopt
		if !g.nameTaken(adopt) {
			return true
		}
	} else if name == "" {
		name, chosen = g.world.defaultName(s), false
	}
	taken := slices.ContainsFunc(g.sortedLBs(), func(lb *hcloud.LoadBalancer) bool {
		_, released := g.released[lb.ID]
		owner := lb.Labels[uidLabel]
		joins := isShared(s) && plan.RecordOf(lb).Shared && lb.PublicNet.Enabled != isPrivate(s) && !mayBeIts(s, lb) &&
			!g.contradicts(s, lb) && (owner == "" || g.serviceByUID(owner) != nil) // a Service that has vanished is not joined
		former := lb.Labels["ccm-from-scratch/last-owner"] != "" && mayBeIts(s, lb)
		return lb.Name == name && (released || owner != "" && !joins || !chosen || former)
	})
	return taken || isMistyped(s) || g.addressTaken(s) || g.domainsTaken(s)
}

// domainsTaken reports whether the managed certificate of the Service's domains is not its own. A project has one for the same.
func (g *guard) domainsTaken(s *corev1.Service) bool {
	domain := setting(s, "http-managed-certificate-domains.443")
	for _, c := range g.certs {
		if slices.Equal(c.DomainNames, []string{domain}) && c.Labels[uidLabel] != string(s.UID) {
			return true
		}
	}
	return false
}

// mayBeIts reports whether the Service's status shows a public address of this load balancer, or nothing that is certainly of another
// one. Then a person may have removed a label from it.
func mayBeIts(s *corev1.Service, lb *hcloud.LoadBalancer) bool {
	public := func(i corev1.LoadBalancerIngress) bool {
		return i.IP != "" && (i.IP == lb.PublicNet.IPv4.IP.String() || i.IP == lb.PublicNet.IPv6.IP.String())
	}
	other := func(i corev1.LoadBalancerIngress) bool { return i.IP != "" && !public(i) && !hasAddress(lb, i.IP) }
	shown := s.Status.LoadBalancer.Ingress
	return slices.ContainsFunc(shown, public) || len(shown) > 0 && !slices.ContainsFunc(shown, other)
}

func (g *guard) nameTaken(name string) bool {
	return slices.ContainsFunc(g.sortedLBs(), func(lb *hcloud.LoadBalancer) bool { return lb.Name == name })
}

// addressTaken reports whether another load balancer has the private address that the Service asks for.
func (g *guard) addressTaken(s *corev1.Service) bool {
	return slices.ContainsFunc(g.sortedLBs(), func(lb *hcloud.LoadBalancer) bool {
		return hasAddress(lb, setting(s, "private-ipv4")) && lb.Labels[uidLabel] != string(s.UID)
	})
}

func hasAddress(lb *hcloud.LoadBalancer, private string) bool {
	return private != "" && len(lb.PrivateNet) > 0 && lb.PrivateNet[0].IP.String() == private
}

func (g *guard) quietTargets(s *corev1.Service, lb *hcloud.LoadBalancer) error {
	nodes := g.world.kube.nodes()
	want, has := g.wantedTargets(s, lb, nodes), serverTargets(lb)
	for _, id := range has {
		// An adoption leaves the targets that were there.
		if !slices.Contains(want, id) && !g.isLastHealthy(lb, id) && !g.adopted[lb.ID] {
			return fmt.Errorf("targets %v, want %v", has, want)
		}
	}
	for _, id := range want {
		if !slices.Contains(has, id) && len(lb.Targets) < lb.LoadBalancerType.MaxTargets {
			return fmt.Errorf("targets %v, want %v, room %d", has, want, room(lb))
		}
	}
	for _, t := range lb.Targets {
		// The last healthy one stays as it is: with another address it would not serve until its first health check.
		if t.Server != nil && t.UsePrivateIP != usesPrivateIP(s, lb) && !isMistyped(s) && !g.isLastHealthy(lb, t.Server.Server.ID) {
			return fmt.Errorf("target %d: private %t", t.Server.Server.ID, t.UsePrivateIP)
		}
	}
	return nil
}

// isLastHealthy reports whether a server is the only healthy target although its Node is not wanted. It stays.
func (g *guard) isLastHealthy(lb *hcloud.LoadBalancer, id int64) bool {
	var healthy []int64
	for _, t := range lb.Targets {
		if t.Server != nil && isHealthy(t) {
			healthy = append(healthy, t.Server.Server.ID)
		}
	}
	want := g.wantedTargets(g.ownerOf(lb), lb, g.world.kube.nodes())
	return slices.Equal(healthy, []int64{id}) && !slices.Contains(want, id)
}

// quietPorts compares the ports. One that a mistyped setting keeps waiting may be missing, and so may one for which there is no
// room or that another Service has.
func (g *guard) quietPorts(s *corev1.Service, lb *hcloud.LoadBalancer) error {
	wanted := func(s *corev1.Service, port int) bool {
		return slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
			return p.Protocol == corev1.ProtocolTCP &&
				int(p.Port) == port
		})
	}
	others := slices.DeleteFunc(append(g.guestsOf(lb), g.ownerOf(lb)), func(o *corev1.Service) bool { return o == nil || o.UID == s.UID })
	byOther := func(port int) bool {
		return slices.ContainsFunc(others, func(o *corev1.Service) bool {
			return wanted(o, port) || g.waitsForPerson(o) && plan.PortsOf(lb, string(o.UID))[port]
		})
	}
	has := map[int]hcloud.LoadBalancerService{}
	for _, l := range lb.Services {
		has[l.ListenPort] = l
	}
	room := lb.LoadBalancerType.MaxServices - len(has)
	if _, there := has[int(g.unfitPort)]; wanted(s, int(g.unfitPort)) && !there {
		room-- // it is held for the port that the cloud refuses
	}
	for _, p := range s.Spec.Ports {
		if p.Protocol != corev1.ProtocolTCP || byOther(int(p.Port)) {
			continue
		}
		l, there := has[int(p.Port)]
		// A Service that wants to be private has no ports on a load balancer that others hold public.
		asked := g.serviceByUID(string(s.UID))
		if asked != nil && isPrivate(asked) && lb.PublicNet.Enabled {
			certain := setting(asked, "disable-public-network") == "true" && // and not mistyped, nor of an adoption that has just begun
				(isGuest(lb, s) || lb.Labels["ccm-from-scratch/last-owner"] == string(s.UID))
			if there && certain && l.DestinationPort == int(p.NodePort) {
				return fmt.Errorf("port %d is open, although the Service is private", p.Port)
			}
			continue
		}
		if !there && !isMistyped(s) && p.Port != g.unfitPort && room > 0 {
			return fmt.Errorf("port %d is missing", p.Port)
		}
		recorded := plan.PortsOf(lb, lb.Labels[uidLabel])[int(p.Port)] || byGuest(lb, int(p.Port))
		if there && (recorded || !isGuest(lb, s)) { // a guest must not take a port that no Service has recorded
			if err := quietPort(s, p, l); err != nil {
				return err
			}
		}
	}
	for port := range has {
		if !wanted(s, port) && !byOther(port) && port < foreignPort && !g.adopted[lb.ID] { // what was there stays
			return fmt.Errorf("port %d is not wanted", port)
		}
	}
	return nil
}

func quietPort(s *corev1.Service, p corev1.ServicePort, has hcloud.LoadBalancerService) error {
	protocol := cmp.Or(portSetting(s, "protocol", p.Port), "tcp")
	path := portSetting(s, "health-check-http-path", p.Port)
	switch {
	case has.DestinationPort != int(p.NodePort):
		return fmt.Errorf("port %d goes to %d, want %d", p.Port, has.DestinationPort, p.NodePort)
	case has.Proxyprotocol != (setting(s, "uses-proxyprotocol") == "true"):
		return fmt.Errorf("port %d: PROXY protocol %t", p.Port, has.Proxyprotocol)
	case isMistyped(s):
	case string(has.Protocol) != protocol:
		return fmt.Errorf("port %d: protocol %s, want %s", p.Port, has.Protocol, protocol)
	case protocol == "https" && len(has.HTTP.Certificates) != 1:
		return fmt.Errorf("port %d has %d certificates, want 1", p.Port, len(has.HTTP.Certificates))
	case protocol != "tcp" && path != "" && (has.HealthCheck.HTTP == nil || has.HealthCheck.HTTP.Path != path):
		return fmt.Errorf("port %d: health check %+v, want HTTP %s", p.Port, has.HealthCheck, path)
	}
	return nil
}

func (g *guard) quietSettings(s *corev1.Service, lb *hcloud.LoadBalancer) error {
	kind, algorithm, protection := setting(s, "type"), strings.ToLower(setting(s, "algorithm-type")), setting(s, "delete-protection")
	switch name := setting(s, "name"); {
	case name != "" && name != lb.Name && !g.nameTaken(name):
		return fmt.Errorf("name %s, want %s", lb.Name, name)
	case kind != "" && !isMistyped(s) && kind != lb.LoadBalancerType.Name:
		return fmt.Errorf("type %s, want %s", lb.LoadBalancerType.Name, kind)
	case algorithm != "" && !isMistyped(s) && algorithm != string(lb.Algorithm.Type):
		return fmt.Errorf("algorithm %s, want %s", lb.Algorithm.Type, algorithm)
	case protection != "" && protection != strconv.FormatBool(lb.Protection.Delete):
		return fmt.Errorf("protection %t, want %s", lb.Protection.Delete, protection)
	}
	want := map[string]string{}
	for label := range strings.SplitSeq(setting(s, "labels"), ",") {
		key, value, _ := strings.Cut(label, "=")
		want[key] = value
	}
	for _, key := range []string{"team", "env"} {
		if lb.Labels[key] != want[key] {
			return fmt.Errorf("label %s=%q, want %q", key, lb.Labels[key], want[key])
		}
	}
	return nil
}

// quietCondition makes sure that a Service whose load balancer has all that it asks for says so.
func (g *guard) quietCondition(s *corev1.Service, lb *hcloud.LoadBalancer) error {
	name := setting(s, "name")
	if isMistyped(s) || g.addressTaken(s) || name != "" && name != lb.Name || g.contradicts(g.serviceByUID(string(s.UID)), lb) {
		return nil
	}
	for _, p := range s.Spec.Ports {
		if len(g.guestsOf(lb)) > 0 && byGuest(lb, int(p.Port)) || p.Port == g.unfitPort {
			return nil // another Service has it, or the cloud refuses it
		}
	}
	refused := slices.ContainsFunc(g.world.kube.nodes(), func(n *corev1.Node) bool {
		server := g.servers[serverIDOf(n)]
		return server != nil && g.unfit[server.Name]
	})
	if refused || slices.ContainsFunc(serverTargets(lb), func(id int64) bool { return g.isLastHealthy(lb, id) }) {
		return nil // an error says that a target is refused, or that the last one cannot leave
	}
	if c := meta.FindStatusCondition(s.Status.Conditions, ccm.ConditionReady); c == nil || c.Status != metav1.ConditionTrue {
		return fmt.Errorf("condition %+v", c)
	}
	return nil
}

func (g *guard) quietNetwork(s *corev1.Service, lb *hcloud.LoadBalancer) error {
	if setting(s, "disable-public-network") != "ture" && !keepsInterface(s, lb) && lb.PublicNet.Enabled == isPrivate(s) {
		return fmt.Errorf("public interface %t", lb.PublicNet.Enabled)
	}
	network := g.networkLocked()
	if network == nil {
		return nil
	}
	if plan.RecordOf(lb).Lent && len(lb.PrivateNet) == 1 && lb.PrivateNet[0].Network.ID != network.ID {
		return nil // it stays there, also if HCLOUD_NETWORK was wrong when it was attached: an event says so
	}
	if len(lb.PrivateNet) != 1 || lb.PrivateNet[0].Network.ID != network.ID {
		return fmt.Errorf("networks %+v, want %d", lb.PrivateNet, network.ID)
	}
	// For another address it has to leave the network with all private targets, also with the last healthy one.
	stays := slices.ContainsFunc(lb.Targets, func(t hcloud.LoadBalancerTarget) bool {
		return t.UsePrivateIP && t.Server != nil && g.isLastHealthy(lb, t.Server.Server.ID)
	})
	want := setting(s, "private-ipv4")
	if want != "" && !stays && !isMistyped(s) && !g.addressTaken(s) && lb.PrivateNet[0].IP.String() != want {
		return fmt.Errorf("private address %s, want %s", lb.PrivateNet[0].IP, want)
	}
	return nil
}

func quietStatus(s *corev1.Service, lb *hcloud.LoadBalancer) error {
	var want, has []string
	for _, i := range s.Status.LoadBalancer.Ingress {
		has = append(has, i.IP+i.Hostname)
	}
	if hostname := setting(s, "hostname"); hostname != "" {
		want = []string{hostname}
	} else {
		if lb.PublicNet.Enabled {
			want = append(want, lb.PublicNet.IPv4.IP.String(), lb.PublicNet.IPv6.IP.String())
		}
		if setting(s, "disable-private-ingress") != "true" {
			want = append(want, lb.PrivateNet[0].IP.String())
		}
	}
	if !slices.Equal(has, want) {
		return fmt.Errorf("status %v, want %v", has, want)
	}
	return nil
}

func (g *guard) quietNodes() error {
	servers := slices.Collect(maps.Values(g.servers))
	for _, n := range g.world.kube.nodes() {
		server := g.servers[serverIDOf(n)]
		ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		tainted := func(key string) bool {
			return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
		}
		switch {
		case n.Spec.ProviderID == "" && !slices.ContainsFunc(servers, func(s *hcloud.Server) bool { return s.Name == n.Name }):
		case server == nil:
			return fmt.Errorf("Node %s: it has no server (provider ID %q)", n.Name, n.Spec.ProviderID)
		case tainted(cloudproviderapi.TaintExternalCloudProvider):
			return fmt.Errorf("Node %s is not initialized", n.Name)
		case n.Labels["instance.hetzner.cloud/provided-by"] != "cloud":
			return fmt.Errorf("Node %s has no label of its provider", n.Name)
		case !showsInternal(n, privateIP(server, g.networkLocked())):
			return fmt.Errorf("Node %s has the addresses %v, and its server has %s", n.Name, n.Status.Addresses,
				privateIP(server, g.networkLocked()))
		case !ready && server.Status == hcloud.ServerStatusOff && !tainted(cloudproviderapi.TaintNodeShutdown):
			return fmt.Errorf("Node %s is off and has no taint", n.Name)
		}
	}
	return nil
}

func showsInternal(n *corev1.Node, ip string) bool {
	return ip == "" || slices.Contains(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
}

func (g *guard) quietRoutes() error {
	network := g.networkLocked()
	if network == nil {
		return nil
	}
	possible, attached := map[string]bool{}, map[string]bool{} // ranges of Nodes, and of those whose server is in the network
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
			attached[r] = true
			if !slices.ContainsFunc(network.Routes, func(have hcloud.NetworkRoute) bool {
				return have.Destination.String() == r && have.Gateway.String() == ip
			}) {
				return fmt.Errorf("the route of Node %s is missing: %s via %s in %s", n.Name, r, ip, routesText(network))
			}
		}
	}
	servers := slices.Collect(maps.Values(g.servers))
	for _, r := range network.Routes {
		to, has := r.Destination.String(), func(s *hcloud.Server) bool { return privateIP(s, network) == r.Gateway.String() }
		ours := g.world.podRange.Contains(netip.AddrFrom4([4]byte(r.Destination.IP.To4())))
		if ours && (!possible[to] || attached[to] && !slices.ContainsFunc(servers, has)) {
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
