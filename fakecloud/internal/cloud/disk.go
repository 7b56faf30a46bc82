package cloud

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/simclock"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/strictjson"
)

// Disk keeps what a cloud has, so that the next one continues where it was. It is a map from keys to values. fakecloud.Disk is the same.
type Disk interface {
	// Read calls yield for all keys in their order, until yield returns an error. yield must not keep the slices. It comes before Write.
	Read(yield func(key, value []byte) error) error
	// Write makes the changes of a function, or none if it returns an error or if the program ends. The function puts the value of a
	// key, deletes a key by putting nil, and deletes all keys that begin with a prefix. The disk must not change the slices. If durable
	// is set, these and all earlier changes survive a failure of the machine, too.
	Write(durable bool, change func(put func(key, value []byte) error, deleteAll func(prefix []byte) error) error) error
	// Room returns an error if further changes may not fit. The cloud asks after each Write, and each second while there is an error.
	Room() error
	Close() error
}

// The kinds of entries that a disk has and a snapshot lacks.
const (
	lineMachine   = "machine"
	lineAuthority = "authority" // see savedCloud.Authority
)

// savedMachine is what the time of a cloud follows from that starts again.
type savedMachine struct {
	Time time.Time `json:"time"` // of the machine, when the cloud's time was saved
	// Stopped is whether the cloud's clock stood still.
	Stopped bool `json:"stopped,omitzero"`
	// Until, LastID and LastProject are not less than the latest time and the latest ids that anybody can have seen of the cloud. They
	// are missing after Close.
	Until       time.Time `json:"until,omitzero"`
	LastID      int64     `json:"last_id,omitzero"`
	LastProject int64     `json:"last_project,omitzero"`
}

// sections are the kinds of entries in reading order. Resources share one section. The last section has all other kinds.
var sections = [...]string{lineCloud, lineMachine, lineType, lineProject, lineToken, sectionResources, lineRRSet, lineScenario, lineTimer,
	sectionOthers}

const (
	sectionResources = "resources"
	sectionOthers    = "others"
)

func sectionOf(kind string) byte {
	switch {
	case place(store.Kind(kind)) >= 0:
		kind = sectionResources
	case kind == lineTarget:
		kind = lineRRSet // the numbers of the sections stay
	}
	if i := slices.Index(sections[:], kind); i >= 0 {
		return byte(i)
	}
	return byte(len(sections) - 1)
}

// prefix is what the keys of a kind have in common, or those of all kinds of its section if the kind is that of a section.
func prefix(kind string, project ...int64) []byte {
	key := []byte{sectionOf(kind)}
	for _, p := range project {
		key = binary.BigEndian.AppendUint64(key, uint64(p))
	}
	return key
}

// bytes is the key on a disk.
func (k *entryKey) bytes() []byte {
	key := append(prefix(k.kind, k.project), k.kind...)
	key = binary.BigEndian.AppendUint64(append(key, 0), uint64(k.id))
	return append(key, k.name...)
}

// kindOf returns the kind and the project of a key.
func kindOf(key []byte) (kind string, project int64, err error) {
	if len(key) > 9 {
		if name, _, ok := bytes.Cut(key[9:], []byte{0}); ok {
			return string(name), int64(binary.BigEndian.Uint64(key[1:])), nil
		}
	}
	return "", 0, fmt.Errorf("key %x: is not one of this program", key)
}

// ReadDisk reads what a disk has. The cloud does not change; [Cloud.Restore] takes it over and lets the cloud save all later changes to
// this disk.
//
// While no program had the disk, the time has gone on as on the machine, unless the cloud's clock stood still. It never goes back.
func (c *Cloud) ReadDisk(d Disk) (*Snapshot, error) {
	l := c.newLoader()
	l.snapshot.disk, l.cloud.ca = d, nil
	var machine *savedMachine
	err := readAhead(d, func(e *diskEntry) error {
		switch e.Kind {
		case lineMachine:
			machine = &savedMachine{}
			return strictjson.Decode(e.Data, machine)
		case lineAuthority:
			return decodeTo(e.Data, l.authority)
		}
		err := e.err
		if err == nil {
			err = l.entryOf(e)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", e.Kind, err)
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(l.projects) == 0 && machine == nil:
		l.snapshot.cloud = nil // it is empty
		return l.snapshot, nil
	case machine == nil || l.cloud.ca == nil:
		return nil, errors.New("has no time or no authority; a part of it is missing")
	}
	if err := l.resolve(); err != nil {
		return nil, err
	}
	off := machine.Until.Sub(l.snapshot.Time)
	if !machine.Stopped {
		off = max(off, time.Since(machine.Time))
	}
	l.pass(max(off, 0))
	l.cloud.lastID.Store(max(l.cloud.lastID.Load(), machine.LastID))
	l.cloud.lastProject = max(l.cloud.lastProject, machine.LastProject)
	return l.snapshot, nil
}

// entryOf is entry for a diskEntry that may have a decoded resource.
func (l *loader) entryOf(e *diskEntry) error {
	l.tx = l.projects[e.Project]
	if e.put == nil || l.tx == nil {
		return l.entry(e.SnapshotLine)
	}
	return e.put(l, resources[place(store.Kind(e.Kind))].table(l.tx.State))
}

// diskEntry is an entry that was read.
type diskEntry struct {
	SnapshotLine
	put func(*loader, table) error // of a resource, which was decoded
	err error
}

// decode decodes a resource.
func (e *diskEntry) decode() {
	if c := codecs[store.Kind(e.Kind)]; c != nil {
		e.put, e.err = c.decode(e.Data, json.Unmarshal)
	}
}

// readAhead calls yield for the entries of a disk. Other goroutines decode the next ones meanwhile: decoding is most of the cost of a start
// with a large state.
func readAhead(d Disk, yield func(*diskEntry) error) error {
	const size = 256
	type batch struct {
		entries []diskEntry
		decoded chan struct{}
	}
	batches, end := make(chan batch, 4*runtime.GOMAXPROCS(0)), make(chan struct{})
	var readErr error
	go func() {
		defer close(batches)
		var next []diskEntry
		send := func() error {
			b := batch{next, make(chan struct{})}
			next = nil
			go func() {
				defer close(b.decoded)
				for i := range b.entries {
					b.entries[i].decode()
				}
			}()
			select {
			case batches <- b:
				return nil
			case <-end:
				return errors.New("an entry is wrong") // readAhead has the error
			}
		}
		readErr = d.Read(func(key, value []byte) error {
			kind, project, err := kindOf(key)
			line := SnapshotLine{Kind: kind, Project: project, Data: bytes.Clone(value)}
			if next = append(next, diskEntry{SnapshotLine: line}); err == nil && len(next) == size {
				err = send()
			}
			return err
		})
		readErr = cmp.Or(readErr, send())
	}()
	var err error
	for b := range batches {
		<-b.decoded
		for i := range b.entries {
			if err == nil {
				if err = yield(&b.entries[i]); err != nil {
					close(end)
				}
			}
		}
	}
	return cmp.Or(err, readErr)
}

// pass advances the time by an interruption. Tasks could not proceed during it, so their deadlines move by d.
func (l *loader) pass(d time.Duration) {
	if l.snapshot.Time = l.snapshot.Time.Add(d); l.snapshot.Time.After(simclock.Latest) {
		l.snapshot.Time = simclock.Latest
	}
	all := l.cloud.queue
	l.cloud.queue = nil
	for _, j := range all {
		if _, ok := j.timer.(taskDeadline); ok {
			j.due = j.due.Add(d)
		}
		l.cloud.queue.push(j)
	}
	for _, t := range l.cloud.waiting {
		t.deadline = t.deadline.Add(d)
	}
}
