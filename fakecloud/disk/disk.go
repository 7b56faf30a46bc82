// Package disk keeps a cloud over the end of its program: its resources, tokens, running actions and time.
//
//	d, err := disk.Open(dir, disk.Options{})
//	…
//	cloud, err := fakecloud.Open(fakecloud.Options{Disk: d})
//
// A cloud that opens the directory later continues where the last one was, however that ended. A request is answered when its changes
// are saved: they survive the death of the process at any moment.
package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// File is the name of the file in the directory. It holds secrets, so that only its owner may read it. While a cloud has it open, the
// latest changes are in logs beside it.
const File = "fakecloud.db"

// Options of a disk. The zero value works.
type Options struct {
	// Sync delays each answer until its changes are on the medium. They then survive a failure of the machine; without Sync, they survive
	// only the end of the process, and a failure of the machine can, seldom, leave a directory that is refused. It costs a few
	// milliseconds for each group of requests that come at the same time.
	Sync bool
}

// lockTimeout is how long Open waits for another process to end.
const lockTimeout = time.Second

// The buckets of the file: the cloud's entries, and their total.
var entries, totals = []byte("entries"), []byte("total")

// Open opens the directory of a cloud. It makes the directory if necessary. The result is for [fakecloud.Options]: the cloud closes it.
// Errors: the directory cannot be written, another process uses it, or a file in it is damaged or not one of a cloud.
func Open(dir string, o Options) (fakecloud.Disk, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state: %w; name a directory that can be written", err)
	}
	d := &disk{path: filepath.Join(dir, File), sync: o.Sync}
	err := d.guard(d.open)
	switch {
	case err == nil:
		return d, nil
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("state %s: another process uses it; stop that one, or name another directory", d.path)
	}
	if d.db != nil {
		_ = d.db.Close()
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, fmt.Errorf("state: %w; make the directory writable and room in it, or name another one", err)
	}
	return nil, d.errDamaged(err)
}

// disk is a file of bbolt and the logs of later changes.
type disk struct {
	db   *bbolt.DB
	path string
	sync bool

	mu     sync.Mutex   // guards the fields below
	logs   []*changeLog // Write appends to the last one; the others are full
	made   int          // how many logs were made
	record uint64       // the number of the latest record that was written or moved
	moving bool         // whether a goroutine of moves runs
	failed error        // of the latest one
	moves  sync.WaitGroup
}

// open opens the database and moves the logs of an earlier process to it.
func (d *disk) open() (err error) {
	d.db, err = bbolt.Open(d.path, 0o600, &bbolt.Options{
		// Without the list of free pages, bbolt would read all pages in another goroutine. It panics about a damaged page, and nothing
		// could catch that.
		Timeout: lockTimeout, NoFreelistSync: false, FreelistType: bbolt.FreelistMapType,
	})
	if err != nil {
		return err
	}
	known := false
	if err := d.db.View(func(tx *bbolt.Tx) error {
		if known = tx.Bucket(entries) != nil && tx.Bucket(totals) != nil; known {
			d.record = loadTotal(tx).Record
		}
		return nil
	}); err != nil {
		return err
	}
	if !known {
		if err := d.db.Update(d.create); err != nil {
			return err
		}
	}
	files, err := os.ReadDir(filepath.Dir(d.path))
	for _, f := range files { // they are sorted
		if path := filepath.Join(filepath.Dir(d.path), f.Name()); err == nil && strings.HasPrefix(path, d.path+logSuffix) {
			err = d.move(path)
		}
	}
	if err == nil {
		err = d.addLog()
	}
	return err
}

// create makes the buckets of a new file. It returns an error for the file of another program.
func (d *disk) create(tx *bbolt.Tx) error {
	if name, _ := tx.Cursor().First(); name != nil {
		return fmt.Errorf("state %s %w of a cloud; name another directory", d.path, errLayout)
	}
	_, err := tx.CreateBucket(entries)
	_, err2 := tx.CreateBucket(totals)
	return errors.Join(err, err2)
}

var (
	errDamage = errors.New("is damaged")
	errLayout = errors.New("is not the state")
)

// errDamaged is the error about a damaged file.
func (d *disk) errDamaged(cause any) error {
	if err, ok := cause.(error); ok && (errors.Is(err, errDamage) || errors.Is(err, errLayout)) {
		return err
	}
	return fmt.Errorf("state %s %w (%v): restore a copy of its directory, or move that away to begin with an empty cloud", d.path,
		errDamage, cause)
}

// guard runs fn. On a damaged file, bbolt panics, or reads memory that does not exist: guard returns an error instead.
func (d *disk) guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			err = d.errDamaged(cause)
		}
	}()
	return fn()
}

// Read implements fakecloud.Disk.
func (d *disk) Read(yield func(key, value []byte) error) error {
	return d.guard(func() error {
		return d.db.View(func(tx *bbolt.Tx) error {
			saved := loadTotal(tx)
			read := total{Record: saved.Record}
			err := tx.Bucket(entries).ForEach(func(key, value []byte) error {
				if len(value) < sumSize || binary.BigEndian.Uint32(value) != sum(key, value[sumSize:]) {
					return d.errDamaged(fmt.Sprintf("the value of the key %q is another one than was saved", key))
				}
				read.add(value)
				return yield(key, value[sumSize:])
			})
			if err == nil && read != saved {
				err = d.errDamaged(fmt.Sprintf("it has %d entries, %d were saved", read.Entries, saved.Entries))
			}
			return err
		})
	})
}

// Write implements fakecloud.Disk.
func (d *disk) Write(durable bool, change func(put func(key, value []byte) error, deleteAll func(prefix []byte) error) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := newRecorder(d.record + 1)
	if err := change(r.put, r.deleteAll); err != nil {
		return err
	}
	last := d.logs[len(d.logs)-1]
	if err := last.append(r.record(), d.sync || durable); err != nil {
		return err
	}
	d.record++
	if last.end >= fullAt {
		d.moveSoon()
	}
	return nil
}

// Room implements fakecloud.Disk.
func (d *disk) Room() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed != nil {
		d.moveSoon()
	}
	return d.failed
}

// moveSoon lets a goroutine move the logs to the database, except for a new one. The caller holds mu.
func (d *disk) moveSoon() {
	if d.moving {
		return
	}
	d.moving = true
	d.moves.Go(func() {
		err := d.addLog()
		if err == nil {
			err = d.moveFull(1)
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.failed, d.moving = err, false
	})
}

// addLog lets Write append to a new log, unless there is a full one.
func (d *disk) addLog() error {
	if len(d.logs) > 1 {
		return nil
	}
	d.made++
	l, err := newLog(fmt.Sprintf("%s%s%09d", d.path, logSuffix, d.made), d.sync)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.logs = append(d.logs, l)
	return nil
}

// moveFull moves the logs to the database, except for the last ones.
func (d *disk) moveFull(except int) error {
	for len(d.logs) > except {
		_ = d.logs[0].file.Close() // some systems remove only closed files
		if err := d.move(d.logs[0].file.Name()); err != nil {
			return err
		}
		d.mu.Lock()
		d.logs = d.logs[1:]
		d.mu.Unlock()
	}
	return nil
}

// Close implements fakecloud.Disk.
func (d *disk) Close() error {
	d.moves.Wait()
	return errors.Join(d.moveFull(0), d.db.Close())
}

// syncParent brings a new name in a directory to the medium. Some systems cannot, and do not need it.
func syncParent(path string) {
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		_ = dir.Sync()
		_ = dir.Close()
	}
}

// Each value begins with its checksum: bbolt has one only for its own first pages.
const sumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// total is the number and the sum of all entries, so that an entry that a damaged page hides is noticed. Record is the latest record of a
// log that they have.
type total struct{ Entries, Sum, Record uint64 }

func (t *total) add(value []byte) {
	t.Entries++
	t.Sum += uint64(binary.BigEndian.Uint32(value))
}

func (t *total) remove(value []byte) {
	if value != nil {
		t.Entries--
		t.Sum -= uint64(binary.BigEndian.Uint32(value))
	}
}

// loadTotal returns the saved total. It returns zero if the total is missing or damaged. Files of before there were logs have no Record.
func loadTotal(tx *bbolt.Tx) (t total) {
	_, _ = binary.Decode(append(bytes.Clone(tx.Bucket(totals).Get(totals)), make([]byte, 8)...), binary.BigEndian, &t)
	return t
}

// writer changes the entries.
type writer struct {
	bucket *bbolt.Bucket
	total  total
	latest map[string][]byte // values to put, nil to delete: most keys of a log are put several times
}

// putLatest puts the latest values, in the order of their keys: those of a page are neighbours.
func (w *writer) putLatest() error {
	for _, key := range slices.Sorted(maps.Keys(w.latest)) {
		if err := w.put([]byte(key), w.latest[key]); err != nil {
			return err
		}
	}
	clear(w.latest)
	return nil
}

func (w *writer) saveTotal(tx *bbolt.Tx) error {
	err := w.putLatest()
	text, err2 := binary.Append(nil, binary.BigEndian, w.total)
	return errors.Join(err, err2, tx.Bucket(totals).Put(totals, text))
}

// put puts a value, or deletes it if it is nil.
func (w *writer) put(key, value []byte) error {
	w.total.remove(w.bucket.Get(key))
	if value == nil {
		return w.bucket.Delete(key)
	}
	value = append(binary.BigEndian.AppendUint32(make([]byte, 0, sumSize+len(value)), sum(key, value)), value...)
	w.total.add(value)
	return w.bucket.Put(key, value)
}

// deleteAll finds the keys first: to look for the next one after each deletion would read all pages that are empty by then.
func (w *writer) deleteAll(prefix []byte) error {
	if err := w.putLatest(); err != nil {
		return err
	}
	var keys [][]byte
	c := w.bucket.Cursor()
	for key, value := c.Seek(prefix); key != nil && bytes.HasPrefix(key, prefix); key, value = c.Next() {
		w.total.remove(value)
		keys = append(keys, bytes.Clone(key))
	}
	for _, key := range keys {
		if err := w.bucket.Delete(key); err != nil {
			return err
		}
	}
	return nil
}
