package example_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestTheExampleKnowsNoOtherCloud shows that the example cloud needs nothing of Hetzner's cloud: otherwise it would not show that the
// specs do without it, and could not be copied.
func TestTheExampleKnowsNoOtherCloud(t *testing.T) {
	t.Parallel()
	const ours, hcloud = "github.com/ccm-from-scratch/ccm-from-scratch/", "github.com/hetznercloud/"
	for of, allowed := range map[string][]string{
		".":                  {"e2e/cloud", "e2e/cloud/example"},
		"./cmd/examplecloud": {"e2e/cloud", "e2e/cloud/example", "e2e/cloud/example/cmd/examplecloud"},
		"../program":         {"e2e/cloud", "e2e/cloud/program"},
		"../cloudtest":       {"e2e/cloud", "e2e/cloud/cloudtest"},
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", of).Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", of, err)
		}
		n := 0
		for path := range strings.FieldsSeq(string(out)) {
			own, isOurs := strings.CutPrefix(path, ours)
			switch {
			case strings.HasPrefix(path, hcloud):
				t.Errorf("%s imports %s", of, path)
			case isOurs && !strings.Contains(" "+strings.Join(allowed, " ")+" ", " "+own+" "):
				t.Errorf("%s imports %s, and may import %v", of, path, allowed)
			case isOurs:
				n++
			}
		}
		if n != len(allowed) {
			t.Errorf("%s imports %d of %v", of, n, allowed)
		}
	}
}
