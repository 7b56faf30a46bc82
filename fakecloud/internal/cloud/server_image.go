package cloud

import (
	"fmt"
	"time"
)

// deleteImage deletes an image. Servers that were made from it show no image.
func (tx *Tx) deleteImage(id int64) {
	tx.Images.Delete(id)
	tx.showImage(id, nil)
}

// CreateServerImage is the input of the action create_image.
type CreateServerImage struct {
	Type        string // snapshot or backup
	Description string // "" for a generated description
	Labels      map[string]string
}

// CreateServerImage copies a server's disk to a new image. The image is creating until the action has
// succeeded, and is deleted if it fails. If all slots are in use, a new backup replaces the oldest.
// Errors: not_found, locked, invalid_input, resource_limit_exceeded.
func (p Project) CreateServerImage(id int64, in CreateServerImage) (image *Image, action int64, st *State, err error) {
	action, st, err = act(p, inServers, id, func(tx *Tx, s *Server) (spec ActionSpec, err error) {
		image, spec, err = tx.planImage(s, in)
		return spec, err
	})
	return image, action, st, err
}

// planImage adds the new image, and returns the action that completes it.
func (tx *Tx) planImage(s *Server, in CreateServerImage) (*Image, ActionSpec, error) {
	if err := ValidateLabels(in.Labels); err != nil {
		return nil, ActionSpec{}, err
	}
	if in.Type == ImageBackup && s.Backups == nil {
		return nil, ActionSpec{}, ErrField("type", "backups are not enabled for this server")
	}
	if err := tx.checkLimit(&tx.Images); err != nil {
		return nil, ActionSpec{}, err
	}
	image := tx.newServerImage(s, in)
	tx.Images.Put(image)
	// The image is locked, too, so that it cannot be deleted before it is complete.
	return image, ActionSpec{
		Command: "create_image", Resources: []Ref{s.Ref()}, Locks: []Ref{image.Ref()}, Does: imageCreation{image.ID, s.ID},
	}, nil
}

func (tx *Tx) newServerImage(s *Server, in CreateServerImage) *Image {
	if in.Description == "" {
		in.Description = fmt.Sprintf("%s of %s at %s", in.Type, s.Name, tx.now.Format(time.RFC3339))
	}
	i := &Image{
		Meta: tx.NewMeta("", in.Labels), Type: in.Type, Status: "creating", Description: in.Description,
		DiskSize: float64(s.PrimaryDisk), CreatedFrom: s.Ref(), CreatedFromName: s.Name,
		OSFlavor: "unknown", Architecture: s.Type.Architecture,
	}
	if s.Image != nil {
		i.OSFlavor, i.OSVersion = s.Image.OSFlavor, s.Image.OSVersion
	}
	if in.Type == ImageBackup {
		i.BoundTo = s.ID
	}
	return i
}

// OnImage sets a function that is called when a server's disk was copied to an image. It must not call the cloud.
func (c *Cloud) OnImage(f func(server, image int64)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onImage = f
}

type imageCreation struct{ Image, Server int64 }

func (e imageCreation) failed(tx *Tx, _ *Error) { tx.deleteImage(e.Image) }

func (e imageCreation) end(tx *Tx) {
	i, ok := tx.Images.Update(e.Image, func(i *Image) {
		i.Status = "available"
		// The cloud knows no contents of disks. This is about the size of a fresh system.
		i.ImageSize = min(2.3, i.DiskSize)
	})
	if tx.cloud.onImage != nil {
		tx.cloud.onImage(e.Server, e.Image)
	}
	if !ok || i.Type != ImageBackup {
		return
	}
	if old := tx.backupsOf(e.Server); len(old) > MaxBackupsPerServer {
		tx.deleteImage(old[0])
	}
}
