package specs

import (
	"net/http"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
)

var _ = Describe("The load balancer of a Service", Label("service", "dataplane"), func() {
	var env *hetzner.Env

	BeforeEach(func(ctx SpecContext) { env = hetzner.NewEnv(ctx, hetzner.Options{}) })

	It("has the nodes as targets that the node selector chooses, and no others", framework.Needs(framework.NodeSelector),
		func(ctx SpecContext) {
			names := env.Nodes.Workers(ctx, 2).Names()
			pool, edge := env.Unique("pool"), "edge" // specs share the Nodes
			env.Nodes.SetLabel(ctx, names[0], pool, &edge)
			env.Services.Create(ctx, "web", annotate(map[string]string{"node-selector": pool + "=edge"}))
			env.Traffic.AwaitServed(ctx, "web")
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names[0]))
		})

	It("follows the labels of nodes, and a node selector that goes",
		framework.Needs(framework.NodeSelector, framework.NodeLabelUpdates, framework.SettingUpdates), func(ctx SpecContext) {
			names := env.Nodes.Workers(ctx, 2).Names()
			pool, edge, db := env.Unique("pool"), "edge", "db" // specs share the Nodes
			env.Nodes.SetLabel(ctx, names[0], pool, &edge)
			env.Nodes.SetLabel(ctx, names[1], pool, &db)
			env.Services.Create(ctx, "web", func(s *corev1.Service) {
				s.Annotations[hetzner.Annotation+"node-selector"] = pool + " in (edge,dmz)"
			})
			env.Traffic.AwaitServed(ctx, "web")
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names[0]))

			env.Nodes.SetLabel(ctx, names[1], pool, &edge)
			env.Nodes.SetLabel(ctx, names[0], pool, nil)
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names[1]))
			env.Traffic.AwaitServed(ctx, "web")

			env.Services.Update(ctx, "web", func(s *corev1.Service) { delete(s.Annotations, hetzner.Annotation+"node-selector") })
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names...))
		})

	It("keeps a target that serves when the node selector chooses no node by a mistake, and an event says so",
		framework.Needs(framework.NodeSelector, framework.SettingUpdates, framework.SmoothTargets, framework.SettingEvents),
		Label(framework.OwnCloud), func(ctx SpecContext) { // on kind, one request was lost once; 13 runs since have lost none
			names := env.Nodes.Workers(ctx, 2).Names()
			env.Services.Create(ctx, "web")
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names...))
			load := env.Traffic.Load(ctx, env.Traffic.AwaitServed(ctx, "web"), framework.Port)
			env.CCM.AwaitIdle(ctx) // its newest list shows that they are healthy, too
			env.Services.Update(ctx, "web", annotate(map[string]string{"node-selector": env.Unique("pool") + "=typo"}))
			env.Services.AwaitEvent(ctx, "web", "NodesSkipped", ContainSubstring("node-selector"))
			load.AwaitAnswers(ctx, time.Now(), 10)
			load.ExpectUndisturbed(ctx)
			env.Services.Update(ctx, "web", func(s *corev1.Service) { delete(s.Annotations, hetzner.Annotation+"node-selector") })
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names...))
		})

	It("loses no request when the node selector chooses a node that does not serve yet",
		framework.Needs(framework.NodeSelector, framework.SettingUpdates, framework.LocalPolicy, framework.SmoothTargets),
		Label(framework.OwnCloud),
		func(ctx SpecContext) {
			names := env.Nodes.Workers(ctx, 2).Names()
			for i, pool := range []string{"old", "new"} {
				env.Nodes.SetLabel(ctx, names[i], "pool", &pool)
			}
			selector := func(pool string) func(s *corev1.Service) {
				return func(s *corev1.Service) { s.Annotations[hetzner.Annotation+"node-selector"] = "pool=" + pool }
			}
			env.Services.Create(ctx, "web", local, selector("old"))
			env.Pods.SetEndpoints(ctx, "web", names[0])
			address := env.Traffic.AwaitServed(ctx, "web")
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names[0]))

			begin := time.Now()
			load := env.Traffic.Load(ctx, address, framework.Port)
			load.AwaitAnswers(ctx, begin, 10)
			env.Services.Update(ctx, "web", selector("new"))
			env.LoadBalancers.AwaitTargets(ctx, "web", map[string]string{names[0]: "healthy", names[1]: "unhealthy"})
			env.Pods.SetEndpoints(ctx, "web", names...)
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names[1]))
			load.AwaitAnswers(ctx, time.Now(), 10)
			Expect(load.Since(ctx, begin, "during the change").Lost).To(BeEmpty())
		})

	It("sends traffic only to nodes with an endpoint with externalTrafficPolicy Local", framework.Needs(framework.LocalPolicy),
		func(ctx SpecContext) {
			names := env.Nodes.Workers(ctx, 2).Names()
			first, second := names[0], names[1]
			service := env.Services.Create(ctx, "web", local)
			env.Pods.SetEndpoints(ctx, "web", first)
			address := env.Traffic.AwaitServed(ctx, "web")
			lb := env.LoadBalancers.AwaitTargets(ctx, "web", map[string]string{first: "healthy", second: "unhealthy"})
			Expect(hetzner.ServiceOn(lb, framework.Port).HealthCheck).To(And(
				HaveField("Port", BeEquivalentTo(service.Spec.HealthCheckNodePort)), HaveField("HTTP.Path", "/healthz")))
			Expect(env.Traffic.AnsweringNodes(ctx, address, framework.Port, 6)).To(Equal(map[string]int{first: 6}))

			By("moving the endpoint")
			before := hetzner.Settings(lb)
			env.Pods.SetEndpoints(ctx, "web", second)
			env.LoadBalancers.AwaitTargets(ctx, "web", map[string]string{first: "unhealthy", second: "healthy"})
			Expect(env.Traffic.AnsweringNodes(ctx, address, framework.Port, 6)).To(Equal(map[string]int{second: 6}))
			Expect(hetzner.Settings(env.LoadBalancers.Of(ctx, "web"))).To(Equal(before), "endpoints must not change the load balancer")

			By("changing to the policy Cluster")
			env.Services.Update(ctx, "web", func(s *corev1.Service) {
				s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
			})
			lb = env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy(names...))
			check := hetzner.ServiceOn(lb, framework.Port).HealthCheck
			Expect(check.Protocol).To(BeEquivalentTo("tcp"))
			Expect(check.Port).To(BeEquivalentTo(service.Spec.Ports[0].NodePort))
			env.Traffic.AwaitServed(ctx, "web")
		})

	It("checks targets as the annotations say, and sends traffic only to those that pass", framework.Needs(framework.HealthChecks),
		Label(framework.OwnCloud), func(ctx SpecContext) {
			env.Nodes.Create(ctx, "node-1", "node-2")
			env.Services.Create(ctx, "web", func(s *corev1.Service) {
				s.Annotations[hetzner.Annotation+"health-check-protocol"] = "http"
				s.Annotations[hetzner.Annotation+"health-check-http-path"] = "/ready"
				s.Annotations[hetzner.Annotation+"http-status-codes"] = "200,204"
			})
			address := env.Traffic.AwaitServed(ctx, "web")
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2"))
			web := types.NamespacedName{Namespace: env.Services.Namespace, Name: "web"}
			sick := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
			env.Nodes.Simulated("node-1").SetHandler(web, sick)
			env.LoadBalancers.AwaitTargets(ctx, "web", map[string]string{"node-1": "unhealthy", "node-2": "healthy"})
			Expect(env.Traffic.AnsweringNodes(ctx, address, framework.Port, 6)).To(Equal(map[string]int{"node-2": 6}))

			By("accepting the node's answer")
			env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Annotations[hetzner.Annotation+"http-status-codes"] = "2??" })
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2"))
		})
})

var _ = DescribeTable("The load balancer of a Service serves, and lets an excluded node go, although another one",
	Label("service", "dataplane", framework.OwnCloud), framework.Needs(framework.SmoothTargets),
	func(ctx SpecContext, location, serverType string) {
		// The other server is outside of the network. With routes, the CCM would wait for its route before it makes it a target.
		env := hetzner.NewEnv(ctx, hetzner.Options{CCM: map[string]string{"HCLOUD_NETWORK_ROUTES_ENABLED": "false"}})
		names := env.Nodes.Workers(ctx, 2).Names()
		other := env.Servers.Create(ctx, "other", func(o *hcloud.ServerCreateOpts) {
			o.Location, o.ServerType, o.Networks = &hcloud.Location{Name: location}, &hcloud.ServerType{Name: serverType}, nil
		})
		env.Nodes.AwaitInitialized(ctx, "other")
		health := hetzner.Healthy(names...)
		if location == "fsn1" {
			env.Servers.PowerOff(ctx, other)
			health["other"] = "unhealthy"
		}
		env.Services.Create(ctx, "web")
		env.LoadBalancers.AwaitTargets(ctx, "web", health)
		load := env.Traffic.Load(ctx, env.Traffic.AwaitServed(ctx, "web"), framework.Port)
		env.Nodes.SetLabel(ctx, names[0], corev1.LabelNodeExcludeBalancers, new(""))
		delete(health, names[0])
		env.LoadBalancers.AwaitTargets(ctx, "web", health)
		load.AwaitAnswers(ctx, time.Now(), 10)
		load.ExpectUndisturbed(ctx)
	},
	Entry("is refused as a target: it is in another network zone", "ash", "cpx11"),
	Entry("is sick", "fsn1", "cx23"),
)
