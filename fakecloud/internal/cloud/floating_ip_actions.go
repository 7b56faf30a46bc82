package cloud

import "fmt"

// assignFloatingIPSpec returns the action that assigns a Floating IP to a server.
func assignFloatingIPSpec(id, server int64) ActionSpec {
	return ActionSpec{
		Command: "assign_floating_ip", Resources: []Ref{{KindServer, server}}, Does: floatingIPChange{id, server},
	}
}

type floatingIPChange struct{ FloatingIP, Server int64 } // 0 to unassign it

func (e floatingIPChange) end(tx *Tx) { tx.setFloatingIPServer(e.FloatingIP, e.Server) }

// AssignFloatingIP assigns a Floating IP to a server in any location. If another server has the Floating IP, it moves:
// failover controllers do not unassign first (hcloud-fip-controller issue 36). The API document's error
// floating_ip_assigned is therefore used if the same server already has it.
// Errors: not_found, locked, invalid_input, floating_ip_assigned.
func (p Project) AssignFloatingIP(id, server int64) (int64, *State, error) {
	return act(p, inFloatingIPs, id, func(tx *Tx, f *FloatingIP) (ActionSpec, error) {
		if _, err := tx.floatingIPServer(server); err != nil {
			return ActionSpec{}, err
		}
		if f.Server == server {
			return ActionSpec{}, ErrOperation("floating_ip_assigned", "Floating IP is already assigned")
		}
		return assignFloatingIPSpec(id, server), nil
	})
}

// UnassignFloatingIP takes a Floating IP away from its server. Errors: not_found, locked, service_error.
func (p Project) UnassignFloatingIP(id int64) (int64, *State, error) {
	return act(p, inFloatingIPs, id, func(tx *Tx, f *FloatingIP) (ActionSpec, error) {
		if f.Server == 0 {
			return ActionSpec{}, errUnassigned(f.Ref())
		}
		return ActionSpec{
			Command: "unassign_floating_ip", Resources: []Ref{{KindServer, f.Server}}, Does: floatingIPChange{id, 0},
		}, tx.RequireUnlocked(Ref{KindServer, f.Server})
	})
}

// ChangeFloatingIPDNSPtr sets the reverse DNS entry of an address.
// Errors: not_found, locked, invalid_input, resource_limit_exceeded.
func (p Project) ChangeFloatingIPDNSPtr(id int64, in ChangeDNSPtr) (int64, *State, error) {
	return act(p, inFloatingIPs, id, func(_ *Tx, f *FloatingIP) (ActionSpec, error) {
		if !f.IP.Contains(in.IP) {
			return ActionSpec{}, ErrField("ip", fmt.Sprintf("%s is not part of %s", in.IP, f.IP))
		}
		if len(in.apply(f.DNSPtr)) > MaxDNSPtrsPerFloatingIP {
			return ActionSpec{}, ErrLimitExceeded("floating_ip_dns_ptr_limit",
				fmt.Sprintf("at most %d reverse DNS entries are possible", MaxDNSPtrsPerFloatingIP))
		}
		return ActionSpec{Command: "change_dns_ptr", Does: dnsPtrChange{f.Ref(), in}}, in.check()
	})
}

// ChangeFloatingIPProtection sets the delete protection. Errors: not_found, locked.
func (p Project) ChangeFloatingIPProtection(id int64, del bool) (int64, *State, error) {
	return act(p, inFloatingIPs, id, func(_ *Tx, f *FloatingIP) (ActionSpec, error) {
		return ActionSpec{Command: "change_protection", Does: protection{f.Ref(), del}}, nil
	})
}
