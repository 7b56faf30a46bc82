// Package house tests what holds for the whole repository, such as that versions and generated files agree.
package house

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/kind/pkg/apis/config/defaults"
)

const (
	kubernetes        = "k8s.io/kubernetes"
	controllerRuntime = "sigs.k8s.io/controller-runtime"
	envtest           = "sigs.k8s.io/controller-runtime/tools/setup-envtest"
)

// programs is the module that the control plane of e2e and the node image are built from. The release that it names is
// also the one that envtest's archives are downloaded for.
const programs = "kind/nodeimage/modules/kubernetes"

// nodePrograms is the module of the other programs in a node image.
const nodePrograms = "kind/nodeimage/modules/node"

// read returns a file of the repository.
func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.Join(path...)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// required returns the version of a module in a go.mod. The test fails without it.
func required(t *testing.T, folder, path string) string {
	t.Helper()
	found := regexp.MustCompile(`(?m)^(?:require |\t)` + regexp.QuoteMeta(path) + ` (v\S+)`).FindStringSubmatch(read(t, folder, "go.mod"))
	if found == nil {
		t.Fatalf("%s/go.mod does not require %s", folder, path)
	}
	return found[1]
}

// libraries matches Kubernetes' own libraries in a go.mod, with their replacements. Kubernetes 1.X publishes them as 0.X; others below
// k8s.io have other versions: v2, or v0.0.0 with a date.
var libraries = regexp.MustCompile(`\s(k8s\.io/[\w-]+) (v0\.[1-9]\d*\.\d+)\b`)

// minor returns the second number of a release: 37 for v1.37.1.
func minor(t *testing.T, version string) (n int) {
	t.Helper()
	var major int
	if _, err := fmt.Sscanf(version, "v%d.%d.", &major, &n); err != nil {
		t.Fatalf("%q: must be a release: %v", version, err)
	}
	return n
}

// kindRelease returns the release of Kubernetes in the name of kind's default node image.
func kindRelease(t *testing.T) string {
	t.Helper()
	found := regexp.MustCompile(`^kindest/node:(v1\.\d+\.\d+)@`).FindStringSubmatch(defaults.Image)
	if found == nil {
		t.Fatalf("kind's default image %s does not name a release", defaults.Image)
	}
	return found[1]
}

func TestOneKubernetesMinorEverywhere(t *testing.T) {
	t.Parallel()
	want := minor(t, required(t, programs, kubernetes))
	same := func(what, version string, ahead int) {
		t.Helper()
		if got := minor(t, version) + ahead; got != want {
			t.Errorf("%s %s is for Kubernetes 1.%d, %s builds 1.%d: run scripts/kube-bump.sh", what, version, got, programs, want)
		}
	}
	// A user pulls the first, and CI builds the others.
	same("kind's default node image", kindRelease(t), 0)
	for _, folder := range []string{".", "e2e", "e2e/hetzner", programs} {
		found := libraries.FindAllStringSubmatch(read(t, folder, "go.mod"), -1)
		if len(found) == 0 {
			t.Errorf("%s/go.mod requires no library of Kubernetes", folder)
		}
		for _, library := range found {
			same("in "+folder+"/go.mod "+library[1], library[2], 0)
		}
	}
	// The guide of the suite downloads these.
	guide := read(t, "e2e", "PORTING.md")
	for _, command := range []string{
		"setup-envtest@" + required(t, "kind/nodeimage", envtest) + " use --print=path " +
			strings.TrimPrefix(required(t, programs, kubernetes), "v"),
		"https://dl.k8s.io/" + required(t, programs, kubernetes) + "/bin/",
	} {
		if !strings.Contains(guide, command) {
			t.Errorf("e2e/PORTING.md does not say %q: run scripts/kube-bump.sh", command)
		}
	}
	// controller-runtime 0.N is made for Kubernetes 1.(N+12), and so is its envtest.
	same(controllerRuntime, required(t, ".", controllerRuntime), 12)
	same(envtest, required(t, "kind/nodeimage", envtest), 12)
}

func TestTheReadmeNamesTheVersionsThatAreTested(t *testing.T) {
	t.Parallel()
	screen := strings.Join(strings.Split(read(t, "README.md"), "\n")[:24], "\n")
	for what, version := range map[string]string{
		"Kubernetes ":    strings.TrimPrefix(required(t, programs, kubernetes), "v"),
		"`k8s.io/*` ":    required(t, ".", "k8s.io/cloud-provider"),
		"kind ":          required(t, ".", "sigs.k8s.io/kind"),
		"`kindest/node:": kindRelease(t) + "`",
		"hcloud-go ":     required(t, "fakecloud", "github.com/hetznercloud/hcloud-go/v2"),
		"etcd ":          strings.TrimPrefix(required(t, programs, "go.etcd.io/etcd/server/v3"), "v"),
		"CoreDNS ":       strings.TrimPrefix(required(t, nodePrograms, "github.com/coredns/coredns"), "v"),
		"containerd ":    strings.TrimPrefix(required(t, nodePrograms, "github.com/containerd/containerd/v2"), "v"),
	} {
		if !strings.Contains(screen, what+version) {
			t.Errorf("the first screen of the README does not say %q", what+version)
		}
	}
}
