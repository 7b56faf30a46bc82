package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// older is a Kubernetes minor that other controllers still use.
const older = "v0.34.1"

var consumer = map[string]string{
	"go.mod": `module example.com/controller

go 1.26.0

require (
	github.com/ccm-from-scratch/ccm-from-scratch/fakecloud v0.0.0
	k8s.io/apimachinery ` + older + `
)

replace github.com/ccm-from-scratch/ccm-from-scratch/fakecloud => ROOT
`,
	"controller_test.go": `package controller

import (
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

func TestController(t *testing.T) {
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	if _, err := cloud.Faults().Add(t.Context(), fault.Rule{Method: "POST", First: 1, Effect: fault.APIError("conflict")}); err != nil {
		t.Fatal(err)
	}
	server, _, err := cloud.Client().Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "a", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"}, Labels: labels.Set{"a": "b"},
	})
	if err != nil || server.Server.ID == 0 {
		t.Fatal(server, err)
	}
}
`,
}

// TestAConsumerKeepsItsKubernetesMinor builds a module that uses this one and an older Kubernetes minor.
func TestAConsumerKeepsItsKubernetesMinor(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds another module, which takes about a minute")
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range consumer {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(strings.ReplaceAll(text, "ROOT", root)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("mod", "download", "k8s.io/apimachinery@"+older); err != nil {
		t.Skipf("k8s.io/apimachinery@%s is not in the module cache and cannot be downloaded:\n%s", older, out)
	}
	for _, args := range [][]string{{"mod", "tidy"}, {"test", "./..."}} {
		if out, err := run(args...); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	out, err := run("list", "-m", "all")
	if err != nil {
		t.Fatalf("go list -m all: %v\n%s", err, out)
	}
	modules := strings.Split(strings.TrimSpace(out), "\n")
	t.Logf("%d modules", len(modules))
	if !slices.Contains(modules, "k8s.io/apimachinery "+older) {
		t.Errorf("k8s.io/apimachinery is no longer %s:\n%s", older, out)
	}
	for _, m := range modules {
		for _, unwanted := range []string{"sigs.k8s.io/controller-runtime ", "sigs.k8s.io/kind ", "k8s.io/cloud-provider "} {
			if strings.HasPrefix(m, unwanted) {
				t.Errorf("the consumer gets %s", m)
			}
		}
	}
}
