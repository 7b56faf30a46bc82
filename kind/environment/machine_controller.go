package environment

import (
	"bytes"
	"context"
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/deploy"
	machinedeploy "github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/deploy"
)

// machineControllerName is the name of the machine controller's Deployment.
const machineControllerName = "machine-controller"

// DeployMachineController has the cluster run the machine controller of this module. prefix begins the controller's provider IDs, such as
// hcloud. The controller stays with the cluster. Its pod needs the Secret that DeployCCM makes. DeployMachineController returns when the
// pod is ready.
func (e *Environment) DeployMachineController(ctx context.Context, prefix string) error {
	archive, err := machineProgram.build(ctx, e.Name, e.Progress)
	if err != nil {
		return err
	}
	sum, err := e.loadWithChecksum(ctx, archive)
	if err != nil {
		return err
	}
	objects, err := deploy.Objects(machinedeploy.Manifest)
	if err != nil {
		return err
	}
	if err := (deploy.Settings{
		Image: machineProgram.image, PullPolicy: "Never", PodAnnotations: map[string]string{"ccm-from-scratch/image-checksum": sum},
		Env: map[string]string{"HCLOUD_ENDPOINT": e.InnerEndpoint, "HCLOUD_INSTANCES_PROVIDER_ID_PREFIX": prefix},
	}).With(objects); err != nil {
		return err
	}
	manifest, err := deploy.Text(objects)
	if err != nil {
		return err
	}
	if err := e.Apply(ctx, bytes.NewReader(slices.Concat(machinedeploy.CRDs(), []byte("\n"), manifest))); err != nil {
		return err
	}
	return e.await(ctx, "the machine controller is available", func(ctx context.Context) (string, error) {
		return e.deploymentMissing(ctx, ccmNamespace, machineControllerName)
	})
}
