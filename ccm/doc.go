// Package ccm is a Kubernetes cloud-controller-manager for the Hetzner Cloud: the four controllers
// of k8s.io/cloud-provider (node, node lifecycle, service, route) on hcloud-go.
//
// How the parts fit:
//
//	config.go        settings, from the environment, all mistakes reported at once
//	client.go        one API client: token.go (where the token comes from), transport.go (timeouts,
//	                 retries), metrics.go (every call counted), api_error.go (what an error means)
//	servers.go       what is known about servers: one list serves many questions
//	instances.go     Node ↔ server (cloudprovider.InstancesV2); node_labels.go keeps labels true
//	annotations.go   every Service annotation, declared once
//	lb_plan.go       Service + nodes + servers → the load balancer that should be (pure)
//	lb_diff.go       should be − is → ordered operations (pure)
//	lb_apply.go      sends operations, one at a time, waiting for each action
//	load_balancer.go cloudprovider.LoadBalancer, on the three above
//	routes.go        cloudprovider.Routes
//	resync.go        notices what changed behind the CCM's back
//
// Two rules shape the package. Plan, then apply: what should be is computed by pure functions and
// compared with what is; no difference means no write. Any step may be the last: the process may
// die before or after any API call, so ownership is recorded on the resource by the very call that
// creates it, and each sync starts from what the API says, not from what this process remembers.
//
// The package knows nothing of the simulated cloud it is tested against: it sees an endpoint URL.
package ccm
