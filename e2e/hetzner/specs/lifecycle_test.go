package specs

import (
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/hetzner"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
)

var _ = Describe("Node lifecycle", Label("lifecycle"), func() {
	It("spends one call per cache period on all nodes that are NotReady", framework.Needs(framework.CallBudgets),
		Label("fake-only", framework.OwnCloud), func(ctx SpecContext) {
			const ttl = time.Second // the node lifecycle controller looks five times in that
			env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true})
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
			Eventually(func() int { return env.CCM.ServerReads() - before }).WithContext(ctx).Should(BeNumerically(">=", 3))
			Expect(env.CCM.ServerReads()-before).To(BeNumerically("<=", 1+int(time.Since(start)/ttl)), "calls in %v", time.Since(start))
		})

	It("deletes a node only if the API says that its server does not exist", framework.Needs(framework.CarefulDeletion),
		Label("fault", "fake-only", framework.OwnCloud), func(ctx SpecContext) {
			env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true})
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
		Entry("404 of a proxy, without JSON", fault.HTTPStatus(http.StatusNotFound)),
		Entry("404 of a proxy, with JSON of its own", jsonBody(http.StatusNotFound, `{"message":"no Route matched with those values"}`)),
		Entry("404 of a proxy, with an empty object", jsonBody(http.StatusNotFound, `{}`)),
		Entry("410 gone", fault.APIError("deprecated_api_endpoint")),
		Entry("423 locked", fault.APIError("locked")),
		Entry("502 without the API's code", fault.HTTPStatus(http.StatusBadGateway)),
		Entry("a reset connection", fault.ResetConnection()),
		Entry("a body that is cut off", fault.CutBody(20)),
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
	env := hetzner.NewEnv(ctx, hetzner.Options{NoCCM: true})
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
