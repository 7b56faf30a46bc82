package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// libraries returns the shared libraries that the programs and libraries at
// names need, with those that these need in turn and the loader, as the paths
// that they have in the tree. It is what ldd prints, read from the files' own
// headers: nothing is run, so the tree may be of another architecture.
//
// Libraries are looked for by file name anywhere in /usr/lib, not by the rules
// of ld.so (RUNPATH, ld.so.conf): Debian's names are unique there.
func (t *tree) libraries(names ...string) ([]string, error) {
	where := map[string]string{}
	for name := range t.entries {
		dir, base := path.Split(name)
		// The shortest path: a library's own folder before those of its plug-ins.
		if known, ok := where[base]; strings.HasPrefix(dir, "usr/lib") && strings.Contains(base, ".so") &&
			(!ok || len(name) < len(known) || len(name) == len(known) && name < known) {
			where[base] = name
		}
	}
	found := map[string]bool{}
	for len(names) > 0 {
		name := names[0]
		names = names[1:]
		needed, err := t.needed(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, library := range needed {
			at, ok := where[path.Base(library)]
			if !ok {
				return nil, fmt.Errorf("%s needs %s, which the tree does not have", name, library)
			}
			if !found[at] {
				found[at] = true
				names = append(names, at)
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// needed returns the names of the libraries in the file's dynamic section, and
// the path of the loader that it asks for.
func (t *tree) needed(name string) ([]string, error) {
	r, _, err := t.file(name)
	if err != nil {
		return nil, err
	}
	file, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	libraries, err := file.ImportedLibraries()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return nil, err
	}
	for _, segment := range file.Progs {
		if segment.Type != elf.PT_INTERP {
			continue
		}
		loader := make([]byte, segment.Filesz)
		if _, err := segment.ReadAt(loader, 0); err != nil {
			return nil, err
		}
		libraries = append(libraries, strings.TrimRight(string(loader), "\x00"))
	}
	return libraries, nil
}
