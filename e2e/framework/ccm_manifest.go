package framework

import (
	"cmp"
	"context"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/deploy"
)

// EnvManifest names a file of manifests that deploy the CCM; without it, it is the one of its description, or those of
// ccm/deploy.
const EnvManifest = "E2E_CCM_MANIFEST"

// createAccount creates what the CCM's manifest says about who the CCM is and what it may do, and
// makes Suite.Kubeconfig that of its service account, so that a rule that is missing fails a spec.
// The rest of the manifest, which no program here would run, is only checked by the API server.
//
// It leaves out the token: the API server knows the service account by a client certificate with the
// name and groups that a token would give it.
func (s *Suite) createAccount(ctx context.Context) error {
	path := cmp.Or(os.Getenv(EnvManifest), s.CCM.Manifest)
	manifest, name := deploy.Manifest, cmp.Or(path, "ccm/deploy")
	if path != "" {
		var err error
		if manifest, err = os.ReadFile(path); err != nil {
			return fmt.Errorf("the CCM's manifest: %w", err)
		}
	}
	objects, err := deploy.Objects(manifest)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	kube, err := client.New(s.Cluster.RESTConfig, client.Options{})
	if err != nil {
		return err
	}
	var account *unstructured.Unstructured
	for _, o := range objects {
		options := []client.CreateOption{client.FieldValidation(metav1.FieldValidationStrict)}
		switch o.GetKind() {
		case "ServiceAccount":
			account = o
		case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
		case "Deployment":
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &s.Deployment); err != nil {
				return fmt.Errorf("%s: the Deployment %s: %w", name, o.GetName(), err)
			}
			fallthrough
		default:
			options = append(options, client.DryRunAll)
		}
		if err := kube.Create(ctx, o, options...); err != nil {
			return fmt.Errorf("%s: creating the %s %s: %w", name, o.GetKind(), o.GetName(), err)
		}
	}
	if account == nil {
		return fmt.Errorf("%s: there is no ServiceAccount", name)
	}
	s.Kubeconfig, err = s.Cluster.KubeconfigFor(
		"system:serviceaccount:"+account.GetNamespace()+":"+account.GetName(),
		"system:serviceaccounts", "system:serviceaccounts:"+account.GetNamespace(), "system:authenticated")
	return err
}
