package deploy

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
)

func TestTheManifestHoldsAllObjects(t *testing.T) {
	t.Parallel()
	objects, err := Objects(Manifest)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range objects {
		kinds = append(kinds, o.GetKind())
	}
	want := []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ClusterRoleBinding", "Role", "RoleBinding", "RoleBinding",
		"Deployment"}
	if !slices.Equal(kinds, want) {
		t.Errorf("got %v, want %v", kinds, want)
	}
}

func TestObjectsNamesTheDocumentThatIsNotAnObject(t *testing.T) {
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

func TestSettingsReplaceValuesOfTheManifest(t *testing.T) {
	t.Parallel()
	objects, err := Objects(Manifest)
	if err != nil {
		t.Fatal(err)
	}
	settings := Settings{
		Image: "x:y", PullPolicy: "Never", Args: []string{"--cluster-cidr=10.1.0.0/16", "--profiling"},
		Env:            map[string]string{"HCLOUD_NETWORK": "n", "HCLOUD_ENDPOINT": "http://e/v1", "HCLOUD_METRICS_ADDRESS": ""},
		PodAnnotations: map[string]string{"a": "b"},
	}
	// The second call must replace the values of the first.
	if err := errors.Join(settings.With(objects), settings.With(objects)); err != nil {
		t.Fatal(err)
	}
	text, err := Text(objects)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Objects(text)
	if err != nil || len(again) != len(objects) {
		t.Fatalf("%v, %d objects", err, len(again))
	}
	var d appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(again[len(again)-1].Object, &d); err != nil {
		t.Fatal(err)
	}
	c := d.Spec.Template.Spec.Containers[0]
	if c.Image != "x:y" || c.ImagePullPolicy != corev1.PullNever || d.Spec.Template.Annotations["a"] != "b" {
		t.Errorf("%+v", d.Spec.Template)
	}
	var cidrs, profiling int
	for _, a := range c.Args {
		if strings.HasPrefix(a, "--cluster-cidr=") {
			cidrs++
		}
		if a == "--profiling" {
			profiling++
		}
	}
	if cidrs != 1 || profiling != 1 || !slices.Contains(c.Args, "--cluster-cidr=10.1.0.0/16") ||
		!slices.Contains(c.Args, "--leader-elect=true") {
		t.Errorf("%v", c.Args)
	}
	env := map[string]corev1.EnvVar{}
	for _, e := range c.Env {
		env[e.Name] = e
	}
	if len(c.Env) != 4 || env["NODE_NAME"].ValueFrom == nil || env["HCLOUD_NETWORK"].Value != "n" ||
		env["HCLOUD_NETWORK"].ValueFrom != nil ||
		env["HCLOUD_ENDPOINT"].Value != "http://e/v1" || env["HCLOUD_TOKEN_FILE"].Value == "" {
		t.Errorf("%+v", c.Env)
	}
}

func TestReadinessNeedsTheMetrics(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		env  map[string]string
		path string
	}{
		"as in the manifest": {nil, "/readyz"},
		"switched on":        {map[string]string{"HCLOUD_METRICS_ENABLED": "true"}, "/readyz"},
		"switched off":       {map[string]string{"HCLOUD_METRICS_ENABLED": "false"}, "/healthz"},
		"on another port":    {map[string]string{"HCLOUD_METRICS_ADDRESS": ":9000"}, "/healthz"},
	} {
		objects, err := Objects(Manifest)
		if err != nil {
			t.Fatal(err)
		}
		if err := (Settings{Env: tc.env}).With(objects); err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if o.GetKind() != "Deployment" {
				continue
			}
			var d appsv1.Deployment
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &d); err != nil {
				t.Fatal(err)
			}
			if got := d.Spec.Template.Spec.Containers[0].ReadinessProbe.HTTPGet.Path; got != tc.path {
				t.Errorf("metrics %s: the readiness probe asks for %s, want %s", name, got, tc.path)
			}
		}
	}
}

func TestSettingsNeedADeployment(t *testing.T) {
	t.Parallel()
	for _, manifest := range []string{
		"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {spec: {containers: [{name: a}, {name: b}]}}}\n",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: many}\n",
	} {
		objects, err := Objects([]byte(manifest))
		if err != nil {
			t.Fatal(err)
		}
		if err := (Settings{Image: "x"}).With(objects); err == nil {
			t.Errorf("no error: %s", manifest)
		}
	}
}

// The chart accepts every setting that the CCM reads, under the same name, and no other setting.
func TestTheChartKnowsEverySettingOfTheCCM(t *testing.T) {
	t.Parallel()
	settings := map[string]bool{}
	_, _ = ccm.ConfigFromEnv(func(name string) (string, bool) { // the error does not matter here
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
