package scenario

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// FuzzParse reads any text as a scenario file and starts it, in a cloud that must be as before after the end.
func FuzzParse(f *testing.F) {
	for _, b := range Builtins() {
		text, err := builtin.ReadFile("builtin/" + b.Name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "")
		f.Add(string(text), "1@1")
	}
	f.Add("name: a\ndescription: b\nchanges: &a [{limit: {project: 1, kind: server, most: 1}}, *a]\n", "")
	f.Fuzz(func(t *testing.T, text, values string) {
		file, err := Parse("fuzz.yaml", []byte(text))
		if err != nil {
			return
		}
		s, err := file.Scenario(values)
		if err != nil {
			return
		}
		c := cloud.New(cloud.Options{})
		defer c.Close()
		before := c.Catalogue()
		started, err := c.StartScenario(s)
		if err != nil {
			_ = file.Explain(err)
			return
		}
		c.EndScenario(started.ID)
		if p, _ := c.Project(1); len(c.Scenarios()) > 0 || c.Catalogue() != before || len(p.View().Limits) > 0 {
			t.Errorf("%q has left a trace", text)
		}
	})
}

// Each of these texts is small, and gigabytes when its parameters or aliases have their values.
func TestAScenarioHasALimitWithItsValues(t *testing.T) {
	t.Parallel()
	const head, change = "name: a\nparameters: [{name: p, default: b, description: c}]\n", "limit: {project: 1, kind: server, most: 1}"
	start := func(text, values string) error {
		f, err := Parse("a.yaml", []byte(head+text))
		if err == nil {
			_, err = f.Scenario(values)
		}
		return err
	}
	many, long := strings.Repeat("$p", 16_000), strings.Repeat("x", 16_000)
	aliases := "[" + strings.Repeat("*t,", 16_000) + "]"
	for what, err := range map[string]error{
		"description": start("description: "+many+"\nchanges: [{"+change+"}]", long),
		"repeat":      start("description: d\nrepeat: "+many+"\nchanges: [{"+change+"}]", long),
		"change":      start("description: d\nchanges: [{fault: {name: "+many+", effect: {kind: drop}}}]", long),
		"aliases":     start("description: &t "+long+"$p\nchanges: "+aliases, "b"),
		"itself":      start("description: $p\nchanges: &t [*t]", "b"),
	} {
		if err == nil || !strings.Contains(err.Error(), "1 MiB") {
			t.Errorf("%s: %.200v, want an error that names the limit", what, err)
		}
	}
	if err := start("description: "+many+"\nchanges: [{"+change+"}]", "x"); err != nil {
		t.Errorf("a description of 16 kB: %v", err)
	}
}

// TestIncidentsListsTheScenarios compares the commands of INCIDENTS.md with the built-in scenarios, and starts each, and its own one.
func TestIncidentsListsTheScenarios(t *testing.T) {
	text, err := os.ReadFile("../../INCIDENTS.md")
	if err != nil {
		t.Fatal(err)
	}
	c := cloud.New(cloud.Options{})
	defer c.Close()
	start := func(f *File, values string) {
		t.Helper()
		s, err := f.Scenario(values)
		if err == nil {
			_, err = c.StartScenario(s)
		}
		if err != nil {
			t.Error(f.Explain(err))
		}
	}
	listed := map[string]int{}
	for _, m := range regexp.MustCompile("(?m)\\| `--scenario ([a-z-]+)=?([^`]*)` \\|$").FindAllStringSubmatch(string(text), -1) {
		listed[m[1]]++
		if f, err := Builtin(m[1]); err != nil {
			t.Error(err)
		} else {
			start(f, m[2])
		}
	}
	for _, b := range Builtins() {
		if listed[b.Name] != 1 {
			t.Errorf("INCIDENTS.md has %d rows for %s, want 1", listed[b.Name], b.Name)
		}
	}
	_, own, _ := strings.Cut(string(text), "```yaml\n")
	own, _, _ = strings.Cut(own, "```")
	f, err := Parse("INCIDENTS.md", []byte(own))
	if err != nil {
		t.Fatal(err)
	}
	start(f, "nbg1")
}
