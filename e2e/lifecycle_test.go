package e2e

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

var _ = Describe("Node lifecycle", Label("lifecycle"), func() {
	powerOff := func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		workers := env.Nodes.Workers(ctx, 2)
		name, server := workers[0].Name, workers[0].Server
		was := env.Nodes.AwaitReady(ctx, name, true)

		env.Servers.PowerOff(ctx, server)
		DeferCleanup(func(ctx SpecContext) { env.Nodes.AwaitReady(ctx, name, true) })
		env.Nodes.AwaitReady(ctx, name, false) // after the grace period of kube-controller-manager, 8 s
		env.Nodes.Await(ctx, name, func(g Gomega, n *corev1.Node) {
			g.Expect(n).To(framework.HaveTaint(cloudproviderapi.TaintNodeShutdown))
		})
		n := env.Nodes.ExpectStays(ctx, name, 3)
		Expect(n.UID).To(Equal(was.UID))
		Expect(n).To(framework.HaveTaint(cloudproviderapi.TaintNodeShutdown))

		env.Servers.PowerOn(ctx, server)
		env.Nodes.AwaitReady(ctx, name, true)
		n = env.Nodes.Await(ctx, name, func(g Gomega, n *corev1.Node) {
			g.Expect(n).NotTo(framework.HaveTaint(cloudproviderapi.TaintNodeShutdown))
		})
		Expect(n.UID).To(Equal(was.UID))
		Expect(env.Nodes.Get(ctx, workers[1].Name)).NotTo(framework.HaveTaint(cloudproviderapi.TaintNodeShutdown))
	}
	if framework.CurrentKind() != framework.KindCluster { // where "A server's life" shows it, with a server of its own
		It("taints and keeps a node while its server is off", framework.Needs(framework.ShutdownTaint), framework.Alone(), powerOff)
	}

	It("deletes the node of a server that was deleted, and no other", Label(framework.OwnCloud), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		servers := env.Nodes.Create(ctx, "node-1", "node-2", "node-3")
		env.Nodes.Crash(ctx, env.Nodes.Simulated("node-3")) // NotReady, but its server exists
		env.Servers.Delete(ctx, servers[0])
		env.Nodes.AwaitGone(ctx, "node-1")
		Expect(env.Nodes.Get(ctx, "node-2")).NotTo(BeNil())
		env.Nodes.ExpectStays(ctx, "node-3", 3)
	})

	It("deletes the node of a server that was deleted while it was off", framework.Needs(framework.ShutdownTaint),
		Label(framework.OwnCloud), func(ctx SpecContext) {
			env := framework.NewEnv(ctx, suite, framework.Options{})
			server := env.Nodes.Create(ctx, "node-1")[0]
			env.Servers.PowerOff(ctx, server)
			env.Nodes.Crash(ctx, env.Nodes.Simulated("node-1"))
			env.Nodes.Await(ctx, "node-1", func(g Gomega, n *corev1.Node) {
				g.Expect(n).To(framework.HaveTaint(cloudproviderapi.TaintNodeShutdown))
			})
			env.Servers.Delete(ctx, server)
			env.Nodes.AwaitGone(ctx, "node-1")
		})

	It("neither taints nor deletes a node that is NotReady while its server runs", Label(framework.OwnCloud), func(ctx SpecContext) {
		env := framework.NewEnv(ctx, suite, framework.Options{})
		env.Nodes.Create(ctx, "node-1")
		env.Nodes.Crash(ctx, env.Nodes.Simulated("node-1"))
		n := env.Nodes.ExpectStays(ctx, "node-1", 4)
		Expect(n).NotTo(framework.HaveTaint(cloudproviderapi.TaintNodeShutdown))
		env.Nodes.Simulated("node-1").PowerOn()
		env.Nodes.AwaitReady(ctx, "node-1", true)
	})

	It("keeps the node of a renamed server that is off", framework.Needs(framework.ShutdownTaint), Label(framework.OwnCloud),
		func(ctx SpecContext) {
			env := framework.NewEnv(ctx, suite, framework.Options{})
			server := env.Nodes.Create(ctx, "node-1")[0]
			env.Servers.Rename(ctx, server, "renamed")
			env.Servers.PowerOff(ctx, server)
			env.Nodes.Crash(ctx, env.Nodes.Simulated("node-1"))
			env.Nodes.Await(ctx, "node-1", func(g Gomega, n *corev1.Node) {
				g.Expect(n).To(framework.HaveTaint(cloudproviderapi.TaintNodeShutdown))
			})
			env.Nodes.ExpectStays(ctx, "node-1", 3)
		})

	It("spends one call per cache period on all nodes that are NotReady", framework.Needs(framework.CallBudgets),
		Label("fake-only", framework.OwnCloud), func(ctx SpecContext) {
			const ttl = time.Second // the node lifecycle controller looks five times in that
			env := framework.NewEnv(ctx, suite, framework.Options{NoCCM: true})
			names := []string{"node-1", "node-2", "node-3", "node-4"}
			for _, name := range names {
				env.Servers.Create(ctx, name)
			}
			env.CCM.Start(ctx, framework.CCMOptions{Args: framework.OnlyNodes,
				Env: map[string]string{"HCLOUD_INSTANCES_CACHE_TTL": ttl.String()}})
			for _, name := range names {
				env.Nodes.AwaitInitialized(ctx, name)
				env.Nodes.Crash(ctx, env.Nodes.Simulated(name))
			}
			before, start := env.CCM.ServerReads(), time.Now()
			Eventually(func() int { return env.CCM.ServerReads() - before }).
				WithContext(ctx).WithTimeout(framework.Timeout).WithPolling(framework.Polling).Should(BeNumerically(">=", 3))
			Expect(env.CCM.ServerReads()-before).To(BeNumerically("<=", 1+int(time.Since(start)/ttl)), "calls in %v", time.Since(start))
		})

	It("deletes a node only if the API says that its server does not exist", framework.Needs(framework.CarefulDeletion),
		Label("fault", "fake-only", framework.OwnCloud), func(ctx SpecContext) {
			env := framework.NewEnv(ctx, suite, framework.Options{NoCCM: true})
			server := env.Servers.Create(ctx, "node-1")
			env.CCM.Start(ctx, framework.CCMOptions{Args: framework.OnlyNodes})
			env.Nodes.AwaitInitialized(ctx, "node-1")
			// The list works but lacks the server, such as that of a gateway with an old cache.
			name, _ := env.Cloud.Faults.Add(fault.Rule{Method: "GET", Route: "/servers", Effect: jsonBody(http.StatusOK,
				`{"servers":[],"meta":{"pagination":{"page":1,"per_page":50,"previous_page":null,"next_page":null,"last_page":1,"total_entries":0}}}`)})
			env.Nodes.Crash(ctx, env.Nodes.Simulated("node-1"))
			env.Nodes.ExpectStays(ctx, "node-1", 6)
			Expect(env.Cloud.Faults.Applied(name)).To(BeNumerically(">=", 2))
			env.Servers.Delete(ctx, server)
			env.Nodes.AwaitGone(ctx, "node-1")
		})

	DescribeTable("keeps a node that is NotReady while the API does not say whether its server exists",
		framework.Needs(framework.CarefulDeletion), Label(framework.OwnCloud, "fault", "fake-only"), keepsNode,
		Entry("401 unauthorized", fault.APIError("unauthorized")),
		Entry("403 forbidden", fault.APIError("forbidden")),
		Entry("404 not_found for everything, such as the answer of an endpoint with a wrong path", fault.APIError("not_found")),
		Entry("404 of a proxy, without JSON", fault.HTTPStatus(http.StatusNotFound)),
		Entry("404 of a proxy, with JSON of its own", jsonBody(http.StatusNotFound, `{"message":"no Route matched with those values"}`)),
		Entry("404 of a proxy, with an empty object", jsonBody(http.StatusNotFound, `{}`)),
		Entry("410 gone", fault.APIError("deprecated_api_endpoint")),
		Entry("423 locked", fault.APIError("locked")),
		Entry("429 rate_limit_exceeded", framework.Long, fault.APIError("rate_limit_exceeded")), // the CCM waits ever longer
		Entry("429 without the API's code", framework.Long, fault.HTTPStatus(http.StatusTooManyRequests)),
		Entry("500 server_error", fault.APIError("server_error")),
		Entry("500 without the API's code", fault.HTTPStatus(http.StatusInternalServerError)),
		Entry("502 bad_gateway", fault.APIError("bad_gateway")),
		Entry("502 without the API's code", fault.HTTPStatus(http.StatusBadGateway)),
		Entry("503 unavailable", fault.APIError("unavailable")),
		Entry("503 without the API's code", fault.HTTPStatus(http.StatusServiceUnavailable)),
		Entry("504 timeout", fault.APIError("timeout")),
		Entry("no answer in time", fault.Latency(time.Hour)),
		Entry("a dropped connection", fault.DropConnection()),
		Entry("a reset connection", fault.ResetConnection()),
		Entry("a body that is cut off", fault.CutBody(20)),
		Entry("200 with a page of HTML", fault.HTTPStatus(http.StatusOK)),
		Entry("200 with an empty object", jsonBody(http.StatusOK, `{}`)),
		Entry("200 with an empty list that is not the API's", jsonBody(http.StatusOK, `{"servers":[]}`)),
		Entry("200 with null", jsonBody(http.StatusOK, `null`)),
	)
})

// jsonBody is a JSON answer that is not the API's.
func jsonBody(status int, body string) fault.Effect {
	e := fault.HTTPStatus(status)
	e.Body, e.ContentType = body, "application/json"
	return e
}

// keepsNode checks that the node of a running server stays while all reads of servers meet an effect, and that the node
// of a deleted server is deleted as soon as the API works again.
func keepsNode(ctx SpecContext, effect fault.Effect) {
	env := framework.NewEnv(ctx, suite, framework.Options{NoCCM: true})
	server := env.Servers.Create(ctx, "node-1")
	env.CCM.Start(ctx, framework.CCMOptions{Args: framework.OnlyNodes, Env: map[string]string{"HCLOUD_REQUEST_TIMEOUT": "300ms"}})
	was := env.Nodes.AwaitInitialized(ctx, "node-1")

	fault, remove := env.Cloud.Faults.Add(fault.Rule{Method: "GET", Resource: "server", Effect: effect})
	env.Nodes.Crash(ctx, env.Nodes.Simulated("node-1"))
	// The CCM tries a request at most twice: of three attempts, one has failed finally.
	n := env.Nodes.ExpectStays(ctx, "node-1", 3)
	Expect(env.Cloud.Faults.Applied(fault)).To(BeNumerically(">=", 3))
	Expect(n.UID).To(Equal(was.UID))
	Expect(n.Spec.ProviderID).To(Equal(was.Spec.ProviderID))
	Expect(n.Status.Addresses).To(Equal(was.Status.Addresses))
	Expect(n).NotTo(framework.HaveTaint(cloudproviderapi.TaintNodeShutdown))

	env.Servers.Delete(ctx, server)
	// It still does not know that the server is gone. One of the attempts may belong to an earlier request.
	env.Nodes.ExpectStays(ctx, "node-1", 4)
	remove()
	env.Nodes.AwaitGone(ctx, "node-1")
}
