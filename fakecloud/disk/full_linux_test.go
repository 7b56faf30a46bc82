package disk_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
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
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	var names []string
	var refused string
	for err := error(nil); err == nil; {
		name := strings.Repeat("s", 1+len(names)%50) + strings.Repeat("-1", len(names)/50)
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
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
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

func TestAReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_RDONLY, ""); err != nil {
		t.Skipf("a disk cannot be mounted (%v): run the test as root", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	wantError(t, dir, "make the directory writable")
}
