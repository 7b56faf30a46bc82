package cloud

import (
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
)

// guestShutdown is the profile's name for the duration of a guest's shutdown. It is not the command of an
// action.
const guestShutdown = "guest_shutdown"

// rescueTimeout is how long rescue mode lasts without a reboot (API document, enable rescue mode).
const rescueTimeout = 60 * time.Minute

// startServerSpec returns the action that powers a server on. If it fails, the server gets the status was.
func startServerSpec(id int64, was ServerStatus, resources []Ref) ActionSpec {
	return ActionSpec{
		Command: "start_server", Resources: resources, Guest: &GuestWork{Server: id, Runs: true}, Does: powerOn{serverWas{id, was}},
	}
}

// serverWas is a part of the effects that give a server its status back if they fail.
type serverWas struct {
	Server int64
	Was    ServerStatus
}

func (e serverWas) failed(tx *Tx, _ *Error) { tx.setServerStatus(e.Server, e.Was) }

type powerOn struct{ serverWas }

func (e powerOn) begin(tx *Tx) {
	if s, ok := tx.Servers.Get(e.Server); ok && s.Status != ServerRunning {
		tx.setServerStatus(e.Server, ServerStarting)
	}
}

func (e powerOn) end(tx *Tx) {
	if tx.ending.StaysOff {
		tx.setServerStatus(e.Server, ServerOff)
		return
	}
	tx.bootServer(e.Server)
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
		return ErrUnsupported("no public or private network interfaces found, cannot start server") // terraform-provider-hcloud issue 1264
	}
	return nil
}

// PowerOnServer starts a server. It does not change a running server.
// Errors: not_found, locked, unsupported_error.
func (p Project) PowerOnServer(id int64) (int64, *State, error) {
	return act(p, inServers, id, func(_ *Tx, s *Server) (ActionSpec, error) {
		if s.Status == ServerRunning {
			return ActionSpec{Command: "start_server"}, nil
		}
		return startServerSpec(id, s.Status, nil), requireInterface(s)
	})
}

// PowerOffServer cuts a server's power. Errors: not_found, locked.
func (p Project) PowerOffServer(id int64) (int64, *State, error) {
	return act(p, inServers, id, func(_ *Tx, s *Server) (ActionSpec, error) {
		if s.Status == ServerOff {
			return ActionSpec{Command: "stop_server"}, nil
		}
		return ActionSpec{Command: "stop_server", Guest: &GuestWork{Server: id}, Does: powerOff{serverWas{id, s.Status}}}, nil
	})
}

type powerOff struct{ serverWas }

func (e powerOff) begin(tx *Tx) { tx.setServerStatus(e.Server, ServerStopping) }
func (e powerOff) end(tx *Tx)   { tx.setServerStatus(e.Server, ServerOff) }

// ShutdownServer sends an ACPI shutdown request. The action succeeds when the request has been sent. The server still is running then
// (hcloud-python issue 495), and is off after the profile's time, or that of a fault rule, unless its guest ignores the request. If a
// hypervisor has its guest, it is stopping, and off when the hypervisor reports so; a guest that ignores the request keeps it stopping.
// Errors: not_found, locked.
func (p Project) ShutdownServer(id int64) (int64, *State, error) {
	return act(p, inServers, id, func(_ *Tx, s *Server) (ActionSpec, error) {
		return ActionSpec{Command: "shutdown_server", Guest: workIfOn(s, false), Does: shutdown{id}}, nil
	})
}

type shutdown struct{ Server int64 }

func (e shutdown) end(tx *Tx) {
	s, ok := tx.Servers.Get(e.Server)
	if !ok || s.Status != ServerRunning {
		return
	}
	switch {
	case tx.ending.GuestIgnores:
	case tx.hypervisorOf(s) != nil:
		tx.setServerStatus(e.Server, ServerStopping)
	default:
		tx.guestShutsDown(e.Server, tx.ending.GuestTakes)
	}
}

// minGuestShutdown keeps off apart from the end of the action, even if actions take no time.
const minGuestShutdown = 20 * time.Millisecond

// guestShutsDown sets a server to off after a guest's shutdown. If takes is 0, that is the profile's duration.
func (tx *Tx) guestShutsDown(id int64, takes time.Duration) {
	s, _ := tx.Servers.Get(id)
	if takes == 0 {
		takes = max(minGuestShutdown, tx.cloud.profile()(guestShutdown))
	}
	tx.schedule(takes, guestOff{id, s.epoch})
}

type guestOff struct {
	Server int64
	Epoch  uint64
}

func (e guestOff) about() Ref { return Ref{KindServer, e.Server} }

func (e guestOff) due(tx *Tx) {
	if s, ok := tx.Servers.Get(e.Server); ok && s.epoch == e.Epoch {
		tx.setServerStatus(e.Server, ServerOff)
	}
}

// RebootServer sends an ACPI reboot request. The guest keeps running, so the status does not change. A
// server that is off ignores the request. Errors: not_found, locked.
func (p Project) RebootServer(id int64) (int64, *State, error) {
	return act(p, inServers, id, func(_ *Tx, s *Server) (ActionSpec, error) {
		return ActionSpec{Command: "reboot_server", Guest: workIfOn(s, true), Does: reboot{id}}, nil
	})
}

type reboot struct{ Server int64 }

func (e reboot) end(tx *Tx) {
	if s, ok := tx.Servers.Get(e.Server); ok && s.Status == ServerRunning {
		tx.bootServer(e.Server)
	}
}

// ResetServer cuts a server's power and starts it again.
// Errors: not_found, locked, unsupported_error.
func (p Project) ResetServer(id int64) (int64, *State, error) {
	return act(p, inServers, id, func(_ *Tx, s *Server) (ActionSpec, error) {
		return ActionSpec{
			Command: "reset_server", Guest: &GuestWork{Server: id, Runs: true}, Does: powerCycle{serverWas{id, s.Status}},
		}, requireInterface(s)
	})
}

type powerCycle struct{ serverWas }

func (e powerCycle) begin(tx *Tx) { tx.setServerStatus(e.Server, ServerStarting) }
func (e powerCycle) end(tx *Tx)   { tx.bootServer(e.Server) }

// EnableServerRescue makes a server boot the rescue system next time, if that is within an hour. It returns
// the password of the rescue system. sshKeys are ids.
// Errors: not_found, locked, unsupported_error.
func (p Project) EnableServerRescue(id int64, sshKeys []int64) (password string, action int64, st *State, err error) {
	action, st, err = act(p, inServers, id, func(tx *Tx, s *Server) (ActionSpec, error) {
		for _, k := range sshKeys {
			if _, ok := tx.SSHKeys.Get(k); !ok {
				return ActionSpec{}, ErrField("ssh_keys", "SSH key not found")
			}
		}
		password = tx.newPassword()
		return ActionSpec{Command: "enable_rescue", Guest: credentialWork(s), Does: rescueOn{id, sshKeys, hashOf(password)}}, nil
	})
	return password, action, st, err
}

type rescueOn struct {
	Server  int64
	SSHKeys []int64 `json:",omitzero"`
	Hash    []byte  `json:",omitzero"` // of the password
}

func (e rescueOn) end(tx *Tx) {
	tx.Servers.Update(e.Server, func(s *Server) {
		s.RescueEnabled, s.RescueSince, s.RescueSSHKeys, s.RescueHash = true, tx.now, e.SSHKeys, e.Hash
	})
	tx.schedule(rescueTimeout, rescueEnds{e.Server})
}

func (e rescueOn) amend(st *State, m *hypervisor.Guest) {
	m.Rescue = &hypervisor.Rescue{SSHKeys: st.publicKeys(e.SSHKeys), PasswordHash: e.Hash}
}

type rescueEnds struct{ Server int64 }

func (e rescueEnds) about() Ref { return Ref{KindServer, e.Server} }

func (e rescueEnds) due(tx *Tx) {
	if s, ok := tx.Servers.Get(e.Server); ok && s.RescueEnabled && s.RescueSince.Add(rescueTimeout).Equal(tx.now) {
		rescueOff(e).end(tx)
	}
}

// DisableServerRescue makes a server boot from its disk again. Errors: not_found, locked.
func (p Project) DisableServerRescue(id int64) (int64, *State, error) {
	return act(p, inServers, id, func(_ *Tx, s *Server) (ActionSpec, error) {
		return ActionSpec{Command: "disable_rescue", Guest: credentialWork(s), Does: rescueOff{id}}, nil
	})
}

type rescueOff struct{ Server int64 }

func (e rescueOff) end(tx *Tx) {
	tx.Servers.Update(e.Server, func(s *Server) { s.RescueEnabled = false })
}

func (e rescueOff) amend(_ *State, m *hypervisor.Guest) { m.Rescue = nil }

// ResetServerPassword sets a new root password of a running server and returns it.
// Errors: not_found, locked, unsupported_error.
func (p Project) ResetServerPassword(id int64) (password string, action int64, st *State, err error) {
	action, st, err = act(p, inServers, id, func(tx *Tx, s *Server) (ActionSpec, error) {
		if s.Status != ServerRunning {
			return ActionSpec{}, ErrUnsupported("the server must be running for its password to be reset")
		}
		password = tx.newPassword()
		return ActionSpec{Command: "reset_password", Guest: credentialWork(s), Does: passwordReset{id, hashOf(password)}}, nil
	})
	return password, action, st, err
}

type passwordReset struct {
	Server int64
	Hash   []byte
}

func (e passwordReset) end(tx *Tx) {
	tx.Servers.Update(e.Server, func(s *Server) { s.PasswordHash = e.Hash })
}

func (e passwordReset) amend(_ *State, m *hypervisor.Guest) { m.PasswordHash = e.Hash }

// credentialWork returns the work of an action that changes how root gets into a guest.
func credentialWork(s *Server) *GuestWork {
	return &GuestWork{Server: s.ID, Runs: s.Status == ServerRunning, Credentials: true}
}

// Console is the remote access to a server's screen and keyboard. Not modelled: nothing listens at the URL.
type Console struct{ URL, Password string }

// RequestServerConsole returns credentials for remote access. Errors: not_found, locked.
func (p Project) RequestServerConsole(id int64) (c Console, action int64, st *State, err error) {
	action, st, err = act(p, inServers, id, func(tx *Tx, _ *Server) (ActionSpec, error) {
		c = Console{
			// The name ends in .invalid, so that it never resolves to a real host.
			URL:      "wss://console.fakecloud.invalid/?server_id=" + itoa(id) + "&token=" + tx.newPassword(),
			Password: tx.newPassword(),
		}
		return ActionSpec{Command: "request_console"}, nil
	})
	return c, action, st, err
}
