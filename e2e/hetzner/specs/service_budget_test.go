package specs

import (
	"fmt"
	"maps"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/speclist"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// All clients of a project share 3600 calls an hour: these specs limit how many of them a Service costs.
var _ = Describe("The budget of API calls for a Service", framework.Needs(framework.CallBudgets), Label("service", framework.OwnCloud),
	func() {
		// everything is a Service with as many settings as go together.
		everything := map[string]string{
			"name": "front", "type": "lb21", "algorithm-type": "least_connections", "ipv4-rdns": "front.example.com",
			"ipv6-rdns": "front.example.com", "use-private-ip": "true", "private-ipv4": "10.0.0.99", "protocol": "http",
			"uses-proxyprotocol": "true", "http-sticky-sessions": "true", "http-cookie-name": "SHOP", "http-cookie-lifetime": "10m",
			"http-timeout-idle": "1m", "health-check-protocol": "http", "health-check-http-domain": "example.com",
			"health-check-http-path": "/ready", "http-status-codes": "3??,200", "health-check-interval": "5s", "health-check-timeout": "3s",
		}

		DescribeTable("has no writes while nothing changes",
			func(ctx SpecContext, settings map[string]string) {
				env := hetzner.NewEnv(ctx, hetzner.Options{})
				env.Nodes.Create(ctx, "node-1", "node-2")
				env.Services.Create(ctx, "web", annotate(settings))
				env.Services.AwaitEvents(ctx, "web", "EnsuredLoadBalancer", 1)
				// A node that gets its route later becomes a target later.
				env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) { g.Expect(lb.Targets).To(HaveLen(2)) })
				env.CCM.AwaitIdle(ctx)
				writes := env.CCM.ServiceWrites()

				By("changing the Service's metadata")
				env.Services.Update(ctx, "web", func(s *corev1.Service) {
					s.Annotations["example.com/note"] = "changed" // the service controller syncs for this
					s.Labels = map[string]string{"team": "edge"}
				})
				env.Services.AwaitEvents(ctx, "web", "EnsuredLoadBalancer", 2)
				Expect(env.CCM.ServiceWrites()).To(Equal(writes))

				By("starting the CCM anew")
				Expect(env.CCM.Stop(ctx)).To(Succeed())
				env.CCM.Start(ctx, framework.CCMOptions{})
				env.Services.AwaitEvents(ctx, "web", "EnsuredLoadBalancer", 3)
				env.CCM.ExpectNoServiceWrites(ctx)
				Expect(env.CCM.ServiceWrites()).To(Equal(writes))
			},
			Entry("with defaults", nil),
			Entry("with all settings", everything),
		)

		It("bounds the calls for creating, syncing, changing and deleting", func(ctx SpecContext) {
			// The comparison every few seconds is off: it has a budget below.
			env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true, CCM: map[string]string{"HCLOUD_RESYNC_INTERVAL": "0s"}})
			env.CCM.Start(ctx, framework.CCMOptions{Args: []string{"--configure-cloud-routes=false", "--allocate-node-cidrs=false"}})
			env.Nodes.Create(ctx, "node-1", "node-2", "node-3")
			since := env.Cloud.Journal.Last()
			// calls returns the number of the CCM's calls since the last call of it. It ignores reads of servers: nodes cause them all the
			// time, and Services share them.
			calls := func() (n int) {
				for _, e := range env.Cloud.Journal.Entries(journal.Filter{Client: framework.Current().CCM.UserAgent, Since: since}) {
					if e.Route != "/servers" {
						n++
					}
				}
				since = env.Cloud.Journal.Last()
				return n
			}

			By("creating")
			env.Services.Create(ctx, "web", func(s *corev1.Service) {
				s.Spec.Ports = append(s.Spec.Ports, framework.ServicePort(8081), framework.ServicePort(8082))
			})
			env.Services.AwaitEvents(ctx, "web", "EnsuredLoadBalancer", 1)
			// Find, find as a guest, create with all targets and ports at once, action, load balancer.
			Expect(framework.RecordFigure(speclist.RequestsNewService, "requests", calls())).To(BeNumerically("<=", 5))

			By("syncing without a change")
			env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Annotations["example.com/note"] = "changed" })
			env.Services.AwaitEvents(ctx, "web", "EnsuredLoadBalancer", 2)
			Expect(framework.RecordFigure(speclist.RequestsSyncService, "requests", calls())).To(Equal(1),
				"one call to find the load balancer as it is")

			By("changing the number of a node port")
			env.Services.Update(ctx, "web", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = framework.Current().FreeNodePort() })
			env.Services.AwaitEvents(ctx, "web", "EnsuredLoadBalancer", 3)
			Expect(calls()).To(BeNumerically("<=", 3), "find, update_service, action")

			By("deleting")
			env.Services.Delete(ctx, "web")
			env.Services.AwaitGone(ctx, "web")
			// The service controller asks whether there is something before it has it deleted: twice find, delete, action, certificates.
			Expect(framework.RecordFigure(speclist.RequestsDropService, "requests", calls())).To(BeNumerically("<=", 5))
		})

		It("leaves nine tenths of a project's requests to others for an hour in which nothing changes",
			Label(framework.Hour), PollProgressAfter(0), func(ctx SpecContext) {
				const most = 3600 / 10
				// With the periods of Kubernetes and of our CCM: those of the suite are short.
				env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true, CCM: map[string]string{"HCLOUD_INSTANCES_CACHE_TTL": "",
					"HCLOUD_RESYNC_INTERVAL": "", "HCLOUD_REQUEST_TIMEOUT": ""}})
				env.CCM.Start(ctx, framework.CCMOptions{Args: []string{"--node-monitor-period=5s", "--node-status-update-frequency=5m",
					"--min-resync-period=12h"}})
				env.Nodes.Create(ctx, "node-1", "node-2", "node-3")
				env.Services.Create(ctx, "web")
				env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2", "node-3"))
				env.CCM.AwaitIdle(ctx)
				before := env.CCM.Requests()
				Consistently(func() int { return env.CCM.Requests() - before }).WithContext(ctx).WithTimeout(time.Hour).
					WithPolling(10 * time.Second).Should(BeNumerically("<=", most))
				framework.RecordFigure(speclist.RequestsAtRest, "requests", env.CCM.Requests()-before)
			})

		DescribeTable("has as many writes as there are changes",
			func(ctx SpecContext, writes int, change func(*corev1.Service)) {
				env := hetzner.NewEnv(ctx, hetzner.Options{})
				env.Services.Create(ctx, "web", func(s *corev1.Service) {
					s.Spec.Ports = append(s.Spec.Ports, framework.ServicePort(8081))
				})
				env.Services.AwaitEvents(ctx, "web", "EnsuredLoadBalancer", 1)
				before := env.CCM.ServiceWrites()
				env.Services.Update(ctx, "web", change)
				env.CCM.AwaitServiceWrites(ctx, before+writes)
				env.CCM.ExpectNoServiceWrites(ctx)
			},
			Entry("of a new port, which a label records before", 2,
				func(s *corev1.Service) { s.Spec.Ports = append(s.Spec.Ports, framework.ServicePort(8082)) }),
			Entry("of a removed port, which the label forgets afterwards", 2, func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[:1] }),
			Entry("of four settings", 4, annotate(map[string]string{
				"type": "lb21", "algorithm-type": "least_connections", "name": "front", "ipv4-rdns": "front.example.com",
			})),
		)

		It("has one write for a deleted node, and changes nothing for a deleted server", func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{})
			servers := env.Nodes.Create(ctx, "node-1", "node-2", "node-3")
			env.Services.Create(ctx, "web")
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2", "node-3"))
			before := env.CCM.ServiceWrites()
			env.Nodes.Delete(ctx, "node-3")
			env.CCM.AwaitServiceWrites(ctx, before+1)
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-1", "node-2"))

			// The cloud itself removes the target of a server that is gone.
			env.Servers.Delete(ctx, servers[0])
			env.LoadBalancers.AwaitTargets(ctx, "web", hetzner.Healthy("node-2"))
			env.Nodes.AwaitGone(ctx, "node-1")
			env.CCM.ExpectNoServiceWrites(ctx)
			// A comparison before the CCM knows that the server is gone may try to restore the target; the cloud refuses that.
			refused := env.Cloud.Journal.Count(journal.Filter{Client: framework.Current().CCM.UserAgent, Route: "/load_balancers*",
				Writes: true, Errors: true})
			Expect(env.CCM.ServiceWrites() - refused).To(Equal(before + 1))
		})

		It("has one lookup for all Services when they are compared with the cloud", framework.Needs(framework.Repair),
			func(ctx SpecContext) {
				env := hetzner.NewEnv(ctx, hetzner.Options{})
				const services = 6
				for i := range services {
					env.Services.Create(ctx, fmt.Sprintf("web-%d", i))
				}
				for i := range services {
					env.Services.AwaitIngress(ctx, fmt.Sprintf("web-%d", i))
				}
				env.CCM.AwaitIdle(ctx)
				since := env.Cloud.Journal.Last()
				env.CCM.AwaitRequests(ctx, 3, journal.Filter{Operation: "get_network"})
				lookups := map[string]int{}
				for _, e := range env.Cloud.Journal.Entries(journal.Filter{Client: framework.Current().CCM.UserAgent, Since: since}) {
					lookups[e.Operation]++
				}
				Expect(lookups["get_network"]).To(BeNumerically(">=", 3), "%v", lookups)
				Expect(lookups["list_load_balancers"]).To(BeNumerically("<=", lookups["get_network"]+1),
					"comparisons, of which each reads the network once, asked for load balancers too often")
				maps.DeleteFunc(lookups, func(operation string, _ int) bool {
					return operation == "get_network" || operation == "list_load_balancers" || operation == "list_servers"
				})
				Expect(lookups).To(BeEmpty())
			})
	})
