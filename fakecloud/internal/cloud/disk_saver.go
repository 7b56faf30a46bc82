package cloud

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/simclock"
)

// saveOthersEvery is how often what no write waits for is saved, in the machine's time: reports about traffic and usage, and the parts of
// SaveAlso.
const saveOthersEvery = 5 * time.Minute

// saveAgain is how long after a failure the disk is tried again, in the machine's time.
const saveAgain = time.Second

// diskSaver saves changes. Cloud.mu guards its fields, except for the first ones: those do not change.
//
// A change costs a write to the map of unsaved entries. A goroutine encodes and saves the accumulated entries, so that many writes share a
// transaction of the disk. A write is answered when its changes are saved. The cloud's own changes are saved in the same order, so that a
// disk always has the whole cloud as it was at some moment.
type diskSaver struct {
	cloud *Cloud
	disk  Disk
	wake  chan struct{}
	ended chan struct{}

	changes []diskChange
	places  map[entryKey]int // in changes
	round   *saveRound       // in which these are saved; nil if there are none
	failed  error            // of the last round; nil if it went well
}

// diskChange is one change of a disk: an entry that is new or another one now, or that is gone.
type diskChange struct {
	entry
	gone   bool
	prefix []byte // of all keys that are gone; the entry has no meaning
	all    *Cloud // a copy that replaces all that is on the disk; the entry has no meaning
}

// saveRound is a transaction of the disk.
type saveRound struct {
	saved chan struct{} // closed at its end
	err   error
}

// wait waits for the end of a round and returns its error.
func (r *saveRound) wait() error {
	if r == nil {
		return nil
	}
	<-r.saved
	return r.err
}

// saveTo lets the cloud save all later changes to a disk. The caller holds Cloud.mu.
func (c *Cloud) saveTo(d Disk) {
	c.saver = &diskSaver{
		cloud: c, disk: d, wake: make(chan struct{}, 1), ended: make(chan struct{}), places: map[entryKey]int{},
	}
	go c.saver.run()
}

// OnDiskError sets a function that is told when changes cannot be saved, and with nil when they can be saved again. Set it before
// Restore.
func (c *Cloud) OnDiskError(report func(error)) { c.onDiskError = report }

// put notes an entry that is new or another one now.
func (s *diskSaver) put(e entry) {
	if s != nil {
		s.note(diskChange{entry: e})
	}
}

// remove notes that an entry is gone.
func (s *diskSaver) remove(k entryKey) {
	if s != nil {
		s.note(diskChange{entry: entry{entryKey: k}, gone: true})
	}
}

func (s *diskSaver) note(change diskChange) {
	if i, ok := s.places[change.entryKey]; ok {
		s.changes[i] = change
		return
	}
	s.begin()
	s.places[change.entryKey] = len(s.changes)
	s.changes = append(s.changes, change)
}

// removeAll notes the removal of all entries with a prefix in their keys.
func (s *diskSaver) removeAll(prefix []byte) {
	if s != nil {
		s.begin()
		clear(s.places) // later entries come after it
		s.changes = append(s.changes, diskChange{prefix: prefix})
	}
}

// replaceAll notes that the cloud is another one now.
func (s *diskSaver) replaceAll() {
	if s != nil {
		s.begin()
		clear(s.places)
		s.changes = append(s.changes, diskChange{all: s.cloud.copyLocked(s.cloud.clock)})
	}
}

// begin makes sure that there will be a round.
func (s *diskSaver) begin() {
	if s.round == nil {
		s.round = &saveRound{saved: make(chan struct{})}
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// next is the round of the unsaved changes, nil if everything is saved.
func (s *diskSaver) next() *saveRound {
	if s == nil {
		return nil
	}
	return s.round
}

// refuse returns an error if changes cannot be saved. The disk is tried again all the time, so that the cloud does not need a restart.
func (s *diskSaver) refuse() error {
	if s == nil || s.failed == nil {
		return nil
	}
	return errNotSaved(s.failed)
}

func errNotSaved(err error) *Error {
	return ErrServer(fmt.Sprintf("the change could not be saved: %v; make room in the directory of the state, or make it writable", err))
}

// saveCommitted notes the changes of a transaction.
func (s *diskSaver) saveCommitted(tx *Tx) {
	if s == nil {
		return
	}
	id := tx.project.id
	for _, c := range tx.rrsets {
		if e := rrsetEntry(id, c.zone, c.set); c.gone {
			s.remove(e.entryKey)
		} else {
			s.put(e)
		}
	}
	for _, c := range tx.log.Changes {
		switch key := (entryKey{kind: string(c.Kind), project: id, id: c.ID}); {
		case c.New != nil:
			s.put(entry{key, c.New})
		case c.Old != nil:
			s.remove(key)
			if c.Kind == KindZone {
				sets := entryKey{kind: lineRRSet, project: id, id: c.ID}
				s.removeAll(sets.bytes())
			}
		}
	}
}

// saveEmptied notes that a project owns nothing any more.
func (s *diskSaver) saveEmptied(d *projectData) {
	if s == nil {
		return
	}
	for _, kind := range []string{sectionResources, lineRRSet, lineTimer} {
		s.removeAll(prefix(kind, d.id))
	}
}

// saveQueue replaces the timers on the disk: those of a cloud that was read have other numbers.
func (s *diskSaver) saveQueue(queue jobQueue) {
	s.removeAll(prefix(lineTimer))
	for _, j := range queue {
		if j.project != nil {
			s.put(j.entry())
		}
	}
}

// saveTypes replaces the server types on the disk.
func (s *diskSaver) saveTypes() {
	if s == nil {
		return
	}
	s.removeAll(prefix(lineType))
	for _, e := range s.cloud.typeEntries() {
		s.put(e)
	}
}

// saveExtra replaces the parts of SaveAlso of some kinds.
func (s *diskSaver) saveExtra(all []entry, kinds ...string) {
	for _, k := range kinds {
		s.removeAll(append(prefix(k, 0), k+"\x00"...))
	}
	for _, e := range all {
		s.put(e)
	}
}

// saveScenarios replaces the scenarios on the disk, and the server types and fault rules that scenarios change.
func (c *Cloud) saveScenarios() {
	if c.saver == nil {
		return
	}
	c.saver.removeAll(prefix(lineScenario))
	for _, s := range c.scenarios {
		c.saver.put(s.entry())
	}
	c.saver.saveTypes()
	c.saver.saveExtra(c.extraEntries(LineFault), LineFault)
}

// Sync returns when all changes so far are saved, with the parts of SaveAlso of these kinds, or all parts if kinds is empty. It does
// nothing for a cloud without a disk. Its error says that they could not be saved.
func (c *Cloud) Sync(kinds ...string) error {
	if !c.saves() {
		return nil
	}
	others := c.extraEntries(kinds...)
	return c.noteOthers(others, kinds...).wait()
}

// saves reports whether the cloud has a disk.
func (c *Cloud) saves() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.saver != nil
}

// noteOthers is Sync without waiting: it returns the round. Meanwhile the cloud may have been closed; then it is nil.
func (c *Cloud) noteOthers(others []entry, kinds ...string) *saveRound {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.saver
	if s == nil {
		return nil
	}
	if len(kinds) == 0 {
		s.removeAll(prefix(sectionOthers))
		c.statsEntries(s.put)
	}
	s.saveExtra(others, kinds...)
	return s.next()
}

// run saves changes until the cloud is closed.
func (s *diskSaver) run() {
	defer close(s.ended)
	others := time.NewTicker(saveOthersEvery)
	defer others.Stop()
	var again <-chan time.Time
	for {
		select {
		case <-s.wake:
		case <-again:
		case <-others.C:
			go func() { _ = s.cloud.Sync() }() // onDiskError is told
			continue
		case <-s.cloud.closed:
			s.flush()
			s.end()
			return
		}
		again = nil
		if !s.flush() {
			again = time.After(saveAgain)
		}
	}
}

// close waits for the end of run, and closes the disk.
func (s *diskSaver) close() {
	if s == nil {
		return
	}
	<-s.ended
	if err := s.disk.Close(); err != nil && s.cloud.onDiskError != nil {
		s.cloud.onDiskError(err)
	}
}

// end lets writes that come after the last one not wait. They are not saved: their clients are gone.
func (s *diskSaver) end() {
	s.cloud.mu.Lock()
	defer s.cloud.mu.Unlock()
	s.cloud.saver = nil
	if s.round != nil {
		s.round.err = errNotSaved(errors.New("the cloud is closed"))
		close(s.round.saved)
	}
}

// flush saves the changes. It returns false if that fails.
func (s *diskSaver) flush() bool {
	c := s.cloud
	c.mu.Lock()
	changes, round := s.changes, s.round
	s.changes, s.places, s.round = nil, map[entryKey]int{}, nil
	header, machine := c.header(), c.machine()
	c.mu.Unlock()
	if round == nil && len(changes) == 0 {
		return true
	}
	all := slices.Concat(changes, []diskChange{{entry: header}, {entry: machine}})
	err := s.disk.Write(func(put func(key, value []byte) error, deleteAll func([]byte) error) error {
		return write(all, put, deleteAll)
	})
	c.mu.Lock()
	before := s.failed
	if s.failed = err; err != nil {
		s.changes = append(changes, s.changes...)
		clear(s.places)
	}
	c.mu.Unlock()
	if c.onDiskError != nil && (err == nil) != (before == nil) {
		c.onDiskError(err)
	}
	if round != nil {
		if err != nil {
			round.err = errNotSaved(err)
		}
		close(round.saved)
	}
	return err == nil
}

func (c *Cloud) machine() entry {
	clk, ok := c.clock.(*simclock.Clock)
	return entry{entryKey{kind: lineMachine}, savedMachine{time.Now().UTC(), !ok || clk.Speed() == 0}}
}

// write makes the changes with the functions of Disk.Write.
func write(changes []diskChange, put func(key, value []byte) error, deleteAll func([]byte) error) (err error) {
	save := func(e entry) {
		if err == nil {
			err = put(e.bytes(), e.encode())
		}
	}
	for i := range changes {
		switch change := &changes[i]; {
		case err != nil:
			return err
		case change.all != nil:
			if err = deleteAll(nil); err == nil {
				change.all.entries(save)
			}
		case change.prefix != nil:
			err = deleteAll(change.prefix)
		case change.gone:
			err = put(change.bytes(), nil)
		default:
			save(change.entry)
		}
	}
	return err
}
