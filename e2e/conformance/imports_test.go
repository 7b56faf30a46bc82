package conformance

import (
	"os/exec"
	"strings"
	"testing"
)

func TestTheSpecsKnowNoCloud(t *testing.T) {
	t.Parallel()
	text, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for name := range strings.Lines(string(text)) {
		found++
		for _, of := range []string{"hcloud", "fakecloud", "/e2e/hetzner"} {
			if strings.Contains(name, of) {
				t.Errorf("they import %s", strings.TrimSpace(name))
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d packages were looked at", found)
	}
}
