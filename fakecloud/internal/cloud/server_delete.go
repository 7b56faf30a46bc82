package cloud

// DeleteServer deletes a server: it is deleting while the action runs, and gone after it, with its
// membership in networks, load balancers and its placement group, its backups and its auto-delete Primary IPs.
// Floating IPs and other Primary IPs stay, unassigned; snapshots stay.
// Errors: not_found, locked, protected.
func (p Project) DeleteServer(id int64) (int64, *State, error) {
	return p.onServer(id, func(_ *Tx, s *Server) (ActionSpec, error) {
		if s.DeleteProtection {
			return ActionSpec{}, ErrProtected("server deletion is protected")
		}
		was := s.Status
		return ActionSpec{
			Command: "delete_server", Machine: &MachineWork{Server: id},
			Begin:  func(tx *Tx) { tx.setServerStatus(id, ServerDeleting) },
			Done:   func(tx *Tx) error { tx.removeServer(id); return nil },
			Failed: func(tx *Tx) { tx.setServerStatus(id, was) },
		}, nil
	})
}

// removeServer takes a server out of everything that it is part of, and then away.
func (tx *Tx) removeServer(id int64) {
	ref := Ref{KindServer, id}
	tx.leaveAllNetworks(ref)
	tx.leavePlacementGroup(id)
	tx.releasePrimaryIPs(ref)
	tx.releaseFloatingIPs(id)
	tx.deleteBackups(id)
	tx.Servers.Delete(id)
	tx.refreshTargets(id)
}
