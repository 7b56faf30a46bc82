package e2e

import (
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

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// misfortune is one way in which the cloud fails a request.
type misfortune struct {
	name   string
	effect fault.Effect
	// onlyActions says that it concerns what a request has started, so that reading knows nothing of it.
	onlyActions bool
	// hangs says that nothing but the cloud itself can end it.
	hangs bool
	// rateLimit is the limit that the cloud needs for it, in requests per hour.
	rateLimit int
}

// misfortunes are all kinds of faults that fakecloud has. Those of a proxy on the way come without
// the API's JSON.
var misfortunes = func() []misfortune {
	var all []misfortune
	for _, code := range []string{"conflict", "locked", "rate_limit_exceeded", "resource_unavailable", "server_error", "unavailable"} {
		all = append(all, misfortune{name: "the API error " + code, effect: fault.APIError(code)})
	}
	for _, status := range []int{429, 500, 502, 503, 504} {
		all = append(all, misfortune{name: fmt.Sprintf("a bare %d", status), effect: fault.HTTPStatus(status)})
	}
	lateAnswer := fault.Latency(time.Hour)
	lateAnswer.After = true
	return append(all,
		misfortune{name: "a request that takes longer than anyone waits", effect: fault.Latency(time.Hour)},
		misfortune{name: "an answer that takes longer than anyone waits", effect: lateAnswer},
		misfortune{name: "a dropped connection", effect: fault.DropConnection()},
		misfortune{name: "a reset connection", effect: fault.ResetConnection()},
		misfortune{name: "a body that is cut off", effect: fault.CutBody(0)},
		misfortune{name: "a lost answer", effect: fault.LoseAnswer()},
		misfortune{name: "an action that fails", effect: fault.FailAction("", ""), onlyActions: true},
		misfortune{name: "an action that never ends", effect: fault.HangAction(), onlyActions: true, hangs: true},
		misfortune{name: "an exhausted rate limit", effect: fault.ExhaustRateLimit(), rateLimit: 36_000},
	)
}()

// entries makes a table of misfortunes, without those of actions for what starts none.
func entries(actions bool) []TableEntry {
	var all []TableEntry
	for _, m := range misfortunes {
		if actions || !m.onlyActions {
			all = append(all, Entry(m.name, m))
		}
	}
	return all
}

// impatient makes a CCM give up and look again so soon that specs need not wait for it.
var impatient = map[string]string{
	"HCLOUD_REQUEST_TIMEOUT": "1s",
	"HCLOUD_ACTION_TIMEOUT":  "1s",
	"HCLOUD_RESYNC_INTERVAL": "500ms",
}

// stillRunning is in what the CCM says of an action that takes longer than it waits.
const stillRunning = "is still running"

// trouble is a misfortune that befalls the first request that reads and the first ones that write.
type trouble struct {
	env           *framework.Env
	misfortune    misfortune
	reads, writes string
	remove        []func()
	// complaints counts how often the CCM has said that an action is still running; before is that of the
	// beginning: it may have said so in an earlier stage of the spec.
	complaints func() int
	before     int
}

func (m misfortune) befalls(env *framework.Env, complaints func() int, reads, writes fault.Rule, writeTimes int) *trouble {
	t := &trouble{env: env, misfortune: m, complaints: complaints, before: complaints()}
	add := func(f fault.Rule, first int) string {
		f.Effect, f.First = m.effect, first
		name, remove := env.Cloud.Faults.Add(f)
		t.remove = append(t.remove, remove)
		return name
	}
	if !m.onlyActions {
		reads.Method = http.MethodGet
		t.reads = add(reads, 1)
	}
	writes.Writes = true
	t.writes = add(writes, writeTimes)
	return t
}

// pass waits until it has befallen. An action that hangs is resumed once the CCM has complained. That a
// write is to fail twice does not mean that it will: who has lost the answer to one that was carried
// out need not send another.
func (t *trouble) pass(ctx SpecContext) {
	GinkgoHelper()
	if t.reads != "" {
		t.env.Cloud.Faults.Await(ctx, t.reads, 1)
	}
	t.env.Cloud.Faults.Await(ctx, t.writes, 1)
	if t.misfortune.hangs {
		Eventually(t.complaints).WithContext(ctx).
			WithTimeout(framework.Timeout).WithPolling(framework.Polling).Should(BeNumerically(">", t.before))
		t.over()
		Expect(t.env.Cloud.Fake.ResumeActions(ctx)).To(BeNumerically(">", 0))
	}
}

// over makes it stop.
func (t *trouble) over() {
	for _, remove := range t.remove {
		remove()
	}
}

var _ = Describe("Fault", framework.Needs(framework.FaultTolerance, framework.Repair), Label(framework.OwnCloud, "fault", "fake-only"), func() {
	DescribeTable("while a node is initialized: it stays as it is, and is initialized when the cloud has recovered from", Label("node"),
		func(ctx SpecContext, m misfortune) {
			env := framework.NewEnv(ctx, suite, framework.Options{NoCCM: true, CCM: impatient, RateLimit: m.rateLimit})
			server := env.Servers.Create(ctx, "node-1")
			before := env.Nodes.Await(ctx, "node-1", func(Gomega, *corev1.Node) {})
			rule, remove := env.Cloud.Faults.Add(fault.Rule{Resource: "server", Effect: m.effect})
			env.CCM.Start(ctx, framework.CCMOptions{})

			env.Cloud.Faults.Await(ctx, rule, 3)
			during := env.Nodes.Get(ctx, "node-1")
			Expect(during).To(framework.HaveTaint(cloudproviderapi.TaintExternalCloudProvider))
			Expect(during.Spec.ProviderID).To(BeEmpty())

			remove()
			n := env.Nodes.AwaitInitialized(ctx, "node-1")
			Expect(n.UID).To(Equal(before.UID), "the node was deleted and registered anew")
			Expect(n.Spec.ProviderID).To(Equal(env.Servers.ProviderID(server)))
			// The addresses follow in a request of their own.
			env.Nodes.Await(ctx, "node-1", func(g Gomega, n *corev1.Node) {
				g.Expect(framework.AddressesOf(n, corev1.NodeInternalIP)).To(ConsistOf(server.PrivateNet[0].IP.String()))
			})
		}, entries(false))

	DescribeTable("while load balancers are created, updated and deleted: each Service has one, as it says, and a deleted one none, in spite of", Label("service"),
		func(ctx SpecContext, m misfortune) {
			env := framework.NewEnv(ctx, suite, framework.Options{CCM: impatient, RateLimit: m.rateLimit})
			servers := env.Nodes.Create(ctx, "node-1", "node-2")
			// What is deleted never failed before: the service controller's waits double with each failure.
			env.Services.Create(ctx, "goes")
			env.Traffic.AwaitServed(ctx, "goes")
			aboutLoadBalancers := fault.Rule{Resource: "load_balancer"}
			complaints := func(service string) func() int {
				return func() (n int) {
					for _, e := range env.Services.Events(ctx, service) {
						if strings.Contains(e.Message, stillRunning) {
							n += int(max(e.Count, 1))
						}
					}
					return n
				}
			}

			By("creating")
			trouble := m.befalls(env, complaints("web"), aboutLoadBalancers, fault.Rule{Operation: "create_load_balancer"}, 2)
			env.Services.Create(ctx, "web")
			trouble.pass(ctx)
			address := env.Traffic.AwaitServed(ctx, "web")
			trouble.over()
			env.CCM.AwaitIdle(ctx, 1)
			id := env.LoadBalancers.Of(ctx, "web").ID
			Expect(creations(env)).To(Equal(2), "load balancers were created and thrown away")

			By("updating")
			trouble = m.befalls(env, complaints("web"), aboutLoadBalancers, fault.Rule{Route: "/load_balancers/{id}/actions/*"}, 2)
			env.Services.Update(ctx, "web", func(svc *corev1.Service) {
				svc.Spec.Ports[0].Port = 9090
				svc.Annotations[framework.Annotation+"algorithm-type"] = "least_connections"
			})
			trouble.pass(ctx)
			env.Traffic.AwaitAnswer(ctx, "web", address, 9090)
			env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
				g.Expect(lb.ID).To(Equal(id))
				g.Expect(lb.Algorithm.Type).To(Equal(hcloud.LoadBalancerAlgorithmTypeLeastConnections))
			})
			trouble.over()

			By("deleting")
			trouble = m.befalls(env, complaints("goes"), aboutLoadBalancers, fault.Rule{Operation: "delete_load_balancer"}, 1)
			env.Services.Delete(ctx, "goes")
			trouble.pass(ctx)
			env.Services.AwaitGone(ctx, "goes")
			trouble.over()

			env.CCM.AwaitIdle(ctx, 2)
			all := env.LoadBalancers.List(ctx)
			Expect(all).To(HaveLen(1))
			Expect(all[0].ID).To(Equal(id))
			Expect(framework.ListenPorts(all[0])).To(Equal([]int{9090}))
			Expect(framework.TargetIDs(all[0])).To(Equal(framework.IDs(servers...)))
		}, entries(true))

	DescribeTable("while a node's route is created and deleted: the network has the nodes' routes and no others in the end, in spite of", Label("route"),
		func(ctx SpecContext, m misfortune) {
			env := framework.NewEnv(ctx, suite, framework.Options{NoCCM: true, CCM: impatient, RateLimit: m.rateLimit})
			stays, goes := env.Servers.Create(ctx, "stays"), env.Servers.Create(ctx, "goes")
			for _, name := range []string{"stays", "goes"} {
				env.Nodes.Await(ctx, name, func(g Gomega, n *corev1.Node) { g.Expect(n.Spec.PodCIDR).NotTo(BeEmpty()) })
			}
			reads, writes := fault.Rule{Route: "/networks/{id}"}, fault.Rule{Route: "/networks/{id}/actions/*"}
			var ccm *framework.Replica
			complaints := func() int {
				if ccm == nil {
					return 0
				}
				return strings.Count(ccm.Log(), stillRunning)
			}

			By("creating")
			// The route controller acts at once when it starts, and then at most every ten seconds.
			trouble := m.befalls(env, complaints, reads, writes, 2)
			ccm = env.CCM.Start(ctx, framework.CCMOptions{})
			trouble.pass(ctx)
			env.Routes.AwaitExactly(ctx, stays, goes)
			env.CCM.AwaitIdle(ctx, 2)
			trouble.over()

			By("deleting")
			trouble = m.befalls(env, complaints, reads, writes, 2)
			Expect(env.Kube.CoreV1().Nodes().Delete(ctx, "goes", metav1.DeleteOptions{})).To(Succeed())
			trouble.pass(ctx)
			env.Routes.AwaitExactly(ctx, stays)
			env.CCM.AwaitIdle(ctx, 2)
			env.Routes.AwaitExactly(ctx, stays)
		}, entries(true))
})

// creations counts the load balancers that the cloud has made, whether or not the CCM learned of it.
func creations(env *framework.Env) int {
	entries := env.Cloud.Journal.Entries(journal.Filter{Operation: "create_load_balancer"})
	return len(slices.DeleteFunc(entries, func(r journal.Entry) bool {
		return r.Status != http.StatusCreated && r.Handled != http.StatusCreated
	}))
}

var _ = Describe("Fault", framework.Needs(framework.FaultTolerance, framework.Repair), Label(framework.OwnCloud, "fault", "fake-only"), func() {
	It("leaves everything as it is while the whole API is away, and then does all that was asked for meanwhile", Label("node", "service", "route", "dataplane"), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{CCM: impatient})
		servers := env.Nodes.Create(ctx, "node-1", "node-2")
		env.Services.Create(ctx, "stays")
		env.Services.Create(ctx, "goes")
		address := env.Traffic.AwaitServed(ctx, "stays")
		env.Traffic.AwaitServed(ctx, "goes")
		env.Routes.AwaitExactly(ctx, servers...)
		env.CCM.AwaitIdle(ctx, 1)

		outage, remove := env.Cloud.Faults.Add(fault.Rule{Effect: fault.HTTPStatus(http.StatusServiceUnavailable)})
		env.Services.Delete(ctx, "goes")
		env.Services.Create(ctx, "comes")
		env.Services.Update(ctx, "stays", func(svc *corev1.Service) { svc.Spec.Ports[0].Port = 9090 })
		third := env.Servers.Create(ctx, "node-3")
		env.Cloud.Faults.Await(ctx, outage, 20)
		env.Traffic.AwaitAnswer(ctx, "stays", address, framework.Port)
		Expect(env.LoadBalancers.List(ctx)).To(HaveLen(2))
		Expect(env.Services.Get(ctx, "goes").Finalizers).NotTo(BeEmpty(), "the Service is gone before its load balancer")
		Expect(env.Routes.List(ctx)).To(HaveLen(2))

		remove()
		all := append(servers, third)
		env.Nodes.AwaitInitialized(ctx, "node-3")
		env.Traffic.AwaitAnswer(ctx, "stays", address, 9090)
		env.Traffic.AwaitServed(ctx, "comes")
		env.Services.AwaitGone(ctx, "goes")
		env.Routes.AwaitExactly(ctx, all...)
		Eventually(func(g Gomega) {
			lbs := env.LoadBalancers.List(ctx)
			g.Expect(lbs).To(HaveLen(2))
			for _, lb := range lbs {
				g.Expect(framework.TargetIDs(lb)).To(Equal(framework.IDs(all...)))
			}
		}).WithContext(ctx).WithTimeout(framework.Timeout).WithPolling(framework.Polling).Should(Succeed())
	})

	It("is survived by the service controller alone, without the CCM's own comparisons", Label("service"), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{CCM: map[string]string{"HCLOUD_RESYNC_INTERVAL": "0"}})
		servers := env.Nodes.Create(ctx, "node-1")
		rule, _ := env.Cloud.Faults.Add(fault.Rule{Operation: "create_load_balancer", First: 1, Effect: fault.LoseAnswer()})
		env.Services.Create(ctx, "web")
		env.Cloud.Faults.Await(ctx, rule, 1)
		env.Traffic.AwaitServed(ctx, "web")
		Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
		Expect(framework.TargetIDs(env.LoadBalancers.List(ctx)[0])).To(Equal(framework.IDs(servers...)))
	})

	It("of many kinds at random does no harm in the end", Label("node", "service", "route"), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{CCM: impatient})
		var removes []func()
		var rules []string
		for i, m := range misfortunes {
			// An action that hangs would have to be resumed, an exhausted limit concerns the spec, too.
			if m.hangs || m.rateLimit > 0 {
				continue
			}
			// Kinds that make a request wait are rare, so that the spec does not.
			probability := 0.03
			if m.effect.Latency > 0 {
				probability = 0.005
			}
			rule, remove := env.Cloud.Faults.Add(fault.Rule{Probability: probability, Seed: uint64(GinkgoRandomSeed()) + uint64(i), Effect: m.effect})
			rules, removes = append(rules, rule), append(removes, remove)
		}
		kept := env.Servers.CreateAll(ctx, "node-1", "node-2")
		gone := env.Servers.Create(ctx, "node-3")
		for _, name := range []string{"a", "b", "c"} {
			env.Services.Create(ctx, name)
		}
		for _, name := range []string{"a", "b", "c"} {
			env.Traffic.AwaitServed(ctx, name)
		}
		env.Services.Update(ctx, "a", func(svc *corev1.Service) { svc.Spec.Ports[0].Port = 9090 })
		env.Services.Delete(ctx, "b")
		Expect(env.Kube.CoreV1().Nodes().Delete(ctx, gone.Name, metav1.DeleteOptions{})).To(Succeed())
		env.Services.AwaitGone(ctx, "b")
		applied := 0
		for _, rule := range rules {
			applied += env.Cloud.Faults.Applied(rule)
		}
		Expect(applied).To(BeNumerically(">", 5), "the cloud was too kind")

		for _, remove := range removes {
			remove()
		}
		for _, name := range []string{"a", "c"} {
			env.LoadBalancers.Await(ctx, name, func(g Gomega, lb *hcloud.LoadBalancer) {
				g.Expect(framework.TargetIDs(lb)).To(Equal(framework.IDs(kept...)))
				g.Expect(framework.ListenPorts(lb)).To(Equal([]int{map[string]int{"a": 9090, "c": 8080}[name]}))
			})
		}
		env.Routes.AwaitExactly(ctx, kept...)
		env.CCM.AwaitIdle(ctx, 3)
		Expect(env.LoadBalancers.List(ctx)).To(HaveLen(2))
		env.Routes.AwaitExactly(ctx, kept...)
	})
})
