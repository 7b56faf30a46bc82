// Package deploy embeds the manifest that deploys the CCM without Helm. scripts/manifests.sh renders
// it, ccm-from-scratch.yaml, from the chart in ../chart.
package deploy

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// Manifest is the text of ccm-from-scratch.yaml.
//
//go:embed ccm-from-scratch.yaml
var Manifest []byte

// Objects splits a manifest into its objects, to be created in this order. An error names the
// document that is not a Kubernetes object.
func Objects(manifest []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for n := 1; ; n++ {
		object := map[string]any{}
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d of the manifest: %w", n, err)
		}
		if len(object) == 0 {
			continue // only comments
		}
		u := &unstructured.Unstructured{Object: object}
		if u.GetAPIVersion() == "" || u.GetKind() == "" || u.GetName() == "" {
			return nil, fmt.Errorf("document %d of the manifest is not a Kubernetes object: apiVersion %q, kind %q, name %q",
				n, u.GetAPIVersion(), u.GetKind(), u.GetName())
		}
		objects = append(objects, u)
	}
}

// Settings are the changes that one cluster makes to the Deployment. A zero field keeps the manifest's
// value.
type Settings struct {
	// Image and PullPolicy of the container.
	Image      string
	PullPolicy string
	// Args are arguments of the container, such as "--name=value". Each replaces the argument of the
	// same name.
	Args []string
	// Env are environment variables of the container. Each replaces the variable of the same name; an
	// empty value removes it.
	Env map[string]string
	// Replicas is the number of pods.
	Replicas *int32
	// NodeSelector is added to the node selector of the pods.
	NodeSelector map[string]string
	// PodAnnotations are added to the annotations of the pods. A changed annotation replaces the pods.
	PodAnnotations map[string]string
}

// With applies the settings to the Deployment among objects. It must have exactly one container. With
// is the counterpart of --set of the chart, for programs that cannot render the chart.
func (s Settings) With(objects []*unstructured.Unstructured) error {
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })
	if i < 0 {
		return errors.New("the manifest has no Deployment")
	}
	var d appsv1.Deployment
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[i].Object, &d); err != nil {
		return fmt.Errorf("decoding the Deployment %s: %w", objects[i].GetName(), err)
	}
	if s.Replicas != nil {
		d.Spec.Replicas = s.Replicas
	}
	pod := &d.Spec.Template
	if n := len(pod.Spec.Containers); n != 1 {
		return fmt.Errorf("the Deployment %s has %d containers: must have exactly one", d.Name, n)
	}
	c := &pod.Spec.Containers[0]
	c.Image = cmp.Or(s.Image, c.Image)
	c.ImagePullPolicy = cmp.Or(corev1.PullPolicy(s.PullPolicy), c.ImagePullPolicy)
	for _, arg := range s.Args {
		name, _, _ := strings.Cut(arg, "=")
		c.Args = slices.DeleteFunc(c.Args, func(a string) bool { return a == name || strings.HasPrefix(a, name+"=") })
		c.Args = append(c.Args, arg)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
		if value := s.Env[name]; value != "" {
			c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
		}
	}
	if movesMetrics(s.Env) && c.ReadinessProbe != nil && c.LivenessProbe != nil {
		// Readiness is served next to the metrics, and not where the manifest says any more.
		c.ReadinessProbe.HTTPGet = c.LivenessProbe.HTTPGet.DeepCopy()
	}
	pod.Spec.NodeSelector = labels.Merge(pod.Spec.NodeSelector, s.NodeSelector)
	pod.Annotations = labels.Merge(pod.Annotations, s.PodAnnotations)
	changed, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&d)
	if err != nil {
		return fmt.Errorf("encoding the Deployment %s: %w", d.Name, err)
	}
	delete(changed, "status")
	objects[i] = &unstructured.Unstructured{Object: changed}
	return nil
}

// movesMetrics reports whether the variables change where metrics are served, or whether they are.
func movesMetrics(env map[string]string) bool {
	enabled, err := strconv.ParseBool(env["HCLOUD_METRICS_ENABLED"])
	return err == nil && !enabled || env["HCLOUD_METRICS_ADDRESS"] != ""
}

// Text encodes objects as a YAML stream for `kubectl apply -f -`.
func Text(objects []*unstructured.Unstructured) ([]byte, error) {
	var out bytes.Buffer
	for _, o := range objects {
		text, err := sigsyaml.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("encoding the %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		fmt.Fprintf(&out, "---\n%s", text)
	}
	return out.Bytes(), nil
}
