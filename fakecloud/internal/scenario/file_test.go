package scenario

import (
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
