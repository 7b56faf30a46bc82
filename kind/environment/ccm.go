package environment

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	cloudproviderapi "k8s.io/cloud-provider/api"
	nodeutil "k8s.io/component-helpers/node/util"

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
	return e.DeployCCM(ctx, CCM{Archive: o.CCMArchive})
}

// CCM is a cloud-controller-manager that a cluster runs. The zero value is that of this module.
type CCM struct {
	// Archive is a file with its image, as `docker save` writes it. The image is loaded into all nodes. If Archive and Manifest are "", the
	// CCM of this module is built.
	Archive string
	// Image is the name of its image. Default: that of the manifest, or ccm-from-scratch:kind.
	Image string
	// Manifest is a file with everything that an operator applies, with one Deployment of one container. Default: ccm/deploy. The CCM must
	// read the token and the network's name from the Secret hcloud. DeployCCM makes that Secret.
	Manifest string
	// Namespace and Workload are those of its Deployment. Default: kube-system, ccm-from-scratch.
	Namespace, Workload string
	// Env and Args are added to those that a cluster in this cloud needs, and replace those of the same name. An empty value
	// removes a variable.
	Env  map[string]string
	Args []string
	// Replicas is the number of its pods; nil is the manifest's.
	Replicas *int32
}

// BuiltCCM returns the archive that was built when the CCM of this module was last deployed into a cluster, "" if it
// never was.
func BuiltCCM(cluster string) string {
	folder, err := Folder(cluster)
	if err != nil {
		return ""
	}
	archive := filepath.Join(folder, ccmProgram.name+".tar")
	if _, err := os.Stat(archive); err != nil {
		return ""
	}
	return archive
}

// complete sets the defaults, and builds the image if none is given.
func (c CCM) complete(ctx context.Context, cluster string, out io.Writer) (_ CCM, err error) {
	c.Namespace, c.Workload = cmp.Or(c.Namespace, ccmNamespace), cmp.Or(c.Workload, ccmName)
	if c.Manifest != "" {
		return c, nil
	}
	c.Image = cmp.Or(c.Image, ccmProgram.image)
	if c.Archive == "" {
		c.Archive, err = ccmProgram.build(ctx, cluster, out)
	}
	return c, err
}

// DeployCCM replaces the CCM that runs in the cluster. It returns when exactly its pods are ready, and all others are gone.
func (e *Environment) DeployCCM(ctx context.Context, c CCM) error {
	c, err := c.complete(ctx, e.Name, e.Progress)
	if err != nil {
		return err
	}
	sum := ""
	if c.Archive != "" {
		if sum, err = e.loadWithChecksum(ctx, c.Archive); err != nil {
			return err
		}
	}
	manifest, err := e.ccmManifest(c, sum)
	if err != nil {
		return err
	}
	if err := e.Apply(ctx, bytes.NewReader(manifest)); err != nil {
		return err
	}
	return e.await(ctx, "the CCM is available", func(ctx context.Context) (string, error) {
		if missing, err := e.deploymentMissing(ctx, c.Namespace, c.Workload); missing != "" || err != nil {
			return missing, err
		}
		return e.endingMissing(ctx, c)
	})
}

// ccmPods returns the pods of a CCM, those that end included.
func (e *Environment) ccmPods(ctx context.Context, c CCM) ([]corev1.Pod, error) {
	return WorkloadPods(ctx, e.Client, cmp.Or(c.Namespace, ccmNamespace), cmp.Or(c.Workload, ccmName))
}

// WorkloadPods returns the pods of a Deployment or else a DaemonSet, those that are about to end included.
func WorkloadPods(ctx context.Context, client kubernetes.Interface, namespace, name string) ([]corev1.Pod, error) {
	selector := func() (*metav1.LabelSelector, error) {
		d, err := client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			return d.Spec.Selector, nil
		}
		if !apierrors.IsNotFound(err) {
			return nil, err
		}
		set, err := client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is no Deployment or DaemonSet %s in the namespace %s: %w", name, namespace, err)
		}
		if err != nil {
			return nil, err
		}
		return set.Spec.Selector, nil
	}
	selected, err := selector()
	if err != nil {
		return nil, err
	}
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(selected)})
	if err != nil {
		return nil, err
	}
	return pods.Items, nil
}

// endingMissing names a pod of the CCM that is terminating.
func (e *Environment) endingMissing(ctx context.Context, c CCM) (string, error) {
	pods, err := e.ccmPods(ctx, c)
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			return p.Name + " has not ended", err
		}
	}
	return "", err
}

// KillCCM ends the CCM's processes without warning, as a failing host does. Kubelets start them again.
func (e *Environment) KillCCM(ctx context.Context, c CCM) error {
	pods, err := e.ccmPods(ctx, c)
	if err != nil {
		return err
	}
	killed := 0
	for _, p := range pods {
		for _, s := range p.Status.ContainerStatuses {
			id, ok := strings.CutPrefix(s.ContainerID, "containerd://")
			if !ok || s.State.Running == nil {
				continue
			}
			if _, err := docker(ctx, "exec", p.Spec.NodeName, "ctr", "--namespace=k8s.io", "tasks", "kill", "--signal=SIGKILL",
				id); err != nil {
				return fmt.Errorf("killing %s: %w", p.Name, err)
			}
			killed++
		}
	}
	if killed == 0 {
		return errors.New("there is no CCM to kill")
	}
	return nil
}

// CCMLog returns the output of the CCM's pods, including that from before a restart.
func (e *Environment) CCMLog(ctx context.Context, c CCM) (string, error) {
	pods, err := e.ccmPods(ctx, c)
	if err != nil {
		return "", err
	}
	var all strings.Builder
	for _, p := range pods {
		for _, previous := range []bool{true, false} {
			text, err := e.Client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{Previous: previous}).DoRaw(ctx)
			if err == nil { // else it did not run before, or does not yet
				all.Write(text)
			}
		}
	}
	return all.String(), nil
}

// ccmManifest returns the CCM's manifest with the settings of this cloud. checksum is that of the image.
func (e *Environment) ccmManifest(c CCM, checksum string) ([]byte, error) {
	manifest := deploy.Manifest
	if c.Manifest != "" {
		var err error
		if manifest, err = os.ReadFile(c.Manifest); err != nil {
			return nil, err
		}
	}
	objects, err := deploy.Objects(manifest)
	if err != nil {
		return nil, err
	}
	settings := deploy.Settings{
		Image: c.Image,
		Args:  append([]string{"--cluster-cidr=" + e.PodCIDR.String(), "--cluster-name=" + e.Name}, c.Args...),
		Env: map[string]string{
			"HCLOUD_ENDPOINT": e.InnerEndpoint,
			// Servers have private addresses only.
			"HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP": "true",
			"HCLOUD_LOAD_BALANCERS_LOCATION":       "fsn1",
			// The shortest that the API allows.
			"HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL": "3s",
			"HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT":  "2s",
		},
		Replicas: c.Replicas,
	}
	// Specs switch workers off and delete them, and the CCM has to see that, so it runs on the control plane. Several
	// pods do not fit there: they use their node's network, and the same ports.
	if c.Replicas == nil || *c.Replicas <= 1 {
		settings.NodeSelector = map[string]string{"node-role.kubernetes.io/control-plane": ""}
	}
	maps.Copy(settings.Env, c.Env)
	if checksum != "" {
		settings.PullPolicy = string(corev1.PullNever)
		// The image behind the name changes; the checksum makes the Deployment replace its pods.
		settings.PodAnnotations = map[string]string{"ccm-from-scratch/image-checksum": checksum}
	}
	if err := settings.With(objects); err != nil {
		return nil, err
	}
	text, err := deploy.Text(objects)
	if err != nil {
		return nil, err
	}
	values := map[string]string{"TOKEN": e.Token, "NETWORK": NetworkName}
	return append([]byte(os.Expand(ccmSecret, func(name string) string { return values[name] })), text...), nil
}

// awaitUsable returns when the cluster can be used.
func (o Options) awaitUsable(ctx context.Context, e *Environment) error {
	if o.WithoutCCM {
		return nil
	}
	return e.AwaitUsable(ctx)
}

// AwaitUsable returns when the CCM has initialized each node, the cloud has a route to each
// node's pods and the Node says so, and the cluster's DNS runs.
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

// await calls missing until it returns "". An error of missing is not final: servers restart. When the context ends, the error has the last
// result of missing.
func (e *Environment) await(ctx context.Context, what string, missing func(context.Context) (string, error)) error {
	last := "nothing is known yet"
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

// routesMissing names a node without a route to its pods, or without the route in its status: a CCM may keep such a node out of load
// balancers.
func (e *Environment) routesMissing(ctx context.Context) (string, error) {
	nodes, err := e.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	network, _, err := e.Cloud.Network.GetByName(ctx, NetworkName)
	if err != nil {
		return "", err
	}
	if network == nil {
		return "", errors.New("the cloud has no network " + NetworkName)
	}
	for _, n := range nodes.Items {
		found := false
		for _, r := range network.Routes {
			found = found || r.Destination.String() == n.Spec.PodCIDR
		}
		if !found {
			return fmt.Sprintf("no route to %s, the pods of %s", n.Spec.PodCIDR, n.Name), nil
		}
		if _, c := nodeutil.GetNodeCondition(&n.Status, corev1.NodeNetworkUnavailable); c == nil || c.Status != corev1.ConditionFalse {
			return fmt.Sprintf("%s does not show its route: its condition %s is not False", n.Name, corev1.NodeNetworkUnavailable), nil
		}
	}
	return "", nil
}

// deploymentMissing says why a Deployment does not run as declared, "" if it does.
func (e *Environment) deploymentMissing(ctx context.Context, namespace, name string) (string, error) {
	d, err := e.Client.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas < want || d.Status.AvailableReplicas < want ||
		d.Status.Replicas > want {
		return fmt.Sprintf("of %s, %d of %d pods are available and %d are new (kubectl -n %s describe pods)",
			name, d.Status.AvailableReplicas, want, d.Status.UpdatedReplicas, namespace), nil
	}
	return "", nil
}
