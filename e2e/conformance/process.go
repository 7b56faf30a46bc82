package conformance

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
)

var _ = Describe("A CCM", Label(Conformance, framework.OwnCloud, "process", "service"), func() {
	It("catches up with what changed while it was down, and traffic went on meanwhile"+restart, Label(framework.Dataplane, "node"),
		func(ctx SpecContext) {
			env := framework.NewEnv(ctx, framework.Options{})
			servers := env.Nodes.Create(ctx, "leaves", "remains")
			env.Services.Create(ctx, "stays")
			env.Services.Create(ctx, "goes")
			env.Services.Create(ctx, "becomes-internal")
			address := env.Traffic.AwaitServed(ctx, "stays")
			env.Traffic.AwaitServed(ctx, "goes")
			env.Traffic.AwaitServed(ctx, "becomes-internal")
			stays := env.LoadBalancers.AwaitTargets(ctx, "stays", "leaves", "remains").ID
			env.CCM.Crash(ctx)

			env.Services.Delete(ctx, "goes")
			env.Services.Update(ctx, "becomes-internal", func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeClusterIP })
			env.Services.Create(ctx, "comes")
			env.Services.Update(ctx, "stays", func(svc *corev1.Service) {
				svc.Spec.Ports = append(svc.Spec.Ports, framework.ServicePort(9090))
			})
			env.Servers.Delete(ctx, servers[0])
			comes := env.Servers.Create(ctx, "comes")
			By("sending requests while no CCM runs")
			for range 20 {
				answer := env.Traffic.AwaitAnswer(ctx, "stays", address, framework.Port)
				Expect(env.Traffic.Mute() || answer.Node == "remains").To(BeTrue(), "answered by %s", answer.Node)
			}

			env.CCM.Start(ctx, framework.CCMOptions{})
			env.Nodes.AwaitInitialized(ctx, "comes")
			env.Traffic.AwaitAnswer(ctx, "stays", address, 9090)
			env.Traffic.AwaitServed(ctx, "comes")
			env.Services.AwaitGone(ctx, "goes")
			env.Nodes.AwaitGone(ctx, "leaves")
			if _, routes := cloud.As[cloud.Router](env.Cloud); routes && framework.Current().CCM.Has(framework.NodeRoutes) {
				env.Routes.AwaitExactly(ctx, servers[1], comes)
			}
			for _, service := range []string{"stays", "comes"} {
				env.LoadBalancers.AwaitTargets(ctx, service, "remains", "comes")
			}
			env.CCM.AwaitIdle(ctx)
			lb := env.LoadBalancers.Await(ctx, "stays", func(g Gomega, lb cloud.LoadBalancer) {
				g.Expect(framework.ListenPorts(lb)).To(Equal([]int{framework.Port, 9090}))
				g.Expect(env.LoadBalancers.List(ctx)).To(HaveLen(2))
				internal := env.Services.Get(ctx, "becomes-internal")
				g.Expect(internal.Finalizers).To(BeEmpty())
				g.Expect(internal.Status.LoadBalancer.Ingress).To(BeEmpty())
			})
			Expect(lb.ID).To(Equal(stays))
		})

	It("writes nothing when it starts anew and nothing has changed"+restart, framework.Needs(framework.CallBudgets), Label("node"),
		func(ctx SpecContext) {
			env := framework.NewEnv(ctx, framework.Options{})
			env.Nodes.Create(ctx, "node-1", "node-2")
			env.Services.Create(ctx, "web")
			env.Traffic.AwaitServed(ctx, "web")
			env.CCM.AwaitIdle(ctx)
			env.CCM.Crash(ctx)
			writes := env.CCM.Writes()
			env.CCM.Start(ctx, framework.CCMOptions{})
			env.Services.AwaitEvents(ctx, "web", "EnsuredLoadBalancer", 2)
			env.CCM.AwaitIdle(ctx)
			Expect(env.CCM.Writes()).To(Equal(writes))
		})

	It("takes over when the leader is killed"+leader, func(ctx SpecContext) {
		env := framework.NewEnv(ctx, framework.Options{NoCCM: true})
		first := env.CCM.Start(ctx, framework.CCMOptions{LeaderElect: true})
		env.Nodes.Create(ctx, "node-1")
		env.Services.Create(ctx, "web")
		address := env.Traffic.AwaitServed(ctx, "web")
		holder := func() (string, error) {
			lease, err := env.Kube.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "cloud-controller-manager", metav1.GetOptions{})
			if err != nil || lease.Spec.HolderIdentity == nil {
				return "", err
			}
			return *lease.Spec.HolderIdentity, nil
		}
		before, err := holder()
		Expect(err).NotTo(HaveOccurred())
		env.CCM.Start(ctx, framework.CCMOptions{LeaderElect: true})
		first.Crash(ctx)
		env.Services.Update(ctx, "web", func(svc *corev1.Service) { svc.Spec.Ports[0].Port = 9090 })
		env.Traffic.AwaitAnswer(ctx, "web", address, 9090)
		Expect(holder()).NotTo(Equal(before))
		awaitLoadBalancers(ctx, env, 1)
	})
})

// mostWrites is how many writes a CCM may need to create or delete a load balancer, as far as the specs look at them.
const mostWrites = 5

var _ = Describe("A CCM that is killed", framework.Needs(framework.CrashSafety),
	Label(Conformance, framework.OwnCloud, framework.FakeOnly, "process", "service"), func() {
		for n := 1; n <= mostWrites; n++ {
			for _, at := range []struct {
				when   string
				effect cloud.Effect
			}{{"before", cloud.Hang}, {"after", cloud.HangAfter}} {
				It(fmt.Sprintf("%s write %d of a new load balancer leaves what the next CCM completes%s", at.when, n, ensure),
					func(ctx SpecContext) {
						env := readyForCrash(ctx)
						killAt(ctx, env, n, at.effect, func() { env.Services.Create(ctx, "web") }, func() bool {
							return len(env.Services.Get(ctx, "web").Status.LoadBalancer.Ingress) > 0
						})
						env.Traffic.AwaitServed(ctx, "web")
						env.LoadBalancers.AwaitTargets(ctx, "web", "node-1", "node-2")
						awaitLoadBalancers(ctx, env, 1)
						env.Services.Delete(ctx, "web")
						env.Services.AwaitGone(ctx, "web")
						awaitLoadBalancers(ctx, env, 0)
					})
			}
		}
		for n := 1; n <= 2; n++ {
			It(fmt.Sprintf("after write %d of the deletion of a load balancer leaves what the next CCM removes%s", n, remove),
				func(ctx SpecContext) {
					env := readyForCrash(ctx)
					env.Services.Create(ctx, "web")
					env.Traffic.AwaitServed(ctx, "web")
					env.CCM.AwaitIdle(ctx)
					killAt(ctx, env, n, cloud.HangAfter, func() { env.Services.Delete(ctx, "web") }, func() bool {
						return env.Services.Gone(ctx, "web")
					})
					env.Services.AwaitGone(ctx, "web")
					awaitLoadBalancers(ctx, env, 0)
				})
		}
	})

// readyForCrash makes two nodes, and returns when the CCM has done its work for them.
func readyForCrash(ctx context.Context) *framework.Env {
	GinkgoHelper()
	env := framework.NewEnv(ctx, framework.Options{})
	env.Nodes.Create(ctx, "node-1", "node-2")
	env.CCM.AwaitIdle(ctx)
	return env
}

// killAt kills the CCM at its n-th write about load balancers after act, and starts another one. If the CCM has finished before, it needs
// fewer writes, and continues.
func killAt(ctx context.Context, env *framework.Env, n int, effect cloud.Effect, act func(), finished func() bool) {
	GinkgoHelper()
	fault := env.Faults.Add(ctx, cloud.Fault{Calls: cloud.Writes, About: cloud.AboutLoadBalancers, Pass: n - 1, First: 1, Effect: effect})
	act()
	met := false
	Eventually(func() bool {
		met = fault.Met(ctx) > 0
		return met || finished()
	}).WithContext(ctx).Should(BeTrue(), "the CCM has neither sent write %d nor finished", n)
	if met {
		env.CCM.Crash(ctx)
		env.CCM.Start(ctx, framework.CCMOptions{})
	} else {
		AddReportEntry(fmt.Sprintf("the CCM needs fewer than %d writes", n), ReportEntryVisibilityFailureOrVerbose)
	}
	fault.Remove(ctx)
}
