package cloud

import (
	"fmt"
	"time"
)

// MaxBackupsPerServer is the number of slots for backups of one server (API document, enable backups).
const MaxBackupsPerServer = 7

// backupWindows are the four-hour windows (UTC) in which a backup may be made.
var backupWindows = []string{"22-02", "02-06", "06-10", "10-14", "14-18", "18-22"}

// EnableServerBackup allows backups of a server. The cloud chooses the window.
// Errors: not_found, locked.
func (p Project) EnableServerBackup(id int64) (int64, *State, error) {
	return p.onServer(id, func(*Tx, *Server) (ActionSpec, error) {
		return ActionSpec{Command: "enable_backup", Done: func(tx *Tx) error {
			tx.Servers.Update(id, func(s *Server) {
				if s.BackupWindow == "" {
					s.BackupWindow = backupWindows[id%int64(len(backupWindows))]
				}
			})
			return nil
		}}, nil
	})
}

// DisableServerBackup ends backups of a server and deletes the existing ones.
// Errors: not_found, locked.
func (p Project) DisableServerBackup(id int64) (int64, *State, error) {
	return p.onServer(id, func(*Tx, *Server) (ActionSpec, error) {
		return ActionSpec{Command: "disable_backup", Done: func(tx *Tx) error {
			tx.Servers.Update(id, func(s *Server) { s.BackupWindow = "" })
			tx.deleteBackups(id)
			return nil
		}}, nil
	})
}

// backupsOf returns the ids of a server's backups, oldest first.
func (tx *Tx) backupsOf(server int64) []int64 {
	var ids []int64
	for i := range tx.Images.All() {
		if i.Type == ImageBackup && i.BoundTo == server {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

func (tx *Tx) deleteBackups(server int64) {
	for _, id := range tx.backupsOf(server) {
		tx.deleteImage(id)
	}
}

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
	action, st, err = p.onServer(id, func(tx *Tx, s *Server) (ActionSpec, error) {
		if err := ValidateLabels(in.Labels); err != nil {
			return ActionSpec{}, err
		}
		if in.Type == ImageBackup && s.BackupWindow == "" {
			return ActionSpec{}, ErrField("type", "backups are not enabled for this server")
		}
		if err := tx.checkLimit(&tx.Images); err != nil {
			return ActionSpec{}, err
		}
		image = tx.newServerImage(s, in)
		tx.Images.Put(image)
		newID := image.ID
		return ActionSpec{
			// The image is locked, too, so that it cannot be deleted before it is complete.
			Command: "create_image", Locks: []Ref{image.Ref()},
			Done:   func(tx *Tx) error { tx.imageCreated(newID, id); return nil },
			Failed: func(tx *Tx) { tx.deleteImage(newID) },
		}, nil
	})
	return image, action, st, err
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

func (tx *Tx) imageCreated(image, server int64) {
	i, ok := tx.Images.Update(image, func(i *Image) {
		i.Status = "available"
		// The simulated disk has no contents. This is about the size of a fresh system.
		i.ImageSize = min(2.3, i.DiskSize)
	})
	if !ok || i.Type != ImageBackup {
		return
	}
	if old := tx.backupsOf(server); len(old) > MaxBackupsPerServer {
		tx.deleteImage(old[0])
	}
}
