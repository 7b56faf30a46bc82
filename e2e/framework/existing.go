package framework

import (
	"cmp"
	"context"
	"fmt"
	"os"
)

// EnvPodImage is the image of the pods behind Services on an existing cluster: kind/cmd/probe, where its nodes can pull it.
const EnvPodImage = "E2E_POD_IMAGE"

// openExisting uses the cluster of Setup or KUBECONFIG, the CCM that runs in it, and the cloud that the driver opens.
func (s *Suite) openExisting(ctx context.Context) (*Shared, error) {
	shared := &Shared{Kubeconfig: cmp.Or(configured.Kubeconfig, os.Getenv("KUBECONFIG")), PodImage: os.Getenv(EnvPodImage)}
	if shared.Kubeconfig == "" {
		return nil, fmt.Errorf("%s=%s: KUBECONFIG is not set: write the path of an administrator's access to the cluster", EnvCluster,
			Existing)
	}
	driver, err := s.CCM.driver()
	if err == nil {
		shared.Cloud, err = driver.Open(ctx, s.options(nil))
	}
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %w", EnvCluster, Existing, err)
	}
	return shared, nil
}
