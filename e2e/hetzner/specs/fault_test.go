package specs

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// failure describes how the cloud fails a request.
type failure struct {
	name   string
	effect fault.Effect
	// onlyActions says that it affects only the actions of writes, not reads.
	onlyActions bool
	// hangs says that only the cloud itself can end it.
	hangs bool
	// rateLimit is the limit that the cloud needs for it, in requests per hour.
	rateLimit int
}

// ownFailures are those that the conformance specs do not know: of Hetzner's API, of a proxy before it, and of its actions.
var ownFailures = []failure{
	{name: "the API error locked", effect: fault.APIError("locked")},
	{name: "the API error resource_unavailable", effect: fault.APIError("resource_unavailable")},
	{name: "a bare 429", effect: fault.HTTPStatus(http.StatusTooManyRequests)},
	{name: "a bare 502", effect: fault.HTTPStatus(http.StatusBadGateway)},
	{name: "an answer that takes longer than any client waits", effect: lateAnswer()},
	{name: "a reset connection", effect: fault.ResetConnection()},
	{name: "a body that is cut off", effect: fault.CutBody(0)},
	{name: "an action that fails", effect: fault.FailAction("", ""), onlyActions: true},
	{name: "an action that never ends", effect: fault.HangAction(), onlyActions: true, hangs: true},
	{name: "an exhausted rate limit", effect: fault.ExhaustRateLimit(), rateLimit: 36_000},
}

// allFailures are the kinds of faults that fakecloud has.
var allFailures = append(slices.Clone(ownFailures),
	failure{name: "the API error conflict", effect: fault.APIError("conflict")},
	failure{name: "the API error rate_limit_exceeded", effect: fault.APIError("rate_limit_exceeded")},
	failure{name: "the API error server_error", effect: fault.APIError("server_error")},
	failure{name: "the API error unavailable", effect: fault.APIError("unavailable")},
	failure{name: "a bare 504", effect: fault.HTTPStatus(http.StatusGatewayTimeout)},
	failure{name: "a request that takes longer than any client waits", effect: fault.Latency(time.Hour)},
	failure{name: "a dropped connection", effect: fault.DropConnection()},
	failure{name: "a lost answer", effect: fault.LoseAnswer()},
)

// lateAnswer makes the cloud carry out a request and answer after an hour.
func lateAnswer() fault.Effect {
	effect := fault.Latency(time.Hour)
	effect.After = true
	return effect
}

// entries makes a table of the failures of Hetzner's cloud.
func entries() []TableEntry {
	var all []TableEntry
	for _, m := range ownFailures {
		entry := []any{m}
		if m.hangs { // only an event shows that the CCM has given up
			entry = append(entry, framework.Needs(framework.Events))
		}
		all = append(all, Entry(m.name, entry...))
	}
	return all
}

// shortTimeouts make a CCM give up and compare again soon, so that specs do not wait for it.
var shortTimeouts = map[string]string{
	"HCLOUD_REQUEST_TIMEOUT": "1s",
	"HCLOUD_ACTION_TIMEOUT":  "1s",
	"HCLOUD_RESYNC_INTERVAL": "500ms",
}

// stillRunning is in the CCM's message about an action that takes longer than it waits.
const stillRunning = "is still running"

// injected is a failure of the first read and of the first writes.
type injected struct {
	env           *hetzner.Env
	failure       failure
	reads, writes string
	removes       []func()
	// complaints counts the CCM's messages that an action is still running; before is the count when the failure was injected.
	complaints func() int
	before     int
}

func (m failure) inject(env *hetzner.Env, complaints func() int, reads, writes fault.Rule, writeTimes int) *injected {
	t := &injected{env: env, failure: m, complaints: complaints, before: complaints()}
	add := func(f fault.Rule, first int) string {
		f.Effect, f.First = m.effect, first
		name, remove := env.Cloud.Faults.Add(f)
		t.removes = append(t.removes, remove)
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

// await waits until the failure happens. It resumes an action that hangs once the CCM reports it. One failed write is enough: a CCM that
// loses the answer to a write need not send it again.
func (t *injected) await(ctx SpecContext) {
	GinkgoHelper()
	if t.reads != "" {
		t.env.Cloud.Faults.Await(ctx, t.reads, 1)
	}
	t.env.Cloud.Faults.Await(ctx, t.writes, 1)
	if t.failure.hangs {
		Eventually(t.complaints).WithContext(ctx).Should(BeNumerically(">", t.before))
		t.remove()
		Expect(t.env.Cloud.Fake.ResumeActions(ctx)).To(BeNumerically(">", 0))
	}
}

// remove ends the failure.
func (t *injected) remove() {
	for _, remove := range t.removes {
		remove()
	}
}

var _ = Describe("A CCM in a failing cloud", framework.Needs(framework.FaultTolerance), framework.Long,
	Label(framework.OwnCloud, "fault", "fake-only"), func() {
		DescribeTable("creates, updates and deletes one load balancer for each Service despite", Label("service"),
			func(ctx SpecContext, m failure) {
				env := hetzner.NewEnv(ctx, hetzner.Options{RateLimit: m.rateLimit, CCM: shortTimeouts})
				servers := env.Nodes.Create(ctx, "node-1", "node-2")
				// The deleted Service must not have failed before: the service controller's waits double with each failure.
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
				injection := m.inject(env, complaints("web"), aboutLoadBalancers, fault.Rule{Operation: "create_load_balancer"}, 2)
				env.Services.Create(ctx, "web")
				injection.await(ctx)
				address := env.Traffic.AwaitServed(ctx, "web")
				injection.remove()
				env.CCM.AwaitIdle(ctx)
				id := env.LoadBalancers.Of(ctx, "web").ID

				By("updating")
				injection = m.inject(env, complaints("web"), aboutLoadBalancers, fault.Rule{Route: "/load_balancers/{id}/actions/*"}, 2)
				env.Services.Update(ctx, "web", func(svc *corev1.Service) {
					svc.Spec.Ports[0].Port = 9090
					svc.Annotations[hetzner.Annotation+"algorithm-type"] = "least_connections"
				})
				injection.await(ctx)
				env.Traffic.AwaitAnswer(ctx, "web", address, 9090)
				env.LoadBalancers.Await(ctx, "web", func(g Gomega, lb *hcloud.LoadBalancer) {
					g.Expect(lb.ID).To(Equal(id))
					g.Expect(lb.Algorithm.Type).To(Equal(hcloud.LoadBalancerAlgorithmTypeLeastConnections))
				})
				injection.remove()

				By("deleting")
				injection = m.inject(env, complaints("goes"), aboutLoadBalancers, fault.Rule{Operation: "delete_load_balancer"}, 1)
				env.Services.Delete(ctx, "goes")
				injection.await(ctx)
				env.Services.AwaitGone(ctx, "goes")
				injection.remove()

				env.CCM.AwaitIdle(ctx)
				Eventually(func(g Gomega) {
					all := env.LoadBalancers.List(ctx)
					g.Expect(all).To(HaveLen(1))
					g.Expect(all[0].ID).To(Equal(id))
					g.Expect(hetzner.ListenPorts(all[0])).To(Equal([]int{9090}))
					g.Expect(hetzner.TargetIDs(all[0])).To(Equal(hetzner.IDs(servers...)))
				}).WithContext(ctx).Should(Succeed())
			}, entries())

		DescribeTable("creates and deletes the routes of nodes, and no others, despite", framework.Needs(framework.NodeRoutes),
			Label("route"),
			func(ctx SpecContext, m failure) {
				env := hetzner.NewEnv(ctx, hetzner.Options{RateLimit: m.rateLimit, NoCCM: true, CCM: shortTimeouts})
				stays, goes := env.Servers.Create(ctx, "stays"), env.Servers.Create(ctx, "goes")
				env.Nodes.AwaitPodCIDR(ctx, "stays")
				env.Nodes.AwaitPodCIDR(ctx, "goes")
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
				injection := m.inject(env, complaints, reads, writes, 2)
				ccm = env.CCM.Start(ctx, framework.CCMOptions{})
				injection.await(ctx)
				env.Routes.AwaitExactly(ctx, stays, goes)
				env.CCM.AwaitIdle(ctx)
				injection.remove()

				By("deleting")
				injection = m.inject(env, complaints, reads, writes, 2)
				env.Nodes.Delete(ctx, "goes")
				injection.await(ctx)
				env.Routes.AwaitExactly(ctx, stays)
				env.CCM.AwaitIdle(ctx)
				env.Routes.AwaitExactly(ctx, stays)
			}, entries())
	})

var _ = Describe("A CCM in a failing cloud", framework.Needs(framework.FaultTolerance), framework.Long,
	Label(framework.OwnCloud, "fault", "fake-only"), func() {
		DescribeTable("looks for the load balancer that it may have created, and does not create another,",
			framework.Needs(framework.CallBudgets), Label("service"),
			func(ctx SpecContext, effect fault.Effect) {
				env := hetzner.NewEnv(ctx, hetzner.Options{CCM: shortTimeouts})
				rule, _ := env.Cloud.Faults.Add(fault.Rule{Operation: "create_load_balancer", First: 1, Effect: effect})
				env.Services.Create(ctx, "web")
				env.Cloud.Faults.Await(ctx, rule, 1)
				env.Services.AwaitIngress(ctx, "web")
				env.CCM.AwaitIdle(ctx)
				// A request counts even if its answer did not reach the CCM.
				entries := env.Cloud.Journal.Entries(journal.Filter{Operation: "create_load_balancer"})
				Expect(slices.DeleteFunc(entries, func(r journal.Entry) bool {
					return r.Status != http.StatusCreated && r.Handled != http.StatusCreated
				})).To(HaveLen(1))
			},
			Entry("when the answer is lost", fault.LoseAnswer()),
			Entry("when the answer takes longer than any client waits", lateAnswer()),
			Entry("when the answer is cut off", fault.CutBody(0)),
			Entry("when the action fails", fault.FailAction("", "")),
		)

		It("recovers without its own comparisons, by the service controller alone", Label("service"), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{CCM: map[string]string{"HCLOUD_RESYNC_INTERVAL": "0"}})
			servers := env.Nodes.Create(ctx, "node-1")
			rule, _ := env.Cloud.Faults.Add(fault.Rule{Operation: "create_load_balancer", First: 1, Effect: fault.LoseAnswer()})
			env.Services.Create(ctx, "web")
			env.Cloud.Faults.Await(ctx, rule, 1)
			env.Traffic.AwaitServed(ctx, "web")
			Expect(env.LoadBalancers.List(ctx)).To(HaveLen(1))
			Expect(hetzner.TargetIDs(env.LoadBalancers.List(ctx)[0])).To(Equal(hetzner.IDs(servers...)))
		})

		It("ends in the right state after random faults of many kinds", framework.Needs(framework.NodeRoutes),
			Label("node", "service", "route"), func(ctx SpecContext) {
				env := hetzner.NewEnv(ctx, hetzner.Options{CCM: shortTimeouts})
				var removes []func()
				var rules []string
				for i, m := range allFailures {
					// An action that hangs would have to be resumed, and an exhausted limit affects the spec too.
					if m.hangs || m.rateLimit > 0 {
						continue
					}
					// Failures that delay a request are rare, to keep the spec fast.
					probability := 0.03
					if m.effect.Latency > 0 {
						probability = 0.005
					}
					rule, remove := env.Cloud.Faults.Add(fault.Rule{Probability: probability, Seed: uint64(GinkgoRandomSeed()) + uint64(i),
						Effect: m.effect})
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
				env.Nodes.Delete(ctx, gone.Name)
				env.Services.AwaitGone(ctx, "b")
				applied := 0
				for _, rule := range rules {
					applied += env.Cloud.Faults.Applied(rule)
				}
				Expect(applied).To(BeNumerically(">", 5), "too few faults were applied")

				for _, remove := range removes {
					remove()
				}
				for _, name := range []string{"a", "c"} {
					env.LoadBalancers.Await(ctx, name, func(g Gomega, lb *hcloud.LoadBalancer) {
						g.Expect(hetzner.TargetIDs(lb)).To(Equal(hetzner.IDs(kept...)))
						g.Expect(hetzner.ListenPorts(lb)).To(Equal([]int{map[string]int{"a": 9090, "c": 8080}[name]}))
					})
				}
				env.Routes.AwaitExactly(ctx, kept...)
				env.CCM.AwaitIdle(ctx)
				Eventually(env.LoadBalancers.List).WithContext(ctx).Should(HaveLen(2))
				env.Routes.AwaitExactly(ctx, kept...)
			})
	})
