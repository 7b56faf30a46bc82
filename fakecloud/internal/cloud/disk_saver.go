package cloud

import (
	"cmp"
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

// What a later cloud continues with is saved ahead: so many ids, and the time of a clock that is faster than the machine's. Half of it is
// left when the next part is saved. A cloud that is closed gives the rest back.
const (
	idsAhead  = 200_000
	timeAhead = 10 * time.Second // of the machine
)

// diskSaver saves changes. Cloud.mu guards its fields, except for the first ones: those do not change.
//
// A change costs a write to the map of unsaved entries. A goroutine encodes and saves the accumulated entries, so that many writes share a
// transaction of the disk. A write is answered, and readers and subscribers see it, when its changes are saved. The cloud's own changes are
// saved in the same order, so that a disk always has the whole cloud as it was at some moment.
type diskSaver struct {
	cloud *Cloud
	disk  Disk
	wake  chan struct{}
	ended chan struct{}

	changes []diskChange
	places  map[entryKey]int // in changes
	round   *saveRound       // in which these are saved; nil if there are none
	saving  *saveRound       // the one before, as long as it lasts; else nil
	failed  error            // of the last round, or for the next one; nil if the disk works
	held    map[*projectData]struct{}
	events  [][]Event    // of unsaved changes
	until   time.Time    // until which the clock is moved
	saved   savedMachine // the latest that is on the disk

	types     []*ServerType     // that were noted; nil after other ones replaced all
	scenarios map[*Scenario]int // the versions that were noted
	ca        *authority        // that was saved; nil if the disk may have none
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
		held: map[*projectData]struct{}{},
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
		s.until = time.Time{} // the clock may show an earlier time now
		s.types, s.scenarios = nil, nil
		s.changes = append(s.changes, diskChange{all: s.cloud.copyLocked(s.cloud.clock)})
	}
}

// begin makes sure that there will be a round. While the disk fails, it waits for the next try.
func (s *diskSaver) begin() {
	if s.round != nil {
		return
	}
	s.round = &saveRound{saved: make(chan struct{})}
	if s.failed != nil {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// next is the round after which all present changes are saved, nil if they are.
func (s *diskSaver) next() *saveRound {
	if s == nil {
		return nil
	}
	return cmp.Or(s.round, s.saving)
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
			parts := entryKey{project: id, id: c.ID}
			switch c.Kind {
			case KindZone:
				parts.kind = lineRRSet
			case KindLoadBalancer:
				parts.kind = lineTarget
			default:
				continue
			}
			s.removeAll(parts.bytes())
		}
	}
	for _, t := range tx.targets {
		if e, ok := t.entry(id, tx.State); ok {
			s.put(e)
		} else {
			s.remove(e.entryKey)
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

// saveTypes saves the server types that changed.
func (s *diskSaver) saveTypes() {
	if s == nil || slices.Equal(s.types, s.cloud.catalogue.ServerTypes) {
		return
	}
	before := s.types
	s.types = s.cloud.catalogue.ServerTypes
	if before == nil {
		s.removeAll(prefix(lineType))
	}
	for _, t := range before {
		if !slices.Contains(s.types, t) {
			s.remove(entryKey{kind: lineType, id: t.ID})
		}
	}
	for _, e := range s.cloud.typeEntries(before) {
		s.put(e)
	}
}

// saveScenarios saves the scenarios that changed, and the server types that scenarios change.
func (c *Cloud) saveScenarios() {
	s := c.saver
	if s == nil {
		return
	}
	if s.scenarios == nil {
		s.removeAll(prefix(lineScenario))
	}
	before := s.scenarios
	s.scenarios = map[*Scenario]int{}
	for _, of := range c.scenarios {
		s.scenarios[of] = of.version
		if version, ok := before[of]; !ok || version != of.version {
			s.put(of.entry())
		}
	}
	for of := range before {
		if _, ok := s.scenarios[of]; !ok {
			s.remove(entryKey{kind: lineScenario, id: of.ID})
		}
	}
	s.saveTypes()
}

// Refuses returns the error of a change that would come now and could not be saved.
func (c *Cloud) Refuses() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.saver.refuse()
}

// Sync returns when all changes so far are saved, except for those that are saved now and then. It does nothing for a cloud without a disk.
// Its error says that they could not be saved.
func (c *Cloud) Sync() error {
	c.mu.Lock()
	c.saver.noteExtra()
	round := c.saver.next()
	c.mu.Unlock()
	return round.wait()
}

// AllowTime saves a time that anybody may see soon. Call it before the clock is moved there.
func (c *Cloud) AllowTime(t time.Time) error {
	c.mu.Lock()
	if s := c.saver; s != nil && t.After(s.until) {
		s.until = t
		s.begin()
	}
	round := c.saver.next()
	c.mu.Unlock()
	return round.wait()
}

// noteExtra notes the changes of the parts of SaveAlso.
func (s *diskSaver) noteExtra() {
	if s == nil {
		return
	}
	for _, part := range s.cloud.extra {
		if part.Changed == nil {
			continue
		}
		part.Changed(func(id int64, v any) {
			if e := (entry{entryKey{kind: part.Kind, id: id}, v}); v == nil {
				s.remove(e.entryKey)
			} else {
				s.put(e)
			}
		})
	}
}

// syncOthers is Sync with the rest: usage, traffic and rate limits.
func (c *Cloud) syncOthers() error {
	kinds := []string{lineBalancer, lineUsage, lineTraffic}
	var others []entry
	for _, part := range c.extra {
		if part.Changed == nil {
			kinds, others = append(kinds, part.Kind), append(others, part.entries()...)
		}
	}
	c.mu.Lock()
	if s := c.saver; s != nil {
		for _, k := range kinds {
			s.removeAll(kindPrefix(k))
		}
		c.statsEntries(s.put)
		for _, e := range others {
			s.put(e)
		}
	}
	c.mu.Unlock()
	return c.Sync()
}

// kindPrefix is the common prefix of the keys of a kind, for entries of no project.
func kindPrefix(kind string) []byte { return append(prefix(kind, 0), kind+"\x00"...) }

// hold lets readers see a state of a project until the present changes are saved.
func (s *diskSaver) hold(d *projectData, shown *State) {
	if s == nil {
		return
	}
	s.begin()
	if _, ok := s.held[d]; !ok {
		s.held[d] = struct{}{}
		d.held.Store(shown)
	}
}

// store changes the state of a project. The caller holds Cloud.mu.
func (c *Cloud) store(d *projectData, st *State) {
	c.saver.hold(d, d.state.Load())
	d.state.Store(st)
}

// publish publishes the events that were added, and wakes the calls of Await, once the changes are saved.
func (c *Cloud) publish() {
	events := c.events.take()
	if c.saver.next() == nil {
		c.events.publish(events)
		c.wakeWaiters()
	} else {
		c.saver.events = append(c.saver.events, events)
	}
}

// run saves changes until the cloud is closed.
func (s *diskSaver) run() {
	defer close(s.ended)
	others, ahead := time.NewTicker(saveOthersEvery), time.NewTicker(saveAgain)
	defer others.Stop()
	defer ahead.Stop()
	for {
		select {
		case <-s.wake:
			s.flush(false)
		case <-others.C:
			go func() { _ = s.cloud.syncOthers() }() // onDiskError is told
		case <-ahead.C:
			s.cloud.mu.Lock()
			if speed := s.cloud.speed(); speed > 1 && s.cloud.Now().Add(TimeAhead(speed)/2).After(s.saved.Until) {
				s.begin()
			}
			failed := s.failed != nil
			s.cloud.mu.Unlock()
			if failed {
				s.flush(false)
			}
		case <-s.cloud.closed:
			s.flush(true)
			s.end()
			return
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
	for d := range s.held {
		d.held.Store(nil)
	}
	if s.round != nil {
		s.round.err = errNotSaved(errors.New("the cloud is closed"))
		close(s.round.saved)
	}
}

// flush saves the changes, and then shows them. It is the last one when the cloud is closed.
func (s *diskSaver) flush(last bool) {
	c := s.cloud
	c.mu.Lock()
	s.noteExtra()
	changes, round, events, held := s.changes, s.round, s.events, map[*projectData]*State{}
	s.changes, s.places, s.round, s.events, s.saving = nil, map[entryKey]int{}, nil, nil, round
	for d := range s.held {
		held[d] = d.state.Load()
	}
	machine := s.machine(last)
	durable := machine.LastID != s.saved.LastID || machine.LastProject != s.saved.LastProject
	all, ca := slices.Clone(changes), c.ca
	if ca != s.ca {
		all = append(all, diskChange{entry: entry{entryKey{kind: lineAuthority}, ca.saved()}})
	}
	all = append(all, diskChange{entry: entry{entryKey{kind: lineCloud}, c.header()}},
		diskChange{entry: entry{entryKey{kind: lineMachine}, machine}})
	c.mu.Unlock()
	var err error
	if round != nil || last {
		err = s.disk.Write(durable, func(put func(key, value []byte) error, deleteAll func([]byte) error) error {
			return write(all, put, deleteAll)
		})
	}
	failed := err
	if err == nil {
		failed = s.disk.Room()
	}
	c.mu.Lock()
	before := s.failed
	s.failed, s.saving = failed, nil
	switch {
	case err != nil:
		s.changes, s.events = append(changes, s.changes...), append(events, s.events...)
		clear(s.places)
		s.begin()
	case round != nil:
		s.saved, s.ca = machine, ca
		s.show(held, events)
	}
	c.mu.Unlock()
	if c.onDiskError != nil && (failed == nil) != (before == nil) {
		c.onDiskError(failed)
	}
	if round != nil {
		if err != nil {
			round.err = errNotSaved(err)
		}
		close(round.saved)
	}
}

// show lets readers and subscribers see the saved changes.
func (s *diskSaver) show(saved map[*projectData]*State, events [][]Event) {
	for d, st := range saved {
		if d.state.Load() == st {
			delete(s.held, d)
			st = nil
		}
		d.held.Store(st)
	}
	for _, batch := range events {
		s.cloud.events.publish(batch)
	}
	s.cloud.wakeWaiters()
}

// machine returns the entry about the machine. It is read before the cloud's time, which would go back otherwise.
func (s *diskSaver) machine(last bool) savedMachine {
	c, m := s.cloud, savedMachine{Time: time.Now().UTC(), Stopped: s.cloud.speed() == 0}
	if last {
		return m
	}
	if m.Until = s.until; c.speed() > 1 && m.Until.Before(c.Now().Add(TimeAhead(c.speed()))) {
		m.Until = c.Now().Add(TimeAhead(c.speed()))
	}
	m.LastID, m.LastProject = s.saved.LastID, s.saved.LastProject
	if c.lastID.Load()+idsAhead/2 > m.LastID || c.lastProject+idsAhead/2 > m.LastProject {
		m.LastID, m.LastProject = c.lastID.Load()+idsAhead, c.lastProject+idsAhead
	}
	return m
}

// speed is the speed of the clock; 0 if it is not one of simclock.
func (c *Cloud) speed() float64 {
	if clk, ok := c.clock.(*simclock.Clock); ok {
		return clk.Speed()
	}
	return 0
}

// TimeAhead is how far the time is saved ahead for a speed of the clock.
func TimeAhead(speed float64) time.Duration { return time.Duration(speed * float64(timeAhead)) }

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
