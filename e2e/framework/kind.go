package framework

import (
	"cmp"
	"context"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/environment"
)

// EnvKind is the name of the kind cluster that scripts/e2e.sh has created.
const EnvKind = "KIND_NAME"

func openEnvironment(ctx context.Context) (*environment.Environment, error) {
	return environment.Open(ctx, cmp.Or(os.Getenv(EnvKind), "e2e"))
}

// prepareKind deploys the CCM in the cluster and waits until all nodes are usable.
func prepareKind(ctx context.Context, ccm CCMDescription) error {
	e, err := openEnvironment(ctx)
	if err != nil {
		return err
	}
	both, bothCtx := errgroup.WithContext(ctx)
	both.Go(func() error { return e.DeployCCM(bothCtx, environmentCCM(ccm, usualPods(ccm))) })
	if runsMachineController(ccm) {
		both.Go(func() error {
			return e.DeployMachineController(bothCtx, strings.TrimSuffix(ccm.ProviderPrefix, "://"))
		})
	}
	if err := both.Wait(); err != nil {
		return err
	}
	return e.AwaitUsable(ctx)
}

// runsMachineController reports whether the machine controller runs, too, for all specs about Machines.
func runsMachineController(ccm CCMDescription) bool {
	return ccm.Has(NodeRoutes) && ccm.Has(NodeSelector)
}

// openKind uses the cluster that prepareKind has prepared.
func openKind(ctx context.Context, ccm CCMDescription) (*sharedCluster, error) {
	e, err := openEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	if ccm.Manifest == "" { // what prepareKind has built
		ccm.Archive = cmp.Or(ccm.Archive, environment.BuiltCCM(e.Name))
	}
	return &sharedCluster{
		kubeconfig: e.Kubeconfig, endpoint: e.Endpoint, token: e.Token, network: environment.NetworkName,
		dial: proxyDialer{e.OutsideProxy.Host}.DialContext, outside: e.OutsideAddress.String(), podImage: environment.ProbeImage,
		control: remote.New(e.Control), machineController: runsMachineController(ccm), hypervisorLog: e.HypervisorLog, exec: e.Exec,
		restartCloud: e.RestartCloud,
		ccm: &podCCM{
			configure: func(ctx context.Context, s podSettings) error {
				return e.DeployCCM(ctx, environmentCCM(ccm, s))
			},
			kill: func(ctx context.Context) error { return e.KillCCM(ctx, environmentCCM(ccm, podSettings{})) },
			log: func(ctx context.Context) (string, error) {
				return e.CCMLog(ctx, environmentCCM(ccm, podSettings{}))
			},
			usual: usualPods(ccm),
		},
	}, nil
}

// usualPods returns the settings of the CCM that specs start with.
func usualPods(ccm CCMDescription) podSettings {
	return podSettings{Env: ccm.environment(), Args: append(ccmArgs(false), ccm.Args...), Replicas: 1}
}

func environmentCCM(ccm CCMDescription, s podSettings) environment.CCM {
	return environment.CCM{
		Archive: ccm.Archive, Image: ccm.Image, Manifest: ccm.Manifest, Namespace: ccm.Namespace, Workload: ccm.Workload,
		Env: s.Env, Args: s.Args, Replicas: &s.Replicas,
	}
}
