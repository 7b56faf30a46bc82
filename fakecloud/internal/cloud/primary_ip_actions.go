package cloud

import "fmt"

// assignPrimaryIP assigns an unassigned address to a server or load balancer. It updates a server, too; the
// caller updates a load balancer.
func (tx *Tx) assignPrimaryIP(ip *PrimaryIP, to Ref) {
	tx.PrimaryIPs.Update(ip.ID, func(p *PrimaryIP) { p.Assignee = to })
	if to.Kind == KindServer {
		tx.Servers.Update(to.ID, func(s *Server) { s.setPrimaryIP(ip.Type, ip.ID) })
		tx.followServer(to.ID)
	}
}

// unassignPrimaryIP takes an address away from its assignee.
func (tx *Tx) unassignPrimaryIP(id int64) {
	ip, ok := tx.PrimaryIPs.Get(id)
	if !ok || !ip.Assigned() {
		return
	}
	tx.PrimaryIPs.Update(id, func(p *PrimaryIP) { p.Assignee = Ref{} })
	if ip.Assignee.Kind == KindServer {
		tx.Servers.Update(ip.Assignee.ID, func(s *Server) { s.setPrimaryIP(ip.Type, 0) })
		tx.followServer(ip.Assignee.ID)
	}
}

func (s *Server) setPrimaryIP(t IPType, ip int64) {
	if t == IPv4 {
		s.PublicIPv4 = ip
	} else {
		s.PublicIPv6 = ip
	}
}

// releasePrimaryIPs unassigns the Primary IPs of a resource that is about to be deleted. It deletes
// those with auto_delete.
func (tx *Tx) releasePrimaryIPs(from Ref) {
	for _, id := range tx.primaryIPsOf(from) {
		tx.unassignPrimaryIP(id)
		if ip, ok := tx.PrimaryIPs.Get(id); ok && ip.AutoDelete {
			tx.deletePrimaryIP(id)
		}
	}
}

// primaryIPsOf returns the ids of the Primary IPs that a resource has.
func (tx *Tx) primaryIPsOf(r Ref) []int64 {
	var candidates []int64
	switch r.Kind {
	case KindServer:
		if s, ok := tx.Servers.Get(r.ID); ok {
			candidates = []int64{s.PublicIPv4, s.PublicIPv6}
		}
	case KindLoadBalancer:
		if lb, ok := tx.LoadBalancers.Get(r.ID); ok {
			candidates = []int64{lb.IPv4.PrimaryIP, lb.IPv6.PrimaryIP}
		}
	}
	var ids []int64
	for _, id := range candidates {
		if ip, ok := tx.PrimaryIPs.Get(id); ok && ip.Assignee == r {
			ids = append(ids, id)
		}
	}
	return ids
}

// checkAssignable returns an error if a server cannot get an address.
func checkAssignable(ip *PrimaryIP, s *Server) error {
	switch {
	case ip.Assigned():
		return ErrOperation("primary_ip_already_assigned", fmt.Sprintf("Primary IP is already assigned to %s %d", ip.Assignee.Kind,
			ip.Assignee.ID))
	case s.primaryIP(ip.Type) != 0:
		return ErrOperation(Code("server_has_"+ip.Type), fmt.Sprintf("the server already has an %s address", ip.Type))
	case ip.Location.ID != s.Location.ID:
		// The document lists primary_ip_datacenter_mismatch for the creation of a server only.
		return ErrField("assignee_id", fmt.Sprintf("Primary IP is in location %s, the server is in %s", ip.Location.Name, s.Location.Name))
	}
	return requireStopped(s, "Server must be offline for this action")
}

// assignPrimaryIPSpec returns the action that assigns an address. It locks the server and the address, so that they still pass the
// checks when it ends.
func assignPrimaryIPSpec(ip *PrimaryIP, s *Server) ActionSpec {
	return ActionSpec{Command: "assign_primary_ip", Resources: []Ref{s.Ref(), ip.Ref()}, Does: assignment{ip.ID, s.ID}}
}

type assignment struct{ PrimaryIP, Server int64 } // 0 to unassign it

func (e assignment) end(tx *Tx) {
	if e.Server == 0 {
		tx.unassignPrimaryIP(e.PrimaryIP)
	} else if ip, ok := tx.PrimaryIPs.Get(e.PrimaryIP); ok {
		tx.assignPrimaryIP(ip, Ref{KindServer, e.Server})
	}
}

// AssignPrimaryIP assigns a Primary IP to a server that is off.
// Errors: not_found, conflict, locked, invalid_input, primary_ip_already_assigned, server_has_ipv4,
// server_has_ipv6, server_not_stopped.
func (p Project) AssignPrimaryIP(id, server int64) (int64, *State, error) {
	return act(p, inPrimaryIPs, id, func(tx *Tx, ip *PrimaryIP) (ActionSpec, error) {
		s, err := tx.assigneeServer(server)
		if err != nil {
			return ActionSpec{}, err
		}
		return assignPrimaryIPSpec(ip, s), checkAssignable(ip, s)
	})
}

// checkUnassignable returns an error if an address cannot be taken away from its assignee.
func (tx *Tx) checkUnassignable(ip *PrimaryIP) error {
	s, ok := tx.Servers.Get(ip.Assignee.ID)
	if ip.Assignee.Kind != KindServer || !ok {
		return ErrUnsupported("a load balancer keeps its Primary IPs as long as it exists")
	}
	if err := tx.RequireUnlocked(s.Ref()); err != nil {
		return err
	}
	if ip.Type == IPv4 && tx.isPublicTarget(s) {
		return ErrOperation("server_is_load_balancer_target", "the server's IPv4 address is a target of a load balancer")
	}
	for _, id := range s.FloatingIPs {
		if f, _ := tx.FloatingIPs.Get(id); f.Type == ip.Type { // terraform-provider-hcloud issue 577
			return ErrServiceError("All Floating IPs of type IP" + string(f.Type[2:]) + " have to be unassigned from Server")
		}
	}
	return requireStopped(s, "Server must be offline for this action")
}

// isPublicTarget reports whether a load balancer uses a server's public IPv4 address.
func (tx *Tx) isPublicTarget(s *Server) bool {
	finder := targetFinder{server: s.ID}
	for _, id := range s.LoadBalancers {
		lb, ok := tx.LoadBalancers.Get(id)
		if !ok {
			continue
		}
		for t := range lb.targetsOf(&finder) {
			if !t.UsePrivateIP && !t.IP.Is6() {
				return true
			}
		}
	}
	return false
}

// errUnassigned has the message that the real API has for a Floating IP (terraform-provider-hcloud issue 279 and pull request 1335).
func errUnassigned(ip Ref) error {
	return ErrServiceError(fmt.Sprintf("%s with ID %d is not assigned to any resource", words(ip.Kind), ip.ID))
}

// UnassignPrimaryIP takes a Primary IP away from a server that is off.
// Errors: not_found, conflict, locked, service_error, unsupported_error, server_not_stopped,
// server_is_load_balancer_target.
func (p Project) UnassignPrimaryIP(id int64) (int64, *State, error) {
	return act(p, inPrimaryIPs, id, func(tx *Tx, ip *PrimaryIP) (ActionSpec, error) {
		if !ip.Assigned() {
			return ActionSpec{}, errUnassigned(ip.Ref())
		}
		return ActionSpec{
			Command: "unassign_primary_ip", Resources: []Ref{ip.Assignee, ip.Ref()}, Does: assignment{id, 0},
		}, tx.checkUnassignable(ip)
	})
}

// ChangePrimaryIPDNSPtr sets the reverse DNS entry of an address.
// Errors: not_found, conflict, invalid_input.
func (p Project) ChangePrimaryIPDNSPtr(id int64, in ChangeDNSPtr) (int64, *State, error) {
	return act(p, inPrimaryIPs, id, func(_ *Tx, ip *PrimaryIP) (ActionSpec, error) {
		if !ip.IP.Contains(in.IP) {
			return ActionSpec{}, ErrField("ip", fmt.Sprintf("%s is not part of %s", in.IP, ip.IP))
		}
		return ActionSpec{Command: "change_dns_ptr", Does: dnsPtrChange{ip.Ref(), in}}, in.check()
	})
}

// ChangePrimaryIPProtection sets the delete protection. Protection needs auto_delete to be off.
// Errors: not_found, conflict, invalid_input.
func (p Project) ChangePrimaryIPProtection(id int64, del bool) (int64, *State, error) {
	return act(p, inPrimaryIPs, id, func(_ *Tx, ip *PrimaryIP) (ActionSpec, error) {
		if del && ip.AutoDelete {
			return ActionSpec{}, ErrField("delete", "protection cannot be enabled while auto_delete is true")
		}
		return ActionSpec{Command: "change_protection", Does: protection{ip.Ref(), del}}, nil
	})
}
