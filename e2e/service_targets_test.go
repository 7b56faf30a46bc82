package e2e

import (
	"context"
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// labelNode sets a label of a node, or removes it if the value is nil.
func labelNode(ctx context.Context, env *framework.Env, name, key string, value *string) {
	GinkgoHelper()
	text := "null"
	if value != nil {
		text = fmt.Sprintf("%q", *value)
	}
	_, err := env.Kube.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, key, text), metav1.PatchOptions{})
	Expect(err).NotTo(HaveOccurred())
}

var _ = Describe("Targets of a Service", Label("service", "dataplane"), func() {
	var env *framework.Env

	BeforeEach(func(ctx SpecContext) {
		env = framework.NewEnv(ctx, suite, framework.Options{})
	})

	It("are all nodes, which share the traffic evenly", func(ctx SpecContext) {
		env.CreateNodes(ctx, "node-1", "node-2", "node-3")
		env.CreateService(ctx, "web")
		address := env.AwaitServed(ctx, "web")
		env.AwaitTargets(ctx, "web", framework.Healthy("node-1", "node-2", "node-3"))
		Expect(env.AnsweringNodes(ctx, address, framework.Port, 30)).To(Equal(map[string]int{"node-1": 10, "node-2": 10, "node-3": 10}))
	})

	It("follow nodes that come and go, without a request that fails", func(ctx SpecContext) {
		env.CreateNodes(ctx, "node-1")
		env.CreateService(ctx, "web")
		address := env.AwaitServed(ctx, "web")
		stream := env.Stream(ctx, address, framework.Port)

		env.CreateNodes(ctx, "node-2")
		env.AwaitTargets(ctx, "web", framework.Healthy("node-1", "node-2"))
		env.AwaitAnsweringNodes(ctx, address, framework.Port, "node-1", "node-2")

		// Deleted as kubectl does it: the server lives on.
		before := env.ServiceWrites()
		Expect(env.Kube.CoreV1().Nodes().Delete(ctx, "node-2", metav1.DeleteOptions{})).To(Succeed())
		env.AwaitTargets(ctx, "web", framework.Healthy("node-1"))
		env.AwaitAnsweringNodes(ctx, address, framework.Port, "node-1")
		stream.ExpectUndisturbed()
		Expect(env.ServiceWrites()-before).To(Equal(1), "one request removes one target")
	})

	It("lose a node whose server is deleted", func(ctx SpecContext) {
		servers := env.CreateNodes(ctx, "node-1", "node-2")
		env.CreateService(ctx, "web")
		address := env.AwaitServed(ctx, "web")
		env.AwaitTargets(ctx, "web", framework.Healthy("node-1", "node-2"))
		env.DeleteServer(ctx, servers[0])
		env.AwaitTargets(ctx, "web", framework.Healthy("node-2"))
		env.AwaitAnsweringNodes(ctx, address, framework.Port, "node-2")
		// The cloud removes the target of a server that is gone by itself.
		env.ExpectNoServiceWrites(ctx)
		Expect(env.Cloud.Journal().Count(fakecloud.JournalFilter{Client: framework.CCMClient, Route: "/load_balancers*", Errors: true})).To(BeZero())
	})

	It("do not include a node that is labelled for exclusion", func(ctx SpecContext) {
		env.CreateNodes(ctx, "node-1", "node-2")
		env.CreateService(ctx, "web")
		address := env.AwaitServed(ctx, "web")
		env.AwaitTargets(ctx, "web", framework.Healthy("node-1", "node-2"))

		yes := "true"
		labelNode(ctx, env, "node-1", corev1.LabelNodeExcludeBalancers, &yes)
		env.AwaitTargets(ctx, "web", framework.Healthy("node-2"))
		env.AwaitAnsweringNodes(ctx, address, framework.Port, "node-2")

		labelNode(ctx, env, "node-1", corev1.LabelNodeExcludeBalancers, nil)
		env.AwaitTargets(ctx, "web", framework.Healthy("node-1", "node-2"))
		env.AwaitAnsweringNodes(ctx, address, framework.Port, "node-1", "node-2")
	})

	It("are chosen by the node selector, also when a node's labels change", func(ctx SpecContext) {
		env.CreateNodes(ctx, "node-1", "node-2")
		edge, db := "edge", "db"
		labelNode(ctx, env, "node-1", "pool", &edge)
		labelNode(ctx, env, "node-2", "pool", &db)
		env.CreateService(ctx, "web", func(s *corev1.Service) {
			s.Annotations[framework.Annotation+"node-selector"] = "pool in (edge,dmz)"
		})
		address := env.AwaitServed(ctx, "web")
		env.AwaitTargets(ctx, "web", framework.Healthy("node-1"))
		env.AwaitAnsweringNodes(ctx, address, framework.Port, "node-1")

		labelNode(ctx, env, "node-2", "pool", &edge)
		labelNode(ctx, env, "node-1", "pool", nil)
		env.AwaitTargets(ctx, "web", framework.Healthy("node-2"))

		env.UpdateService(ctx, "web", func(s *corev1.Service) { delete(s.Annotations, framework.Annotation+"node-selector") })
		env.AwaitTargets(ctx, "web", framework.Healthy("node-1", "node-2"))
		env.AwaitAnsweringNodes(ctx, address, framework.Port, "node-1", "node-2")
	})

	It("get traffic with externalTrafficPolicy Local only where there is an endpoint", func(ctx SpecContext) {
		env.CreateNodes(ctx, "node-1", "node-2")
		web := types.NamespacedName{Namespace: env.Namespace, Name: "web"}
		env.Fleet.SetLocalEndpoints(web, map[string]int{"node-1": 2})
		service := env.CreateService(ctx, "web", func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		})
		address := env.AwaitServed(ctx, "web")
		lb := env.AwaitTargets(ctx, "web", map[string]string{"node-1": "healthy", "node-2": "unhealthy"})
		Expect(framework.ServiceOn(lb, framework.Port).HealthCheck).To(And(
			HaveField("Port", BeEquivalentTo(service.Spec.HealthCheckNodePort)), HaveField("HTTP.Path", "/healthz")))
		Expect(env.AnsweringNodes(ctx, address, framework.Port, 6)).To(Equal(map[string]int{"node-1": 6}))

		By("moving the endpoint")
		writes := env.ServiceWrites()
		env.Fleet.SetLocalEndpoints(web, map[string]int{"node-2": 1})
		env.AwaitTargets(ctx, "web", map[string]string{"node-1": "unhealthy", "node-2": "healthy"})
		Expect(env.AnsweringNodes(ctx, address, framework.Port, 6)).To(Equal(map[string]int{"node-2": 6}))
		Expect(env.ServiceWrites()).To(Equal(writes), "endpoints are the health check's business")

		By("going over to the policy Cluster")
		env.UpdateService(ctx, "web", func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
		})
		lb = env.AwaitTargets(ctx, "web", framework.Healthy("node-1", "node-2"))
		check := framework.ServiceOn(lb, framework.Port).HealthCheck
		Expect(check.Protocol).To(BeEquivalentTo("tcp"))
		Expect(check.Port).To(BeEquivalentTo(service.Spec.Ports[0].NodePort))
		env.AwaitAnsweringNodes(ctx, address, framework.Port, "node-1", "node-2")
	})

	It("are checked as the annotations say, and get traffic only while they pass", func(ctx SpecContext) {
		env.CreateNodes(ctx, "node-1", "node-2")
		env.CreateService(ctx, "web", func(s *corev1.Service) {
			s.Annotations[framework.Annotation+"health-check-protocol"] = "http"
			s.Annotations[framework.Annotation+"health-check-http-path"] = "/ready"
			s.Annotations[framework.Annotation+"http-status-codes"] = "200,204"
		})
		address := env.AwaitServed(ctx, "web")
		env.AwaitTargets(ctx, "web", framework.Healthy("node-1", "node-2"))
		web := types.NamespacedName{Namespace: env.Namespace, Name: "web"}
		sick := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
		env.Fleet.Node("node-1").SetHandler(web, sick)
		env.AwaitTargets(ctx, "web", map[string]string{"node-1": "unhealthy", "node-2": "healthy"})
		Expect(env.AnsweringNodes(ctx, address, framework.Port, 6)).To(Equal(map[string]int{"node-2": 6}))

		By("accepting what the node answers")
		env.UpdateService(ctx, "web", func(s *corev1.Service) { s.Annotations[framework.Annotation+"http-status-codes"] = "2??" })
		env.AwaitTargets(ctx, "web", framework.Healthy("node-1", "node-2"))
	})
})
