package ccm

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tourChecker checks the references of a text to code.
type tourChecker struct {
	sources  map[string]string // the Go files of this package, its program and its internal packages
	makefile string
	headings map[string]bool // anchors of the text
}

func newTourChecker(t *testing.T, text string) *tourChecker {
	t.Helper()
	c := &tourChecker{sources: map[string]string{}, makefile: readText(t, "../Makefile")}
	for _, pattern := range []string{"*.go", "cmd/ccm-from-scratch/*.go", "internal/*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			c.sources[file] = readText(t, file)
		}
	}
	c.setHeadings(text)
	return c
}

func readText(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// setHeadings sets the headings to which a text can link.
func (c *tourChecker) setHeadings(text string) {
	c.headings = map[string]bool{}
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		anchor := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(h[1]), "")
		c.headings[strings.ReplaceAll(anchor, " ", "-")] = true
	}
}

// declares reports whether a Go file declares a name, or a method or field as Type.name.
func declares(source, name string) bool {
	pattern := `^(func |type |const |var |\t)` + name + `\b`
	if owner, member, isMember := strings.Cut(name, "."); isMember {
		pattern = `^func \(\w+ \*?` + owner + `(\[\w+\])?\) ` + member + `\(|^type ` + owner +
			`\b[^\n]* (struct|interface) \{[^}]*\n\t(\w+, )*` + member + `\b`
	}
	return regexp.MustCompile(`(?m)` + pattern).MatchString(source)
}

// somewhere reports whether a source satisfies a condition.
func (c *tourChecker) somewhere(condition func(file, source string) bool) bool {
	for file, source := range c.sources {
		if condition(file, source) {
			return true
		}
	}
	return false
}

var (
	codeBlock    = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	codeLink     = regexp.MustCompile("\\[`([^`]+)`\\]\\(([^)]+)\\)")
	anyLink      = regexp.MustCompile(`\[[^\]]*\]\(([^)]+)\)`)
	codeSpan     = regexp.MustCompile("`([^`]+)`")
	goIdentifier = regexp.MustCompile(`^[A-Za-z_]\w*(\.[A-Za-z_]\w*)?$`)
	goWords      = []string{"true", "false", "main", "nil"}
)

// check returns the references of a text that lead nowhere.
func (c *tourChecker) check(text string) (wrong []string) {
	for _, block := range codeBlock.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(block[2]) {
			is := func(_, source string) bool { return strings.Contains(source, strings.TrimSpace(line)+"\n") }
			if block[1] == "go" && !c.somewhere(is) {
				wrong = append(wrong, "no file has the line "+line)
			}
		}
	}
	text = codeBlock.ReplaceAllString(text, "")
	wrong = append(wrong, c.checkLinks(text)...)
	for _, link := range codeLink.FindAllStringSubmatch(text, -1) {
		if !declares(c.sources[filepath.Clean(link[2])], link[1]) {
			wrong = append(wrong, link[2]+" does not declare "+link[1])
		}
	}
	for _, span := range codeSpan.FindAllStringSubmatch(codeLink.ReplaceAllString(text, ""), -1) {
		if !c.isThere(span[1]) {
			wrong = append(wrong, "nothing declares "+span[1])
		}
	}
	return wrong
}

// checkLinks returns the links of a text to headings and files that do not exist. It does not look at other sites.
func (c *tourChecker) checkLinks(text string) (wrong []string) {
	for _, link := range anyLink.FindAllStringSubmatch(text, -1) {
		file, anchor, _ := strings.Cut(link[1], "#")
		if strings.Contains(link[1], "://") || file == "" && c.headings[anchor] {
			continue
		}
		if _, err := os.Stat(file); err != nil {
			wrong = append(wrong, "a link leads nowhere: "+link[1])
		}
	}
	return wrong
}

// isThere checks code without a link: a target of the Makefile, a setting, a file, or a name. Other code, such as a label, is always there.
func (c *tourChecker) isThere(code string) bool {
	target, isTarget := strings.CutPrefix(code, "make ")
	_, _, qualified := strings.Cut(code, ".")
	switch {
	case isTarget:
		return strings.Contains(c.makefile, "\n"+strings.Fields(target)[0]+":")
	case strings.HasPrefix(code, "HCLOUD_"):
		return slices.Contains(knownVariables(), code)
	case strings.HasSuffix(code, ".go"):
		return c.somewhere(func(file, _ string) bool { return filepath.Base(file) == code })
	case !goIdentifier.MatchString(code) || slices.Contains(goWords, code):
		return true
	}
	return c.somewhere(func(file, source string) bool { // or a name of another package that we use
		return declares(source, code) || qualified && !strings.HasSuffix(file, "_test.go") && strings.Contains(source, code)
	})
}

func TestEachReferenceOfTheReadmeIsThere(t *testing.T) {
	t.Parallel()
	use, tour := readText(t, "README.md"), readText(t, "TUTORIAL.md")
	if len(codeLink.FindAllString(tour, -1)) < 50 {
		t.Fatal("the tour is not there")
	}
	c := newTourChecker(t, tour)
	for _, w := range c.check(tour) {
		t.Error(w)
	}
	// In the README, code is mostly settings and labels of users: only links are checked.
	c.setHeadings(use)
	for _, w := range c.checkLinks(use) {
		t.Error(w)
	}
}

func TestTheCheckOfReferencesFindsWhatIsNotThere(t *testing.T) {
	t.Parallel()
	c := newTourChecker(t, "# A heading\n")
	for text, want := range map[string]string{
		"[`Cloud`](cloud.go), [`Cloud.Routes`](route.go), `cloudprovider.Routes`, `HCLOUD_NETWORK`, `make e2e`, `--v=2`": "",
		"[`Cache.Get`](internal/apicall/cache.go), [`LoadBalancer.UID`](internal/plan/plan.go), [a](#a-heading), `true`": "",
		"```go\nfunc (c *Cloud) Instances() (cloudprovider.Instances, bool) { return nil, false }\n```":                  "",

		"```go\nfunc (c *Cloud) Instances() bool { return false }\n```": "no file has the line",

		"[`Cloud`](config.go)":     "config.go does not declare Cloud",
		"[`Cloud.Gone`](cloud.go)": "cloud.go does not declare Cloud.Gone",
		"[text](gone.go)":          "a link leads nowhere",
		"[a](#gone)":               "a link leads nowhere",
		"`goneIdentifier`":         "nothing declares",
		"`cloudprovider.Gone`":     "nothing declares cloudprovider.Gone",
		"`HCLOUD_GONE`":            "nothing declares",
		"`make gone`":              "nothing declares",
		"`gone.go`":                "nothing declares gone.go",
	} {
		got := strings.Join(c.check(text), "; ")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestTheReadmeExplainsEachEvent(t *testing.T) {
	t.Parallel()
	readme := readText(t, "README.md")
	reasons := regexp.MustCompile(`(?m)^\t\w+ += "(\w+)"$`).FindAllStringSubmatch(readText(t, "internal/event/event.go"), -1)
	for _, reason := range reasons {
		if !strings.Contains(readme, "`"+reason[1]+"`") {
			t.Errorf("README.md does not explain the event %s", reason[1])
		}
	}
	if len(reasons) < 20 {
		t.Errorf("found %d reasons in event.go", len(reasons))
	}
}
