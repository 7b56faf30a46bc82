package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// entry is one file of a tree: a tar header whose name is the key in the tree,
// and the content of a regular file.
type entry struct {
	tar.Header
	content io.ReaderAt // of Header.Size bytes; nil for all but regular files
}

// tree is the file system of an image while it is put together. Contents stay
// where they come from, in archives and files, until the tree is written. Names
// are slash-separated, without a leading slash; everything belongs to root
// unless an archive says otherwise.
//
// It has what composing a node image takes and no more: no extended attributes,
// no sparse files; devices are dropped, since a container engine makes its own.
type tree struct {
	entries map[string]*entry
	open    []io.Closer
}

func newTree() *tree { return &tree{entries: map[string]*entry{}} }

// Close closes the archives and files that the contents come from.
func (t *tree) Close() error {
	errs := make([]error, 0, len(t.open))
	for _, c := range t.open {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// maxLinks bounds how many symbolic links a path may lead through, as in Linux.
const maxLinks = 40

// resolve returns where the path leads to in the tree, through the symbolic
// links of its folders and, if last is set, through one at its end. What does
// not exist resolves to itself.
func (t *tree) resolve(name string, last bool) (string, error) {
	rest := strings.Split(clean(name), "/")
	at := ""
	for links := 0; len(rest) > 0; {
		next := path.Join(at, rest[0])
		rest = rest[1:]
		e, ok := t.entries[next]
		if !ok || e.Typeflag != tar.TypeSymlink || len(rest) == 0 && !last {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("/%s: too many symbolic links", clean(name))
		}
		target := e.Linkname
		if !path.IsAbs(target) {
			target = path.Join("/", at, target)
		}
		rest = append(strings.Split(clean(target), "/"), rest...)
		at = ""
	}
	return at, nil
}

// clean returns the path as a name of the tree: "/usr/./bin/" becomes "usr/bin".
func clean(name string) string { return strings.TrimPrefix(path.Clean("/"+name), "/") }

// add puts the entry at name, instead of what was there, with its folders.
func (t *tree) add(name string, e *entry) error {
	at, err := t.resolve(name, false)
	if err != nil {
		return err
	}
	for dir := path.Dir(at); dir != "."; dir = path.Dir(dir) {
		if parent, ok := t.entries[dir]; ok {
			if parent.Typeflag != tar.TypeDir {
				return fmt.Errorf("/%s: /%s must be a folder", at, dir)
			}
			break
		}
		t.entries[dir] = &entry{Header: tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}}
	}
	t.entries[at] = e
	return nil
}

// mkdir makes sure that there is a folder.
func (t *tree) mkdir(name string, mode int64) error {
	return t.add(name, &entry{Header: tar.Header{Typeflag: tar.TypeDir, Mode: mode}})
}

// symlink makes a symbolic link at name that says target.
func (t *tree) symlink(target, name string) error {
	return t.add(name, &entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Linkname: target}})
}

// put makes a regular file of the bytes.
func (t *tree) put(name string, mode int64, data []byte) error {
	return t.add(name, &entry{
		Header:  tar.Header{Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(data))},
		content: bytes.NewReader(data),
	})
}

// putFile makes a regular file of the file at source, which may be a link to one.
func (t *tree) putFile(name string, mode int64, source string) error {
	file, err := os.Open(source)
	if err != nil {
		return err
	}
	t.open = append(t.open, file)
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s must be a regular file", source)
	}
	return t.add(name, &entry{
		Header:  tar.Header{Typeflag: tar.TypeReg, Mode: mode, Size: info.Size()},
		content: file,
	})
}

// putDir copies the folder at source, with the modes that its files have.
func (t *tree) putDir(name, source string) error {
	return filepath.WalkDir(source, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(source, at)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		to := path.Join(name, filepath.ToSlash(below))
		if d.IsDir() {
			return t.mkdir(to, int64(info.Mode().Perm()))
		}
		return t.putFile(to, int64(info.Mode().Perm()), at)
	})
}

// remove takes away what the pattern matches, as in path.Match, with everything
// below. The pattern's folders may lead through symbolic links.
func (t *tree) remove(pattern string) error {
	at, err := t.resolve(pattern, false)
	if err != nil {
		return err
	}
	levels := strings.Count(at, "/") + 1
	for name := range t.entries {
		parts := strings.Split(name, "/")
		if len(parts) < levels {
			continue
		}
		matched, err := path.Match(at, strings.Join(parts[:levels], "/"))
		if err != nil {
			return fmt.Errorf("%s: %w", pattern, err)
		}
		if matched {
			delete(t.entries, name)
		}
	}
	return nil
}

// file returns the regular file that the path leads to.
func (t *tree) file(name string) (*io.SectionReader, *entry, error) {
	at, err := t.resolve(name, true)
	if err != nil {
		return nil, nil, err
	}
	e, ok := t.entries[at]
	if ok && e.Typeflag == tar.TypeLink {
		e, ok = t.entries[clean(e.Linkname)]
	}
	if !ok || e.content == nil {
		return nil, nil, &fs.PathError{Op: "open", Path: "/" + clean(name), Err: fs.ErrNotExist}
	}
	return io.NewSectionReader(e.content, 0, e.Size), e, nil
}

// read returns the content of the regular file that the path leads to.
func (t *tree) read(name string) ([]byte, error) {
	r, _, err := t.file(name)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// copyFrom copies names from another tree, as they are: links stay links.
func (t *tree) copyFrom(other *tree, names ...string) error {
	for _, name := range names {
		at, err := other.resolve(name, false)
		if err != nil {
			return err
		}
		e, ok := other.entries[at]
		if !ok {
			return &fs.PathError{Op: "copy", Path: "/" + clean(name), Err: fs.ErrNotExist}
		}
		if e.Typeflag == tar.TypeLink {
			if e, ok = other.entries[clean(e.Linkname)]; !ok {
				return fmt.Errorf("/%s: the file that it is a link to is missing", at)
			}
		}
		if err := t.add(name, e); err != nil {
			return err
		}
	}
	return nil
}

// readTar adds an uncompressed archive's files. Their contents stay in the
// archive, which must not change until the tree is closed.
func (t *tree) readTar(archive string) error {
	file, err := os.Open(archive)
	if err != nil {
		return err
	}
	t.open = append(t.open, file)
	for r := tar.NewReader(file); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
		name := clean(header.Name)
		if name == "" {
			continue // the root itself
		}
		e := &entry{Header: *header}
		switch header.Typeflag {
		case tar.TypeReg:
			// The reader has read the header and nothing else: the content begins here.
			begin, err := file.Seek(0, io.SeekCurrent)
			if err != nil {
				return err
			}
			e.content = io.NewSectionReader(file, begin, header.Size)
		case tar.TypeDir, tar.TypeSymlink, tar.TypeLink:
		default:
			continue // devices and pipes
		}
		// Not add: an archive's own paths never lead through links.
		t.entries[name] = e
	}
}

// write writes the tree as an archive: names in order, but hard links last, since
// a link must follow what it links to. Times are those given, so that equal
// trees make equal archives.
func (t *tree) write(w io.Writer, at time.Time) error {
	archive := tar.NewWriter(w)
	names := slices.Sorted(maps.Keys(t.entries))
	for _, links := range []bool{false, true} {
		for _, name := range names {
			e := t.entries[name]
			if (e.Typeflag == tar.TypeLink) != links {
				continue
			}
			if err := e.write(archive, name, at); err != nil {
				return fmt.Errorf("/%s: %w", name, err)
			}
		}
	}
	return archive.Close()
}

func (e *entry) write(archive *tar.Writer, name string, at time.Time) error {
	header := tar.Header{
		Typeflag: e.Typeflag, Name: name, Linkname: e.Linkname, Mode: e.Mode,
		Uid: e.Uid, Gid: e.Gid, ModTime: at, Size: e.Size,
	}
	switch e.Typeflag {
	case tar.TypeDir:
		header.Name += "/"
	case tar.TypeLink:
		header.Linkname = clean(e.Linkname)
	case tar.TypeSymlink:
		header.Mode = 0o777 // it means nothing; always the same
	}
	if e.content == nil {
		header.Size = 0
	}
	if err := archive.WriteHeader(&header); err != nil {
		return err
	}
	if e.content == nil {
		return nil
	}
	_, err := io.Copy(archive, io.NewSectionReader(e.content, 0, e.Size))
	return err
}
