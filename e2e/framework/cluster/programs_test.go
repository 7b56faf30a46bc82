package cluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster"
)

// put makes a folder with programs that was changed some hours ago.
func put(t *testing.T, folder string, hours int, names ...string) string {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	when := time.Now().Add(-time.Duration(hours) * time.Hour)
	if err := os.Chtimes(folder, when, when); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestTheProgramsAreFound(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	t.Setenv(cluster.EnvPrograms, "")
	if _, err := cluster.FindPrograms(); !errors.Is(err, cluster.ErrNoPrograms) || !strings.Contains(err.Error(), "make kubernetes") {
		t.Errorf("without programs: %v", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kubectl"}
	at := func(name string) string { return filepath.Join(cache, "ccm-from-scratch", "kubernetes", name) }
	put(t, at("v1.36.0-a"), 9, all...)
	newest := put(t, at("v1.37.1-b"), 3, all...)
	put(t, at("v1.37.1-c.tmp-1"), 2, all...)
	put(t, at("v1.38.0-d"), 1, all[:2]...)
	if got, err := cluster.FindPrograms(); err != nil || got != newest {
		t.Errorf("got %s, %v, want %s", got, err, newest)
	}

	given := put(t, filepath.Join(home, "envtest"), 0, "etcd", "kube-apiserver", "kubectl")
	t.Setenv(cluster.EnvPrograms, given)
	if _, err := cluster.FindPrograms(); err == nil || !strings.Contains(err.Error(), "has no kube-controller-manager: download") {
		t.Errorf("what setup-envtest brings: %v", err)
	}
	put(t, given, 0, "kube-controller-manager")
	if got, err := cluster.FindPrograms(); err != nil || got != given {
		t.Errorf("got %s, %v, want %s", got, err, given)
	}
}
