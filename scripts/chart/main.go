// Command chart renders a Helm chart as `helm template` does, with Helm's own engine, and prints the
// objects in the order in which they can be created. It is a separate module, so that users of the
// repository's packages do not get Helm's dependencies. scripts/manifests.sh runs it.
//
//	go run . --chart ../../ccm/chart -f values.yaml --set image.tag=v1 >manifest.yaml
//
// What it leaves out of `helm template`: dependencies of the chart, hooks, CRDs, `lookup`, --set-file
// and its like. Objects say that they are managed by kubectl instead of Helm.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"
)

// list is a flag that may be repeated.
type list []string

func (l *list) String() string     { return strings.Join(*l, " ") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

// options are what a chart is rendered with.
type options struct {
	chart     string // folder
	release   string
	namespace string
	files     list // of values, the last one wins
	set       list // assignments as `helm --set` takes them; they win over files
	header    string
}

func main() {
	var o options
	flag.StringVar(&o.chart, "chart", "", "`folder` of the chart")
	flag.StringVar(&o.release, "release", "ccm-from-scratch", "`name` of the release")
	flag.StringVar(&o.namespace, "namespace", "kube-system", "`name` of the release's namespace")
	flag.Var(&o.files, "f", "`file` of values; may be repeated")
	flag.Var(&o.set, "set", "`name=value`, as Helm reads it; may be repeated")
	flag.StringVar(&o.header, "header", "", "`comment` at the beginning")
	flag.Parse()
	text, err := "", errors.New("usage: chart --chart folder [-f values.yaml] [--set name=value]; -h lists all flags")
	if o.chart != "" && flag.NArg() == 0 {
		text, err = render(o)
	}
	if err == nil {
		_, err = io.WriteString(os.Stdout, text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// render returns the chart's objects as one YAML stream.
func render(o options) (string, error) {
	chart, err := loader.LoadDir(o.chart)
	if err != nil {
		return "", err
	}
	given, err := o.values()
	if err != nil {
		return "", err
	}
	values, err := util.ToRenderValues(chart, given, common.ReleaseOptions{
		Name: o.release, Namespace: o.namespace, Revision: 1, IsInstall: true,
	}, common.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	// It would be untrue to say Helm, and Helm would take the objects for its own.
	values["Release"].(map[string]any)["Service"] = "kubectl"
	rendered, err := engine.Engine{Strict: true}.Render(chart, values)
	if err != nil {
		return "", err
	}
	documents, err := split(rendered)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if o.header != "" {
		fmt.Fprintf(&out, "# %s\n", o.header)
	}
	for _, d := range documents {
		fmt.Fprintf(&out, "---\n%s\n", d.text)
	}
	return out.String(), nil
}

// values merges the files and the assignments.
func (o options) values() (map[string]any, error) {
	values := map[string]any{}
	for _, name := range o.files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		more, err := loader.LoadValues(strings.NewReader(string(text)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		values = loader.MergeMaps(values, more)
	}
	for _, assignment := range o.set {
		if err := strvals.ParseInto(assignment, values); err != nil {
			return nil, fmt.Errorf("--set %s: %w", assignment, err)
		}
	}
	return values, nil
}

// document is one object, as the template wrote it.
type document struct {
	kind, name, text string
}

// order is that of creation: what others refer to comes first. Other kinds are last.
var order = []string{
	"ServiceAccount", "Secret", "ConfigMap", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "PodDisruptionBudget",
	"Deployment", "DaemonSet",
}

// split takes the rendered templates apart into objects, in order.
func split(rendered map[string]string) ([]document, error) {
	var all []document
	for _, file := range slices.Sorted(maps.Keys(rendered)) {
		if path.Ext(file) != ".yaml" {
			continue // NOTES.txt and helpers
		}
		for text := range strings.SplitSeq("\n"+rendered[file], "\n---") {
			var o struct {
				Kind     string
				Metadata struct{ Name string }
			}
			if err := yaml.Unmarshal([]byte(text), &o); err != nil {
				return nil, fmt.Errorf("%s renders to what is not YAML: %w", file, err)
			}
			if o.Kind != "" {
				all = append(all, document{o.Kind, o.Metadata.Name, strings.TrimSpace(text)})
			}
		}
	}
	rank := func(d document) int {
		if i := slices.Index(order, d.kind); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(all, func(a, b document) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.name, b.name))
	})
	return all, nil
}
