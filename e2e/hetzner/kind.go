package hetzner

import (
	"cmp"
	"context"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/remote"
	"github.com/ccm-from-scratch/ccm-from-scratch/kind/environment"
)

// EnvKind is the name of the kind cluster that scripts/e2e.sh creates.
const EnvKind = "KIND_NAME"

func openEnvironment(ctx context.Context) (*environment.Environment, error) {
	return environment.Open(ctx, cmp.Or(os.Getenv(EnvKind), "e2e"))
}

// PrepareKind implements framework.KindDriver.
func (Driver) PrepareKind(ctx context.Context, ccm framework.CCMDescription) error {
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
func runsMachineController(ccm framework.CCMDescription) bool {
	return ccm.Has(framework.Machines) && ccm.Has(framework.NodeRoutes) && ccm.Has(framework.NodeSelector)
}

// OpenKind implements framework.KindDriver.
func (Driver) OpenKind(ctx context.Context, ccm framework.CCMDescription) (*framework.Shared, error) {
	e, err := openEnvironment(ctx)
	if err != nil {
		return nil, err
	}
	if ccm.Manifest == "" { // what PrepareKind has built
		ccm.Archive = cmp.Or(ccm.Archive, environment.BuiltCCM(e.Name))
	}
	a := &account{
		Options: cloud.Options{ProviderPrefix: ccm.ProviderPrefix, OwnerLabel: ccm.OwnerLabel, UserAgent: ccm.UserAgent},
		control: remote.New(e.Control), dial: proxyDialer{e.OutsideProxy.Host}.DialContext, restart: e.RestartCloud,
		machineController: runsMachineController(ccm),
	}
	shared := &framework.Shared{
		Kubeconfig: e.Kubeconfig, Cloud: a, Outside: e.OutsideAddress.String(), PodImage: environment.ProbeImage,
		HypervisorLog: e.HypervisorLog, Exec: e.Exec, CCM: podsOf(e, ccm),
	}
	if ccm.Has(framework.NodeSelector) {
		shared.Confine = confine
	}
	return shared, a.connect(ctx, e.Endpoint, e.Token, environment.NetworkName)
}

// podsOf returns the CCM that runs in the pods of a kind cluster.
func podsOf(e *environment.Environment, ccm framework.CCMDescription) *framework.PodCCM {
	return &framework.PodCCM{
		Configure: func(ctx context.Context, s framework.PodSettings) error {
			return e.DeployCCM(ctx, environmentCCM(ccm, s))
		},
		Kill: func(ctx context.Context) error { return e.KillCCM(ctx, environmentCCM(ccm, framework.PodSettings{})) },
		Log: func(ctx context.Context) (string, error) {
			return e.CCMLog(ctx, environmentCCM(ccm, framework.PodSettings{}))
		},
		Pods: func(ctx context.Context) ([]corev1.Pod, error) {
			return environment.WorkloadPods(ctx, framework.Current().Cluster.Client, ccm.Namespace, ccm.Workload)
		},
		Usual: usualPods(ccm),
	}
}

// selectsOwn begins the node selector of Services that use only the spec's nodes.
const selectsOwn = corev1.LabelHostname + " in ("

// confine makes a Service's load balancer use only these nodes, by a node selector. It keeps a selector of the spec.
func confine(service *corev1.Service, nodes []string) {
	const annotation = Annotation + "node-selector"
	if selector := service.Annotations[annotation]; selector == "" || strings.HasPrefix(selector, selectsOwn) {
		metav1.SetMetaDataAnnotation(&service.ObjectMeta, annotation, selectsOwn+strings.Join(nodes, ",")+")")
	}
}

// usualPods returns the settings of the CCM that specs start with.
func usualPods(ccm framework.CCMDescription) framework.PodSettings {
	return framework.PodSettings{Env: ccm.Environment(values()), Args: append(framework.CCMArgs(false), ccm.Args...), Replicas: 1}
}

func environmentCCM(ccm framework.CCMDescription, s framework.PodSettings) environment.CCM {
	return environment.CCM{
		Archive: ccm.Archive, Image: ccm.Image, Manifest: ccm.Manifest, Namespace: ccm.Namespace, Workload: ccm.Workload,
		Env: s.Env, Args: s.Args, Replicas: &s.Replicas,
	}
}
