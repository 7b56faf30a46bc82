package cloud

import "time"

// guestShutdown is the name under which the profile has the duration of a guest's shutdown. It is not the
// command of an action.
const guestShutdown = "guest_shutdown"

// rescueTimeout is the time after which rescue mode ends without a reboot (API document, enable rescue mode).
const rescueTimeout = 60 * time.Minute

// startServerSpec returns the action that powers a server on. If it fails, the server gets the status was.
func startServerSpec(id int64, was ServerStatus, resources []Ref) ActionSpec {
	return ActionSpec{
		Command: "start_server", Resources: resources, Guest: &GuestWork{Server: id, Runs: true},
		Begin: func(tx *Tx) {
			if s, ok := tx.Servers.Get(id); ok && s.Status != ServerRunning {
				tx.setServerStatus(id, ServerStarting)
			}
		},
		Effect: func(tx *Tx) { tx.bootServer(id) },
		Failed: func(tx *Tx) { tx.setServerStatus(id, was) },
	}
}

// bootServer sets a server to running. A boot ends rescue mode.
func (tx *Tx) bootServer(id int64) {
	tx.Servers.Update(id, func(s *Server) {
		s.setStatus(ServerRunning, tx.now)
		s.RescueEnabled = false
	})
	tx.followReach(id)
}

func requireInterface(s *Server) error {
	if !s.hasInterface() {
		return ErrUnsupported("the server has no network interface: it needs a public IP or a network to be powered on")
	}
	return nil
}

// PowerOnServer starts a server. It does not change a running server.
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
		spec.Guest = &GuestWork{Server: id}
		spec.Begin = func(tx *Tx) { tx.setServerStatus(id, ServerStopping) }
		spec.Effect = func(tx *Tx) { tx.setServerStatus(id, ServerOff) }
		spec.Failed = func(tx *Tx) { tx.setServerStatus(id, was) }
		return spec, nil
	})
}

// ShutdownServer sends an ACPI shutdown request. The action succeeds when the request has been sent. The
// server is then stopping, and is off after the profile's time. If a hypervisor has its guest, it is off
// when the hypervisor reports so; a guest that ignores the request keeps it stopping.
// Errors: not_found, locked.
func (p Project) ShutdownServer(id int64) (int64, *State, error) {
	return p.onServer(id, func(_ *Tx, s *Server) (ActionSpec, error) {
		return ActionSpec{Command: "shutdown_server", Guest: workIfOn(s, false), Done: func(tx *Tx) error {
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

// guestShutsDown sets a stopping server to off after the duration of a guest's shutdown.
func (tx *Tx) guestShutsDown(id int64) {
	s, _ := tx.Servers.Get(id)
	tx.schedule(tx.cloud.profile().Duration(guestShutdown), func(tx *Tx) {
		if now, ok := tx.Servers.Get(id); ok && now.epoch == s.epoch {
			tx.setServerStatus(id, ServerOff)
		}
	})
}

// RebootServer sends an ACPI reboot request. The guest keeps running, so the status does not change. A
// server that is off ignores the request. Errors: not_found, locked.
func (p Project) RebootServer(id int64) (int64, *State, error) {
	return p.onServer(id, func(_ *Tx, s *Server) (ActionSpec, error) {
		return ActionSpec{Command: "reboot_server", Guest: workIfOn(s, true), Done: func(tx *Tx) error {
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
			Command: "reset_server", Guest: &GuestWork{Server: id, Runs: true},
			Begin:  func(tx *Tx) { tx.setServerStatus(id, ServerStarting) },
			Effect: func(tx *Tx) { tx.bootServer(id) },
			Failed: func(tx *Tx) { tx.setServerStatus(id, was) },
		}, requireInterface(s)
	})
}

// EnableServerRescue makes a server boot the rescue system next time, if that is within an hour. It returns
// the password of the rescue system. sshKeys are ids.
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

// DisableServerRescue makes a server boot from its disk again. Errors: not_found, locked.
func (p Project) DisableServerRescue(id int64) (int64, *State, error) {
	return p.onServer(id, func(*Tx, *Server) (ActionSpec, error) {
		return ActionSpec{Command: "disable_rescue", Done: func(tx *Tx) error {
			tx.Servers.Update(id, func(s *Server) { s.RescueEnabled = false })
			return nil
		}}, nil
	})
}

// ResetServerPassword sets a new root password of a running server and returns it.
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

// Console is the remote access to a server's screen and keyboard. Not modelled: nothing listens at the URL.
type Console struct{ URL, Password string }

// RequestServerConsole returns credentials for remote access. Errors: not_found, locked.
func (p Project) RequestServerConsole(id int64) (c Console, action int64, st *State, err error) {
	action, st, err = p.onServer(id, func(tx *Tx, _ *Server) (ActionSpec, error) {
		c = Console{
			// The name ends in .invalid, so that it never resolves to a real host.
			URL:      "wss://console.fakecloud.invalid/?server_id=" + itoa(id) + "&token=" + tx.newPassword(),
			Password: tx.newPassword(),
		}
		return ActionSpec{Command: "request_console"}, nil
	})
	return c, action, st, err
}
