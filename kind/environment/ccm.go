package environment

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/deploy"
)

// The Secret with the cloud's token.
//
//go:embed manifests/ccm.yaml
var ccmSecret string

// namespace and name of the CCM's Deployment.
const (
	ccmNamespace = "kube-system"
	ccmName      = "ccm-from-scratch"
)

// deployCCM loads the CCM's image into all nodes and deploys it.
func (o Options) deployCCM(ctx context.Context, e *Environment) error {
	if o.WithoutCCM {
		return nil
	}
	return e.DeployCCM(ctx, o.CCMArchive)
}

// DeployCCM loads an archive with the CCM's image, or, if it is "", builds one of this
// module, and has the cluster run it in place of what runs. It returns when the new
// one is ready.
func (e *Environment) DeployCCM(ctx context.Context, archive string) (err error) {
	if archive == "" {
		if archive, err = ccmProgram.build(ctx, e.Name); err != nil {
			return err
		}
	}
	sum, err := checksum(archive)
	if err != nil {
		return err
	}
	if err := e.LoadImage(ctx, archive); err != nil {
		return err
	}
	manifest, err := e.ccmManifest(sum)
	if err != nil {
		return err
	}
	if err := e.Apply(ctx, bytes.NewReader(manifest)); err != nil {
		return err
	}
	return e.await(ctx, "the CCM is available", func(ctx context.Context) (string, error) {
		return e.deploymentMissing(ctx, ccmNamespace, ccmName)
	})
}

// ccmManifest returns what an operator applies, with the settings of this cluster. checksum is that of
// the image.
func (e *Environment) ccmManifest(checksum string) ([]byte, error) {
	objects, err := deploy.Objects(deploy.Manifest)
	if err != nil {
		return nil, err
	}
	err = deploy.Settings{
		Image: ccmProgram.image, PullPolicy: string(corev1.PullNever),
		Args: []string{"--cluster-cidr=" + e.PodCIDR.String(), "--cluster-name=" + e.Name},
		Env: map[string]string{
			"HCLOUD_ENDPOINT": e.InnerEndpoint,
			// Servers have private addresses only.
			"HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP": "true",
			"HCLOUD_LOAD_BALANCERS_LOCATION":       "fsn1",
			// The shortest that the API allows.
			"HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL": "3s",
			"HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT":  "2s",
		},
		// What is under the image's name changes; a pod of another image is another pod.
		PodAnnotations: map[string]string{"ccm-from-scratch/image-checksum": checksum},
	}.With(objects)
	if err != nil {
		return nil, err
	}
	text, err := deploy.Text(objects)
	if err != nil {
		return nil, err
	}
	values := map[string]string{"TOKEN": e.Token, "NETWORK": networkName}
	return append([]byte(os.Expand(ccmSecret, func(name string) string { return values[name] })), text...), nil
}

// awaitUsable returns when all is there that a cluster needs.
func (o Options) awaitUsable(ctx context.Context, e *Environment) error {
	if o.WithoutCCM {
		return nil
	}
	return e.AwaitUsable(ctx)
}

// AwaitUsable returns when the CCM has initialized each node, the cloud has a route to each
// node's pods, and the cluster's DNS runs.
func (e *Environment) AwaitUsable(ctx context.Context) error {
	for _, condition := range []struct {
		name    string
		missing func(context.Context) (string, error)
	}{
		{"all nodes are initialized", e.nodesMissing},
		{"the cloud has all routes", e.routesMissing},
		{"DNS runs", func(ctx context.Context) (string, error) { return e.deploymentMissing(ctx, "kube-system", "coredns") }},
	} {
		if err := e.await(ctx, condition.name, condition.missing); err != nil {
			return err
		}
	}
	return nil
}

// await asks again and again what is missing until it is nothing. An error of
// asking is not the end: servers restart. When the context ends, the error says what
// was missing last.
func (e *Environment) await(ctx context.Context, what string, missing func(context.Context) (string, error)) error {
	last := "nothing was found out yet"
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		text, err := missing(ctx)
		if err != nil {
			text = err.Error()
		}
		if ctx.Err() == nil {
			last = text
		}
		return text == "", nil
	})
	if err != nil {
		return fmt.Errorf("waiting until %s: %w; last: %s", what, err, last)
	}
	return nil
}

// nodesMissing names a node that is not Ready or not initialized.
func (e *Environment) nodesMissing(ctx context.Context) (string, error) {
	nodes, err := e.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for _, n := range nodes.Items {
		uninitialized := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == cloudproviderapi.TaintExternalCloudProvider
		})
		if uninitialized || n.Spec.ProviderID == "" {
			return n.Name + " is not initialized", nil
		}
	}
	return "", nil
}

// routesMissing names a node without a route to its pods.
func (e *Environment) routesMissing(ctx context.Context) (string, error) {
	nodes, err := e.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	network, _, err := e.Cloud.Network.GetByName(ctx, networkName)
	if err != nil {
		return "", err
	}
	if network == nil {
		return "", errors.New("the cloud has no network " + networkName)
	}
	for _, n := range nodes.Items {
		found := false
		for _, r := range network.Routes {
			found = found || r.Destination.String() == n.Spec.PodCIDR
		}
		if !found {
			return fmt.Sprintf("no route to %s, the pods of %s", n.Spec.PodCIDR, n.Name), nil
		}
	}
	return "", nil
}

// deploymentMissing says what a Deployment lacks of running as it was declared.
func (e *Environment) deploymentMissing(ctx context.Context, namespace, name string) (string, error) {
	d, err := e.Client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < want || d.Status.AvailableReplicas < want || d.Status.Replicas > want {
		return fmt.Sprintf("of %s, %d of %d pods are available and %d are new (kubectl -n %s describe pods)",
			name, d.Status.AvailableReplicas, want, d.Status.UpdatedReplicas, namespace), nil
	}
	return "", nil
}
