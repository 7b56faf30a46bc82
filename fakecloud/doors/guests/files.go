package guests

import (
	"bytes"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Limits of a disk.
const (
	maxDisk   = 64 << 20
	maxFiles  = 10_000
	maxPath   = 4 << 10
	maxImages = 20 // of a run, that have files
)

// home is root's, and where each command begins.
const home = "/root"

// disk is the file system of a guest, in memory. It has no links, owners, devices, and no permissions that bind root.
type disk struct {
	now func() time.Time

	mu    sync.Mutex
	files map[string]*file // by the clean, absolute path
	size  int
}

// file is a file or a directory. The disk's mu guards it.
type file struct {
	disk     *disk
	name     string
	mode     fs.FileMode
	modified time.Time
	data     []byte
	removed  bool
}

// copy returns another disk with the same files. now tells the time of its later changes.
func (d *disk) copy(now func() time.Time) *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	to := &disk{now: now, files: map[string]*file{}, size: d.size}
	for p, f := range d.files {
		c := *f
		c.disk, c.data = to, slices.Clone(f.data)
		to.files[p] = &c
	}
	return to
}

// absolute returns the clean path of one that may be relative to root's home.
func absolute(p string) string {
	if !path.IsAbs(p) {
		p = path.Join(home, p)
	}
	return path.Clean(p)
}

// add adds a file at an empty path. The caller holds mu.
func (d *disk) add(p string, mode fs.FileMode) (*file, error) {
	switch parent := d.files[path.Dir(p)]; {
	case parent == nil && p != "/":
		return nil, syscall.ENOENT
	case parent != nil && !parent.mode.IsDir():
		return nil, syscall.ENOTDIR
	case len(d.files) >= maxFiles || len(p) > maxPath:
		return nil, syscall.ENOSPC
	}
	f := &file{disk: d, name: path.Base(p), mode: mode, modified: d.now()}
	d.files[p] = f
	return f, nil
}

// change does something to a file or a directory that exists.
func (d *disk) change(p string, do func(p string, f *file) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	p = absolute(p)
	if f, ok := d.files[p]; ok {
		return do(p, f)
	}
	return syscall.ENOENT
}

// open returns a file for reading and writing.
func (d *disk) open(p string, create, truncate bool) (*file, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p = absolute(p)
	f, ok := d.files[p]
	switch {
	case !ok && create:
		return d.add(p, 0o644)
	case !ok:
		return nil, syscall.ENOENT
	case f.mode.IsDir():
		return nil, syscall.EISDIR
	case truncate:
		return f, f.resize(0)
	}
	return f, nil
}

// resize changes the length of a file. The caller holds the disk's mu.
func (f *file) resize(n int64) error {
	if f.removed || f.mode.IsDir() {
		return syscall.EINVAL
	}
	if n < 0 || n > maxDisk || int(n)-len(f.data)+f.disk.size > maxDisk {
		return syscall.ENOSPC
	}
	f.disk.size += int(n) - len(f.data)
	f.data = append(f.data[:min(int(n), len(f.data))], make([]byte, max(0, int(n)-len(f.data)))...)
	f.modified = f.disk.now()
	return nil
}

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(b []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return bytes.NewReader(f.data).ReadAt(b, off)
}

// WriteAt implements io.WriterAt.
func (f *file) WriteAt(b []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if off < 0 || off > maxDisk {
		return 0, syscall.ENOSPC
	}
	if err := f.resize(max(off+int64(len(b)), int64(len(f.data)))); err != nil {
		return 0, err
	}
	return copy(f.data[off:], b), nil
}

// read returns a copy of a file.
func (d *disk) read(p string) ([]byte, error) {
	f, err := d.open(p, false, false)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.NewSectionReader(f, 0, maxDisk))
}

func (d *disk) chmod(p string, mode fs.FileMode) error {
	return d.change(p, func(_ string, f *file) error { f.mode = f.mode.Type() | mode.Perm(); return nil })
}

func (d *disk) mkdir(p string, mode fs.FileMode) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p = absolute(p); d.files[p] != nil {
		return syscall.EEXIST
	}
	_, err := d.add(p, fs.ModeDir|mode.Perm())
	return err
}

// within returns the paths in a directory, at any depth, in order. The caller holds mu.
func (d *disk) within(p string) []string {
	prefix := strings.TrimSuffix(p, "/") + "/"
	outside := func(name string) bool { return name == "/" || !strings.HasPrefix(name, prefix) }
	return slices.DeleteFunc(slices.Sorted(maps.Keys(d.files)), outside)
}

// remove removes a file or an empty directory.
func (d *disk) remove(p string) error { return d.change(p, d.drop) }

// drop removes a file or an empty directory. The caller holds mu.
func (d *disk) drop(p string, f *file) error {
	if p == "/" || f.mode.IsDir() && len(d.within(p)) > 0 {
		return syscall.ENOTEMPTY
	}
	d.size -= len(f.data)
	f.data, f.removed = nil, true
	delete(d.files, p)
	return nil
}

// rename moves a file, or a directory with all that is in it. It replaces a file and an empty directory.
func (d *disk) rename(from, to string) error {
	return d.change(from, func(from string, f *file) error {
		to = absolute(to)
		if strings.HasPrefix(to+"/", strings.TrimSuffix(from, "/")+"/") {
			return syscall.EINVAL
		}
		if old := d.files[to]; old != nil {
			if err := d.drop(to, old); err != nil {
				return err
			}
		}
		if _, err := d.add(to, f.mode); err != nil {
			return err
		}
		f.name = path.Base(to)
		for _, name := range append(d.within(from), from) {
			d.files[to+name[len(from):]] = d.files[name]
			delete(d.files, name)
		}
		return nil
	})
}

// info is a file as it was, an fs.FileInfo.
type info file

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return int64(len(i.data)) }
func (i *info) Mode() fs.FileMode  { return i.mode }
func (i *info) ModTime() time.Time { return i.modified }
func (i *info) IsDir() bool        { return i.mode.IsDir() }
func (i *info) Sys() any           { return nil }

func (d *disk) stat(p string) (i fs.FileInfo, err error) {
	err = d.change(p, func(_ string, f *file) error { i = new(info(*f)); return nil })
	return i, err
}

// list returns the contents of a directory, by name.
func (d *disk) list(p string) (all []fs.FileInfo, err error) {
	err = d.change(p, func(p string, f *file) error {
		if !f.mode.IsDir() {
			return syscall.ENOTDIR
		}
		for _, name := range d.within(p) {
			if path.Dir(name) == p {
				all = append(all, new(info(*d.files[name])))
			}
		}
		return nil
	})
	return all, err
}
