package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/cluster"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework/node"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/whoami"
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
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
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

// simulate starts a node that opens its ports on the given address.
func simulate(t *testing.T, c *cluster.Cluster, name, address string) *node.Node {
	t.Helper()
	spec := node.Spec{Name: name, Addresses: []netip.Addr{netip.MustParseAddr(address)}}
	if runtime.GOOS != "linux" {
		spec.Addresses, spec.AnyPort = []netip.Addr{netip.MustParseAddr("127.0.0.1")}, true
	}
	n, err := node.Start(t.Context(), c.Client, spec)
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
		if err != nil {
			return "", err
		}
		for _, condition := range object.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status, nil
			}
		}
		return "", nil
	}
}

func TestANodeRegistersUninitializedAndGetsAPodCIDR(t *testing.T) {
	t.Parallel()
	g, c, ctx := NewWithT(t), use(t), patience(t)
	simulate(t, c, "registers", "127.77.0.1")
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
	n := simulate(t, c, "loses-power", "127.77.0.2")
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

func TestADeletedNodeStaysAwayUntilKubeletRestarts(t *testing.T) {
	t.Parallel()
	g, c, ctx := NewWithT(t), use(t), patience(t)
	n := simulate(t, c, "is-deleted", "127.77.0.3")
	leases := c.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	g.Eventually(ready(ctx, c, n.Name())).WithContext(ctx).Should(Equal(corev1.ConditionTrue))
	g.Eventually(func() error {
		_, err := leases.Get(ctx, n.Name(), metav1.GetOptions{})
		return err
	}).WithContext(ctx).Should(Succeed())
	first, err := c.Client.CoreV1().Nodes().Get(ctx, n.Name(), metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.Client.CoreV1().Nodes().Delete(ctx, n.Name(), metav1.DeleteOptions{})).To(Succeed())

	// Collecting the Lease takes longer than another registration of the kubelet would.
	g.Eventually(func() bool {
		_, err := leases.Get(ctx, n.Name(), metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithContext(ctx).Should(BeTrue())
	_, err = c.Client.CoreV1().Nodes().Get(ctx, n.Name(), metav1.GetOptions{})
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue())

	n.RestartKubelet()
	g.Eventually(ready(ctx, c, n.Name())).WithContext(ctx).Should(Equal(corev1.ConditionTrue))
	second, err := c.Client.CoreV1().Nodes().Get(ctx, n.Name(), metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second.UID).NotTo(Equal(first.UID))
}

func TestTheNodePortOfALoadBalancerServiceIsAnswered(t *testing.T) {
	t.Parallel()
	g, c, ctx := NewWithT(t), use(t), patience(t)
	n := simulate(t, c, "answers", "127.77.0.4")
	namespace, err := c.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "cluster-test-"},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	services := c.Client.CoreV1().Services(namespace.Name)
	service, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	port := service.Spec.Ports[0].NodePort
	g.Expect(port).NotTo(BeZero())

	name := types.NamespacedName{Namespace: namespace.Name, Name: "web"}
	open := func() []node.Backend {
		var mine []node.Backend
		for _, backend := range n.Backends() {
			if backend.Service == name && backend.Err == nil {
				mine = append(mine, backend)
			}
		}
		return mine
	}
	g.Eventually(open).WithContext(ctx).Should(HaveLen(1))
	response, err := http.Get("http://" + open()[0].Address.String() + "/hello")
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	var answer whoami.Answer
	g.Expect(json.NewDecoder(response.Body).Decode(&answer)).To(Succeed())
	g.Expect(answer).To(And(
		HaveField("Node", "answers"), HaveField("Service", name.String()), HaveField("PortName", "http"),
		HaveField("Port", int32(80)), HaveField("NodePort", port), HaveField("URI", "/hello"),
	))

	g.Expect(services.Delete(ctx, "web", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(open).WithContext(ctx).Should(BeEmpty())
	// The namespace controller works: a spec may clean up by deleting its namespace.
	g.Expect(c.Client.CoreV1().Namespaces().Delete(ctx, namespace.Name, metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(func() bool {
		_, err := c.Client.CoreV1().Namespaces().Get(ctx, namespace.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}).WithContext(ctx).Should(BeTrue())
}
