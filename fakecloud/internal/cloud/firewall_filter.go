package cloud

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Refusal returns why a load balancer cannot connect to a port of one of its targets, as the detail of a health check, or "" if
// it can. Health without packets, and the probes and connections of the data plane, all ask it.
//
// A server that does not run, or does not have the target's address any more, answers nothing: layer4_no_connection. One with
// firewalls that drop the packets lets them time out: layer4_timeout. Firewalls filter the public interface only
// (docs.hetzner.com, "Can Firewalls secure traffic to my private Hetzner Cloud Networks?"). The packets come from the load
// balancer's public address of the target's family. ip targets are outside of the cloud: all packets reach them.
func (st *State) Refusal(lb *LoadBalancer, t *LoadBalancerTarget, port int) string {
	if t.Server == 0 {
		return ""
	}
	s, ok := st.Servers.Get(t.Server)
	if !ok || s.Status != ServerRunning {
		return "layer4_no_connection"
	}
	if ip, ok := st.serverAddress(lb, *t); !ok || ip != t.IP {
		return "layer4_no_connection"
	}
	from := lb.IPv4.Addr
	if t.IP.Is6() {
		from = lb.IPv6.Addr
	}
	if !t.UsePrivateIP && !st.accepts(s, from, port) {
		return "layer4_timeout"
	}
	return ""
}

// accepts reports whether a server's firewalls accept a TCP connection. A server without firewalls accepts all. With
// firewalls, a rule of any of them must permit it (API document, "Firewalls": the default for in is DROP). While an action
// runs, what was in force before it still is.
func (st *State) accepts(s *Server, from netip.Addr, port int) bool {
	ids := filtering(s.Firewalls)
	for _, id := range ids {
		f, ok := st.Firewalls.Get(id)
		if ok && slices.ContainsFunc(f.inForce, func(r FirewallRule) bool { return r.permitsTCP(from, port) }) {
			return true
		}
	}
	return len(ids) == 0
}

// permitsTCP reports whether the rule permits an inbound TCP connection.
func (r FirewallRule) permitsTCP(from netip.Addr, port int) bool {
	return r.Direction == "in" && r.Protocol == "tcp" && inPortRange(port, r.Port) &&
		slices.ContainsFunc(r.SourceIPs, func(n netip.Prefix) bool { return n.Contains(from) })
}

// inPortRange reports whether a range that isPortRange accepts has a port. An empty range means all ports.
func inPortRange(port int, ports string) bool {
	if ports == "" || ports == "any" {
		return true
	}
	lower, upper, isRange := strings.Cut(ports, "-")
	if !isRange {
		upper = lower
	}
	first, err := strconv.Atoi(lower)
	last, err2 := strconv.Atoi(upper)
	return err == nil && err2 == nil && first <= port && port <= last
}

// filtering returns the ids of the firewalls with rules in force.
func filtering(all []ServerFirewall) []int64 {
	var ids []int64
	for _, f := range all {
		if f.Filters {
			ids = append(ids, f.ID)
		}
	}
	return ids
}

// refilterAll calls refilter for each of the servers that the firewall's rules are in force for.
func (tx *Tx) refilterAll(servers []int64, firewall int64) {
	for _, id := range servers {
		if s, ok := tx.Servers.Get(id); ok && s.filteredBy(firewall) {
			tx.refilter(id)
		}
	}
}

// refilter schedules the health of a server's targets after other packets pass its firewalls.
func (tx *Tx) refilter(server int64) {
	tx.Servers.Update(server, func(s *Server) { s.filtered = tx.now })
	tx.followReach(server)
}
