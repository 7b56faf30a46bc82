package cloud

import "time"

// MaxBackupsPerServer is the number of slots for backups of one server (API document, enable backups).
const MaxBackupsPerServer = 7

// Backups says when the daily backups of a server are made. It is replaced as a whole, never changed in place.
type Backups struct {
	// Window is one of backupWindows.
	Window string `json:"window,omitzero"`
	// At is the time of a backup: after midnight, in UTC.
	At time.Duration `json:"at,omitzero"`
	// Due is the time of the next one, so that a job of earlier backups notices that it is outdated.
	Due time.Time `json:"due,omitzero"`
}

// backupWindow is the length of a window.
const backupWindow = 4 * time.Hour

// backupWindows are the possible windows (UTC) for backups. The first one begins at 22:00.
var backupWindows = [...]string{"22-02", "02-06", "06-10", "10-14", "14-18", "18-22"}

// newBackups chooses the window, and the minute in it. How the real cloud chooses is not known. Here they follow from the
// server's id, so that the backups of many servers are spread over the day.
func newBackups(server int64) *Backups {
	window := server % int64(len(backupWindows))
	minute := server % int64(backupWindow/time.Minute)
	return &Backups{
		Window: backupWindows[window],
		At:     (22*time.Hour + time.Duration(window)*backupWindow + time.Duration(minute)*time.Minute) % (24 * time.Hour),
	}
}

// next returns the time of the first backup after a time.
func (b *Backups) next(after time.Time) time.Time {
	next := after.UTC().Truncate(24 * time.Hour).Add(b.At)
	if !next.After(after) {
		next = next.Add(24 * time.Hour)
	}
	return next
}

// EnableServerBackup begins daily backups of a server. The cloud chooses the window.
// Errors: not_found, locked.
func (p Project) EnableServerBackup(id int64) (int64, *State, error) {
	return act(p, inServers, id, func(*Tx, *Server) (ActionSpec, error) {
		return ActionSpec{Command: "enable_backup", Does: backupsOn{id}}, nil
	})
}

type backupsOn struct{ Server int64 }

func (e backupsOn) end(tx *Tx) {
	b := newBackups(e.Server)
	tx.scheduleBackup(e.Server, *b, b.next(tx.now))
}

// DisableServerBackup ends backups of a server and deletes the existing ones.
// Errors: not_found, locked.
func (p Project) DisableServerBackup(id int64) (int64, *State, error) {
	return act(p, inServers, id, func(*Tx, *Server) (ActionSpec, error) {
		return ActionSpec{Command: "disable_backup", Does: backupsOff{id}}, nil
	})
}

type backupsOff struct{ Server int64 }

func (e backupsOff) end(tx *Tx) {
	tx.Servers.Update(e.Server, func(s *Server) { s.Backups = nil })
	tx.deleteBackups(e.Server)
}

// backupRetry is how long a backup waits for the end of another action of its server. The real value is not known.
const backupRetry = time.Minute

// scheduleBackup makes a backup of a server at a time, and then one each day, until its backups are disabled. Like a request, it needs a
// server without a lock. It skips a day if the project has no room for another image.
func (tx *Tx) scheduleBackup(server int64, b Backups, at time.Time) {
	b.Due = at
	tx.Servers.Update(server, func(s *Server) { s.Backups = &b })
	tx.schedule(at.Sub(tx.now), backupDue{server})
}

type backupDue struct{ Server int64 }

func (e backupDue) about() Ref { return Ref{KindServer, e.Server} }

func (e backupDue) due(tx *Tx) {
	s, ok := tx.Servers.Get(e.Server)
	if !ok || s.Backups == nil || !s.Backups.Due.Equal(tx.now) {
		return
	}
	if tx.Actions.Locked(s.Ref()) {
		tx.scheduleBackup(s.ID, *s.Backups, tx.now.Add(backupRetry))
		return
	}
	if _, spec, err := tx.planImage(s, CreateServerImage{Type: ImageBackup}); err == nil {
		tx.Start(spec)
	}
	tx.scheduleBackup(s.ID, *s.Backups, s.Backups.next(tx.now))
}

// backupsOf returns the ids of a server's backups, oldest first.
func (st *State) backupsOf(server int64) []int64 {
	var ids []int64
	for i := range st.Images.All() {
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
