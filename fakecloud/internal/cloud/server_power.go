package cloud

import "time"

// What a powered-on server does by itself is not an action; the profile gives its duration under
// this name.
const guestShutdown = "guest_shutdown"

// rescueTimeout is how long rescue mode waits for a reboot (API document, enable rescue mode).
const rescueTimeout = 60 * time.Minute

// startServerSpec is the action that powers a server on; if it fails the server is as it was.
func startServerSpec(id int64, was ServerStatus, resources []Ref) ActionSpec {
	return ActionSpec{
		Command: "start_server", Resources: resources, Machine: &MachineWork{Server: id, Runs: true},
		Begin: func(tx *Tx) {
			if s, ok := tx.Servers.Get(id); ok && s.Status != ServerRunning {
				tx.setServerStatus(id, ServerStarting)
			}
		},
		Done:   func(tx *Tx) error { tx.bootServer(id); return nil },
		Failed: func(tx *Tx) { tx.setServerStatus(id, was) },
	}
}

// bootServer makes a server run; rescue mode is used up by the boot.
func (tx *Tx) bootServer(id int64) {
	tx.Servers.Update(id, func(s *Server) {
		s.setStatus(ServerRunning, tx.now)
		s.RescueEnabled = false
	})
	tx.followPower(id)
}

func requireInterface(s *Server) error {
	if !s.hasInterface() {
		return ErrUnsupported("the server has no network interface: it needs a public IP or a network to be powered on")
	}
	return nil
}

// PowerOnServer starts a server. One that runs already stays as it is.
// Errors: not_found, locked, unsupported_error.
func (p Project) PowerOnServer(id int64) (int64, *State, error) {
	return p.onServer(id, func(_ *Tx, s *Server) (ActionSpec, error) {
		if s.Status == ServerRunning {
			return ActionSpec{Command: "start_server"}, nil
		}
		return startServerSpec(id, s.Status, nil), requireInterface(s)
	})
}

// PowerOffServer cuts a server's power. Errors: not_found, locked.
func (p Project) PowerOffServer(id int64) (int64, *State, error) {
	return p.onServer(id, func(_ *Tx, s *Server) (ActionSpec, error) {
		spec := ActionSpec{Command: "stop_server"}
		if s.Status == ServerOff {
			return spec, nil
		}
		was := s.Status
		spec.Machine = &MachineWork{Server: id}
		spec.Begin = func(tx *Tx) { tx.setServerStatus(id, ServerStopping) }
		spec.Done = func(tx *Tx) error { tx.setServerStatus(id, ServerOff); return nil }
		spec.Failed = func(tx *Tx) { tx.setServerStatus(id, was) }
		return spec, nil
	})
}

// ShutdownServer sends an ACPI shutdown request. The action has succeeded when the request was sent;
// the server is stopping then and is off some time later: when the profile says, or when a
// hypervisor reports it, which a guest that does not react makes never. Errors: not_found, locked.
func (p Project) ShutdownServer(id int64) (int64, *State, error) {
	return p.onServer(id, func(_ *Tx, s *Server) (ActionSpec, error) {
		return ActionSpec{Command: "shutdown_server", Machine: workIfOn(s, false), Done: func(tx *Tx) error {
			s, ok := tx.Servers.Get(id)
			if !ok || s.Status != ServerRunning {
				return nil
			}
			tx.setServerStatus(id, ServerStopping)
			if tx.hypervisorOf(s) == nil {
				tx.guestShutsDown(id)
			}
			return nil
		}}, nil
	})
}

// guestShutsDown makes a server that is stopping off when the guest has taken its time for it.
func (tx *Tx) guestShutsDown(id int64) {
	s, _ := tx.Servers.Get(id)
	tx.schedule(tx.cloud.profile().Duration(guestShutdown), func(tx *Tx) {
		if now, ok := tx.Servers.Get(id); ok && now.epoch == s.epoch {
			tx.setServerStatus(id, ServerOff)
		}
	})
}

// RebootServer sends an ACPI reboot request. The machine itself keeps running, so that its status does
// not change; a server that is off does not react. Errors: not_found, locked.
func (p Project) RebootServer(id int64) (int64, *State, error) {
	return p.onServer(id, func(_ *Tx, s *Server) (ActionSpec, error) {
		return ActionSpec{Command: "reboot_server", Machine: workIfOn(s, true), Done: func(tx *Tx) error {
			if s, ok := tx.Servers.Get(id); ok && s.Status == ServerRunning {
				tx.bootServer(id)
			}
			return nil
		}}, nil
	})
}

// ResetServer cuts a server's power and starts it again.
// Errors: not_found, locked, unsupported_error.
func (p Project) ResetServer(id int64) (int64, *State, error) {
	return p.onServer(id, func(_ *Tx, s *Server) (ActionSpec, error) {
		was := s.Status
		return ActionSpec{
			Command: "reset_server", Machine: &MachineWork{Server: id, Runs: true},
			Begin:  func(tx *Tx) { tx.setServerStatus(id, ServerStarting) },
			Done:   func(tx *Tx) error { tx.bootServer(id); return nil },
			Failed: func(tx *Tx) { tx.setServerStatus(id, was) },
		}, requireInterface(s)
	})
}

// EnableServerRescue makes the next boot one into the rescue system, if it happens within an hour, and
// returns the password of that system. sshKeys are ids.
// Errors: not_found, locked, invalid_input.
func (p Project) EnableServerRescue(id int64, sshKeys []int64) (password string, action int64, st *State, err error) {
	action, st, err = p.onServer(id, func(tx *Tx, _ *Server) (ActionSpec, error) {
		for _, k := range sshKeys {
			if _, ok := tx.SSHKeys.Get(k); !ok {
				return ActionSpec{}, ErrField("ssh_keys", "SSH key not found")
			}
		}
		password = tx.newPassword()
		return ActionSpec{Command: "enable_rescue", Done: func(tx *Tx) error {
			since := tx.now
			tx.Servers.Update(id, func(s *Server) { s.RescueEnabled, s.RescueSince = true, since })
			tx.schedule(rescueTimeout, func(tx *Tx) {
				if s, ok := tx.Servers.Get(id); ok && s.RescueEnabled && s.RescueSince.Equal(since) {
					tx.Servers.Update(id, func(s *Server) { s.RescueEnabled = false })
				}
			})
			return nil
		}}, nil
	})
	return password, action, st, err
}

// DisableServerRescue makes the next boot one from the disk. Errors: not_found, locked.
func (p Project) DisableServerRescue(id int64) (int64, *State, error) {
	return p.onServer(id, func(*Tx, *Server) (ActionSpec, error) {
		return ActionSpec{Command: "disable_rescue", Done: func(tx *Tx) error {
			tx.Servers.Update(id, func(s *Server) { s.RescueEnabled = false })
			return nil
		}}, nil
	})
}

// ResetServerPassword returns a new root password of a running server.
// Errors: not_found, locked, unsupported_error.
func (p Project) ResetServerPassword(id int64) (password string, action int64, st *State, err error) {
	action, st, err = p.onServer(id, func(tx *Tx, s *Server) (ActionSpec, error) {
		if s.Status != ServerRunning {
			return ActionSpec{}, ErrUnsupported("the server must be running for its password to be reset")
		}
		password = tx.newPassword()
		return ActionSpec{Command: "reset_password"}, nil
	})
	return password, action, st, err
}

// Console is where a server's screen and keyboard can be reached. Not modelled: nothing listens
// there.
type Console struct{ URL, Password string }

// RequestServerConsole returns credentials for remote access. Errors: not_found, locked.
func (p Project) RequestServerConsole(id int64) (c Console, action int64, st *State, err error) {
	action, st, err = p.onServer(id, func(tx *Tx, _ *Server) (ActionSpec, error) {
		c = Console{
			// The name ends in .invalid so that nobody's screen is reached by mistake.
			URL:      "wss://console.fakecloud.invalid/?server_id=" + itoa(id) + "&token=" + tx.newPassword(),
			Password: tx.newPassword(),
		}
		return ActionSpec{Command: "request_console"}, nil
	})
	return c, action, st, err
}
