package framework

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// EnvManifest is the path of a manifest that deploys the CCM. Without it, the one of its description or of Setup is used.
const EnvManifest = "E2E_CCM_MANIFEST"

// manifest returns the path of the manifest that deploys the CCM.
func (s CCMDescription) manifest() (string, error) {
	path := cmp.Or(os.Getenv(EnvManifest), s.Manifest, configured.Manifest)
	if path == "" {
		return "", fmt.Errorf("the CCM %s has no manifest, which says what it may do in the cluster: write the path of a file with its "+
			"ServiceAccount, its rules and its Deployment as manifest", s.Name)
	}
	return path, nil
}

// createCCMAccount creates the service account of the CCM's manifest with its rights, and sets Suite.Kubeconfig to its access.
func (s *Suite) createCCMAccount(ctx context.Context) error {
	path, err := s.CCM.manifest()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the CCM's manifest: %w", err)
	}
	s.Kubeconfig, err = s.CreateAccount(ctx, text, path, &s.Deployment)
	return err
}

// CreateAccount creates the service account of a manifest with its rights, and returns a kubeconfig with its access, so that a
// missing rule fails a spec. The API server only checks the rest of the manifest: no program of the embedded cluster
// would run it. The manifest's Deployment is written to deployment.
//
// A client certificate with the name and groups of the service account replaces its token.
func (s *Suite) CreateAccount(ctx context.Context, manifest []byte, name string, deployment *appsv1.Deployment) (kubeconfig string,
	err error) {
	objects, err := objectsOf(manifest)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	kube, err := client.New(s.Cluster.RESTConfig, client.Options{})
	if err != nil {
		return "", err
	}
	var account *unstructured.Unstructured
	for _, o := range objects {
		options := []client.CreateOption{client.FieldValidation(metav1.FieldValidationStrict)}
		switch o.GetKind() {
		case "ServiceAccount":
			account = o
		case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
		case "Deployment":
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, deployment); err != nil {
				return "", fmt.Errorf("%s: the Deployment %s: %w", name, o.GetName(), err)
			}
			fallthrough
		default:
			options = append(options, client.DryRunAll)
		}
		if err := kube.Create(ctx, o, options...); err != nil {
			return "", fmt.Errorf("%s: creating the %s %s: %w", name, o.GetKind(), o.GetName(), err)
		}
	}
	if account == nil {
		return "", fmt.Errorf("%s: there is no ServiceAccount", name)
	}
	return s.Cluster.KubeconfigFor(
		"system:serviceaccount:"+account.GetNamespace()+":"+account.GetName(),
		"system:serviceaccounts", "system:serviceaccounts:"+account.GetNamespace(), "system:authenticated")
}

// objectsOf returns the objects of a manifest in their order.
func objectsOf(manifest []byte) (objects []*unstructured.Unstructured, err error) {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 1<<12)
	for {
		o := &unstructured.Unstructured{}
		if err := documents.Decode(&o.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("after %d objects: %w", len(objects), err)
		}
		if len(o.Object) > 0 { // else there are only comments
			objects = append(objects, o)
		}
	}
}
