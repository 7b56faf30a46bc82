// Package conformance has the specs of Kubernetes' promises about every cloud-controller-manager (CCM), on any cloud. The specs know the
// cloud by package cloud only: a test refuses imports of a particular cloud.
//
// The text of each spec ends with the source of the promise, so that a failure is an argument. A spec that needs more than every CCM must
// do says so by framework.Needs.
//
// A suite imports the package, registers a driver, and runs Ginkgo.
package conformance

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/framework"
)

// Conformance labels all specs of this package.
const Conformance = "conformance"

// Sources of the promises that the specs check. The interfaces are those of k8s.io/cloud-provider/cloud.go. Their comments say how a CCM
// must behave.
const (
	// metadata: the node controller writes the result of InstanceMetadata, and takes the taint away (KEP-2395).
	metadata = " [InstancesV2.InstanceMetadata; KEP-2395]"
	// exists: "InstanceExists returns true if the instance for the given node exists"; an error does not answer the question.
	exists = " [InstancesV2.InstanceExists; node lifecycle controller]"
	// shutdown: the node lifecycle controller taints the node of an instance that is shut down.
	shutdown = " [InstancesV2.InstanceShutdown; node.cloudprovider.kubernetes.io/shutdown]"
	// ensure: "EnsureLoadBalancer creates a new load balancer, or updates the existing one", and must be idempotent.
	ensure = " [LoadBalancer.EnsureLoadBalancer]"
	// update: "UpdateLoadBalancer updates hosts under the specified load balancer".
	update = " [LoadBalancer.UpdateLoadBalancer; KEP-3458]"
	// remove: "EnsureLoadBalancerDeleted deletes the specified load balancer if it exists", even if an earlier call failed halfway.
	remove = " [LoadBalancer.EnsureLoadBalancerDeleted; service.kubernetes.io/load-balancer-cleanup]"
	// class: a Service with spec.loadBalancerClass is another implementation's (KEP-1959).
	class = " [Service.spec.loadBalancerClass; KEP-1959]"
	// exclude: nodes with this label are not targets.
	exclude = " [node.kubernetes.io/exclude-from-external-load-balancers; KEP-1143]"
	// local: a node without an endpoint gets no traffic (Service.spec.externalTrafficPolicy in the API reference).
	local = " [Service.spec.externalTrafficPolicy: Local]"
	// routing: the route controller gives each node's podCIDR a route (KEP-5237 describes it).
	routing = " [Routes.CreateRoute; KEP-5237]"
	// routesOf: the route controller deletes routes only within the cluster's pod range, and of nodes that are gone.
	routesOf = " [Routes.ListRoutes, DeleteRoute; --cluster-cidr]"
	// leader: of several processes, only the one that holds the Lease works.
	leader = " [--leader-elect; coordination.k8s.io Lease]"
	// restart: the state is in the cluster and in the cloud; a process may end at any time.
	restart = " [Kubernetes' controllers are level-triggered: a process may end at any time]"
)

// cleanup is the finalizer that keeps a Service until its load balancer is deleted.
const cleanup = "service.kubernetes.io/load-balancer-cleanup"

// awaitAnswer waits until a port of an address answers for the port of a Service with that name.
func awaitAnswer(ctx context.Context, env *framework.Env, address string, number int, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		answer, err := env.Traffic.Get(ctx, address, number)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(answer.PortName).To(Equal(name))
	}).WithContext(ctx).Should(Succeed())
}

// awaitClosed waits until nothing answers on a port of an address.
func awaitClosed(ctx context.Context, env *framework.Env, address string, number int) {
	GinkgoHelper()
	Eventually(env.Traffic.Closed).WithContext(ctx).WithArguments(address, number).
		Should(BeTrue(), "%s:%d still listens", address, number)
}

// awaitLoadBalancers waits until the spec has so many load balancers.
func awaitLoadBalancers(ctx context.Context, env *framework.Env, n int) {
	GinkgoHelper()
	Eventually(env.LoadBalancers.List).WithContext(ctx).Should(HaveLen(n), "one without an owner costs")
}

// failure describes how calls of the cloud's API fail.
type failure struct {
	text   string
	effect cloud.Effect
}

// incidents are outages that the whole API can have for a while. The other outages differ from them in their text only.
var incidents = []failure{
	{"says that it is down", cloud.Unavailable},
	{"refuses the credentials", cloud.Unauthorized},
	{"says that there are too many requests", cloud.RateLimited},
	{"drops the connection", cloud.Drop},
}

// outages are failures that say nothing about the requested object.
var outages = append(slices.Clone(incidents),
	failure{"answers with an internal error", cloud.Internal},
	failure{"says that this is forbidden", cloud.Forbidden},
	failure{"answers with something that is not its own", cloud.Garbage},
	failure{"does not answer in time", cloud.Hang})

// failures are outages, and an answer that looks like one: as of an endpoint with a wrong path.
var failures = append(slices.Clone(outages), failure{"says that what was asked for does not exist", cloud.NothingFound})

// emptyLists is the failure of lists only.
var emptyLists = failure{"shows empty lists", cloud.EmptyLists}

// lostAnswer is the failure of writes only.
var lostAnswer = failure{"makes the change, and its answer is lost", cloud.LoseAnswer}

// conflict is the failure of writes only.
var conflict = failure{"says that something else changes the same thing", cloud.Conflict}

// entries returns an entry of a table for each failure. Each ends with the source of the promise, as the text of a spec does.
func entries(source string, all ...failure) (table []TableEntry) {
	for _, f := range all {
		table = append(table, Entry("the cloud "+f.text+source, f.effect))
	}
	return table
}
