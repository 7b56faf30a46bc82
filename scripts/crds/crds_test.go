// Package crds holds nothing but its module, which pins controller-gen, and the test that runs it.
package crds

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestGeneratedFilesAreUpToDate runs the generators as scripts/generate.sh does.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles controller-gen")
	}
	root, out, types := filepath.Join("..", ".."), t.TempDir(), "./ccm/machine/v1alpha1"
	generator := filepath.Join(out, "controller-gen")
	run(t, ".", "go", "build", "-o", generator, "sigs.k8s.io/controller-tools/cmd/controller-gen")
	run(t, root, generator, "object", "paths="+types, "output:object:dir="+out)
	run(t, root, generator, "crd", "paths="+types, "output:crd:dir="+filepath.Join(out, "crds"))

	compare(t, filepath.Join(root, types, "zz_generated.deepcopy.go"), filepath.Join(out, "zz_generated.deepcopy.go"))
	committed := names(t, filepath.Join(root, "ccm", "machine", "deploy", "crds"))
	generated := names(t, filepath.Join(out, "crds"))
	if len(committed) != len(generated) {
		t.Errorf("ccm/machine/deploy/crds has %d files, and %d are generated: run make generate", len(committed), len(generated))
	}
	for _, name := range generated {
		compare(t, filepath.Join(root, "ccm", "machine", "deploy", "crds", name), filepath.Join(out, "crds", name))
	}
}

func run(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, text)
	}
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func compare(t *testing.T, committed, generated string) {
	t.Helper()
	want, err := os.ReadFile(generated)
	if err != nil {
		t.Fatal(err)
	}
	if is, err := os.ReadFile(committed); err != nil || string(is) != string(want) {
		t.Errorf("%s is out of date: run make generate (%v)", committed, err)
	}
}
