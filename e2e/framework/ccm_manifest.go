package framework

import (
	"cmp"
	"context"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/deploy"
)

// EnvManifest is the path of a manifest that deploys the CCM. Without it, the one of its file or of ccm/deploy is used.
const EnvManifest = "E2E_CCM_MANIFEST"

// createCCMAccount creates the service account of the CCM's manifest with its rights, and sets Suite.Kubeconfig to its
// access.
func (s *Suite) createCCMAccount(ctx context.Context) (err error) {
	path := cmp.Or(os.Getenv(EnvManifest), s.CCM.Manifest)
	manifest, name := deploy.Manifest, cmp.Or(path, "ccm/deploy")
	if path != "" {
		if manifest, err = os.ReadFile(path); err != nil {
			return fmt.Errorf("the CCM's manifest: %w", err)
		}
	}
	s.Kubeconfig, err = s.CreateAccount(ctx, manifest, name, &s.Deployment)
	return err
}

// CreateAccount creates the service account of a manifest with its rights, and returns a kubeconfig with its access, so that a
// missing rule fails a spec. The API server only checks the rest of the manifest: no program of the embedded cluster
// would run it. The manifest's Deployment is written to deployment.
//
// A client certificate with the name and groups of the service account replaces its token.
func (s *Suite) CreateAccount(ctx context.Context, manifest []byte, name string, deployment *appsv1.Deployment) (kubeconfig string,
	err error) {
	objects, err := deploy.Objects(manifest)
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
