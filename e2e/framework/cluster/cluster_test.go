package cluster_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	nodeutil "k8s.io/component-helpers/node/util"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
)

// programs returns the control plane's programs. It skips the test if they are missing.
func programs(t *testing.T) string {
	t.Helper()
	assets, err := cluster.FindPrograms()
	if errors.Is(err, cluster.ErrNoPrograms) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return assets
}

// shared is the control plane that the tests about its behaviour share.
var shared struct {
	once sync.Once
	*cluster.Cluster
	err error
}

func use(t *testing.T) *cluster.Cluster {
	t.Helper()
	assets := programs(t)
	shared.once.Do(func() {
		shared.Cluster, shared.err = cluster.Start(context.Background(), cluster.Options{Programs: assets})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.Cluster
}

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	code := m.Run()
	if shared.Cluster != nil {
		if err := shared.Stop(); err != nil {
			println("stopping the control plane:", err.Error())
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// patience bounds a wait that is short on any host.
func patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestTheControlPlaneIsOfTheReleaseThatGoModNames(t *testing.T) {
	t.Parallel()
	c := use(t)
	out, err := exec.Command("go", "list", "-m", "-f={{.Version}}", "k8s.io/client-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	// Kubernetes 1.X.Y publishes its libraries as 0.X.Y.
	if want := "v1." + strings.TrimPrefix(strings.TrimSpace(string(out)), "v0."); c.Version != want {
		t.Errorf("the API server is %s, the libraries of go.mod are those of %s", c.Version, want)
	}
}

func TestAUserHasOnlyTheRightsThatRBACGives(t *testing.T) {
	t.Parallel()
	c := use(t)
	path, err := c.KubeconfigFor("system:serviceaccount:kube-system:unknown", "system:serviceaccounts")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	if _, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing nodes without a role: got %v, want Forbidden", err)
	}
}

func TestAnExistingClusterIsUsedAndLeftAlone(t *testing.T) {
	t.Parallel()
	g, c := NewWithT(t), use(t)
	existing, err := cluster.Existing(c.Kubeconfig)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(existing.Version).To(Equal(c.Version))
	g.Expect(existing.Stop()).To(Succeed())
	_, err = c.Client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
}

// simulate starts a node without addresses: it opens no ports.
func simulate(t *testing.T, c *cluster.Cluster, name string) *node.Node {
	t.Helper()
	n, err := node.Start(t.Context(), c.Client, node.Spec{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	return n
}

// ready returns the status of the Node's Ready condition, or "" without the condition.
func ready(ctx context.Context, c *cluster.Cluster, name string) func() (corev1.ConditionStatus, error) {
	return func() (corev1.ConditionStatus, error) {
		object, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if _, condition := nodeutil.GetNodeCondition(&object.Status, corev1.NodeReady); condition != nil {
			return condition.Status, err
		}
		return "", err
	}
}

func TestANodeRegistersUninitializedAndGetsAPodCIDR(t *testing.T) {
	t.Parallel()
	g, c, ctx := NewWithT(t), use(t), patience(t)
	simulate(t, c, "registers")
	g.Eventually(ready(ctx, c, "registers")).WithContext(ctx).Should(Equal(corev1.ConditionTrue))
	g.Eventually(func(g Gomega) {
		object, err := c.Client.CoreV1().Nodes().Get(ctx, "registers", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(object.Spec.Taints).To(ContainElement(corev1.Taint{
			Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule,
		}))
		g.Expect(object.Status.NodeInfo.KubeletVersion).To(Equal(c.Version))
		g.Expect(object.Spec.PodCIDR).NotTo(BeEmpty())
		cidr := netip.MustParsePrefix(object.Spec.PodCIDR)
		g.Expect(c.PodCIDR.Contains(cidr.Addr())).To(BeTrue(), "%s lies in %s", cidr, c.PodCIDR)
		g.Expect(cidr.Bits()).To(Equal(24))
	}).WithContext(ctx).Should(Succeed())
}

func TestANodeWithoutPowerIsNotReadyUntilItHasPowerAgain(t *testing.T) {
	t.Parallel()
	g, c, ctx := NewWithT(t), use(t), patience(t)
	n := simulate(t, c, "loses-power")
	status := ready(ctx, c, n.Name())
	g.Eventually(status).WithContext(ctx).Should(Equal(corev1.ConditionTrue))
	n.PowerOff()
	g.Eventually(status).WithContext(ctx).Should(Equal(corev1.ConditionUnknown))
	g.Eventually(func() ([]corev1.Taint, error) {
		object, err := c.Client.CoreV1().Nodes().Get(ctx, n.Name(), metav1.GetOptions{})
		return object.Spec.Taints, err
	}).WithContext(ctx).Should(ContainElement(HaveField("Key", corev1.TaintNodeUnreachable)))
	n.PowerOn()
	g.Eventually(status).WithContext(ctx).Should(Equal(corev1.ConditionTrue))
}
