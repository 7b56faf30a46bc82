package ccm

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tourPackages are the packages of others that the tour names, by the name that it uses.
var tourPackages = map[string]string{
	"app":           "k8s.io/cloud-provider/app",
	"options":       "k8s.io/cloud-provider/options",
	"cloudprovider": "k8s.io/cloud-provider",
}

// declared returns what the Go files of a folder declare, by file: functions, types, constants and variables, and, as
// Type.name, methods and fields.
func declared(folder string) (map[string][]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no Go file in %s: %w", folder, err)
	}
	all := map[string][]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			all[name] = append(all[name], namesOf(d)...)
		}
	}
	return all, nil
}

func namesOf(d ast.Decl) (names []string) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		receiver := d.Recv.List[0].Type
		if star, ok := receiver.(*ast.StarExpr); ok {
			receiver = star.X
		}
		if generic, ok := receiver.(*ast.IndexExpr); ok {
			receiver = generic.X
		}
		return []string{receiver.(*ast.Ident).Name + "." + d.Name.Name}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				for _, n := range spec.Names {
					names = append(names, n.Name)
				}
			case *ast.TypeSpec:
				names = append(names, spec.Name.Name)
				for _, f := range fieldsOf(spec.Type) {
					for _, n := range f.Names {
						names = append(names, spec.Name.Name+"."+n.Name)
					}
				}
			}
		}
	}
	return names
}

func fieldsOf(t ast.Expr) []*ast.Field {
	switch t := t.(type) {
	case *ast.StructType:
		return t.Fields.List
	case *ast.InterfaceType:
		return t.Methods.List
	}
	return nil
}

// tourChecker checks the references of a text to code.
type tourChecker struct {
	own      map[string][]string // declarations of this package and its program, by file
	packages map[string][]string // declarations of the packages in tourPackages
	settings map[string]bool     // the variables that the program reads
	targets  string              // the Makefile
	sources  string              // all lines of the Go files, without indentation
	headings map[string]bool     // anchors of the text
}

func newTourChecker(t *testing.T, text string) *tourChecker {
	t.Helper()
	c := &tourChecker{own: map[string][]string{}, packages: map[string][]string{}, settings: map[string]bool{}}
	folders, err := filepath.Glob("internal/[^p]*") // not proof, which has no files of its own
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range append(folders, ".", "cmd/ccm-from-scratch", "internal/plan") {
		files, err := declared(folder)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(c.own, files)
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("skipped: it asks go for the folders of packages, and there is no go here")
	}
	args := append([]string{"list", "-find", "-f", "{{.ImportPath}} {{.Dir}}"}, slices.Collect(maps.Values(tourPackages))...)
	list, err := exec.CommandContext(t.Context(), "go", args...).Output()
	if err != nil {
		t.Fatalf("finding the packages %v: %v", tourPackages, err)
	}
	for name, path := range tourPackages {
		_, folder, _ := strings.Cut("\n"+string(list), "\n"+path+" ")
		folder, _, _ = strings.Cut(folder, "\n")
		files, err := declared(folder)
		if err != nil {
			t.Fatal(err)
		}
		for file, names := range files {
			if !strings.HasSuffix(file, "_test.go") {
				c.packages[name] = append(c.packages[name], names...)
			}
		}
	}
	_, _ = ConfigFromEnv(func(name string) (string, bool) { // the error does not matter here
		c.settings[name] = true
		return "", false
	})
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	c.targets = string(makefile)
	var sources strings.Builder
	for name := range c.own {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			sources.WriteString(strings.TrimSpace(line) + "\n")
		}
	}
	c.sources = "\n" + sources.String()
	c.setHeadings(text)
	return c
}

// setHeadings sets the headings to which a text can link.
func (c *tourChecker) setHeadings(text string) {
	c.headings = map[string]bool{}
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		anchor := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(h[1]), "")
		c.headings[strings.ReplaceAll(anchor, " ", "-")] = true
	}
}

var (
	codeBlock    = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	codeLink     = regexp.MustCompile("\\[`([^`]+)`\\]\\(([^)]+)\\)")
	anyLink      = regexp.MustCompile(`\[[^\]]*\]\(([^)]+)\)`)
	codeSpan     = regexp.MustCompile("`([^`]+)`")
	goIdentifier = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)?$`)
	goWords      = []string{"true", "false", "main", "nil"}
)

// check returns what is wrong with the references of a text.
func (c *tourChecker) check(text string) (wrong []string) {
	for _, block := range codeBlock.FindAllStringSubmatch(text, -1) {
		if block[1] != "go" {
			continue
		}
		for line := range strings.Lines(block[2]) {
			if line = strings.TrimSpace(line); line != "" && !strings.Contains(c.sources, "\n"+line+"\n") {
				wrong = append(wrong, "no file has the line "+line)
			}
		}
	}
	text = codeBlock.ReplaceAllString(text, "")
	for _, link := range anyLink.FindAllStringSubmatch(text, -1) {
		wrong = append(wrong, c.link(link[1])...)
	}
	for _, link := range codeLink.FindAllStringSubmatch(text, -1) {
		wrong = append(wrong, c.inFile(link[1], link[2])...)
	}
	for _, span := range codeSpan.FindAllStringSubmatch(codeLink.ReplaceAllString(text, ""), -1) {
		wrong = append(wrong, c.span(span[1])...)
	}
	return wrong
}

// link checks that what a link leads to is there. The addresses of other sites are not checked.
func (c *tourChecker) link(target string) []string {
	if strings.Contains(target, "://") {
		return nil
	}
	file, anchor, _ := strings.Cut(target, "#")
	if file == "" {
		if !c.headings[anchor] {
			return []string{"no heading for the link to #" + anchor}
		}
		return nil
	}
	if _, err := os.Stat(file); err != nil {
		return []string{"the file of a link is not there: " + target}
	}
	return nil
}

// inFile checks that a file declares a name.
func (c *tourChecker) inFile(name, file string) []string {
	if slices.Contains(c.own[filepath.Clean(file)], name) {
		return nil
	}
	for other, names := range c.own {
		if slices.Contains(names, name) {
			return []string{fmt.Sprintf("%s does not declare %s: link to %s", file, name, other)}
		}
	}
	return []string{fmt.Sprintf("%s does not declare %s, and no other file does", file, name)}
}

// span checks code without a link. What has no form of a reference, such as a label, is not checked.
func (c *tourChecker) span(code string) []string {
	if target, ok := strings.CutPrefix(code, "make "); ok {
		if !strings.Contains(c.targets, "\n"+strings.Fields(target)[0]+":") {
			return []string{"the Makefile has no target for " + code}
		}
		return nil
	}
	if strings.HasPrefix(code, "HCLOUD_") {
		if !c.settings[code] {
			return []string{"the program does not read " + code}
		}
		return nil
	}
	if strings.HasSuffix(code, ".go") {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(c.own)), func(file string) bool { return filepath.Base(file) == code }) {
			return []string{"there is no file " + code}
		}
		return nil
	}
	if !goIdentifier.MatchString(code) || slices.Contains(goWords, code) {
		return nil
	}
	pkg, name, qualified := strings.Cut(code, ".")
	if names, ok := c.packages[pkg]; ok && qualified {
		if !slices.Contains(names, name) {
			return []string{fmt.Sprintf("package %s does not declare %s", tourPackages[pkg], name)}
		}
		return nil
	}
	for _, names := range c.own {
		if slices.Contains(names, code) {
			return nil
		}
	}
	return []string{"nothing declares " + code}
}

func TestEachReferenceOfTheReadmeIsThere(t *testing.T) {
	t.Parallel()
	use, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	tour, err := os.ReadFile("TUTORIAL.md")
	if err != nil {
		t.Fatal(err)
	}
	if len(codeLink.FindAll(tour, -1)) < 50 {
		t.Fatal("the tour is not there")
	}
	c := newTourChecker(t, string(tour))
	for _, w := range c.check(string(tour)) {
		t.Error(w)
	}
	// In the README, code is mostly settings and labels of users: only links are checked.
	c.setHeadings(string(use))
	for _, link := range anyLink.FindAllStringSubmatch(string(use), -1) {
		for _, w := range c.link(link[1]) {
			t.Error(w)
		}
	}
}

func TestTheCheckOfReferencesFindsWhatIsNotThere(t *testing.T) {
	t.Parallel()
	c := newTourChecker(t, "# A heading\n")
	for text, want := range map[string]string{
		"[`Cloud`](cloud.go), [`Cloud.Routes`](route.go), `cloudprovider.Routes`, `HCLOUD_NETWORK`, `make e2e`, `--v=2`": "",
		"[`Cache.Get`](internal/apicall/cache.go), [`LoadBalancer.UID`](internal/plan/plan.go), [a](#a-heading), `true`": "",
		"```go\nfunc (c *Cloud) Instances() (cloudprovider.Instances, bool) { return nil, false }\n```":                  "",
		"```go\nfunc (c *Cloud) Instances() bool { return false }\n```":                                                  "no file has the line",
		"[`Cloud`](config.go)":     "link to cloud.go",
		"[`Cloud.Gone`](cloud.go)": "no other file does",
		"[text](gone.go)":          "the file of a link is not there",
		"[a](#gone)":               "no heading",
		"`goneIdentifier`":         "nothing declares",
		"`cloudprovider.Gone`":     "does not declare Gone",
		"`HCLOUD_GONE`":            "does not read",
		"`make gone`":              "no target",
		"`gone.go`":                "no file gone.go",
	} {
		got := strings.Join(c.check(text), "; ")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestTheReadmeExplainsEachEvent(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("internal/event/event.go")
	readme, readErr := os.ReadFile("README.md")
	if err != nil || readErr != nil {
		t.Fatal(err, readErr)
	}
	reasons := regexp.MustCompile(`(?m)^\t\w+ += "(\w+)"$`).FindAllStringSubmatch(string(source), -1)
	for _, reason := range reasons {
		if !strings.Contains(string(readme), "`"+reason[1]+"`") {
			t.Errorf("README.md does not explain the event %s", reason[1])
		}
	}
	if len(reasons) < 20 {
		t.Errorf("found %d reasons in event.go", len(reasons))
	}
}
