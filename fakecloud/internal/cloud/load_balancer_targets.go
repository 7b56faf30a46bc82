package cloud

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// TargetInput is a target to add or to remove.
type TargetInput struct {
	Type         string // server, label_selector, ip
	Server       int64
	ServerIP     netip.Addr // optional: the server's public IPv4, or an address in its IPv6 network
	Selector     string
	IP           netip.Addr
	UsePrivateIP bool
}

// Targets change with their servers, by these rules:
//
//   - A server target is removed when its server is deleted or when it has no address. A private target
//     has no address after its server or the load balancer leaves the network. The document does not
//     cover this case, but requires an address for each target. (A public IPv4 address that is a target
//     cannot be unassigned: server_is_load_balancer_target.)
//   - A label selector always stays. It selects the matching servers that have an address of the wanted
//     kind. Each has a separate health.
//   - A label selector counts as one target towards the limit of the type.
//
// Left out: the ownership of dedicated servers' addresses. An ip target may be any unicast address that does not belong to a
// resource of the cloud. If Options.DedicatedServers is set, only those addresses are allowed.

func errNotAttached() error {
	return ErrOperation("load_balancer_not_attached_to_network", "load balancer is not attached to a network")
}

func errPublicDisabled() error {
	return ErrOperation("load_balancer_public_interface_disabled",
		"load balancer public interface is disabled, cannot add target using public IP")
}

// addTarget adds a target. The caller must call resolveTargets. Errors: those of the API document for
// add_target, invalid_input, unsupported_error, resource_limit_exceeded.
func (lb *LoadBalancer) addTarget(st *State, c *Cloud, in TargetInput, prefix string) error {
	t := LoadBalancerTarget{Type: in.Type, UsePrivateIP: in.UsePrivateIP}
	var err error
	switch in.Type {
	case "server":
		err = lb.serverTarget(st, in, &t, prefix)
	case "label_selector":
		err = lb.selectorTarget(in, &t, prefix)
	default:
		err = lb.ipTarget(st, c, in, &t, prefix)
	}
	if err != nil {
		return err
	}
	if slices.ContainsFunc(lb.Targets, t.sameAs) {
		return ErrOperation("target_already_defined", "the load balancer target is already defined")
	}
	if len(lb.Targets) >= lb.Type.MaxTargets {
		return ErrLimitExceeded("load_balancer_target_limit",
			fmt.Sprintf("load balancer type %s allows %d targets", lb.Type.Name, lb.Type.MaxTargets))
	}
	lb.Targets = append(lb.Targets, t)
	return nil
}

// sameAs reports whether two targets exclude each other. A server can be only one target, except that
// several of its public addresses can be targets.
func (t LoadBalancerTarget) sameAs(o LoadBalancerTarget) bool {
	if t.Type != o.Type {
		return false
	}
	switch t.Type {
	case "server":
		return t.Server == o.Server && (t.UsePrivateIP || o.UsePrivateIP || t.IP == o.IP)
	case "label_selector":
		return t.Selector == o.Selector
	}
	return t.IP == o.IP
}

func (lb *LoadBalancer) serverTarget(st *State, in TargetInput, t *LoadBalancerTarget, prefix string) error {
	if in.Server == 0 {
		return ErrField(prefix+"server", "is required for a target of type server")
	}
	s, ok := st.Servers.Get(in.Server)
	if !ok {
		// hcloud-cloud-controller-manager issue 1074 has the message.
		e := ErrField(prefix+"server.id", fmt.Sprintf("server with ID '%d' not found", in.Server))
		e.Message = "cloud target was not found"
		return e
	}
	if s.Location.NetworkZone != lb.Location.NetworkZone { // syself/hetzner-cloud-controller-manager issue 64
		return ErrUnsupported("servers and load balancers needs to be in the same network zone, cross network zone is not supported")
	}
	if in.UsePrivateIP && in.ServerIP.IsValid() {
		return ErrField(prefix+"server.ip", "is only valid for public targets")
	}
	t.Server, t.IP = in.Server, in.ServerIP
	ip, ok := st.serverAddress(lb, *t)
	switch {
	case in.UsePrivateIP && lb.network() == 0:
		return errNotAttached()
	case !in.UsePrivateIP && !lb.PublicEnabled:
		return errPublicDisabled()
	case in.UsePrivateIP && !ok:
		return ErrOperation("resolve_cloud_private_targets_error", "failed to resolve cloud private targets")
	case in.ServerIP.IsValid() && (!ok || ip != in.ServerIP):
		return ErrOperation("ip_not_assigned_to_server",
			fmt.Sprintf("%s is neither the Primary IPv4 nor in the IPv6 network of server %d", in.ServerIP, in.Server))
	case !ok:
		return ErrOperation("resolve_cloud_public_targets_error", "server has no public IPv4 address")
	}
	t.IP = ip
	return nil
}

func (lb *LoadBalancer) selectorTarget(in TargetInput, t *LoadBalancerTarget, prefix string) error {
	field := prefix + "label_selector.selector"
	selector, err := store.ParseSelector(in.Selector)
	switch {
	case err != nil:
		return ErrField(field, err.Error())
	case selector.Empty():
		return ErrField(field, "must not be empty")
	case in.UsePrivateIP && lb.network() == 0:
		return errNotAttached()
	case !in.UsePrivateIP && !lb.PublicEnabled:
		return errPublicDisabled()
	}
	t.Selector, t.selector = in.Selector, &selector
	return nil
}

func (lb *LoadBalancer) ipTarget(st *State, c *Cloud, in TargetInput, t *LoadBalancerTarget, prefix string) error {
	switch {
	case !in.IP.IsValid():
		return ErrField(prefix+"ip.ip", "is required for a target of type ip")
	case in.UsePrivateIP:
		return ErrField(prefix+"use_private_ip", "is only valid for targets of type server and label_selector")
	}
	t.IP = in.IP
	if in.IP.IsPrivate() && in.IP.Is4() {
		return lb.checkVSwitchIP(st, in.IP)
	}
	switch {
	case !lb.PublicEnabled:
		return errPublicDisabled()
	case in.IP.IsUnspecified() || in.IP.IsMulticast() || in.IP.IsLinkLocalUnicast() || c.belongsToCloud(in.IP) || !c.dedicatedServer(in.IP):
		return ErrOperation("ip_not_owned", fmt.Sprintf("%s is not owned by the owner of the project", in.IP))
	}
	return nil
}

// checkVSwitchIP checks the private address of a dedicated server. It must be in a vSwitch subnet of the load
// balancer's network.
func (lb *LoadBalancer) checkVSwitchIP(st *State, ip netip.Addr) error {
	n, ok := st.Networks.Get(lb.network())
	if !ok {
		return errNotAttached()
	}
	found := false
	for _, s := range n.Subnets {
		if s.Type == "vswitch" {
			found = true
			if s.IPRange.Contains(ip) {
				return nil
			}
		}
	}
	if !found {
		return ErrOperation("network_has_no_vswitch_subnet", "the attached network has no vSwitch subnet")
	}
	return ErrOperation("ip_not_in_vswitch_subnet", fmt.Sprintf("%s is not in the vSwitch subnet of the attached network", ip))
}

// belongsToCloud reports whether a public address is in use by a resource of the cloud.
func (c *Cloud) belongsToCloud(ip netip.Addr) bool {
	network := netip.PrefixFrom(ip, 64).Masked().Addr()
	for _, p := range []*addressPool{c.ips, c.lbIPs} {
		_, used4 := p.v4.inUse(ip)
		_, used6 := p.v6.inUse(network)
		if used4 || used6 {
			return true
		}
	}
	return false
}

func (c *Cloud) dedicatedServer(ip netip.Addr) bool {
	return c.dedicated == nil ||
		slices.ContainsFunc(c.dedicated, func(n netip.Prefix) bool { return n.Contains(ip) })
}

// removeTarget removes a target. A public server target without an address in the input is the one with
// the server's IPv4 address. Errors: not_found, invalid_input.
func (lb *LoadBalancer) removeTarget(in TargetInput) error {
	i := slices.IndexFunc(lb.Targets, func(t LoadBalancerTarget) bool {
		if t.Type != in.Type {
			return false
		}
		switch t.Type {
		case "server":
			return t.Server == in.Server && (in.ServerIP == t.IP || !in.ServerIP.IsValid() && (t.UsePrivateIP || t.IP.Is4()))
		case "label_selector":
			return t.Selector == in.Selector
		}
		return t.IP == in.IP
	})
	switch {
	case i >= 0:
		lb.Targets = slices.Delete(lb.Targets, i, i+1)
		return nil
	case in.Type == "server": // hcloud-cloud-controller-manager issue 505, syself/cluster-api-provider-hetzner pull request 1631
		return errInput(fmt.Sprintf("server with ID %d not found", in.Server))
	}
	return ErrNotFound("load_balancer_target", cmp.Or(in.Selector, in.IP.String()))
}

// serverAddress returns the destination of a server target's traffic: the server's address in the load
// balancer's network, or its public address of the target's family.
func (st *State) serverAddress(lb *LoadBalancer, t LoadBalancerTarget) (netip.Addr, bool) {
	s, ok := st.Servers.Get(t.Server)
	if !ok {
		return netip.Addr{}, false
	}
	if t.UsePrivateIP {
		n, ok := s.PrivateNet(lb.network())
		return n.IP, ok
	}
	if t.IP.Is6() {
		ip, ok := st.PrimaryIPs.Get(s.PublicIPv6)
		return t.IP, ok && ip.IP.Contains(t.IP)
	}
	ip, ok := st.PrimaryIPs.Get(s.PublicIPv4)
	if !ok {
		return netip.Addr{}, false
	}
	return ip.IP.Addr(), true
}

// resolveTargets updates the targets of a load balancer, from the one with number first. refreshTargets has updated those that
// it had before.
func (tx *Tx) resolveTargets(lb *LoadBalancer, first int) {
	kept := slices.DeleteFunc(lb.Targets[first:], func(t LoadBalancerTarget) bool {
		switch t.Type {
		case "server":
			_, ok := tx.serverAddress(lb, t)
			return !ok
		case "ip":
			return t.IP.Is4() && t.IP.IsPrivate() && lb.checkVSwitchIP(tx.State, t.IP) != nil
		}
		return false
	})
	lb.Targets = lb.Targets[:first+len(kept)]
	for i := range kept {
		t := &kept[i]
		switch t.Type {
		case "server":
			ip, _ := tx.serverAddress(lb, *t)
			t.sendTo(ip)
		case "label_selector":
			var all Selected
			for _, id := range tx.serversWith(t.selector) {
				s, _ := tx.Servers.Get(id)
				if nested, ok := tx.selected(lb, t, s); ok {
					all = all.with(nested)
				}
			}
			t.Targets = all
		}
	}
}

// selected returns a server as a target of a label selector; false if the selector does not select it. A
// server that was selected before keeps its health.
func (tx *Tx) selected(lb *LoadBalancer, t *LoadBalancerTarget, s *Server) (*LoadBalancerTarget, bool) {
	if !t.selector.Matches(s.Labels) {
		return nil, false
	}
	known, found := t.Targets.get(s.ID)
	nested := LoadBalancerTarget{Type: "server", Server: s.ID, UsePrivateIP: t.UsePrivateIP}
	ip, ok := tx.serverAddress(lb, nested)
	if !ok {
		return nil, false
	}
	if found && known.IP == ip {
		return known, true
	}
	nested.IP = ip
	return &nested, true
}

// sendTo changes a target's address. The new address has no known health.
func (t *LoadBalancerTarget) sendTo(ip netip.Addr) {
	if t.IP != ip {
		t.IP, t.Health = ip, nil
	}
}

// refreshTargets updates the targets of load balancers after a server was created, or after its labels, addresses or
// networks changed. It also updates Server.LoadBalancers. It finds the load balancers by the index of label selectors.
func (tx *Tx) refreshTargets(server int64) {
	if s, ok := tx.Servers.Get(server); ok {
		tx.refreshTargetsIn(tx.loadBalancersFor(s), server)
	}
}

// refreshTargetsIn is refreshTargets for some load balancers. The server may be deleted.
func (tx *Tx) refreshTargetsIn(affected []int64, server int64) {
	s, exists := tx.Servers.Get(server)
	var due dueTimes
	var shared sharedTargets
	finder := targetFinder{server: server}
	now := make([]int64, 0, len(affected))
	for _, id := range affected {
		entry, ok := tx.LoadBalancers.Entry(id)
		if !ok {
			continue
		}
		lb := entry.Value
		if changed, ok := tx.resolveServer(lb, server, s, &shared); ok {
			changed.Revision++
			tx.LoadBalancers.Replace(entry, changed)
			tx.noteTargets(lb.ID, server)
			lb = changed
		}
		for t := range lb.targetsOf(&finder) {
			if len(now) == 0 || now[len(now)-1] != id {
				now = append(now, id)
			}
			tx.addDue(&due, lb, t, s)
		}
	}
	if exists && !slices.Equal(s.LoadBalancers, now) {
		tx.Servers.Update(server, func(s *Server) { s.LoadBalancers = now })
	}
	tx.scheduleHealth(due, server)
}

// TargetsOf yields the targets with the address of a server, or those of type ip for 0. They are for reading only. Its cost does not depend
// on the number of servers that label selectors select.
func (lb *LoadBalancer) TargetsOf(server int64) iter.Seq[*LoadBalancerTarget] {
	return lb.targetsOf(&targetFinder{server: server})
}

// targetsOf is TargetsOf for the finder's server.
func (lb *LoadBalancer) targetsOf(f *targetFinder) iter.Seq[*LoadBalancerTarget] {
	return func(yield func(*LoadBalancerTarget) bool) {
		for i := range lb.Targets {
			t := &lb.Targets[i]
			if t.Type == "label_selector" {
				t = f.find(t.Targets)
			}
			if t != nil && t.Server == f.server && !yield(t) {
				return
			}
		}
	}
}

// resolveServer is resolveTargets for one server; s is nil if it was deleted. It returns a changed copy of the
// load balancer, or false if nothing changes.
func (tx *Tx) resolveServer(old *LoadBalancer, server int64, s *Server, shared *sharedTargets) (*LoadBalancer, bool) {
	var lb *LoadBalancer
	change := func() {
		if lb == nil {
			lb = old.withTargets(slices.Clone(old.Targets))
		}
	}
	for i := range old.Targets {
		t := &old.Targets[i]
		switch {
		case t.Server == server:
			ip, ok := tx.serverAddress(old, *t)
			if !ok {
				ip = netip.Addr{} // the target is removed below
			}
			if ip != t.IP {
				change()
				lb.Targets[i].sendTo(ip)
				matchHealth(&lb.Targets[i], lb.Services, tx.now)
			}
		case t.Type == "label_selector":
			if after, ok := shared.find(old, t); ok {
				change()
				lb.Targets[i].Targets = after
				continue
			}
			known, found := t.Targets.get(server)
			var nested *LoadBalancerTarget
			if s != nil {
				nested, _ = tx.selected(old, t, s)
			}
			switch {
			case nested == known:
			case nested != nil:
				change()
				matchHealth(nested, lb.Services, tx.now)
				lb.Targets[i].Targets = shared.add(old, t, nested)
			case found:
				change()
				lb.Targets[i].Targets = t.Targets.without(server)
			}
		}
	}
	if lb == nil {
		return nil, false
	}
	lb.Targets = slices.DeleteFunc(lb.Targets, func(t LoadBalancerTarget) bool { return t.Server == server && !t.IP.IsValid() })
	return lb, true
}

// withTargets returns a copy with other targets. It shares the rest with the original.
func (lb *LoadBalancer) withTargets(targets []LoadBalancerTarget) *LoadBalancer {
	c := *lb
	c.Targets = targets
	return &c
}
