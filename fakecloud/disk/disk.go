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
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// File is the name of the file in the directory. It holds secrets, so that only its owner may read it.
const File = "fakecloud.db"

// Options of a disk. The zero value works.
type Options struct {
	// Sync delays each answer until its changes are on the medium. They then survive a failure of the machine; without Sync, they survive
	// only the end of the process. It costs a few milliseconds for each group of requests that come at the same time.
	Sync bool
}

// lockTimeout is how long Open waits for another process to end.
const lockTimeout = time.Second

// The buckets of the file: the cloud's entries, and their total.
var entries, totals = []byte("entries"), []byte("total")

// Open opens the directory of a cloud. It makes the directory if necessary. The result is for [fakecloud.Options]: the cloud closes it.
// Errors: the directory cannot be written, another process uses it, or its file is damaged.
func Open(dir string, o Options) (fakecloud.Disk, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state: %w; name a directory that can be written", err)
	}
	path := filepath.Join(dir, File)
	d := &disk{path: path}
	err := d.guard(func() (err error) {
		d.db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			// Without the list of free pages, bbolt would read all pages in another goroutine. It panics about a damaged page, and nothing
			// could catch that.
			Timeout: lockTimeout, NoSync: !o.Sync, NoFreelistSync: false, FreelistType: bbolt.FreelistMapType,
		})
		if err != nil {
			return err
		}
		return d.db.Update(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucketIfNotExists(entries)
			_, err2 := tx.CreateBucketIfNotExists(totals)
			return errors.Join(err, err2)
		})
	})
	switch {
	case err == nil:
		return d, nil
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("state %s: another process uses it; stop that one, or name another directory", path)
	}
	_ = d.Close()
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, fmt.Errorf("state: %w; make the directory writable and room in it, or name another one", err)
	}
	return nil, d.errDamaged(err)
}

// disk is a file of bbolt.
type disk struct {
	db   *bbolt.DB
	path string
}

var errDamage = errors.New("is damaged")

// errDamaged is the error about a damaged file.
func (d *disk) errDamaged(cause any) error {
	if err, ok := cause.(error); ok && errors.Is(err, errDamage) {
		return err
	}
	return fmt.Errorf("state %s %w (%v): restore a copy of it, or move it away to begin with an empty cloud", d.path, errDamage, cause)
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
			var read total
			err := tx.Bucket(entries).ForEach(func(key, value []byte) error {
				if len(value) < sumSize || binary.BigEndian.Uint32(value) != sum(key, value[sumSize:]) {
					return d.errDamaged(fmt.Sprintf("the value of the key %q is another one than was saved", key))
				}
				read.add(value)
				return yield(key, value[sumSize:])
			})
			if saved := loadTotal(tx); err == nil && read != saved {
				err = d.errDamaged(fmt.Sprintf("it has %d entries, %d were saved", read.Entries, saved.Entries))
			}
			return err
		})
	})
}

// Write implements fakecloud.Disk.
func (d *disk) Write(change func(put func(key, value []byte) error, deleteAll func(prefix []byte) error) error) error {
	return d.guard(func() error {
		return d.db.Update(func(tx *bbolt.Tx) error {
			w := &writer{tx.Bucket(entries), loadTotal(tx)}
			if err := change(w.put, w.deleteAll); err != nil {
				return err
			}
			text, err := binary.Append(nil, binary.BigEndian, w.total)
			if err != nil {
				return err
			}
			return tx.Bucket(totals).Put(totals, text)
		})
	})
}

// Close implements fakecloud.Disk.
func (d *disk) Close() error {
	if d.db == nil {
		return nil
	}
	return errors.Join(d.guard(d.db.Sync), d.db.Close())
}

// Each value begins with its checksum: bbolt has one only for its own first pages.
const sumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// total is the number and the sum of all entries. It follows each change, so that an entry that a damaged page hides is noticed.
type total struct{ Entries, Sum uint64 }

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

// loadTotal returns the saved total. It returns zero if the total is missing or damaged.
func loadTotal(tx *bbolt.Tx) (t total) {
	_, _ = binary.Decode(tx.Bucket(totals).Get(totals), binary.BigEndian, &t)
	return t
}

// writer changes the entries.
type writer struct {
	bucket *bbolt.Bucket
	total  total
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

func (w *writer) deleteAll(prefix []byte) error {
	c := w.bucket.Cursor()
	for key, value := c.Seek(prefix); key != nil && bytes.HasPrefix(key, prefix); key, value = c.Seek(prefix) {
		w.total.remove(value)
		if err := c.Delete(); err != nil {
			return err
		}
	}
	return nil
}
