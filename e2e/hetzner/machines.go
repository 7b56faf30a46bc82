package hetzner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/deploy"
	machinedeploy "github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/deploy"
	"github.com/ccm-from-scratch/ccm-from-scratch/ccm/machine/v1alpha1"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster"
)

// MachineController is a part of the User-Agent of the machine controller's requests.
const MachineController = "machine-controller"

// EnvMachineController is the path of the machine controller's program. Without it, the suite builds one.
const EnvMachineController = "E2E_MACHINE_CONTROLLER"

// machineController is the part of the machine controller that all specs of a process share.
type machineController struct {
	binary, kubeconfig string
	client             client.Client // an administrator's, which knows Machines
}

// Machines are the Machines of the machine controller.
type Machines struct {
	env *Env
}

// machines is shared by all specs of this process. It is empty before the first spec that needs it.
var machines machineController

// prepare installs the CRDs and builds the machine controller, once.
func (m *machineController) prepare(ctx context.Context) error {
	if m.client != nil {
		return nil
	}
	s := framework.Current()
	if err := installCRDs(ctx, s); err != nil {
		return err
	}
	c, err := machineClient(ctx, s)
	if err != nil {
		return err
	}
	binary := os.Getenv(EnvMachineController)
	if binary == "" {
		binary = filepath.Join(s.Out, fmt.Sprintf("machine-controller-%d", s.Process))
		build := exec.CommandContext(ctx, "go", "build", "-o", binary,
			"github.com/ccm-from-scratch/ccm-from-scratch/ccm/cmd/machine-controller")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("building the machine controller: %w\n%s", err, strings.TrimSpace(string(out)))
		}
	}
	kubeconfig, err := s.CreateAccount(ctx, machinedeploy.Manifest, "ccm/machine/deploy", &appsv1.Deployment{})
	if err != nil {
		return err
	}
	*m = machineController{binary, kubeconfig, c}
	return nil
}

func installCRDs(ctx context.Context, s *framework.Suite) error {
	plain, err := client.New(s.Cluster.RESTConfig, client.Options{})
	if err != nil {
		return err
	}
	objects, err := deploy.Objects(machinedeploy.CRDs())
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := plain.Create(ctx, o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			return fmt.Errorf("creating the CRD %s: %w", o.GetName(), err)
		}
	}
	return nil
}

// machineClient returns an administrator's client that knows Machines, as soon as the API server does.
func machineClient(ctx context.Context, s *framework.Suite) (c client.Client, err error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), autoscalingv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	Eventually(func(g Gomega) {
		c, err = client.New(s.Cluster.RESTConfig, client.Options{Scheme: scheme})
		g.Expect(err).NotTo(HaveOccurred())
		for _, list := range []client.ObjectList{&v1alpha1.MachineDeploymentList{}, &v1alpha1.MachineSetList{}, &v1alpha1.MachineList{}} {
			g.Expect(c.List(ctx, list)).To(Succeed())
		}
	}).WithContext(ctx).Should(Succeed(), "the CRDs are not served")
	return c, nil
}

// Client returns an administrator's client that knows Machines. The CRDs are there.
func (ms Machines) Client(ctx context.Context) client.Client {
	GinkgoHelper()
	if ms.env.Shared() == nil { // else Start has installed the CRDs
		Expect(machines.prepare(ctx)).To(Succeed())
	}
	return machines.client
}

// Start starts the machine controller, with these flags in addition to the usual ones. Its Machines are removed with the spec. On the
// embedded cluster, the controller ends with the spec, too. On a kind cluster it runs for all specs, with the flags of its manifest.
func (ms Machines) Start(ctx context.Context, flags ...string) *framework.Replica {
	GinkgoHelper()
	DeferCleanup(ms.remove)
	if ms.env.Shared() == nil {
		return ms.run(ctx, flags)
	}
	if len(flags) > 0 {
		Skip("needs a machine controller with flags of its own: runs with E2E_CLUSTER=embedded")
	}
	if !ms.env.account.machineController {
		Skip("needs the machine controller in this cluster: runs with E2E_CLUSTER=embedded and kind")
	}
	if machines.client == nil {
		var err error
		machines.client, err = machineClient(ctx, framework.Current())
		Expect(err).NotTo(HaveOccurred())
	}
	return &framework.Replica{}
}

// run starts the machine controller next to the control plane.
func (ms Machines) run(ctx context.Context, flags []string) *framework.Replica {
	GinkgoHelper()
	Expect(machines.prepare(ctx)).To(Succeed())
	return ms.env.Run("machine-controller", cluster.Command{
		Path: machines.binary,
		Args: append([]string{
			"--kubeconfig=" + machines.kubeconfig, "--metrics-bind-address=0", "--health-probe-bind-address=0",
			"--leader-elect=false",
			"--poll=200ms", "--interval=2s", "--kube-api-qps=200",
		}, flags...),
		Env: []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
			"GOCOVERDIR=" + filepath.Join(framework.Current().Out, "coverage"),
			"HCLOUD_ENDPOINT=" + ms.env.account.endpoint, "HCLOUD_TOKEN=" + ms.env.account.token,
			"HCLOUD_INSTANCES_PROVIDER_ID_PREFIX=" + strings.TrimSuffix(ms.env.account.ProviderPrefix, "://"),
		},
	})
}

// remove removes all objects of the spec.
func (ms Machines) remove(ctx context.Context) {
	c, in := machines.client, client.InNamespace(ms.env.Services.Namespace)
	if c == nil {
		return
	}
	Expect(c.DeleteAllOf(ctx, &v1alpha1.MachineDeployment{}, in)).To(Succeed())
	Expect(c.DeleteAllOf(ctx, &v1alpha1.MachineSet{}, in)).To(Succeed())
	Expect(c.DeleteAllOf(ctx, &v1alpha1.Machine{}, in)).To(Succeed())
	if ms.env.Shared() != nil { // its cloud does not end with the spec
		ms.awaitNone(ctx)
	}
	for _, m := range ms.List(ctx) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		Expect(client.IgnoreNotFound(c.Patch(ctx, &m, patch))).To(Succeed())
	}
}

// Deployment returns a MachineDeployment of the spec. It does not create it.
func (ms Machines) Deployment(name string, n int32) *v1alpha1.MachineDeployment {
	labels := map[string]string{"pool": name}
	d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: ms.env.Services.Namespace, Name: name}}
	d.Spec.Replicas, d.Spec.Selector.MatchLabels, d.Spec.Template.Metadata.Labels = &n, labels, labels
	d.Spec.Template.Spec.Metadata.Labels = map[string]string{"example.org/pool": name}
	d.Spec.Template.Spec.ProviderSpec.CloudProvider = "hetzner"
	ms.SetServerType(d, ServerType)
	return d
}

// Example returns the MachineDeployment of an example's file, in the namespace of the spec. It is not created yet.
func (ms Machines) Example(file string) *v1alpha1.MachineDeployment {
	GinkgoHelper()
	text, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	var d v1alpha1.MachineDeployment
	Expect(yaml.UnmarshalStrict(text, &d)).To(Succeed())
	d.Namespace = ms.env.Services.Namespace
	return &d
}

// SetServerType changes the server type of a MachineDeployment.
func (ms Machines) SetServerType(d *v1alpha1.MachineDeployment, serverType string) {
	d.Spec.Template.Spec.ProviderSpec.CloudProviderSpec.Raw = fmt.Appendf(nil, `{"serverType": %q, "location": %q, "networks": [%q]}`,
		serverType, Location, ms.env.Cloud.Network.Name)
}

// Create creates a MachineDeployment.
func (ms Machines) Create(ctx context.Context, d *v1alpha1.MachineDeployment) {
	GinkgoHelper()
	Expect(ms.Client(ctx).Create(ctx, d)).To(Succeed())
}

// Change changes a MachineDeployment.
func (ms Machines) Change(ctx context.Context, name string, change func(*v1alpha1.MachineDeployment)) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var d v1alpha1.MachineDeployment
		g.Expect(ms.Client(ctx).Get(ctx, ms.key(name), &d)).To(Succeed())
		change(&d)
		g.Expect(ms.Client(ctx).Update(ctx, &d)).To(Succeed())
	}).WithContext(ctx).Should(Succeed())
}

// Scale asks for n Machines as `kubectl scale` does.
func (ms Machines) Scale(ctx context.Context, name string, n int32) {
	GinkgoHelper()
	d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: ms.env.Services.Namespace, Name: name}}
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: n}}
	Expect(ms.Client(ctx).SubResource("scale").Update(ctx, d, client.WithSubResourceBody(scale))).To(Succeed())
}

// Delete deletes a MachineDeployment, and waits until nothing is left of it.
func (ms Machines) Delete(ctx context.Context, name string) {
	GinkgoHelper()
	d := &v1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: ms.env.Services.Namespace, Name: name}}
	Expect(ms.Client(ctx).Delete(ctx, d)).To(Succeed())
	ms.awaitNone(ctx)
}

func (ms Machines) awaitNone(ctx context.Context) {
	GinkgoHelper()
	// Kubernetes' garbage collector asks each 30 s which resources there are.
	Eventually(func() []v1alpha1.Machine { return ms.List(ctx) }).WithContext(ctx).WithTimeout(ms.timeout()).
		Should(BeEmpty(), "Machines are left")
}

// timeout is how long Machines may take to come and to go.
func (ms Machines) timeout() time.Duration {
	if ms.env.Shared() != nil {
		return framework.RebootTimeout // real nodes
	}
	return 2 * framework.Timeout
}

// List returns the Machines of the spec, by name.
func (ms Machines) List(ctx context.Context) []v1alpha1.Machine {
	GinkgoHelper()
	var list v1alpha1.MachineList
	Expect(ms.Client(ctx).List(ctx, &list, client.InNamespace(ms.env.Services.Namespace))).To(Succeed())
	slices.SortFunc(list.Items, func(a, b v1alpha1.Machine) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

// Await waits until a MachineDeployment has n Machines from its template and no others, and their Nodes are ready, initialized and have
// routes. It returns the names of the Machines. Their servers and Nodes have the same names.
func (ms Machines) Await(ctx context.Context, name string, n int) (names []string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var d v1alpha1.MachineDeployment
		g.Expect(ms.Client(ctx).Get(ctx, ms.key(name), &d)).To(Succeed())
		g.Expect(d.Status.ObservedGeneration).To(Equal(d.Generation))
		g.Expect([]int32{d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas}).To(HaveEach(int32(n)),
			"all, updated and available Machines: %+v", ms.List(ctx))
		g.Expect(meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.ConditionUpdated)).To(BeTrue())
		all := ms.List(ctx)
		g.Expect(all).To(HaveLen(n))
		names = nil
		for _, m := range all {
			g.Expect(m.DeletionTimestamp).To(BeNil(), "%s is being deleted", m.Name)
			g.Expect(m.Status.NodeRef).NotTo(BeNil())
			// Just after its server was deleted, a Machine's status may still be the old one.
			node, err := ms.env.Kube.CoreV1().Nodes().Get(ctx, m.Status.NodeRef.Name, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(node.UID)).To(Equal(m.Status.NodeRef.UID))
			names = append(names, m.Name)
		}
	}).WithContext(ctx).WithTimeout(ms.timeout()).Should(Succeed())
	for _, m := range names {
		ms.env.Nodes.AwaitInitialized(ctx, m)
		ms.env.Nodes.AwaitReady(ctx, m, true)
	}
	ms.env.Nodes.AwaitUsable(ctx, names...) // a node without a route cannot be a target
	return names
}

func (ms Machines) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: ms.env.Services.Namespace, Name: name}
}
