// Command chart renders a Helm chart as `helm template` does, with Helm's own engine, and prints the
// objects in the order in which they can be created. It is a separate module, so that users of the
// repository's packages do not get Helm's dependencies. scripts/manifests.sh runs it.
//
//	GOWORK=off go run . --chart ../../ccm/chart -f values.yaml --set image.tag=v1 >manifest.yaml
//
// With --package it makes the archive of a release, as `helm package` does:
//
//	GOWORK=off go run . --chart ../../ccm/chart --version 1.2.3 --package out
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
	"strconv"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
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
	chart     string // folder or archive
	release   string
	namespace string
	files     list // of values, the last one wins
	set       list // assignments as `helm --set` takes them; they win over files
	header    string
}

func main() {
	var o options
	var version, folder string
	flag.StringVar(&folder, "package", "", "write the chart's archive into this `folder` instead of rendering; prints its name")
	flag.StringVar(&version, "version", "", "the `version` of the archive; the program's version, which selects the image, has a v in front")
	flag.StringVar(&o.chart, "chart", "", "`folder` or archive of the chart")
	flag.StringVar(&o.release, "release", "ccm-from-scratch", "`name` of the release")
	flag.StringVar(&o.namespace, "namespace", "kube-system", "`name` of the release's namespace")
	flag.Var(&o.files, "f", "`file` of values; may be repeated")
	flag.Var(&o.set, "set", "`name=value`, as Helm reads it; may be repeated")
	flag.StringVar(&o.header, "header", "", "`comment` at the beginning")
	flag.Parse()
	text, err := "", errors.New("usage: chart --chart folder [-f values.yaml] [--set name=value], or --package folder --version 1.2.3; -h lists all flags")
	switch {
	case o.chart == "" || flag.NArg() > 0 || (folder == "") != (version == ""):
	case folder != "":
		text, err = pack(o.chart, version, folder)
		text += "\n"
	default:
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

// pack writes the archive of a chart with a version into a folder and returns the file's name. The time of its files is
// SOURCE_DATE_EPOCH or 1970, so that the same chart gives the same bytes.
func pack(folder, version, out string) (string, error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return "", err
	}
	var seconds int64
	if text := os.Getenv("SOURCE_DATE_EPOCH"); text != "" {
		if seconds, err = strconv.ParseInt(text, 10, 64); err != nil {
			return "", fmt.Errorf("SOURCE_DATE_EPOCH=%q: must be a number of seconds since 1970", text)
		}
	}
	chart.StampModTimes(time.Unix(seconds, 0).UTC())
	chart.Metadata.Version, chart.Metadata.AppVersion = version, "v"+version
	return chartutil.Save(chart, out)
}

// render returns the chart's objects as one YAML stream.
func render(o options) (string, error) {
	chart, err := loader.Load(o.chart)
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
