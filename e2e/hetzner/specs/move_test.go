package specs

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	servicehelpers "k8s.io/cloud-provider/service/helpers"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// production stands for Hetzner's own CCM, a program outside of this repository. It behaves as documented: it knows a node by the prefix
// hcloud:// of its provider ID, and a load balancer by its label. It removes any target that is not one of these nodes.
type production struct{ env *hetzner.Env }

const (
	productionPrefix = "hcloud://"
	productionLabel  = "hcloud-ccm/service-uid"
)

// initialize gives each new node its provider ID and its topology labels, and removes its taint.
func (p production) initialize(ctx context.Context, servers ...*hcloud.Server) {
	GinkgoHelper()
	for _, server := range servers {
		p.env.Nodes.Await(ctx, server.Name, func(g Gomega, n *corev1.Node) {
			n.Spec.ProviderID = fmt.Sprintf("%s%d", productionPrefix, server.ID)
			n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints,
				func(t corev1.Taint) bool { return t.Key == cloudproviderapi.TaintExternalCloudProvider })
			n.Labels[corev1.LabelTopologyRegion], n.Labels[corev1.LabelTopologyZone] = hetzner.Location, hetzner.Location+"-dc14"
			g.Expect(p.env.Kube.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{})).Error().NotTo(HaveOccurred())
		})
	}
}

// reconcile makes or corrects the load balancer of a Service, and returns its requests: "create", "add_target 3", "remove_target 4".
func (p production) reconcile(ctx context.Context, service string) (sent []string) {
	GinkgoHelper()
	svc := p.env.Services.Get(ctx, service)
	client := &p.env.Cloud.Client.LoadBalancer
	lbs, err := client.AllWithOpts(ctx, hcloud.LoadBalancerListOpts{ListOpts: hcloud.ListOpts{LabelSelector: productionLabel + "=" +
		string(svc.UID)}})
	Expect(err).NotTo(HaveOccurred())
	if len(lbs) == 0 {
		sent = append(sent, "create")
		lbs = append(lbs, p.create(ctx, svc))
	}
	Expect(lbs).To(HaveLen(1), "load balancers with the label of the production CCM")
	lb := lbs[0]
	wanted := p.servers(ctx)
	for _, id := range wanted {
		if !slices.Contains(hetzner.TargetIDs(lb), id) {
			sent = append(sent, fmt.Sprint("add_target ", id))
			p.env.Cloud.Do(ctx)(client.AddServerTarget(ctx, lb, hcloud.LoadBalancerAddServerTargetOpts{Server: &hcloud.Server{ID: id}}))
		}
	}
	for _, id := range hetzner.TargetIDs(lb) {
		if !slices.Contains(wanted, id) {
			sent = append(sent, fmt.Sprint("remove_target ", id))
			p.env.Cloud.Do(ctx)(client.RemoveServerTarget(ctx, lb, &hcloud.Server{ID: id}))
		}
	}
	return sent
}

// servers returns the IDs of the servers of the nodes that it knows.
func (p production) servers(ctx context.Context) (ids []int64) {
	GinkgoHelper()
	nodes, err := p.env.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	Expect(err).NotTo(HaveOccurred())
	for _, n := range nodes.Items {
		var id int64
		if number, known := strings.CutPrefix(n.Spec.ProviderID, productionPrefix); known {
			Expect(fmt.Sscan(number, &id)).Error().NotTo(HaveOccurred())
			ids = append(ids, id)
		}
	}
	return ids
}

// create makes the load balancer and writes its addresses to the Service, as the service controller does.
func (p production) create(ctx context.Context, svc *corev1.Service) *hcloud.LoadBalancer {
	GinkgoHelper()
	lb := p.env.LoadBalancers.Create(ctx, "a"+strings.ReplaceAll(string(svc.UID), "-", "")[:31], func(o *hcloud.LoadBalancerCreateOpts) {
		o.Labels = map[string]string{productionLabel: string(svc.UID)}
		o.Network = p.env.Cloud.Network
		for _, port := range svc.Spec.Ports {
			listen, to, interval := int(port.Port), int(port.NodePort), 3*time.Second
			o.Services = append(o.Services, hcloud.LoadBalancerCreateOptsService{
				Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &listen, DestinationPort: &to,
				HealthCheck: &hcloud.LoadBalancerCreateOptsServiceHealthCheck{Protocol: hcloud.LoadBalancerServiceProtocolTCP, Port: &to,
					Interval: &interval},
			})
		}
	})
	svc.Finalizers = append(svc.Finalizers, servicehelpers.LoadBalancerCleanupFinalizer)
	svc, err := p.env.Kube.CoreV1().Services(svc.Namespace).Update(ctx, svc, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: lb.PublicNet.IPv4.IP.String()}, {IP: lb.PublicNet.IPv6.IP.String()}}
	_, err = p.env.Kube.CoreV1().Services(svc.Namespace).UpdateStatus(ctx, svc, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
	return lb
}

var _ = Describe("Moving over from the production CCM and back", framework.Needs(framework.TakeOver),
	Label("service", "dataplane", framework.OwnCloud), func() {
		It("keeps load balancers, addresses, targets and nodes, and loses no request", func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true})
			old := production{env}
			settings := framework.CCMOptions{Env: map[string]string{"HCLOUD_INSTANCES_PROVIDER_ID_PREFIX": "hcloud",
				"HCLOUD_INSTANCES_TOPOLOGY_LABELS": "hcloud"}}
			servers := env.Servers.CreateAll(ctx, "node-1", "node-2")
			old.initialize(ctx, servers...)
			env.Services.Create(ctx, "web")
			Expect(old.reconcile(ctx, "web")).To(HaveLen(3), "one load balancer, two targets")
			address := env.Traffic.AwaitServed(ctx, "web")
			lb := env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2"))
			begin, since := time.Now(), env.Cloud.Journal.Last()
			load := env.Traffic.Load(ctx, address, framework.Port)
			load.AwaitAnswers(ctx, begin, 10)

			By("moving over")
			env.CCM.Start(ctx, settings)
			env.LoadBalancers.Await(ctx, "web", func(g Gomega, now *hcloud.LoadBalancer) {
				g.Expect(now.ID).To(Equal(lb.ID))
				g.Expect(now.Labels).To(And(HaveKey(framework.Current().CCM.OwnerLabel), HaveKey(productionLabel)))
			})
			env.CCM.AwaitIdle(ctx)
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2"))
			node := env.Nodes.AwaitInitialized(ctx, "node-1")
			Expect(node.Spec.ProviderID).To(Equal(fmt.Sprintf("%s%d", productionPrefix, servers[0].ID)))
			Expect(node.Labels).To(HaveKeyWithValue(corev1.LabelTopologyZone, hetzner.Location+"-dc14"))

			By("adding a node and a port")
			env.Nodes.Create(ctx, "node-3")
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2", "node-3"))
			env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Ports = append(s.Spec.Ports, framework.ServicePort(8081)) })
			env.Traffic.AwaitAnswer(ctx, "web", address, 8081)
			env.CCM.AwaitIdle(ctx)

			By("going back")
			Expect(env.CCM.Stop(ctx)).To(Succeed())
			Expect(old.reconcile(ctx, "web")).To(BeEmpty(), "what the production CCM has to change")
			fourth := env.Servers.Create(ctx, "node-4")
			old.initialize(ctx, fourth)
			Expect(old.reconcile(ctx, "web")).To(HaveExactElements(fmt.Sprint("add_target ", fourth.ID)))
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2", "node-3", "node-4"))

			By("moving over again")
			env.CCM.Start(ctx, settings)
			env.Services.AwaitEvents(ctx, "web", "EnsuredLoadBalancer", 3)
			env.CCM.AwaitIdle(ctx)
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2", "node-3", "node-4"))
			load.AwaitAnswers(ctx, time.Now(), 10)

			Expect(load.Since(ctx, begin, "while the cluster moved there, back and there again").Lost).To(BeEmpty())
			Expect(env.Traffic.AwaitServed(ctx, "web")).To(Equal(address))
			Expect(env.LoadBalancers.List(ctx)).To(HaveExactElements(HaveField("ID", lb.ID)))
			for _, e := range env.Cloud.Journal.Entries(journal.Filter{Client: framework.Current().CCM.UserAgent, Writes: true,
				Since: since, Route: "/load_balancers*"}) {
				Expect(e.Method).NotTo(Equal(http.MethodDelete), e.Path)
				Expect(e.Route).To(BeElementOf("/load_balancers/{id}", "/load_balancers/{id}/actions/add_target",
					"/load_balancers/{id}/actions/add_service",
					"/load_balancers/{id}/actions/update_service"), "nothing is created, removed, attached or detached")
			}

			By("deleting the Service")
			env.Services.Delete(ctx, "web")
			env.Services.AwaitGone(ctx, "web")
			Expect(env.LoadBalancers.List(ctx)).To(BeEmpty())
		})
	})
