package cloud

import (
	"cmp"
	"fmt"
	"regexp"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// KindVolume is the kind of volumes.
const KindVolume store.Kind = "volume"

// Limits of volumes (API document, create_volume; product documentation of volumes: 16 per server).
const (
	MinVolumeSize       = 10 // GB
	MaxVolumeSize       = 10240
	MaxVolumesPerServer = 16
)

// Volume is block storage that can be attached to a server in the same location.
//
// Reproduced: names, sizes, the location of volume and server, one action at a time (locked), attaching and detaching (both lock the server
// too), the limit per server, protection, and the volumes that a server shows. A server that is deleted leaves its volumes. Left out: what
// is on the volume. The format is shown, and automount has no effect, because the cloud does not know the configuration of guests. A
// server's guest gets no disk.
type Volume struct {
	store.Meta
	Size     int       `json:"size,omitzero"` // GB
	Location *Location `json:"location,omitzero"`
	// Server is the id of the server that the volume is attached to, 0 for none.
	Server           int64        `json:"server,omitzero"`
	Format           string       `json:"format,omitzero"` // xfs or ext4; "" if it was not formatted
	Status           VolumeStatus `json:"status,omitzero"`
	DeleteProtection bool         `json:"delete_protection,omitzero"`
}

// VolumeStatus is the status of a volume.
type VolumeStatus string

// The statuses of a volume. It is creating until the end of its create action, and stays so if that fails.
const (
	VolumeCreating  VolumeStatus = "creating"
	VolumeAvailable VolumeStatus = "available"
)

// Clone implements Object.
func (v *Volume) Clone() *Volume { return new(*v) }

// Ref returns the reference to the volume.
func (v *Volume) Ref() Ref { return Ref{KindVolume, v.ID} }

// LinuxDevice is the path of the volume's device on a server.
func (v *Volume) LinuxDevice() string {
	return fmt.Sprintf("/dev/disk/by-id/scsi-0HC_Volume_%d", v.ID)
}

// CreateVolume is the input of POST /volumes. It needs Server or Location.
type CreateVolume struct {
	Name     string
	Size     int
	Location string // id or name
	Server   int64  // id of the server to attach it to, 0 for none
	Format   string // xfs, ext4 or ""
	// Automount has no effect, but needs a server and a format.
	Automount bool
	Labels    map[string]string
}

// CreatedVolume is the result of the creation of a volume.
type CreatedVolume struct {
	Volume      *Volume // at the end of the request
	Action      int64
	NextActions []int64 // attach_volume, if the input has a server
}

// volumeName is what the API document says of names in create_volume.
var volumeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,62}[A-Za-z0-9])?$`)

func checkVolumeName(name string) error {
	if !volumeName.MatchString(name) {
		return ErrField("name", "must have at most 64 letters, digits, dashes, underscores and dots, and begin and end with a letter or "+
			"digit")
	}
	return nil
}

// CreateVolume creates a volume. If the input has a server, the next action attaches the volume to it, and
// the server is locked from the start.
// Errors: invalid_input, uniqueness_error, resource_limit_exceeded, locked, service_error (another location),
// limit_exceeded_error (a server with 16 volumes).
func (p Project) CreateVolume(in CreateVolume) (CreatedVolume, *State, error) {
	var out CreatedVolume
	st, err := p.update(func(tx *Tx) error {
		if err := cmp.Or(
			checkVolumeName(in.Name), checkVolumeSize(in.Size), ValidateLabels(in.Labels),
			RequireUniqueName(&tx.Volumes, in.Name, 0), tx.checkLimit(&tx.Volumes),
		); err != nil {
			return err
		}
		location, server, err := tx.placeOfVolume(in)
		if err != nil {
			return err
		}
		v := &Volume{Meta: tx.NewMeta(in.Name, in.Labels), Size: in.Size, Location: location, Format: in.Format, Status: VolumeCreating}
		tx.Volumes.Put(v)
		create := ActionSpec{Command: "create_volume", Resources: []Ref{v.Ref()}, Does: volumeCreation{v.ID}}
		if server != nil {
			create.Resources = []Ref{server.Ref(), v.Ref()}
		}
		out.Action = tx.Start(create).ID
		if server != nil {
			attach := attachVolumeSpec(v.ID, server.ID)
			attach.After = out.Action
			out.NextActions = []int64{tx.Start(attach).ID}
		}
		out.Volume, _ = tx.Volumes.Get(v.ID)
		return nil
	})
	return out, st, err
}

type volumeCreation struct{ Volume int64 }

func (e volumeCreation) end(tx *Tx) {
	tx.Volumes.Update(e.Volume, func(v *Volume) { v.Status = VolumeAvailable })
}

func checkVolumeSize(size int) error {
	if size < MinVolumeSize || size > MaxVolumeSize {
		return ErrField("size", fmt.Sprintf("must be between %d and %d", MinVolumeSize, MaxVolumeSize))
	}
	return nil
}

// placeOfVolume returns the location of a new volume, and the server to attach it to, nil for none.
func (tx *Tx) placeOfVolume(in CreateVolume) (location *Location, server *Server, err error) {
	if in.Location != "" {
		var ok bool
		if location, ok = tx.Catalogue.Location(in.Location); !ok {
			return nil, nil, ErrField("location", fmt.Sprintf("location '%s' not found", in.Location))
		}
	}
	switch {
	case in.Server == 0 && in.Automount:
		return nil, nil, ErrField("automount", "needs a server")
	case in.Automount && in.Format == "": // terraform-provider-hcloud issue 337
		return nil, nil, ErrFields("automount needs a format", "format", "automount")
	case in.Server == 0 && location == nil:
		return nil, nil, ErrFields("either location or server is required", "location", "server")
	case in.Server == 0:
		return location, nil, nil
	}
	if server, err = tx.serverForVolume(in.Server); err != nil {
		return nil, nil, err
	}
	if location != nil && location.ID != server.Location.ID {
		return nil, nil, errOtherLocation()
	}
	return server.Location, server, nil
}

// serverForVolume returns a server that can get one more volume. Errors: invalid_input, locked, limit_exceeded_error.
func (tx *Tx) serverForVolume(id int64) (*Server, error) {
	s, ok := tx.Servers.Get(id)
	if !ok {
		return nil, ErrField("server", fmt.Sprintf("server with ID %d not found", id))
	}
	if err := tx.RequireUnlocked(s.Ref()); err != nil {
		return nil, err
	}
	return s, checkVolumesPerServer(len(s.Volumes) + 1)
}

// checkVolumesPerServer returns an error if a server cannot have n volumes. The code is the one that the CSI driver knows
// (hetznercloud/csi-driver, internal/api/volume.go); the document has none.
func checkVolumesPerServer(n int) error {
	if n > MaxVolumesPerServer {
		return ErrOperation("limit_exceeded_error", fmt.Sprintf("a server can have at most %d volumes", MaxVolumesPerServer))
	}
	return nil
}

// errOtherLocation is the answer of the real API (terraform-provider-hcloud issue 253).
func errOtherLocation() error {
	return ErrServiceError("server and volume must be in the same location")
}

// UpdateVolume changes name and labels. Errors: not_found, invalid_input, uniqueness_error.
func (p Project) UpdateVolume(id int64, in UpdateResource) (*State, error) {
	return p.update(func(tx *Tx) error {
		if err := setMeta(&tx.Volumes, id, in); err != nil || in.Name == nil {
			return err
		}
		return checkVolumeName(*in.Name)
	})
}

// DeleteVolume deletes a volume that is not attached. The document has no code for an attached one.
// Errors: not_found, locked, protected, service_error.
func (p Project) DeleteVolume(id int64) error {
	_, err := onFree(p, inVolumes, id, func(tx *Tx, v *Volume) error {
		switch {
		case v.DeleteProtection:
			return ErrProtected("volume deletion is protected")
		case v.Server != 0:
			return ErrServiceError("volume is still attached to a server, please detach it first")
		}
		tx.Volumes.Delete(id)
		return nil
	})
	return err
}

// setVolumeServer attaches a volume to a server, or detaches it if server is 0.
func (tx *Tx) setVolumeServer(id, server int64) {
	if v, ok := tx.Volumes.Get(id); ok && v.Server != server {
		tx.showElsewhere(id, v.Server, server, func(s *Server) *[]int64 { return &s.Volumes })
		tx.Volumes.Update(id, func(v *Volume) { v.Server = server })
	}
}
