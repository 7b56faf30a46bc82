package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	// go test repeats a result until a file that the test reads changes.
	for _, folder := range []string{"ccm/chart", "ccm/deploy", "ccm/machine/v1alpha1", "ccm/machine/deploy"} {
		if err := os.CopyFS(t.TempDir(), os.DirFS(filepath.Join(root, folder))); err != nil {
			t.Fatal(err)
		}
	}
	for _, script := range []string{"scripts/generate.sh", "scripts/manifests.sh"} {
		if out, err := exec.CommandContext(t.Context(), filepath.Join(root, script), "--check").CombinedOutput(); err != nil {
			t.Errorf("%s --check: %v\n%s", script, err, out)
		}
	}
}
