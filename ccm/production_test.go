package ccm

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/internal/plan"
)

// What the table calls ours is ours, what it calls the same has the same name, and each name is there once.
func TestTheTableOfTheProductionCCMsSettingsIsTrue(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("deploy/PRODUCTION-CCM.md")
	if err != nil {
		t.Fatal(err)
	}
	ours := append(knownVariables(), "instance.hetzner.cloud/external-ipv6")
	for _, a := range plan.Annotations {
		ours = append(ours, a.Name)
	}
	name := regexp.MustCompile("`([^`]+)`")
	names := func(cell string) (all []string) {
		for _, m := range name.FindAllStringSubmatch(cell, -1) {
			all = append(all, m[1])
		}
		return all
	}
	var seen []string
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.Contains(cells[1], "`") {
			continue
		}
		rows++
		there, here, what := names(cells[1]), names(cells[2]), strings.TrimSpace(cells[3])
		for _, n := range there {
			if slices.Contains(seen, n) {
				t.Errorf("%s is there twice", n)
			}
			seen = append(seen, n)
		}
		for _, n := range here {
			if !slices.Contains(ours, n) {
				t.Errorf("%s is not a setting of ours", n)
			}
		}
		alias := func() bool { // a further name of ours
			for i, n := range there {
				if a := plan.AnnotationByName(here[i]); a.Also != n {
					return false
				}
			}
			return true
		}
		if strings.HasPrefix(what, "same") && (len(here) != len(there) || !slices.Equal(here, there) && !alias()) {
			t.Errorf("%v is not the same as %v", here, there)
		}
		if what == "" || len(here) == 0 && !strings.Contains(what, "missing") && !strings.Contains(what, "ignored") {
			t.Errorf("%v: the table does not say what is here instead", there)
		}
	}
	if rows < 60 {
		t.Errorf("%d rows", rows)
	}
}
