// Package ccm is a Kubernetes cloud-controller-manager for the Hetzner Cloud: the four controllers
// of k8s.io/cloud-provider (node, node lifecycle, service, route) on hcloud-go.
//
// How the parts fit:
//
//	cloud.go, options.go   the provider: what the controllers share, Initialize, the leader fence
//	node.go, node_lifecycle.go, service.go, route.go
//	                       one per controller: how what it calls is made
//	comparison.go          starts the comparison that acts when no controller does
//	config.go, config_nodes.go, config_unknown.go
//	                       settings from the environment; all mistakes are reported together
//	public.go, events.go, version.go
//	                       names that others use
//	internal/plan          pure: Service + nodes + servers → the desired load balancer, and the difference to the actual one
//	                       as ordered operations; every Service annotation, declared once; ownership
//	internal/loadbalancer  cloudprovider.LoadBalancer. controller.go is called, sync.go makes one sync of one Service: find.go,
//	                       input.go (the input of the plan), create.go for a new one, apply.go (the operations, one at
//	                       a time); the others are about one topic each
//	internal/node          cloudprovider.InstancesV2: Node ↔ server; labels, taints, and no pods on a Node without a route
//	internal/route         cloudprovider.Routes
//	internal/resync        repairs changes that were made outside of the CCM
//	internal/inventory     servers, load balancers and the network, at a cost of few calls
//	internal/gone          the one question whether an answer of the API proves that something is gone
//	internal/apicall       the one API client: token, timeouts, retries, rate limit, metrics, errors, and the wait for actions
//	internal/nodeinfo      what a Node and its server say: provider ID, addresses, whether a route is missing
//	internal/event         events on Services and Nodes
//	internal/ccmtest       helpers of tests
//	internal/proof         tests only: random histories (sim), requests (budget), all states that a death can leave (crash)
//
// Four rules shape the package.
//
// What serves traffic keeps serving. Each part of a load balancer (its name, type, network, public
// interface, each port, each target) converges on its own. An error in one part is reported, by an event
// and by the error that the service controller retries, and holds up only the parts that need it. Nothing
// is removed before its replacement is certain, and no private Service is ever reachable from the internet.
//
// Absence must be proven. An error, an empty answer, the token of another project or a mass disappearance
// does not prove that anything is gone: nothing is deleted or created on such evidence.
//
// Plan, then apply: pure functions compute the desired state and compare it with the actual state; no
// difference means no write.
//
// Any step may be the last: the process may die before or after any API call. So the call that creates a
// resource also records its owner, and each sync starts from the state in the API, not from the memory of
// this process. After each call, the first rule holds.
//
// The package knows nothing of the simulated cloud that tests it: it sees an endpoint URL.
package ccm
