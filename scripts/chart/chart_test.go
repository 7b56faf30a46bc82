// Package chart tests what Helm makes of ccm/chart and of fakecloud/chart.
package chart

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

const (
	ccm       = "../../ccm/chart"
	fakecloud = "../../fakecloud/chart"
)

var folders = map[string]string{"ccm": ccm, "fakecloud": fakecloud}

// helm runs Helm and returns its output, with errors. It reads the charts' files, too: go test repeats a result until a file that the test
// reads changes.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	for _, folder := range folders {
		if err := os.CopyFS(t.TempDir(), os.DirFS(folder)); err != nil {
			t.Fatal(err)
		}
	}
	path, err := exec.CommandContext(t.Context(), "../tool.sh", "helm").Output()
	if err != nil {
		t.Fatalf("compiling Helm: %v", err)
	}
	text, err := exec.CommandContext(t.Context(), strings.TrimSpace(string(path)), args...).CombinedOutput()
	return string(text), err
}

// template renders a chart, with flags such as --set=a=b and -f.
func template(t *testing.T, chart string, flags ...string) (string, error) {
	t.Helper()
	return helm(t, append([]string{"template", "test", chart, "--namespace", "cloud"}, flags...)...)
}

// decoder decodes as an API server with strict validation does.
var decoder = serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()

// objects renders a chart and returns its objects by kind.
func objects(t *testing.T, chart string, flags ...string) map[string]any {
	t.Helper()
	text, err := template(t, chart, flags...)
	if err != nil {
		t.Fatal(err, text)
	}
	all := map[string]any{}
	for document := range strings.SplitSeq(text, "---\n") {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if object == nil {
			continue
		}
		kind, _ := object["kind"].(string)
		if _, _, err := decoder.Decode([]byte(document), nil, nil); err != nil && kind != "PodMonitor" { // which is no part of Kubernetes
			t.Fatalf("%v\n%s", err, document)
		}
		for all[kind] != nil {
			kind += "+"
		}
		all[kind] = object
		if slices.Contains([]string{"Deployment", "DaemonSet", "StatefulSet"}, kind) {
			all[""] = object
		}
	}
	return all
}

// look returns the text at a path of an object, such as "PodMonitor .spec.selector"; "" if nothing is there. Without a kind, it is the
// object that has the pods. In a path, P stands for the pod, C for its container, and $NAME for an environment variable of it.
func look(t *testing.T, all map[string]any, at string) string {
	t.Helper()
	kind, path, ok := strings.Cut(at, " ")
	if !ok {
		kind, path = "", at
	}
	if name, field, ok := strings.Cut(path, "."); ok && strings.HasPrefix(name, "$") {
		path = `C.env[?(@.name=="` + name[1:] + `")].` + field
	}
	if rest, ok := strings.CutPrefix(path, "C."); ok {
		path = "P.containers[0]." + rest
	}
	if rest, ok := strings.CutPrefix(path, "P."); ok {
		path = ".spec.template.spec." + rest
	}
	var out bytes.Buffer
	j := jsonpath.New(at).AllowMissingKeys(true)
	if err := j.Parse("{" + path + "}"); err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	if all[kind] != nil {
		if err := j.Execute(&out, all[kind]); err != nil && !strings.Contains(err.Error(), "out of bounds") {
			t.Fatalf("%s: %v", at, err)
		}
	}
	return out.String()
}

// promises are in testdata/values.yaml, which says what they mean.
type promises struct {
	Rendered []struct {
		Promise, Chart, Values string
		Want                   map[string]string
	}
	Refused map[string]map[string]string // by chart and value
}

func readPromises(t *testing.T) (all promises) {
	t.Helper()
	text, err := os.ReadFile("testdata/values.yaml")
	if err = errors.Join(err, yaml.UnmarshalStrict(text, &all)); err != nil || len(all.Rendered) == 0 || len(all.Refused) != 2 {
		t.Fatal(all, err)
	}
	return all
}

func TestValuesAreRendered(t *testing.T) {
	t.Parallel()
	for _, c := range readPromises(t).Rendered {
		t.Run(c.Promise, func(t *testing.T) {
			t.Parallel()
			flag, folder := "--set="+c.Values, folders[c.Chart]
			if strings.Contains(c.Values, "\n") {
				flag = "--values=" + filepath.Join(t.TempDir(), "values.yaml")
				if err := os.WriteFile(strings.TrimPrefix(flag, "--values="), []byte(c.Values), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			all := objects(t, folder, flag)
			for kind := range strings.FieldsSeq(c.Want["none"]) {
				if all[kind] != nil {
					t.Errorf("there is a %s", kind)
				}
			}
			delete(c.Want, "none")
			for at, want := range c.Want {
				if file, ok := strings.CutPrefix(want, "@"); ok {
					text, _ := os.ReadFile(filepath.Join(folder, file)) // the test fails without it
					want = strings.TrimSpace(string(text))
				}
				got := look(t, all, at)
				if part, ok := strings.CutPrefix(want, "~"); got != want && (!ok || !strings.Contains(got, part)) {
					t.Errorf("%s is %q, want %q", at, got, want)
				}
			}
			selectorsSelect(t, all)
		})
	}
}

// selectorsSelect fails unless each selector of the objects selects the pods.
func selectorsSelect(t *testing.T, all map[string]any) {
	t.Helper()
	labels := look(t, all, ".spec.template.metadata.labels")
	for _, at := range []string{" .spec.selector.matchLabels", "PodDisruptionBudget .spec.selector.matchLabels",
		"PodMonitor .spec.selector.matchLabels", "NetworkPolicy .spec.podSelector.matchLabels", "Service .spec.selector"} {
		selector := look(t, all, at)
		if kind, _, _ := strings.Cut(at, " "); all[kind] != nil && len(selector) < 10 {
			t.Errorf("%s selects all pods: %s", at, selector)
		}
		for pair := range strings.SplitSeq(strings.Trim(selector, "{}"), ",") {
			if !strings.Contains(labels, pair) {
				t.Errorf("%s: the pods do not have %s: %s", at, pair, labels)
			}
		}
	}
}

func TestHelmHasNothingToSayAgainstTheCharts(t *testing.T) {
	t.Parallel()
	for _, folder := range folders {
		if text, err := helm(t, "lint", "--strict", folder); err != nil || strings.Contains(text, "[WARNING]") {
			t.Errorf("%s: %v: %s", folder, err, text)
		}
	}
}

// The program knows all variables that the chart sets.
func TestFakecloudKnowsItsVariables(t *testing.T) {
	t.Parallel()
	help, err := exec.CommandContext(t.Context(), "go", "run", "-C", "../../fakecloud", "./cmd/fakecloud", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, help)
	}
	names := look(t, objects(t, fakecloud, "--set=tokens.secretName=team"), "StatefulSet C.env[*].name")
	for name := range strings.FieldsSeq(names) {
		flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "FAKECLOUD_")), "_", "-")
		if !strings.Contains(string(help), " "+flag+" ") {
			t.Errorf("%s: the program has no %s", name, flag)
		}
	}
}

// The message has to name the wrong value.
func TestValuesThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	for chart, all := range readPromises(t).Refused {
		for value, want := range all {
			if text, err := template(t, folders[chart], "--set="+value); err == nil || !strings.Contains(text, want) {
				t.Errorf("--set %s: %v: %s", value, err, text)
			}
		}
	}
}

func TestAReleasesChartHasItsVersionAndTheSameBytesTwice(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	for chart, name := range map[string]string{ccm: "ccm-from-scratch", fakecloud: "fakecloud"} {
		set := map[string]string{ccm: "--set=dashboard.enabled=true", fakecloud: "--set=projects=fixed"}[chart]
		copied := filepath.Join(t.TempDir(), "chart") // with other times of the files
		if err := os.CopyFS(copied, os.DirFS(chart)); err != nil {
			t.Fatal(err)
		}
		archives := map[string]bool{}
		for _, folder := range []string{chart, copied} {
			out := t.TempDir()
			if text, err := helm(t, "package", folder, "--version", "1.2.3-rc.1", "--app-version", "v1.2.3-rc.1", "--destination",
				out); err != nil {
				t.Fatal(err, text)
			}
			archive := filepath.Join(out, name+"-1.2.3-rc.1.tgz")
			text, err := os.ReadFile(archive)
			if err != nil {
				t.Fatal(err)
			}
			archives[string(text)] = true
			all := objects(t, archive, set)
			image, label := look(t, all, "C.image"), look(t, all, `.metadata.labels.helm\.sh/chart`)
			if image != name+":v1.2.3-rc.1" || label != name+"-1.2.3-rc.1" {
				t.Errorf("the archive has the image %s and the label %s", image, label)
			}
			if shown := look(t, all, "ConfigMap .data"); chart == ccm && !strings.Contains(shown, "hcloud_api_requests_total") {
				t.Errorf("the archive has no dashboard: %s", shown)
			}
		}
		if len(archives) != 1 {
			t.Errorf("the same chart %s gives other bytes", name)
		}
	}
}
