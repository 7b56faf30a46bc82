package cloud

// attachVolumeSpec returns the action that attaches a volume to a server. Both are locked.
func attachVolumeSpec(id, server int64) ActionSpec {
	return ActionSpec{
		Command: "attach_volume", Resources: []Ref{{KindServer, server}, {KindVolume, id}}, Does: volumeChange{id, server},
	}
}

type volumeChange struct{ Volume, Server int64 } // 0 to detach it

func (e volumeChange) end(tx *Tx) { tx.setVolumeServer(e.Volume, e.Server) }

// AttachVolume attaches a volume to a server in its location.
// Errors: not_found, locked (the volume or the server), invalid_input, volume_already_attached, service_error (another
// location), limit_exceeded_error.
func (p Project) AttachVolume(id, server int64) (int64, *State, error) {
	return act(p, inVolumes, id, func(tx *Tx, v *Volume) (ActionSpec, error) {
		if v.Server != 0 {
			return ActionSpec{}, errVolumeAttached()
		}
		s, err := tx.serverForVolume(server)
		switch {
		case err != nil:
			return ActionSpec{}, err
		case s.Location.ID != v.Location.ID:
			return ActionSpec{}, errOtherLocation()
		}
		return attachVolumeSpec(id, server), nil
	})
}

// errVolumeAttached has the message that users of the CSI driver report (hetznercloud/csi-driver issue 41), and the code
// of hcloud-go.
func errVolumeAttached() error {
	return ErrOperation("volume_already_attached", "volume is already attached to a server, please detach it first")
}

// DetachVolume detaches a volume from its server. The message for a volume without a server is the one that users report
// (hetznercloud/csi-driver issue 41).
// Errors: not_found, locked (the volume or the server), service_error.
func (p Project) DetachVolume(id int64) (int64, *State, error) {
	return act(p, inVolumes, id, func(tx *Tx, v *Volume) (ActionSpec, error) {
		if v.Server == 0 {
			return ActionSpec{}, ErrServiceError("volume not attached to a server")
		}
		server := Ref{KindServer, v.Server}
		return ActionSpec{
			Command: "detach_volume", Resources: []Ref{server}, Does: volumeChange{id, 0},
		}, tx.RequireUnlocked(server)
	})
}

// ResizeVolume makes a volume larger, attached or not. Errors: not_found, locked, invalid_input.
func (p Project) ResizeVolume(id int64, size int) (int64, *State, error) {
	return act(p, inVolumes, id, func(_ *Tx, v *Volume) (ActionSpec, error) {
		if size <= v.Size {
			return ActionSpec{}, errInput("volume size is too small") // hetznercloud/csi-driver pull request 623
		}
		return ActionSpec{Command: "resize_volume", Does: volumeGrowth{id, size}}, checkVolumeSize(size)
	})
}

type volumeGrowth struct {
	Volume int64
	Size   int
}

func (e volumeGrowth) end(tx *Tx) { tx.Volumes.Update(e.Volume, func(v *Volume) { v.Size = e.Size }) }

// ChangeVolumeProtection sets the delete protection; nil changes nothing. Errors: not_found, locked.
func (p Project) ChangeVolumeProtection(id int64, protect *bool) (int64, *State, error) {
	return act(p, inVolumes, id, func(_ *Tx, v *Volume) (ActionSpec, error) {
		return ActionSpec{Command: "change_protection", Does: protectionOf(v.Ref(), protect)}, nil
	})
}
