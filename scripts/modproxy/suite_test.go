package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// guideBlocks returns the blocks of the guide for the repository of another cloud-controller-manager (CCM), by language.
func guideBlocks(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../e2e/PORTING.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	block := regexp.MustCompile("(?ms)^<!-- run by TestFromOutside -->\n```([a-z]+)\n(.*?)^```$")
	for _, found := range block.FindAllStringSubmatch(string(page), -1) {
		all[found[1]] = append(all[found[1]], found[2])
	}
	if len(all["yaml"]) != 2 || len(all["sh"]) != 2 || len(all["go"]) != 1 {
		t.Fatalf("PORTING.md has other blocks: %v", all)
	}
	if n := strings.Count(all["go"][0], "\n"); n > 17 {
		t.Errorf("the test has %d lines, and was promised to have about 15", n)
	}
	return all
}

// lastStep returns the command of the last step of a workflow.
func lastStep(t *testing.T, workflow string) string {
	t.Helper()
	all := regexp.MustCompile(`(?m)^ +- run: (.+)$`).FindAllStringSubmatch(workflow, -1)
	return all[len(all)-1][1]
}

// aCCM makes the repository of a CCM: a copy of the example CCM, with the Kubernetes of the checkout. The newest may be another minor.
const aCCM = `cp -R "$0/ccm/example/." . && rm provider/*_test.go
sed -i.orig 's|github.com/ccm-from-scratch/ccm-from-scratch/ccm/example|example.com/my-ccm|' main.go provider/*.go
go mod init example.com/my-ccm
go mod edit $(awk '$1 ~ "^k8s.io/" && !/indirect/ {print "-require=" $1 "@" $2}' "$0/go.mod")
go mod tidy
mkdir e2e && printf %s "$1" >e2e/ccm.yaml && printf %s "$2" >e2e/e2e_test.go`

// unwanted are modules that no user of the suite may get: of one cloud, of our CCM, and of builders of images.
var unwanted = []string{
	root, fakecloud, "github.com/hetznercloud/hcloud-go/v2", "github.com/google/go-containerregistry", "sigs.k8s.io/kind",
	"k8s.io/cloud-provider", "github.com/chromedp/chromedp",
}

func (o *outsider) userOfTheSuite() {
	guide, dir := guideBlocks(o.T), o.TempDir()
	checkout, err := filepath.Abs("../..")
	if err != nil {
		o.Fatal(err)
	}
	o.run(dir, "bash", "-euc", aCCM, checkout, guide["yaml"][0], guide["go"][0])
	e2eFolder := filepath.Join(dir, "e2e")
	o.run(e2eFolder, "bash", "-euc", guide["sh"][0])
	modules := strings.Fields(o.run(e2eFolder, "go", "list", "-m", "-f", "{{.Path}}", "all"))
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
	if dry := o.run(e2eFolder, "bash", "-euc", guide["sh"][1]); !regexp.MustCompile(`Ran [1-9]\d* of \d+ Specs`).MatchString(dry) {
		o.Errorf("the program has no specs with the labels: %s", dry)
	}
	// The last step of the workflow, with a few of the specs.
	step := strings.Replace(lastStep(o.T, guide["yaml"][1]), "--procs=8", "--procs=2 --focus='"+strings.Join(few, "|")+"'", 1)
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
