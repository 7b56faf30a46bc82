package cloud

import (
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
)

// KindImage is the kind of images.
const KindImage store.Kind = "image"

// Image is the source of a server's disk: a system or app image of the catalogue, or a snapshot or backup
// that a project made of a server.
//
// Reproduced: descriptions and labels of snapshots and backups can be changed, a backup can become a
// snapshot, snapshots can be protected. Deprecated images are listed only on request, retired ones never;
// all can be read by id. A server shows the current version of its image, and null after its deletion.
// Left out: the contents of an image; the duration of a deletion; deleted images (the real API shows
// some, with a time in `deleted`).
type Image struct {
	store.Meta          // Name is empty for snapshots and backups
	Type        string  `json:"type,omitzero"`   // system, app, snapshot, backup
	Status      string  `json:"status,omitzero"` // available, creating, unavailable
	Description string  `json:"description,omitzero"`
	ImageSize   float64 `json:"image_size,omitzero"` // GB; 0 while creating
	DiskSize    float64 `json:"disk_size,omitzero"`  // GB
	// CreatedFrom is the server that a snapshot or backup was made of; ID 0 for none.
	CreatedFrom      Ref          `json:"created_from,omitzero"`
	CreatedFromName  string       `json:"created_from_name,omitzero"`
	BoundTo          int64        `json:"bound_to,omitzero"` // the server that a backup belongs to, 0 for none
	OSFlavor         string       `json:"os_flavor,omitzero"`
	OSVersion        string       `json:"os_version,omitzero"`
	Architecture     string       `json:"architecture,omitzero"`
	RapidDeploy      bool         `json:"rapid_deploy,omitzero"`
	DeleteProtection bool         `json:"delete_protection,omitzero"`
	Deprecation      *Deprecation `json:"deprecation,omitzero"`
	Deleted          time.Time    `json:"deleted,omitzero"` // zero unless deleted
}

// The types of an image.
const (
	ImageSystem   = "system"
	ImageApp      = "app"
	ImageSnapshot = "snapshot"
	ImageBackup   = "backup"
)

// Clone implements Object.
func (i *Image) Clone() *Image { return new(*i) }

// Ref returns the reference to the image.
func (i *Image) Ref() Ref { return Ref{KindImage, i.ID} }

// Image finds an image of the project or of the catalogue.
func (st *State) Image(id int64) (*Image, bool) {
	if i, ok := st.Images.Get(id); ok {
		return i, true
	}
	return st.Catalogue.Image(id)
}

// ownImage returns a snapshot or backup that no action has locked.
// Errors: not_found, unsupported_error for the catalogue's images, locked.
func (tx *Tx) ownImage(id int64) (*Image, error) {
	i, ok := tx.Images.Get(id)
	if !ok {
		if system, ok := tx.Catalogue.Image(id); ok {
			return nil, ErrUnsupported("images of type " + system.Type + " cannot be changed or deleted")
		}
		return nil, ErrNotFound(KindImage, id)
	}
	return i, tx.RequireUnlocked(i.Ref())
}

// UpdateImage is the input of PUT /images/{id}. A nil field changes nothing.
type UpdateImage struct {
	Description *string
	// ToSnapshot turns a backup into a snapshot. A snapshot is not bound to its server.
	ToSnapshot bool
	Labels     map[string]string
}

// UpdateImage changes a snapshot or backup.
// Errors: not_found, invalid_input, unsupported_error, locked.
func (p Project) UpdateImage(id int64, in UpdateImage) (*State, error) {
	return p.update(func(tx *Tx) error {
		if _, err := tx.ownImage(id); err != nil {
			return err
		}
		if err := ValidateLabels(in.Labels); err != nil {
			return err
		}
		tx.changeImage(id, func(i *Image) {
			set(&i.Description, in.Description)
			if in.ToSnapshot {
				i.Type, i.BoundTo = ImageSnapshot, 0
			}
			if in.Labels != nil {
				i.Labels = labelsOrNone(in.Labels)
			}
		})
		return nil
	})
}

// ChangeImageProtection sets the delete protection of a snapshot; nil changes nothing.
// Errors: not_found, unsupported_error (it is not a snapshot), locked.
func (p Project) ChangeImageProtection(id int64, protect *bool) (action int64, st *State, err error) {
	st, err = p.update(func(tx *Tx) error {
		i, err := tx.ownImage(id)
		if err != nil {
			return err
		}
		if i.Type != ImageSnapshot {
			return ErrUnsupported("only snapshots can be protected")
		}
		action = tx.Start(ActionSpec{
			Command: "change_protection", Resources: []Ref{i.Ref()}, Does: protectionOf(i.Ref(), protect),
		}).ID
		return nil
	})
	return action, st, err
}

// DeleteImage deletes a snapshot or backup. Servers that were made from it stay and show no image.
// Errors: not_found, unsupported_error, locked, protected.
func (p Project) DeleteImage(id int64) error {
	_, err := p.update(func(tx *Tx) error {
		i, err := tx.ownImage(id)
		if err != nil {
			return err
		}
		if i.DeleteProtection {
			return ErrProtected(i.Type + " deletion is protected")
		}
		tx.deleteImage(id)
		return nil
	})
	return err
}

// changeImage changes an image, also in the servers that show it.
func (tx *Tx) changeImage(id int64, change func(*Image)) {
	if i, ok := tx.Images.Update(id, change); ok {
		tx.showImage(id, i)
	}
}

// showImage puts the image, or nil, into the servers that were made from it.
func (tx *Tx) showImage(id int64, i *Image) {
	var from []int64
	for s := range tx.Servers.All() {
		if s.Image != nil && s.Image.ID == id {
			from = append(from, s.ID)
		}
	}
	for _, server := range from {
		tx.Servers.Update(server, func(s *Server) { s.Image = i })
	}
}
