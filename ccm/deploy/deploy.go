// Package deploy holds the manifest with which people without Helm deploy the CCM, for programs that
// deploy it: ccm-from-scratch.yaml, rendered from the chart in ../chart by scripts/manifests.sh.
package deploy

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Manifest is the text of ccm-from-scratch.yaml.
//
//go:embed ccm-from-scratch.yaml
var Manifest []byte

// Objects takes a manifest apart into its objects, in the order in which they are to be created. The
// error says which of them is not one.
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
			continue // a comment
		}
		u := &unstructured.Unstructured{Object: object}
		if u.GetAPIVersion() == "" || u.GetKind() == "" || u.GetName() == "" {
			return nil, fmt.Errorf("document %d of the manifest is not a Kubernetes object: apiVersion %q, kind %q, name %q",
				n, u.GetAPIVersion(), u.GetKind(), u.GetName())
		}
		objects = append(objects, u)
	}
}
