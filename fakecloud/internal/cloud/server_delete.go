package cloud

import "slices"

// DeleteServer deletes a server with its backups and its auto-delete Primary IPs. It leaves its networks, load
// balancers and placement group. Other Primary IPs, Floating IPs and volumes stay and are unassigned. Snapshots stay.
// The server is deleting while the action runs.
// Errors: not_found, locked, protected.
func (p Project) DeleteServer(id int64) (int64, *State, error) {
	return act(p, inServers, id, func(_ *Tx, s *Server) (ActionSpec, error) {
		if s.DeleteProtection {
			return ActionSpec{}, ErrProtected("server deletion is protected")
		}
		return ActionSpec{Command: "delete_server", Guest: &GuestWork{Server: id}, Does: serverRemoval{serverWas{id, s.Status}}}, nil
	})
}

type serverRemoval struct{ serverWas }

func (e serverRemoval) begin(tx *Tx) { tx.setServerStatus(e.Server, ServerDeleting) }
func (e serverRemoval) end(tx *Tx)   { tx.removeServer(e.Server) }

// removeServer deletes a server and all references to it.
func (tx *Tx) removeServer(id int64) {
	s, ok := tx.Servers.Get(id)
	if !ok {
		return
	}
	ref, targets := Ref{KindServer, id}, s.LoadBalancers
	tx.leaveAllNetworks(ref)
	tx.leavePlacementGroup(id)
	tx.releasePrimaryIPs(ref)
	for _, f := range slices.Clone(s.FloatingIPs) {
		tx.setFloatingIPServer(f, 0)
	}
	for _, v := range slices.Clone(s.Volumes) {
		tx.setVolumeServer(v, 0)
	}
	tx.deleteBackups(id)
	tx.leaveFirewalls(id)
	tx.Servers.Delete(id)
	tx.cloud.serverUsage.forget(id)
	tx.cloud.serverTraffic.forget(id)
	tx.refreshTargetsIn(targets, id)
}
