package framework

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"os"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/environment"
)

// EnvKind names the kind cluster that scripts/e2e.sh has made.
const EnvKind = "KIND_NAME"

func openEnvironment(ctx context.Context) (*environment.Environment, error) {
	return environment.Open(ctx, cmp.Or(os.Getenv(EnvKind), "e2e"))
}

// prepareKind has the cluster run the CCM, and returns when it has done its first work.
func prepareKind(ctx context.Context, ccm CCMDescription) error {
	e, err := openEnvironment(ctx)
	if err != nil {
		return err
	}
	if err := e.DeployCCM(ctx, environmentCCM(ccm, usualPods(ccm))); err != nil {
		return err
	}
	return e.AwaitUsable(ctx)
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
	control := remote.New(e.Control)
	return &sharedCluster{
		kubeconfig: e.Kubeconfig, endpoint: e.Endpoint, token: e.Token, network: environment.NetworkName,
		dial: proxyDialer{e.OutsideProxy.Host}.DialContext, outside: e.OutsideAddress.String(), podImage: environment.ProbeImage,
		journal: cloudJournal{control.Journal()}, faults: control.Faults(),
		roots: func(ctx context.Context) (*x509.CertPool, error) {
			pem, err := control.CARoots(ctx)
			if err != nil {
				return nil, err
			}
			roots := x509.NewCertPool()
			if !roots.AppendCertsFromPEM(pem) {
				return nil, errors.New("the cloud's authorities are no certificates")
			}
			return roots, nil
		},
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

// usualPods is how the CCM runs while no spec wants it otherwise. A CCM that is not ours has its own settings.
func usualPods(ccm CCMDescription) podSettings {
	s := podSettings{Env: ccm.Env, Args: ccm.Args, Replicas: 1}
	if ccm.Name == OurCCM().Name {
		s.Env, s.Args = ccmSettings(), ccmArgs(false)
	}
	return s
}

func environmentCCM(ccm CCMDescription, s podSettings) environment.CCM {
	return environment.CCM{
		Archive: ccm.Archive, Image: ccm.Image, Manifest: ccm.Manifest, Namespace: ccm.Namespace, Workload: ccm.Workload,
		Env: s.Env, Args: s.Args, Replicas: &s.Replicas,
	}
}
