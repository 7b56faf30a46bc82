package deploy

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/deploy"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
)

func TestTheManifestHoldsAllObjects(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		string(Manifest): {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Deployment"},
		string(CRDs()):   {"CustomResourceDefinition", "CustomResourceDefinition", "CustomResourceDefinition"},
	} {
		objects, err := deploy.Objects([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, o := range objects {
			kinds = append(kinds, o.GetKind())
			if o.GetKind() == "Deployment" {
				readStrictly(t, o.Object, &appsv1.Deployment{})
			}
		}
		if !slices.Equal(kinds, want) {
			t.Errorf("got %v, want %v", kinds, want)
		}
	}
}

// readStrictly fails the test if an object has a field that its type lacks.
func readStrictly(t *testing.T, object, into any) {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		t.Error(err)
	}
}

func TestTheExamplesHaveNoUnknownFields(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("..", "examples", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(text, &v1alpha1.MachineDeployment{}); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
