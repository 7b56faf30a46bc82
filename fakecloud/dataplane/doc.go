// Package dataplane moves the packets of simulated load balancers: real listeners on loopback, real
// connections to the targets, real health probes.
//
// An [Engine] knows nothing of the cloud or its API. It is told the desired state of one load
// balancer at a time ([Engine.Apply], [Engine.Remove]) and reports what its probes see to a
// [HealthSink]. Whoever drives it (an adapter that follows the cloud's event stream, or a test)
// decides where servers are with a [Resolver] and where load balancers listen with a [Binder].
//
// # What it reproduces
//
// TCP, HTTP and HTTPS services, redirect from HTTP to HTTPS, certificates picked by server name,
// sticky sessions by cookie, X-Forwarded headers, the PROXY protocol, WebSocket and other upgrades,
// HTTP/2 towards the client, idle timeouts, round robin and least connections over the healthy
// targets, health checks over TCP, HTTP and HTTPS, the connection limit of the load balancer's
// type, and the figures behind the metrics endpoint.
//
// # What is known of the real one, and what is inferred
//
// Fields, ranges and defaults are those of the API document (schemas LoadBalancerService*,
// LoadBalancerServiceHealthCheck). Beyond the document, the session cookies of production sites
// that became public have HAProxy's dated form (see [stickyCookie]) and the answer without a healthy
// target is HAProxy's "503, no server available" (hcloud-cloud-controller-manager issue 185). Where
// no source says what the real load balancer does, this package does what HAProxy does by default,
// and the comment at that place says that it is an inference.
//
//   - No healthy target: an HTTP request gets 503, as Hetzner's maintainers state
//     (hcloud-cloud-controller-manager pull request 354, February 2023). A TCP connection is
//     accepted and closed at once (inferred). The same maintainers' statement is why a target whose
//     health is unknown gets no traffic; in 2020 users saw it get some (issue 109 there).
//   - A target that is removed or turns unhealthy keeps the connections it has and gets no new ones
//     (inferred: HAProxy's default, no shutdown of sessions).
//   - A service that is removed stops listening at once. Its TCP connections live on until one side
//     ends them, its HTTP connections until the request in progress is answered (inferred: HAProxy's
//     soft stop). Deleting the load balancer cuts everything.
//   - Changing a health check keeps the status that is known and probes at once with the new
//     settings, so that a change that concerns only the probing never takes a target out of rotation.
//
// # What is not modelled
//
// Throughput limits of the load balancer types, DDoS protection, HTTP/3 (the real one has none
// either), more than one HTTP connection's reuse when a service speaks both HTTP and the PROXY
// protocol (each request then opens its own connection to the target), source addresses other than
// loopback: a target sees connections from 127.0.0.1, and the client address in X-Forwarded-For and
// in PROXY headers is the one that the client has on this machine.
package dataplane
