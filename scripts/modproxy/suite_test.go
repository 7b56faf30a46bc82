package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/mod/modfile"
)

// guide is what the guide says of the repository of a cloud-controller-manager (CCM) that tests itself with the suite.
type guide struct {
	description, test, workflow string
	module, binary              string // commands
}

func readGuide(t *testing.T) (g guide) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "e2e", "PORTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, found := range regexp.MustCompile("(?ms)^<!-- run by TestFromOutside -->\n```([a-z]+)\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		all[found[1]] = append(all[found[1]], found[2])
	}
	if len(all["yaml"]) != 2 || len(all["sh"]) != 2 || len(all["go"]) != 1 {
		t.Fatalf("PORTING.md has other blocks: %v", all)
	}
	if n := strings.Count(all["go"][0], "\n"); n > 17 {
		t.Errorf("the test has %d lines, and was promised to have about 15", n)
	}
	return guide{all["yaml"][0], all["go"][0], all["yaml"][1], all["sh"][0], all["sh"][1]}
}

// lastStep returns the command of the last step of the workflow.
func (g guide) lastStep(t *testing.T) string {
	t.Helper()
	var w struct {
		Jobs map[string]struct {
			Steps []struct{ Run string }
		}
	}
	if err := yaml.Unmarshal([]byte(g.workflow), &w); err != nil {
		t.Fatal(err)
	}
	steps := w.Jobs["conformance"].Steps
	return steps[len(steps)-1].Run
}

// aCCM is the repository of a CCM: a copy of the example CCM, with the folder e2e of the guide. It returns its folder.
func (o *outsider) aCCM(g guide) string {
	o.Helper()
	dir, example := o.TempDir(), filepath.Join("..", "..", "ccm", "example")
	files := map[string]string{"e2e/ccm.yaml": g.description, "e2e/e2e_test.go": g.test}
	sources, err := filepath.Glob(filepath.Join(example, "provider", "*.go"))
	if err != nil {
		o.Fatal(err)
	}
	for _, path := range append(sources, filepath.Join(example, "main.go"), filepath.Join(example, "manifest.yaml")) {
		name, err := filepath.Rel(example, path)
		if err != nil {
			o.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			o.Fatal(err)
		}
		if !strings.HasSuffix(name, "_test.go") {
			files[filepath.ToSlash(name)] = strings.ReplaceAll(string(text), root+"/ccm/example", "example.com/my-ccm")
		}
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			o.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			o.Fatal(err)
		}
	}
	o.run(dir, "go", "mod", "init", "example.com/my-ccm")
	for _, r := range kubernetesOf(o.T) {
		o.run(dir, "go", "mod", "edit", "-require="+r)
	}
	o.run(dir, "go", "mod", "tidy")
	return dir
}

// kubernetesOf returns what the checkout requires of Kubernetes. The newest one may be another minor.
func kubernetesOf(t *testing.T) (all []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.ParseLax("go.mod", text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range file.Require {
		if strings.HasPrefix(r.Mod.Path, "k8s.io/") && !r.Indirect {
			all = append(all, r.Mod.String())
		}
	}
	return all
}

// unwanted are modules that no user of the suite may get: of one cloud, of our CCM, and of builders of images.
var unwanted = []string{
	root, fakecloud, "github.com/hetznercloud/hcloud-go/v2", "github.com/google/go-containerregistry", "sigs.k8s.io/kind",
	"k8s.io/cloud-provider", "github.com/chromedp/chromedp",
}

func (o *outsider) userOfTheSuite() {
	g := readGuide(o.T)
	dir := o.aCCM(g)
	e2eFolder := filepath.Join(dir, "e2e")
	o.run(e2eFolder, "bash", "-euc", g.module)
	modules := strings.Fields(o.run(e2eFolder, "go", "list", "-m", "-f", "{{.Path}}", "all"))
	compiled := strings.Fields(o.run(e2eFolder, "go", "list", "-deps", "-test", "-f", "{{with .Module}}{{.Path}}{{end}}", "."))
	slices.Sort(compiled)
	o.Logf("the specs are compiled from %d modules, of %d in the graph", len(slices.Compact(compiled)), len(modules))
	if !slices.Contains(modules, e2e) {
		o.Errorf("the user does not get the suite: %v", modules)
	}
	for _, m := range unwanted {
		if slices.Contains(modules, m) {
			o.Errorf("the user gets %s", m)
		}
	}
	o.build(e2eFolder, "vet", ".")
	o.build(e2eFolder, "test", "-c", ".")
	if !o.compile {
		return
	}
	if dry := o.run(e2eFolder, "bash", "-euc", g.binary); !regexp.MustCompile(`Ran [1-9]\d* of \d+ Specs`).MatchString(dry) {
		o.Errorf("the program has no specs with the labels: %s", dry)
	}
	// The last step of the workflow, with a few of the specs.
	step := strings.Replace(g.lastStep(o.T), "--procs=8", "--procs=2 --focus='"+strings.Join(few, "|")+"'", 1)
	printed := o.run(dir, "bash", "-euc", step)
	text, err := os.ReadFile(filepath.Join(e2eFolder, "out", "specs.json"))
	if err != nil {
		o.Fatalf("%v after\n%s", err, printed)
	}
	var run struct {
		CCM   string
		Specs []struct{ Name, Result string }
	}
	if err := json.Unmarshal(text, &run); err != nil {
		o.Fatal(err)
	}
	passed := 0
	for _, s := range run.Specs {
		if s.Result == "passed" {
			passed++
		}
	}
	if run.CCM != "my-ccm" || passed != len(few) || passed != len(run.Specs) {
		o.Errorf("of %s, %d of %d specs passed: %v", run.CCM, passed, len(run.Specs), run.Specs)
	}
}

// few are specs that pass within seconds.
var few = []string{
	"A node gets its server.s provider ID", "was deleted is deleted, and no other node", "is deleted with its load balancer",
}
