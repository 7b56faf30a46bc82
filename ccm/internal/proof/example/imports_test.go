package example

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestTheExampleCCMKnowsNothingOfThisRepository shows that it can be copied, and needs nothing of Hetzner's cloud.
func TestTheExampleCCMKnowsNothingOfThisRepository(t *testing.T) {
	t.Parallel()
	const ours, hcloud = "github.com/ccm-from-scratch/ccm-from-scratch/", "github.com/hetznercloud/"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "../../../example").Output()
	if err != nil {
		t.Fatalf("go list -deps of the example CCM: %v", err)
	}
	var own []string
	for path := range strings.FieldsSeq(string(out)) {
		if name, isOurs := strings.CutPrefix(path, ours); isOurs {
			own = append(own, name)
		}
		if strings.HasPrefix(path, hcloud) {
			t.Errorf("it imports %s", path)
		}
	}
	if slices.Sort(own); !slices.Equal(own, []string{"ccm/example", "ccm/example/provider"}) {
		t.Errorf("of this repository, it imports %v", own)
	}
}
