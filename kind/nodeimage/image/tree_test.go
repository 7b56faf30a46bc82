package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// debianTar writes an archive as debootstrap's file systems look: merged /usr,
// hard links, devices, names that begin with "./".
func debianTar(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rootfs.tar")
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range []tar.Header{
		{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./usr/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./usr/bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./usr/lib/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "./bin", Typeflag: tar.TypeSymlink, Linkname: "usr/bin"},
		{Name: "./lib", Typeflag: tar.TypeSymlink, Linkname: "usr/lib"},
		{Name: "./usr/bin/zz", Typeflag: tar.TypeReg, Mode: 0o4755, Size: 5, Gid: 42},
		{Name: "./usr/bin/aa", Typeflag: tar.TypeLink, Linkname: "./usr/bin/zz", Mode: 0o755},
		{Name: "./usr/bin/alias", Typeflag: tar.TypeSymlink, Linkname: "/etc/alternatives/zz"},
		{Name: "./etc/alternatives/zz", Typeflag: tar.TypeSymlink, Linkname: "../../bin/zz"},
		{Name: "./dev/null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, "12345"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Close(), os.WriteFile(name, buf.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	return name
}

func debianTree(t *testing.T) *tree {
	t.Helper()
	tr := newTree()
	t.Cleanup(func() { _ = tr.Close() })
	if err := tr.readTar(debianTar(t)); err != nil {
		t.Fatal(err)
	}
	return tr
}

// listing returns an archive's entries as "type mode name -> link: content".
func listing(t *testing.T, r io.Reader) []string {
	t.Helper()
	var out []string
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		line := string(h.Typeflag) + " " + h.FileInfo().Mode().String() + " " + h.Name
		if h.Linkname != "" {
			line += " -> " + h.Linkname
		}
		if len(data) > 0 {
			line += ": " + string(data)
		}
		out = append(out, line)
	}
}

func TestATreeIsWrittenInOrderWithHardLinksAfterTheirFiles(t *testing.T) {
	t.Parallel()
	tr := debianTree(t)
	var first, second bytes.Buffer
	at := time.Unix(1, 0)
	if err := errors.Join(tr.write(&first, at), tr.write(&second, at)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the same tree makes two archives")
	}
	want := []string{
		"2 Lrwxrwxrwx bin -> usr/bin",
		"2 Lrwxrwxrwx lib -> usr/lib",
		"5 drwxr-xr-x usr/",
		"5 drwxr-xr-x usr/bin/",
		"0 urwxr-xr-x usr/bin/zz: 12345",
		"1 -rwxr-xr-x usr/bin/aa -> usr/bin/zz",
	}
	got := listing(t, &first)
	if !isSubsequence(want, got) || slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, "null") }) {
		t.Errorf("got\n%s\nwant, in this order and without devices,\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// isSubsequence reports whether all of want occur in got, in that order.
func isSubsequence(want, got []string) bool {
	for _, line := range got {
		if len(want) > 0 && line == want[0] {
			want = want[1:]
		}
	}
	return len(want) == 0
}

func TestPathsLeadThroughSymbolicLinks(t *testing.T) {
	t.Parallel()
	tr := debianTree(t)
	if err := tr.put("/bin/new", 0o755, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if _, ok := tr.entries["usr/bin/new"]; !ok {
		t.Error("a file that is put into /bin must lie in /usr/bin")
	}
	for _, name := range []string{"/bin/zz", "usr/bin/aa", "/bin/alias", "/etc/alternatives/zz"} {
		if data, err := tr.read(name); err != nil || string(data) != "12345" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if _, err := tr.read("/bin/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want that it does not exist", err)
	}
	if err := errors.Join(tr.symlink("b", "a"), tr.symlink("a", "b")); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.read("a"); err == nil || !strings.Contains(err.Error(), "too many symbolic links") {
		t.Errorf("got %v from a circle of links", err)
	}
	if err := tr.put("/usr/bin/zz/below", 0o644, nil); err == nil {
		t.Error("a file was put below a file")
	}
}

func TestRemovingTakesWhatLiesBelowAndNothingElse(t *testing.T) {
	t.Parallel()
	for pattern, gone := range map[string][]string{
		"/lib/systemd/*.wants/*": {"usr/lib/systemd/a.wants/x.service", "usr/lib/systemd/b.wants/y.service",
			"usr/lib/systemd/b.wants/y.service/deep"},
		"/lib/systemd/a.wants": {"usr/lib/systemd/a.wants", "usr/lib/systemd/a.wants/x.service"},
		"/bin/*z":              {"usr/bin/zz"},
		"/no/such":             nil,
	} {
		tr := debianTree(t)
		for _, name := range []string{"a.wants/x.service", "b.wants/y.service/deep", "kept"} {
			if err := tr.put("/lib/systemd/"+name, 0o644, nil); err != nil {
				t.Fatal(err)
			}
		}
		before := len(tr.entries)
		if err := tr.remove(pattern); err != nil {
			t.Fatal(err)
		}
		if len(tr.entries) != before-len(gone) {
			t.Errorf("%s: %d entries of %d are left, want %d fewer", pattern, len(tr.entries), before, len(gone))
		}
		for _, name := range gone {
			if _, ok := tr.entries[name]; ok {
				t.Errorf("%s: %s is still there", pattern, name)
			}
		}
	}
}

func TestFilesAreCopiedFromFoldersAndTrees(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "sub"), 0o700),
		os.WriteFile(filepath.Join(dir, "sub", "f"), []byte("F"), 0o640)); err != nil {
		t.Fatal(err)
	}
	tr := newTree()
	defer func() { _ = tr.Close() }()
	if err := errors.Join(tr.putDir("var/x", dir), tr.copyFrom(debianTree(t), "bin", "/bin/aa")); err != nil {
		t.Fatal(err)
	}
	if e := tr.entries["var/x/sub"]; e == nil || e.Mode != 0o700 {
		t.Errorf("%+v", e)
	}
	for name, want := range map[string]string{"var/x/sub/f": "F", "bin/aa": "12345"} {
		if data, err := tr.read(name); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if err := tr.copyFrom(newTree(), "nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
