package probe

import (
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
)

func spec(name string, result speclist.Result, features ...string) speclist.Spec {
	s := speclist.Spec{Name: name, Group: "Service", Result: result, Labels: []string{"service"}}
	for _, f := range features {
		s.Labels = append(s.Labels, needsPrefix+f)
	}
	return s
}

const before = `# My CCM.
name: other # in reports
lacks:
  events: has none
  token-file: not tried here
  routes: once lacked
knownGaps:
  - reason: forgets ports
    specs: ["Service forgets", "Service runs elsewhere", "Service is mended"]
quiet: 3s
`

const after = `# My CCM.
name: other # in reports
lacks:
  events: has none
  http: NOT EXPLAINED YET
  token-file: not tried here
knownGaps:
  - reason: 'NOT EXPLAINED YET: Service'
    specs:
      - Service has half of repair
      - Service is simple
  - reason: forgets ports
    specs:
      - Service forgets
      - Service runs elsewhere
quiet: 3s
`

var run = speclist.Run{Specs: []speclist.Spec{
	spec("Service has events", speclist.Failed, "events"),
	spec("Service has events of HTTP", speclist.Failed, "events", "release"), // which events explains
	spec("Service has HTTP", speclist.Failed, "http"),
	spec("Service has routes", speclist.Passed, "routes"),
	spec("Service repairs", speclist.Passed, "repair"),
	spec("Service has half of repair", speclist.Failed, "repair"),
	spec("Service is simple", speclist.Failed),
	spec("Service forgets", speclist.Failed),
	spec("Service is mended", speclist.Passed),
	spec("Service runs elsewhere", speclist.NotHere),
	spec("Service reads a token", speclist.Skipped, "token-file"),
}}

func TestAProbeWritesWhatFailedAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	got, found, err := Update([]byte(before), run)
	if err != nil || string(got) != after {
		t.Fatalf("%v, got\n%s\nwant\n%s", err, got, after)
	}
	if len(found.Lacks) != 3 || len(found.KnownGaps) != 2 {
		t.Errorf("found %+v", found)
	}
	again, _, err := Update(got, run)
	if err != nil || string(again) != after {
		t.Errorf("a second probe: %v\n%s", err, again)
	}
}

func TestAProbeAddsWhatTheFileDoesNotHave(t *testing.T) {
	t.Parallel()
	got, _, err := Update([]byte("name: other\n"), speclist.Run{Specs: []speclist.Spec{spec("Service has HTTP", speclist.Failed, "http")}})
	if err != nil || !strings.Contains(string(got), "lacks:\n  http: NOT EXPLAINED YET") {
		t.Errorf("%v\n%s", err, got)
	}
}

func TestAProbeRefusesWhatSaysNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file string
		run  speclist.Run
		want string
	}{
		"an incomplete run": {before, speclist.Run{Incomplete: "BeforeSuite failed"}, "BeforeSuite failed"},
		"an empty file":     {"", run, "copy e2e/ccms"},
		"no YAML":           {"\tname", run, "yaml"},
	} {
		if _, _, err := Update([]byte(c.file), c.run); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
