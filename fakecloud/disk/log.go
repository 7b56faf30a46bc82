package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"

	"go.etcd.io/bbolt"
)

// A log has the changes of the latest writes, in a file of its own: a write appends a record, so that it costs what it changes. A full log
// is moved to the database in the background.
//
// A record has its length, the complement of that, a checksum of the rest, its number, and operations. The file has its size from the
// beginning: a write needs no room on a full disk, and a file that was cut is noticed.
type changeLog struct {
	file *os.File
	end  int64 // of the records
}

const (
	logSuffix  = ".log"
	logSize    = 2 << 20
	fullAt     = logSize / 2 // the other half is for writes while the next log is made
	headerSize = 20
	sectorSize = 512 // a machine that fails has written a sector whole or not at all
)

// The operations of a record. A key follows; after opPut, a value, too.
const (
	opPut = iota
	opDelete
	opDeleteAll
)

// newLog makes an empty log.
func newLog(path string, sync bool) (*changeLog, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = file.Write(make([]byte, logSize))
	if err == nil && sync {
		err = file.Sync()
		syncParent(path)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(path))
	}
	return &changeLog{file: file}, nil
}

// append appends a record. After an error, the next record replaces it, and may be shorter: what is left after that must not be taken for
// damage.
func (l *changeLog) append(record []byte, sync bool) error {
	_, err := l.file.WriteAt(record, l.end)
	if err == nil && sync {
		err = l.file.Sync()
	}
	if err != nil {
		clear(record)
		_, _ = l.file.WriteAt(record, l.end)
		return err
	}
	l.end += int64(len(record))
	return nil
}

// recorder makes a record.
type recorder []byte

func newRecorder(number uint64) *recorder {
	r := recorder(make([]byte, headerSize, 4096))
	binary.BigEndian.PutUint64(r[12:], number)
	return &r
}

// record returns the record.
func (r recorder) record() []byte {
	n := uint32(len(r) - headerSize)
	binary.BigEndian.PutUint32(r, n)
	binary.BigEndian.PutUint32(r[4:], ^n)
	binary.BigEndian.PutUint32(r[8:], crc32.Checksum(r[12:], castagnoli))
	return r
}

func (r *recorder) add(op byte, parts ...[]byte) {
	*r = append(*r, op)
	for _, p := range parts {
		*r = append(binary.AppendUvarint(*r, uint64(len(p))), p...)
	}
}

func (r *recorder) put(key, value []byte) error {
	if value == nil {
		r.add(opDelete, key)
	} else {
		r.add(opPut, key, value)
	}
	return nil
}

func (r *recorder) deleteAll(prefix []byte) error {
	r.add(opDeleteAll, prefix)
	return nil
}

// do repeats the operations of a record.
func (w *writer) do(operations []byte) error {
	part := func() []byte {
		n, size := binary.Uvarint(operations)
		p := operations[size:][:n]
		operations = operations[size:][n:]
		return p
	}
	for len(operations) > 0 {
		op := operations[0]
		operations = operations[1:]
		switch key := part(); op {
		case opPut:
			w.latest[string(key)] = part()
		case opDelete:
			w.latest[string(key)] = nil
		default:
			if err := w.deleteAll(key); err != nil {
				return err
			}
		}
	}
	return nil
}

// recordAt returns the number and the operations of the record at the beginning of data, and its length if its header is right.
func recordAt(data []byte) (number uint64, operations []byte, length int, ok bool) {
	if len(data) < headerSize || binary.BigEndian.Uint32(data) != ^binary.BigEndian.Uint32(data[4:]) {
		return 0, nil, headerSize, false
	}
	length = headerSize + int(binary.BigEndian.Uint32(data))
	if length > len(data) || crc32.Checksum(data[12:length], castagnoli) != binary.BigEndian.Uint32(data[8:]) {
		return 0, nil, length, false
	}
	return binary.BigEndian.Uint64(data[12:]), data[headerSize:length], length, true
}

// ends reports whether what is at a place of a log is its end, not damage: nothing, or the last record, of which a part is missing because
// the program or the machine failed meanwhile.
func ends(data []byte, at int) bool {
	end := at + len(used(data[at:]))
	for i := at + 1; i < end; i++ {
		if _, _, _, ok := recordAt(data[i:]); ok {
			return false
		}
	}
	_, _, length, _ := recordAt(data[at:])
	for from := at; from < at+length; {
		to := min((from/sectorSize+1)*sectorSize, at+length)
		if to > len(data) || len(used(data[from:to])) == 0 {
			return true
		}
		from = to
	}
	return false
}

// used returns data without the zeros at its end.
func used(data []byte) []byte { return bytes.TrimRight(data, "\x00") }

// move moves a log to the database. What is there already stays.
func (d *disk) move(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(data) < logSize && len(used(data)) > 0 {
		return d.errDamaged(path + " was cut")
	}
	var w *writer
	err = d.guard(func() error {
		return d.db.Update(func(tx *bbolt.Tx) error {
			w = &writer{tx.Bucket(entries), loadTotal(tx), map[string][]byte{}}
			for at := 0; ; {
				number, operations, length, ok := recordAt(data[at:])
				switch {
				case !ok && ends(data, at):
					return w.saveTotal(tx)
				case !ok:
					return d.errDamaged(path + " has another record than was saved")
				case number > w.total.Record+1:
					return d.errDamaged(path + " does not continue it")
				case number > w.total.Record:
					w.total.Record = number
					if err := w.do(operations); err != nil {
						return err
					}
				}
				at += length
			}
		})
	})
	if err == nil {
		// The file has two first pages: if one is damaged, bbolt takes the other. Both have all that the log had.
		err = d.db.Update(func(*bbolt.Tx) error { return nil })
	}
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.record = max(d.record, w.total.Record) // that of an earlier process, at the start
	return os.Remove(path)
}
