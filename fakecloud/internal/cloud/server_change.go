package cloud

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// ChangeServerType gives a stopped server another type and starts it. With upgradeDisk, its disk also
// grows to that of the type. A disk never shrinks.
// Errors: not_found, locked, invalid_input, server_not_stopped, invalid_server_type,
// resource_unavailable.
func (p Project) ChangeServerType(id int64, serverType string, upgradeDisk bool) (int64, *State, error) {
	return act(p, inServers, id, func(tx *Tx, s *Server) (ActionSpec, error) {
		t, ok := tx.Catalogue.ServerType(serverType)
		if !ok {
			return ActionSpec{}, ErrField("server_type", fmt.Sprintf("server type '%s' not found", serverType))
		}
		if err := checkTypeChange(s, t, upgradeDisk, tx); err != nil {
			return ActionSpec{}, err
		}
		return ActionSpec{
			Command: "change_server_type", Guest: &GuestWork{Server: id, Runs: s.hasInterface()},
			Does: typeChange{serverWas{id, ServerOff}, t.Name, upgradeDisk},
		}, nil
	})
}

type typeChange struct {
	serverWas
	Type        string
	UpgradeDisk bool
}

func (e typeChange) begin(tx *Tx) { tx.setServerStatus(e.Server, ServerMigrating) }

func (e typeChange) end(tx *Tx) {
	tx.Servers.Update(e.Server, func(s *Server) {
		if t, ok := tx.Catalogue.ServerType(e.Type); ok { // else it was new, and ResetCatalogue removed it
			s.Type = t
		}
		if e.UpgradeDisk {
			s.PrimaryDisk = s.Type.Disk
		}
	})
	tx.startIfPossible(e.Server)
}

func (e typeChange) amend(st *State, m *hypervisor.Guest) {
	if t, ok := st.Catalogue.ServerType(e.Type); ok {
		setGuestType(m, t)
	}
}

func checkTypeChange(s *Server, t *ServerType, upgradeDisk bool, tx *Tx) error {
	unfit := func(format string, args ...any) error {
		return ErrOperation("invalid_server_type", fmt.Sprintf(format, args...))
	}
	switch {
	case t.ID == s.Type.ID && (!upgradeDisk || s.PrimaryDisk == t.Disk):
		return unfit("the server already has type %s", t.Name)
	case t.Architecture != s.Type.Architecture:
		return unfit("server type %s has architecture %s, the server's is %s", t.Name, t.Architecture, s.Type.Architecture)
	case t.StorageType != s.Type.StorageType:
		return unfit("server type %s has storage type %s, the server's is %s", t.Name, t.StorageType, s.Type.StorageType)
	case t.Disk < s.PrimaryDisk:
		// terraform-provider-hcloud issue 80
		return unfit("cannot change type because the selected server_type has not sufficient disk space")
	}
	if err := requireStopped(s, "server must be stopped before changing type"); err != nil {
		return err
	}
	if err := orderable(t, s.Location, tx.now); err != nil {
		if e := (*Error)(nil); errors.As(err, &e) && e.Code == "resource_unavailable" {
			return err
		}
		return unfit("server type %s does not exist in location %s, or is deprecated there", t.Name, s.Location.Name)
	}
	return nil
}

// startIfPossible boots a server, or sets it to off if it has no interface.
func (tx *Tx) startIfPossible(id int64) {
	if s, ok := tx.Servers.Get(id); ok && !s.hasInterface() {
		tx.setServerStatus(id, ServerOff)
		return
	}
	tx.bootServer(id)
}

// RebuildServer is the input of the action rebuild. If UserData is nil, the server keeps its user data.
type RebuildServer struct {
	Image    string
	UserData *string
}

// RebuildServer overwrites a server's disk with an image and starts the server. It returns no password if the
// server was created with SSH keys.
// Errors: not_found, locked, protected, invalid_input.
func (p Project) RebuildServer(id int64, in RebuildServer) (password string, action int64, st *State, err error) {
	action, st, err = act(p, inServers, id, func(tx *Tx, s *Server) (ActionSpec, error) {
		if s.RebuildProtection {
			return ActionSpec{}, ErrProtected("server rebuild is protected")
		}
		if in.UserData != nil {
			if err := checkUserData(*in.UserData); err != nil {
				return ActionSpec{}, err
			}
		}
		image, err := tx.findImage(in.Image, s.Type.Architecture)
		if err != nil {
			return ActionSpec{}, err
		}
		if image.DiskSize > float64(s.PrimaryDisk) {
			return ActionSpec{}, errInput("image disk is bigger than server type disk")
		}
		var hash []byte
		if len(s.SSHKeys) == 0 {
			password = tx.newPassword()
			hash = hashOf(password)
		}
		return ActionSpec{
			Command: "rebuild_server", Guest: &GuestWork{Server: id, Runs: s.hasInterface()},
			// If it fails, the state of the disk is unknown, so the server does not run.
			Does: rebuild{serverWas{id, ServerOff}, image.ID, in.UserData, hash},
		}, nil
	})
	return password, action, st, err
}

type rebuild struct {
	serverWas
	Image    int64
	UserData *string
	Hash     []byte `json:",omitzero"` // of the new password
}

func (e rebuild) begin(tx *Tx) { tx.setServerStatus(e.Server, ServerRebuilding) }

func (e rebuild) end(tx *Tx) {
	// In the meantime, a snapshot may have been changed or deleted.
	image, _ := tx.Image(e.Image)
	tx.Servers.Update(e.Server, func(s *Server) {
		s.Image = image
		set(&s.UserData, e.UserData)
		s.PasswordHash = e.Hash
	})
	tx.startIfPossible(e.Server)
}

func (e rebuild) amend(st *State, m *hypervisor.Guest) {
	image, _ := st.Image(e.Image)
	setGuestImage(m, image)
	set(&m.UserData, e.UserData)
	m.PasswordHash = e.Hash
}

// ChangeServerProtection sets the protections against deletion and rebuild; nil changes nothing. Both must
// have the same value (API document).
// Errors: not_found, locked, invalid_input.
func (p Project) ChangeServerProtection(id int64, del, rebuild *bool) (int64, *State, error) {
	return act(p, inServers, id, func(_ *Tx, s *Server) (ActionSpec, error) {
		d, r := s.DeleteProtection, s.RebuildProtection
		set(&d, del)
		set(&r, rebuild)
		if d != r {
			return ActionSpec{}, ErrFields("delete and rebuild need to have the same value", "delete", "rebuild")
		}
		return ActionSpec{Command: "change_protection", Does: protection{Ref{KindServer, id}, d}}, nil
	})
}

// AttachServerISO puts an ISO, by id or name, into a server. It replaces another ISO.
// Errors: not_found, locked, invalid_input.
func (p Project) AttachServerISO(id int64, iso string) (int64, *State, error) {
	return act(p, inServers, id, func(tx *Tx, s *Server) (ActionSpec, error) {
		i, ok := tx.Catalogue.ISO(iso)
		switch {
		case !ok || i.Deprecation.Retired(tx.now):
			return ActionSpec{}, ErrField("iso", fmt.Sprintf("ISO '%s' not found", iso))
		case i.Architecture != "" && i.Architecture != s.Type.Architecture:
			return ActionSpec{}, ErrField("iso", "ISO has wrong architecture")
		}
		return ActionSpec{Command: "attach_iso", Does: isoChange{id, i.ID}}, nil
	})
}

type isoChange struct{ Server, ISO int64 } // 0 for none

func (e isoChange) end(tx *Tx) {
	iso, _ := tx.Catalogue.ISO(itoa(e.ISO))
	tx.Servers.Update(e.Server, func(s *Server) { s.ISO = iso })
}

// DetachServerISO removes the ISO from a server. Without an ISO, the action succeeds at once.
// Errors: not_found, locked.
func (p Project) DetachServerISO(id int64) (int64, *State, error) {
	return act(p, inServers, id, func(_ *Tx, s *Server) (ActionSpec, error) {
		return ActionSpec{Command: "detach_iso", Immediate: s.ISO == nil, Does: isoChange{id, 0}}, nil
	})
}

// ChangeServerDNSPtr sets the reverse DNS entry of an address of one of a server's Primary IPs. It does not
// lock the server, so both addresses can change at once. Errors: not_found, locked, invalid_input.
func (p Project) ChangeServerDNSPtr(id int64, in ChangeDNSPtr) (int64, *State, error) {
	return act(p, inServers, id, func(tx *Tx, s *Server) (ActionSpec, error) {
		if err := in.check(); err != nil {
			return ActionSpec{}, err
		}
		for _, ipID := range []int64{s.PublicIPv4, s.PublicIPv6} {
			if ip, ok := tx.PrimaryIPs.Get(ipID); ok && ip.IP.Contains(in.IP) {
				return ActionSpec{Command: "change_dns_ptr", Does: dnsPtrChange{ip.Ref(), in}}, nil
			}
		}
		return ActionSpec{}, ErrField("ip", fmt.Sprintf("%s is not an address of the server", in.IP))
	})
}
