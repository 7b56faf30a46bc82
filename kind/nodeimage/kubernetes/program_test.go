package kubernetes

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheProgramIsChosenByItsNameOrFirstArgument runs the program
// modules/kubernetes, where it is built. That module has no tests of its own:
// compiling them would take minutes.
func TestTheProgramIsChosenByItsNameOrFirstArgument(t *testing.T) {
	t.Setenv(EnvAssets, "")
	assets, err := Cached(t.Context(), Options{Root: checkout, Build: true})
	if errors.Is(err, ErrNotCached) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range Host().Commands() {
		args := []string{"--version"}
		switch name {
		case "kubectl":
			args = []string{"version", "--client"}
		case "kubeadm":
			args = []string{"version", "--output=short"}
		}
		version := assets.Version
		if name == "etcd" {
			version = strings.TrimPrefix(mustComplete(t, Options{Root: checkout}).Source.Etcd, "v")
		}
		byName := exec.Command(filepath.Join(assets.Dir, name), args...)
		byArgument := exec.Command(filepath.Join(assets.Dir, program), append([]string{name}, args...)...)
		for _, cmd := range []*exec.Cmd{byName, byArgument} {
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), version) {
				t.Errorf("%v: %v, want %s in\n%s", cmd.Args, err, version, out)
			}
		}
	}
	for _, args := range [][]string{nil, {"nonsense"}} {
		out, err := exec.Command(filepath.Join(assets.Dir, program), args...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "kube-apiserver") {
			t.Errorf("%q: %v, want exit code 2 and the names that there are, got\n%s", args, err, out)
		}
	}
}
