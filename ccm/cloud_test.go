package ccm_test

import (
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/ccm-from-scratch/ccm-from-scratch/ccm"
)

// clients gives every controller the same fake client.
type clients struct{ kube kubernetes.Interface }

func (c clients) Config(string) (*rest.Config, error) { return &rest.Config{}, nil }

func (c clients) ConfigOrDie(string) *rest.Config { return &rest.Config{} }

func (c clients) Client(string) (kubernetes.Interface, error) { return c.kube, nil }

func (c clients) ClientOrDie(string) kubernetes.Interface { return c.kube }

// TestTheProviderComparesByItselfOnceItIsStarted starts the provider like the controller manager. The
// periodic comparison must restore a load balancer, a route and a label.
func TestTheProviderComparesByItselfOnceItIsStarted(t *testing.T) {
	t.Parallel()
	g := gomega.NewWithT(t)
	w := newWorld(t, "instant", 1)
	w.nodes[0].Spec.PodCIDRs = []string{"10.244.1.0/24"}
	w.nodes[0].Labels = map[string]string{corev1.LabelInstanceTypeStable: "cx13"}
	svc := newService("web", nil, 80)
	kube := fake.NewClientset(w.nodes[0].DeepCopy(), svc.DeepCopy())
	cloud := w.provider(func(c *ccm.Config) { c.ResyncInterval = time.Minute })
	w.lead(cloud, kube)

	w.ensure(cloud, svc)
	for range 2 { // the second comparison is one of its own
		w.deleteLoadBalancer(w.theLoadBalancer())
		g.Eventually(func() bool { // the comparison starts once the informers have synced
			w.clock.Step(time.Minute)
			return len(w.loadBalancers()) == 1 && len(w.networkRoutes()) == 1
		}).WithTimeout(30 * time.Second).Should(gomega.BeTrue())
	}

	instances, _ := cloud.InstancesV2()
	if _, err := instances.InstanceMetadata(t.Context(), w.nodes[0]); err != nil {
		t.Fatal(err)
	}
	node, err := kube.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
	if err != nil || node.Labels[corev1.LabelInstanceTypeStable] != "cx23" {
		t.Errorf("%v, labels %v", err, node.Labels)
	}
}

func TestSupportedInterfaces(t *testing.T) {
	t.Parallel()
	cloud := ccm.New(ccm.Config{Network: "x"})
	if cloud.ProviderName() != "ccm-from-scratch" || !cloud.HasClusterID() {
		t.Error("name or cluster ID")
	}
	_, v2 := cloud.InstancesV2()
	_, lb := cloud.LoadBalancer()
	_, routes := cloud.Routes()
	_, v1 := cloud.Instances()
	_, zones := cloud.Zones()
	_, clusters := cloud.Clusters()
	if !v2 || lb || routes || v1 || zones || clusters {
		t.Error(v2, lb, routes, v1, zones, clusters)
	}
}
