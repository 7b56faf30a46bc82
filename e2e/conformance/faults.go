package conformance

import (
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
)

// outageLength is longer than the first two waits of the service controller together (5 and 10 s), so that it tries three times.
const outageLength = 17 * time.Second

var _ = Describe("A load balancer in a failing cloud", framework.Needs(framework.FaultTolerance), framework.Long,
	Label(Conformance, framework.OwnCloud, framework.FakeOnly, "fault", "service", framework.Dataplane), func() {
		DescribeTable("is created, changed and deleted, and no other one is left, although for the first two calls",
			func(ctx SpecContext, effect cloud.Effect) {
				env := framework.NewEnv(ctx, framework.Options{})
				env.Nodes.Create(ctx, "node-1", "node-2")
				// The deleted Service must not have failed before: the service controller's waits double with each failure.
				env.Services.Create(ctx, "goes")
				env.Traffic.AwaitServed(ctx, "goes")
				env.CCM.AwaitIdle(ctx)
				failing := func(calls cloud.Calls) *framework.Fault {
					return env.Faults.Add(ctx, cloud.Fault{Calls: calls, About: cloud.AboutLoadBalancers, First: 2, Effect: effect})
				}
				calls := cloud.Calls("") // the next two calls, whatever they are
				if effect == cloud.LoseAnswer || effect == cloud.Conflict {
					calls = cloud.Writes
				}

				By("creating")
				fault := failing(calls)
				env.Services.Create(ctx, "web")
				fault.Await(ctx, 1)
				address := env.Traffic.AwaitServed(ctx, "web")
				fault.Remove(ctx)
				env.CCM.AwaitIdle(ctx)
				id := env.LoadBalancers.Of(ctx, "web").ID

				By("changing")
				fault = failing(calls)
				env.Services.Update(ctx, "web", func(svc *corev1.Service) { svc.Spec.Ports[0].Port = 9090 })
				fault.Await(ctx, 1)
				env.Traffic.AwaitAnswer(ctx, "web", address, 9090)
				fault.Remove(ctx)

				By("deleting")
				fault = failing(calls)
				env.Services.Delete(ctx, "goes")
				fault.Await(ctx, 1)
				env.Services.AwaitGone(ctx, "goes")
				fault.Remove(ctx)

				Eventually(func(g Gomega) { // a step that failed is due again after 5, 10, 20 or 40 s
					all := env.LoadBalancers.List(ctx)
					g.Expect(all).To(HaveLen(1), "one load balancer must be left")
					g.Expect(all[0].ID).To(Equal(id), "the load balancer must be the same")
					g.Expect(framework.ListenPorts(all[0])).To(Equal([]int{9090}), "the former port must close")
				}).WithContext(ctx).WithTimeout(2 * framework.Timeout).Should(Succeed())
				env.LoadBalancers.AwaitTargets(ctx, "web", "node-1", "node-2")
			}, entries(ensure, append(slices.Clone(failures), lostAnswer, conflict)...))

		DescribeTable("serves in an incident, keeps each node, and does all the work that waits afterwards, when for all calls",
			Label("node", framework.Incident),
			func(ctx SpecContext, effect cloud.Effect) {
				env := framework.NewEnv(ctx, framework.Options{})
				env.Nodes.Create(ctx, "node-1", "node-2")
				was := env.Nodes.Get(ctx, "node-2").UID
				env.Services.Create(ctx, "stays")
				env.Services.Create(ctx, "goes")
				address := env.Traffic.AwaitServed(ctx, "stays")
				env.Traffic.AwaitServed(ctx, "goes")
				env.CCM.AwaitIdle(ctx)

				outage, begin := env.Faults.Add(ctx, cloud.Fault{Effect: effect}), time.Now()
				load := env.Traffic.Load(ctx, address, framework.Port)
				env.Nodes.Crash(ctx, env.Nodes.Simulated("node-2"))
				env.Services.Delete(ctx, "goes")
				env.Services.Create(ctx, "comes")
				env.Services.Update(ctx, "stays", func(svc *corev1.Service) {
					svc.Spec.Ports = append(svc.Spec.Ports, framework.ServicePort(9090))
				})
				env.Servers.Create(ctx, "node-3")
				outage.Await(ctx, 10)
				Consistently(func(g Gomega) { // long enough that a CCM which gives up is seen
					g.Expect(env.LoadBalancers.List(ctx)).To(HaveLen(2))
					g.Expect(env.Services.Get(ctx, "goes").Finalizers).NotTo(BeEmpty(), "the Service is gone before its load balancer")
				}).WithContext(ctx).WithTimeout(outageLength).Should(Succeed())

				framework.RecordIncident(outage.Met(ctx), time.Since(begin))
				outage.Remove(ctx)
				env.Nodes.Simulated("node-2").PowerOn()
				env.Nodes.AwaitReady(ctx, "node-2", true)
				Expect(env.Nodes.Get(ctx, "node-2").UID).To(Equal(was), "the node was deleted, whose server is there")
				env.Nodes.AwaitInitialized(ctx, "node-3")
				env.Traffic.AwaitAnswer(ctx, "stays", address, 9090)
				env.Traffic.AwaitServed(ctx, "comes")
				env.Services.AwaitGone(ctx, "goes")
				for _, service := range []string{"stays", "comes"} {
					env.LoadBalancers.AwaitTargets(ctx, service, "node-1", "node-2", "node-3")
				}
				awaitLoadBalancers(ctx, env, 2)
				load.ExpectUndisturbed(ctx)
			}, entries(restart, incidents...))
	})
