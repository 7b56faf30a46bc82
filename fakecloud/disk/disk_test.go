package disk_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/disk"
)

// open opens a cloud on a directory. The caller closes it.
func open(t *testing.T, dir string) (*fakecloud.Cloud, error) {
	t.Helper()
	d, err := disk.Open(dir, disk.Options{})
	if err != nil {
		return nil, err
	}
	return fakecloud.Open(fakecloud.Options{Disk: d})
}

func mustOpen(t *testing.T, dir string) *fakecloud.Cloud {
	t.Helper()
	c, err := open(t, dir)
	check(t, err)
	return c
}

func createServers(t *testing.T, c *fakecloud.Cloud, n int) {
	t.Helper()
	for i := range n {
		if _, _, err := c.Client().Server.Create(t.Context(), hcloud.ServerCreateOpts{
			Name: fmt.Sprint("s", i), ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-12"},
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestACloudGoesOnFromItsDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "made", "anew")
	var saved [2]bytes.Buffer
	for i := range saved {
		c := mustOpen(t, dir)
		if i == 0 {
			createServers(t, c, 20)
			check(t, c.SetSpeed(t.Context(), 0))
		}
		servers, err := c.Client().Server.All(t.Context())
		if err != nil || len(servers) != 20 {
			t.Fatalf("%d servers, %v", len(servers), err)
		}
		check(t, c.Save(t.Context(), &saved[i]))
		c.Close()
	}
	first, again := strings.Split(saved[0].String(), "\n"), strings.Split(saved[1].String(), "\n")
	for i := 1; i < len(first); i++ { // the first line has the time
		if first[i] != again[i] {
			t.Errorf("line %d of the snapshot was\n%s\nand is\n%s", i+1, first[i], again[i])
		}
	}
	for name, mode := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, disk.File): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: mode %v, %v; it has secrets, so it must be %v", name, info.Mode(), err, mode)
		}
	}
}

// countingDisk counts the bytes of the values that are put.
type countingDisk struct {
	fakecloud.Disk
	bytes atomic.Int64 // the cloud also saves by itself
}

func (d *countingDisk) Write(durable bool, change func(put func(_, _ []byte) error, deleteAll func([]byte) error) error) error {
	return d.Disk.Write(durable, func(put func(_, _ []byte) error, deleteAll func([]byte) error) error {
		return change(func(key, value []byte) error {
			d.bytes.Add(int64(len(value)))
			return put(key, value)
		}, deleteAll)
	})
}

// TestACreationSavesWhatChanges counts what the creation of a server saves: the server, two Primary IPs and two actions.
func TestACreationSavesWhatChanges(t *testing.T) {
	t.Parallel()
	inner, err := disk.Open(t.TempDir(), disk.Options{})
	check(t, err)
	d := &countingDisk{Disk: inner}
	c, err := fakecloud.Open(fakecloud.Options{Disk: d, Actions: "1h"})
	check(t, err)
	defer c.Close()
	for i := range 3 {
		before := d.bytes.Load()
		_, _, err := c.Client().Server.Create(t.Context(), hcloud.ServerCreateOpts{Name: fmt.Sprint("server-", i),
			ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "ubuntu-24.04"}})
		check(t, err)
		if n := d.bytes.Load() - before; i > 0 && n > 2000 { // with the first one, the beginning of the cloud may be saved
			t.Errorf("the creation of server %d saves %d bytes", i, n)
		}
	}
}

// TestFaultRulesAreSavedAsTheyChange counts what the control API saves, and ends the process after a rule was applied.
func TestFaultRulesAreSavedAsTheyChange(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	inner, err := disk.Open(dir, disk.Options{})
	check(t, err)
	d := &countingDisk{Disk: inner}
	c, err := fakecloud.Open(fakecloud.Options{Disk: d})
	check(t, err)
	defer c.Close()
	post := func(path, body string) (saved int64) {
		t.Helper()
		before := d.bytes.Load()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1"+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		if c.ControlHandler().ServeHTTP(w, r); w.Code >= 300 {
			t.Fatalf("POST %s: %d %s", path, w.Code, w.Body)
		}
		return d.bytes.Load() - before
	}
	const rule = `{"name": "%s", "operation": "%s", "first": 1, "effect": {"kind": "api_error", "code": "server_error"}}`
	first := post("/faults", fmt.Sprintf(rule, "once", "list_servers"))
	for i := range 200 {
		if n := post("/faults", fmt.Sprintf(rule, fmt.Sprint("rule-", i), "list_volumes")); n > 2*first {
			t.Fatalf("%d bytes are saved for rule %d, and %d for the first", n, i, first)
		}
	}
	if n := post("/clock/step", `{"by": "1s"}`); n > 2*first {
		t.Errorf("a step of the clock saves %d bytes", n)
	}
	if _, err := c.Client().Server.All(t.Context()); !hcloud.IsError(err, "server_error") {
		t.Fatalf("got %v, want the error of the rule", err)
	}
	killed := filepath.Join(t.TempDir(), "killed")
	check(t, os.CopyFS(killed, os.DirFS(dir)))
	again := mustOpen(t, killed)
	defer again.Close()
	if _, err := again.Client().Server.All(t.Context()); err != nil {
		t.Errorf("a rule for the first request is applied again: %v", err)
	}
	all, err := again.Faults().List(t.Context())
	if err != nil || len(all) != 201 || all[0].Applied != 1 || all[200].Rule.Name != "rule-199" {
		t.Errorf("%d rules, %v", len(all), err)
	}
}

func TestTwoProcessesCannotShareADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := mustOpen(t, dir)
	createServers(t, c, 1)
	wantError(t, dir, "another process uses it")
	c.Close()
	mustOpen(t, dir).Close()
}

func wantError(t *testing.T, dir, want string) {
	t.Helper()
	c, err := open(t, dir)
	if err == nil {
		c.Close()
	}
	if err == nil || !strings.HasPrefix(err.Error(), "state") || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want an error with %q", err, want)
	}
}

func TestADirectoryThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(file, nil, 0o600))
	wantError(t, file, "name a directory")
	foreign := t.TempDir()
	check(t, os.WriteFile(filepath.Join(foreign, disk.File), bytes.Repeat([]byte("not a database\n"), 4000), 0o600))
	wantError(t, foreign, "is damaged")
	if os.Getuid() == 0 {
		t.Log("root may write everywhere: the directory without permission is not tried")
		return
	}
	locked := t.TempDir()
	check(t, os.Chmod(locked, 0o500))
	wantError(t, locked, "writable")
}

// TestADamagedFile damages a copy of a file in many ways. Each is refused, or the cloud has what it had: never another state, and never
// the end of the program.
func TestADamagedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := mustOpen(t, dir)
	createServers(t, c, 30)
	c.Close()
	good, err := os.ReadFile(filepath.Join(dir, disk.File))
	check(t, err)
	rnd := rand.New(rand.NewPCG(1, 1))
	refused, accepted := 0, 0
	for i := range 400 {
		bad := bytes.Clone(good)
		switch at := rnd.IntN(len(bad)); i % 4 {
		case 0:
			bad = bad[:at]
		case 1:
			bad[at] ^= 1 << rnd.IntN(8)
		case 2: // a sector
			at &^= 511
			clear(bad[at:min(at+512, len(bad))])
		case 3: // a page of another place
			copy(bad[at&^4095:], good[rnd.IntN(len(good))&^4095:][:4096])
		}
		to := t.TempDir()
		check(t, os.WriteFile(filepath.Join(to, disk.File), bad, 0o600))
		if bytes.Equal(bad, good) {
			continue
		}
		if damaged(t, to) {
			refused++
		} else {
			accepted++
		}
	}
	t.Logf("%d files were refused, and in %d the damage hit nothing that the cloud has", refused, accepted)
	if refused == 0 {
		t.Error("no damage was noticed")
	}
}

// damaged reports whether a directory is refused. If it is not, it must have all.
func damaged(t *testing.T, dir string) bool {
	t.Helper()
	c, err := open(t, dir)
	if err != nil {
		if !strings.HasPrefix(err.Error(), "state") {
			t.Errorf("the error does not say that it is about the state: %v", err)
		}
		return true
	}
	defer c.Close()
	servers, err := c.Client().Server.All(t.Context())
	ips, err2 := c.Client().PrimaryIP.All(t.Context())
	if err := errors.Join(err, err2); err != nil || len(servers) != 30 || len(ips) != 60 {
		t.Errorf("a damaged file was accepted, and the cloud has %d servers and %d Primary IPs: %v", len(servers), len(ips), err)
	}
	return false
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
