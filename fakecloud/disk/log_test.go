package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

func mustOpen(t *testing.T, dir string) *disk {
	t.Helper()
	d, err := Open(dir, Options{})
	check(t, err)
	return d.(*disk)
}

func mustWrite(t *testing.T, d *disk, change func(put func(key, value []byte) error, deleteAll func(prefix []byte) error) error) {
	t.Helper()
	check(t, d.Write(false, change))
}

// putAll writes keys with a prefix, one by one.
func putAll(t *testing.T, d *disk, prefix string, n, size int) {
	t.Helper()
	for i := range n {
		mustWrite(t, d, func(put func(key, value []byte) error, _ func([]byte) error) error {
			return put(fmt.Append(nil, prefix, i), bytes.Repeat([]byte{'v'}, size))
		})
	}
}

// killed copies a directory as the end of the process would leave it.
func killed(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	check(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

// has returns how many keys a directory has; -1 if it is refused.
func has(t *testing.T, dir string) (n int) {
	t.Helper()
	d, err := Open(dir, Options{})
	if err == nil {
		err = errors.Join(d.Read(func([]byte, []byte) error { n++; return nil }), d.Close())
	}
	if err != nil {
		if !strings.Contains(err.Error(), "is damaged") {
			t.Errorf("got %v, want an error about damage", err)
		}
		return -1
	}
	return n
}

// TestAWriteCostsWhatItChanges counts the bytes of a small write after many entries were deleted, and lets the logs become full while the
// database is busy: no write waits for it.
func TestAWriteCostsWhatItChanges(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := mustOpen(t, dir)
	for range 2 {
		mustWrite(t, d, func(put func(key, value []byte) error, deleteAll func(prefix []byte) error) error {
			for i := range 10_000 {
				if err := put(fmt.Append(nil, "gone", i), make([]byte, 300)); err != nil {
					return err
				}
			}
			return nil
		})
		d.moves.Wait()
		for _, key := range []string{"gone", "none"} {
			last := d.logs[len(d.logs)-1]
			before := last.end
			mustWrite(t, d, func(put func(key, value []byte) error, deleteAll func(prefix []byte) error) error {
				return errors.Join(deleteAll([]byte(key)), put([]byte("small"), []byte("value")))
			})
			if n := last.end - before; n > 100 {
				t.Errorf("a small write took %d bytes, want at most 100", n)
			}
		}
	}
	busy, err := d.db.Begin(true)
	check(t, err)
	putAll(t, d, "new", 3000, 1000)
	copied := killed(t, dir)
	check(t, busy.Rollback())
	if n := has(t, copied); n != 3001 {
		t.Errorf("%d keys after the end of the process, want 3001", n)
	}
	check(t, d.Close())
	if n := has(t, dir); n != 3001 {
		t.Errorf("%d keys after Close, want 3001", n)
	}
	if logs, _ := filepath.Glob(filepath.Join(dir, "*.log*")); len(logs) > 0 {
		t.Errorf("logs are left: %v", logs)
	}
}

// TestADamagedLog damages a log in many ways. Each is refused, except where nothing was written and for the last record, which the machine
// can have left without some of its sectors.
func TestADamagedLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := mustOpen(t, dir)
	putAll(t, d, "k", 100, 700)
	end, last := int(d.logs[0].end), int(d.logs[0].end)/100
	defer func() { _ = d.Close() }()
	name := filepath.Base(d.logs[0].file.Name())
	good, err := os.ReadFile(filepath.Join(dir, name))
	check(t, err)
	rnd := rand.New(rand.NewPCG(1, 1))
	try := func(what string, bad []byte, want ...int) {
		t.Helper()
		to := killed(t, dir)
		check(t, os.WriteFile(filepath.Join(to, name), bad, 0o600))
		if n := has(t, to); n != want[0] && n != want[len(want)-1] {
			t.Errorf("%s: %d keys, want %v; -1 is a refusal", what, n, want)
		}
	}
	try("nothing", good, 100)
	for range 30 {
		bad := bytes.Clone(good)
		at := rnd.IntN(end)
		bad[at] ^= 1 << rnd.IntN(8)
		try(fmt.Sprint("a bit at ", at), bad, -1)
		bad = bytes.Clone(good)
		at = rnd.IntN(end-last-512) &^ 511
		clear(bad[at : at+512])
		try(fmt.Sprint("a sector at ", at), bad, -1)
		try("a cut", good[:rnd.IntN(len(good)-1)+1], -1)
	}
	torn := bytes.Clone(good)
	clear(torn[end-1 : end]) // a byte, which is not a sector
	try("the last byte", torn, -1)
	clear(torn[(end-last/2)&^511:])
	try("the end of the last record", torn, 99)
}

// TestAnotherLayout shows that the file of another program is refused and stays as it is, and that one of a version without logs is read.
func TestAnotherLayout(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		buckets []string
		want    string
	}{"another program's": {[]string{"things"}, "is not the state of a cloud"}, "without logs": {[]string{"entries", "total"}, ""}} {
		dir := t.TempDir()
		path := filepath.Join(dir, File)
		db, err := bbolt.Open(path, 0o600, nil)
		check(t, err)
		key, value := []byte("key"), []byte("value")
		err = db.Update(func(tx *bbolt.Tx) (err error) {
			for _, b := range test.buckets {
				_, err2 := tx.CreateBucket([]byte(b))
				err = errors.Join(err, err2)
			}
			if test.want != "" {
				return err
			}
			s := sum(key, value)
			saved, _ := binary.Append(nil, binary.BigEndian, []uint64{1, uint64(s)})
			return errors.Join(err, tx.Bucket(totals).Put(totals, saved),
				tx.Bucket(entries).Put(key, append(binary.BigEndian.AppendUint32(nil, s), value...)))
		})
		check(t, errors.Join(err, db.Close()))
		if test.want == "" {
			if n := has(t, dir); n != 1 {
				t.Errorf("%s: %d keys, want 1", name, n)
			}
			continue
		}
		before, _ := os.ReadFile(path)
		if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, test.want)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
			t.Errorf("%s: the file was written to", name)
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
