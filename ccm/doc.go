// Package ccm is a Kubernetes cloud-controller-manager for the Hetzner Cloud: the four controllers
// of k8s.io/cloud-provider (node, node lifecycle, service, route) on hcloud-go.
//
// How the parts fit:
//
//	config.go        settings from the environment; all mistakes are reported together
//	client.go        the one API client: token.go (the token), transport.go (timeouts, retries),
//	                 metrics.go (counts every call), api_error.go (classifies errors)
//	servers.go       cache of servers: one list answers many questions
//	evidence.go      whether an answer proves that servers and load balancers are gone
//	instances.go     Node ↔ server (cloudprovider.InstancesV2); node_labels.go updates Node labels,
//	                 node_network.go keeps pods and traffic from a Node without a route
//	annotations.go   every Service annotation, declared once
//	lb_plan.go       Service + nodes + servers → the load balancer that should be (pure); lb_plan_targets.go
//	                 chooses the targets, lb_check.go finds mistakes in settings
//	lb_diff.go       difference between plan and actual state → ordered operations (pure)
//	lb_leaving.go    targets that leave when another one is healthy
//	lb_selector.go   one target for all servers with a label; lb_shared.go several Services on one load
//	                 balancer; lb_existing.go, lb_retain.go what is a user's before and after the Service
//	lb_apply.go      sends operations one at a time, waits for each action, continues after an error
//	lb_sync.go       one sync of one Service: input, plan, difference, apply
//	load_balancer.go cloudprovider.LoadBalancer, built on the above
//	lb_ownership.go  which load balancers, ports and targets belong to a Service; lb_adopt.go orders the
//	                 changes of an adopted one
//	routes.go        cloudprovider.Routes
//	resync.go        repairs changes that were made outside of the CCM
//
// Four rules shape the package.
//
// What serves traffic keeps serving. Each part of a load balancer (its name, type, network, public
// interface, each port, each target) converges on its own. An error in one part is reported, by an event
// and by the error that the service controller retries, and holds up only the parts that need it. Nothing
// is removed before its replacement is certain, and what is private is never reachable from the internet.
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
