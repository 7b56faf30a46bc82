package deploy

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
)

func TestTheManifestHoldsWhatADeploymentNeeds(t *testing.T) {
	t.Parallel()
	objects, err := Objects(Manifest)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range objects {
		kinds = append(kinds, o.GetKind())
	}
	want := []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ClusterRoleBinding", "Role", "RoleBinding", "RoleBinding", "Deployment"}
	if !slices.Equal(kinds, want) {
		t.Errorf("got %v, want %v", kinds, want)
	}
}

func TestADocumentThatIsNoObjectIsNamed(t *testing.T) {
	t.Parallel()
	for manifest, want := range map[string]string{
		"# only a comment\n---\n": "",
		"kind: Role\n":            "document 1",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n---\n- list\n": "document 2",
	} {
		objects, err := Objects([]byte(manifest))
		if want == "" && (err != nil || len(objects) > 0) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, %v", manifest, objects, err)
		}
	}
}

// A setting that the CCM reads can be made through the chart, under its own name, and no other.
func TestTheChartKnowsEverySettingOfTheCCM(t *testing.T) {
	t.Parallel()
	settings := map[string]bool{}
	_, _ = ccm.ConfigFromEnv(func(name string) (string, bool) { // that it is not valid does not matter
		settings[name] = true
		return "", false
	})
	for _, token := range []string{"HCLOUD_TOKEN", "HCLOUD_TOKEN_FILE"} { // from the Secret
		if !settings[token] {
			t.Errorf("the CCM did not ask for %s", token)
		}
		delete(settings, token)
	}
	want := slices.Sorted(maps.Keys(settings))

	var values struct{ Env map[string]any }
	read(t, "../chart/values.yaml", func(b []byte, v any) error { return yaml.Unmarshal(b, v) }, &values)
	if got := slices.Sorted(maps.Keys(values.Env)); !slices.Equal(got, want) {
		t.Errorf("values.yaml: env has %v,\nthe CCM reads %v", got, want)
	}
	var schema struct {
		Properties struct {
			Env struct{ Properties map[string]any }
		}
	}
	read(t, "../chart/values.schema.json", json.Unmarshal, &schema)
	if got := slices.Sorted(maps.Keys(schema.Properties.Env.Properties)); !slices.Equal(got, want) {
		t.Errorf("values.schema.json: env has %v,\nthe CCM reads %v", got, want)
	}
	for _, setting := range want {
		text, err := os.ReadFile("../README.md")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(setting, "HCLOUD_LOAD_BALANCERS_") && !strings.Contains(string(text), "`"+setting+"`") {
			t.Errorf("README.md does not explain %s", setting)
		}
	}
}

func read[F ~func([]byte, any) error](t *testing.T, name string, unmarshal F, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err == nil {
		err = unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}
