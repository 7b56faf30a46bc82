package disk_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/disk"
)

// TestAFullDisk fills a small disk and makes room again. A write is saved and acknowledged, or refused and not applied.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("a small disk cannot be mounted (%v): run the test as root", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	c := mustOpen(t, dir)
	create := func(name string) error {
		_, _, err := c.Client().Server.Create(t.Context(), hcloud.ServerCreateOpts{
			Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-12"},
		})
		return err
	}
	ballast := filepath.Join(dir, "ballast")
	file, err := os.Create(ballast)
	for err == nil {
		_, err = file.Write(make([]byte, 64<<10))
	}
	check(t, file.Close())
	var names []string
	var refused string
	for err := error(nil); err == nil; {
		name := strings.Repeat("s", 1+len(names)%50) + strconv.Itoa(len(names))
		if err = create(name); err == nil {
			names = append(names, name)
		} else if refused = name; !strings.Contains(err.Error(), "no space left on device; make room in the directory of the state") {
			t.Fatalf("the error does not say what to do: %v", err)
		}
		if len(names) > 3000 {
			t.Fatal("the disk does not fill")
		}
	}
	if all, err := c.Client().Server.All(t.Context()); err != nil || len(all) != len(names) {
		t.Errorf("%d servers, %v, but %d were acknowledged: reads go on, and what is refused does not happen", len(all), err, len(names))
	}
	check(t, os.Remove(ballast))
	for err := create("again"); err != nil; err = create("again") { // the disk is tried each second
		if !hcloud.IsError(err, "server_error") {
			t.Fatal(err)
		}
	}
	c.Close()
	c = mustOpen(t, dir)
	defer c.Close()
	for _, name := range append(names, "again") {
		if s, _, err := c.Client().Server.GetByName(t.Context(), name); s == nil {
			t.Fatalf("server %s was acknowledged, and is gone: %v", name, err)
		}
	}
	if s, _, err := c.Client().Server.GetByName(t.Context(), refused); s != nil || err != nil {
		t.Errorf("server %s was refused, and exists: %v", refused, err)
	}
	t.Logf("%d servers were acknowledged before the disk was full", len(names))
}

// TestWhatDidNotFitIsNoDamage writes a small record in the place of a large one that did not fit, and ends before another one comes.
func TestWhatDidNotFitIsNoDamage(t *testing.T) {
	t.Parallel()
	dir, copied := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("a small disk cannot be mounted (%v): run the test as root", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	d, err := disk.Open(dir, disk.Options{})
	check(t, err)
	defer func() { _ = d.Close() }()
	write := func(size int) error {
		return d.Write(false, func(put func(key, value []byte) error, _ func([]byte) error) error {
			return put([]byte("key"), bytes.Repeat([]byte{'v'}, size))
		})
	}
	if err := write(8 << 20); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("got %v, want no room", err)
	}
	again, err := write(5), os.CopyFS(copied, os.DirFS(dir))
	reopened, err2 := disk.Open(copied, disk.Options{})
	check(t, errors.Join(again, err, err2))
	if err := reopened.Close(); err != nil {
		t.Error(err)
	}
}

func TestAReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_RDONLY, ""); err != nil {
		t.Skipf("a disk cannot be mounted (%v): run the test as root", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	wantError(t, dir, "make the directory writable")
}
