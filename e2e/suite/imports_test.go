package suite

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestTheModuleKnowsNoCloud shows what users of the suite do not get: no cloud, no CCM, and nothing that builds images.
func TestTheModuleKnowsNoCloud(t *testing.T) {
	t.Parallel()
	const ours = "github.com/ccm-from-scratch/ccm-from-scratch"
	list := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Path}}", "all")
	list.Env = append(os.Environ(), "GOWORK=off") // the module alone, as its users see it
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(string(out))
	if !slices.Contains(modules, ours+"/e2e") || len(modules) < 50 {
		t.Fatalf("these are not all modules: %v", modules)
	}
	for _, m := range modules {
		for _, unwanted := range []string{ours, "github.com/hetznercloud/", "github.com/google/go-containerregistry", "sigs.k8s.io/kind",
			"k8s.io/cloud-provider", "github.com/chromedp/"} {
			if m != ours+"/e2e" && (m == unwanted || strings.HasPrefix(m, strings.TrimSuffix(unwanted, "/")+"/")) {
				t.Errorf("users get %s", m)
			}
		}
	}
}
