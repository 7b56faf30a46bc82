package cloud

import "time"

// Image is what a server's disk is made from.
type Image struct {
	Meta               // Name is empty for snapshots and backups
	Type        string // system, app, snapshot, backup
	Status      string // available, creating, unavailable
	Description string
	ImageSize   float64 // GB; 0 while creating
	DiskSize    float64 // GB
	// CreatedFrom is the server that a snapshot or backup was made of; ID 0 for none.
	CreatedFrom      Ref
	CreatedFromName  string
	BoundTo          int64 // the server that a backup belongs to, 0 for none
	OSFlavor         string
	OSVersion        string
	Architecture     string
	RapidDeploy      bool
	DeleteProtection bool
	Deprecation      *Deprecation
	Deleted          time.Time // zero unless deleted
}

// Clone implements Object.
func (i *Image) Clone() *Image {
	c := *i
	return &c
}
