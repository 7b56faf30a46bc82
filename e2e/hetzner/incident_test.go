package hetzner_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

func TestEachIncidentOfTheCloudHasASpec(t *testing.T) {
	var specs []byte
	for _, name := range []string{"incident_test.go", "machine_incident_test.go"} {
		text, err := os.ReadFile("specs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, text...)
	}
	cloud := fakecloud.New(fakecloud.Options{})
	defer cloud.Close()
	builtin, err := cloud.Scenarios().Available(t.Context())
	if err != nil || len(builtin) == 0 {
		t.Fatal(len(builtin), err)
	}
	for _, b := range builtin {
		// Nobody here shuts a server down. A server that stays off is started after a minute: a test of the controller shows it.
		if strings.HasPrefix(b.Name, "guests-") || b.Name == "servers-stay-off" {
			continue
		}
		if !regexp.MustCompile(`"` + b.Name + `[="]`).Match(specs) {
			t.Errorf("no spec of incident_test.go or machine_incident_test.go starts the scenario %s: add one", b.Name)
		}
	}
}
