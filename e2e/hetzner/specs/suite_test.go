// Package specs holds the specs of the whole with Hetzner's cloud: a Kubernetes cluster, a cloud and the cloud-controller-manager. Those of
// package conformance run with them: `make e2e`.
package specs

import (
	"context"
	"testing"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud/example"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/suite"
)

func TestE2E(t *testing.T) {
	suite.Run(t, suite.Config{
		Name: "ccm-from-scratch", File: "../../ccms/ccm-from-scratch.yaml", Manifest: "../../../ccm/deploy/ccm-from-scratch.yaml",
		Drivers: map[string]cloud.Driver{framework.DefaultDriver: hetzner.Driver{}, "example": example.Driver{}, "least": least{}},
	})
}

// least is the driver of the example cloud with nothing but what each driver must have, and without traffic: as of a small emulator.
type least struct{ example.Driver }

// Start implements cloud.Driver.
func (d least) Start(ctx context.Context, o cloud.Options) (cloud.Cloud, error) {
	c, err := d.Driver.Start(ctx, o)
	return mute{c}, err
}

type mute struct{ cloud.Cloud }

// ForwardsNothing implements cloud.Mute.
func (mute) ForwardsNothing() {}
