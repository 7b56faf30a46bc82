package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// outsider is a user without a checkout: with an empty module cache, and a module proxy that has the released modules.
type outsider struct {
	*testing.T
	env     []string
	bin     string // where go install puts programs
	version string
	compile bool // else go only says what it would do, which needs all modules, but takes seconds instead of minutes
}

func TestFromOutside(t *testing.T) {
	if testing.Short() {
		t.Skip("downloads all modules")
	}
	checkout, bin := filepath.Join("..", ".."), t.TempDir()
	env, version, err := proxy(t.Context(), checkout, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	env = slices.Concat(os.Environ(), env, []string{
		"GOBIN=" + bin, "CGO_ENABLED=0",
		"GOFLAGS=-modcacherw -trimpath", // so that Go's build cache does not depend on the name of the module cache
	})
	tests := map[string]func(*outsider){
		"programs are installed":        (*outsider).programsAreInstalled,
		"the repository of another CCM": (*outsider).userOfTheSuite,
		"a user of fakecloud":           (*outsider).userOfFakecloud,
		"a user of Gomega":              func(o *outsider) { o.user(gomegacloud, userOfGomega) },
		"a user of the CCM":             func(o *outsider) { o.user(root, userOfTheCCM) },
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&outsider{T: t, env: env, bin: bin, version: version, compile: os.Getenv("OUTSIDE_COMPILE") != ""})
		})
	}
}

// run runs a command in a folder and returns what it prints.
func (o *outsider) run(dir, program string, args ...string) string {
	o.Helper()
	cmd := exec.CommandContext(o.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, o.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		o.Fatalf("%s %v: %v\n%s", program, args, err, out[max(0, len(out)-4000):])
	}
	return string(out)
}

// build runs a go command that compiles.
func (o *outsider) build(dir, command string, args ...string) {
	o.Helper()
	if !o.compile {
		args = append([]string{"-n"}, args...)
	}
	o.run(dir, "go", append([]string{command}, args...)...)
}

func (o *outsider) programsAreInstalled() {
	for _, path := range []string{root, e2e, fakecloud} {
		// Not path/...@version: the pattern of the root module would match packages of the others, and go refuses that.
		list := exec.CommandContext(o.Context(), "go", "list", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`, "./...")
		list.Dir = filepath.Join("..", "..", released[path])
		programs, err := list.Output()
		if err != nil {
			o.Fatal(err)
		}
		all := strings.Fields(string(programs))
		if len(all) == 0 {
			o.Errorf("%s has no programs", path)
		}
		for i := range all {
			all[i] += "@" + o.version
		}
		o.build(o.TempDir(), "install", all...)
	}
	o.run(o.TempDir(), "go", "install", "-n", fakecloud+"/cmd/fakecloud@latest") // the command of the documentation
	if !o.compile {
		return
	}
	for _, name := range []string{"fakecloud", "ccm-from-scratch", "machine-controller"} {
		o.run(o.TempDir(), filepath.Join(o.bin, name), "--help")
	}
}

const userOfFakecloud = `package controller

import (
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

func TestController(t *testing.T) {
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	server, _, err := cloud.Client().Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "a", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-13"}, Labels: labels.Set{"a": "b"},
	})
	if err != nil || server.Server.ID == 0 {
		t.Fatal(server, err)
	}
}
`

const userOfGomega = `package controller

import (
	"testing"

	"github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fakecloudtest"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/gomegacloud"
)

func TestController(t *testing.T) {
	gomega.NewWithT(t).Expect(fakecloudtest.New(t)).To(gomegacloud.HaveRequested("create_server", 0))
}
`

const userOfTheCCM = `package main

import (
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
)

func TestCCM(t *testing.T) {
	if ccm.New(ccm.Config{Token: "t"}).ProviderName() != ccm.ProviderName {
		t.Error("another name")
	}
}
`

// user compiles the tests of a module that requires others, such as one of ours. It returns the modules that it gets.
func (o *outsider) user(required, text string, others ...string) (modules string) {
	dir := o.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "user_test.go"), []byte(text), 0o600); err != nil {
		o.Fatal(err)
	}
	o.run(dir, "go", "mod", "init", "example.com/user")
	for _, m := range append(others, required+"@"+o.version) {
		o.run(dir, "go", "mod", "edit", "-require="+m)
	}
	o.run(dir, "go", "mod", "tidy")
	o.build(dir, "test", "./...")
	return o.run(dir, "go", "list", "-m", "all")
}

// userOfFakecloud keeps a Kubernetes minor that other controllers still use, and gets no heavy modules.
func (o *outsider) userOfFakecloud() {
	const older = "k8s.io/apimachinery v0.34.1"
	modules := o.user(fakecloud, userOfFakecloud, strings.Replace(older, " ", "@", 1))
	if !strings.Contains(modules, older+"\n") {
		o.Errorf("it is no longer %s: %s", older, modules)
	}
	for _, unwanted := range []string{"sigs.k8s.io/controller-runtime ", "sigs.k8s.io/kind ", "k8s.io/cloud-provider "} {
		if strings.Contains(modules, unwanted) {
			o.Errorf("the user gets %s", unwanted)
		}
	}
}
