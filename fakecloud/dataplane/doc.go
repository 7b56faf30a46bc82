// Package dataplane moves the packets of simulated load balancers: real listeners on loopback, real
// connections to the targets, real health probes.
//
// An [Engine] knows nothing of the cloud or its API. [Engine.Apply] and [Engine.Remove] set the desired
// state of one load balancer at a time, [Engine.Retarget] changes some of its targets. The engine reports the results of its
// probes to Options.Health.
// A [Resolver] decides where servers are on this machine, and a [Binder] where load balancers listen.
// The caller, such as an adapter of the cloud's event stream or a test, provides both.
//
// # What it reproduces
//
// TCP, HTTP and HTTPS services, redirect from HTTP to HTTPS, certificates selected by server name,
// sticky sessions by cookie, X-Forwarded headers, the PROXY protocol, WebSocket and other upgrades,
// HTTP/2 towards the client, idle timeouts, round robin and least connections over the healthy
// targets, firewalls that drop packets to targets and targets that are off ([Filter], [Engine.Disconnect]),
// health checks over TCP, HTTP and HTTPS, the connection limit of the load balancer's type, and the
// figures behind the metrics endpoints: of the load balancer, and of its targets ([Traffic]).
//
// # Knowledge of the real load balancer, and inferences
//
// Fields, ranges and defaults are those of the API document (schemas LoadBalancerService*,
// LoadBalancerServiceHealthCheck). Other sources show two more properties: public session cookies of
// production sites have the format of HAProxy's dated cookies (see [stickyCookie]), and the answer
// without a healthy target is HAProxy's "503, no server available" (hcloud-cloud-controller-manager
// issue 185). Where no source describes the real load balancer, this package follows HAProxy's
// defaults, and a comment marks the inference.
//
//   - Without a healthy target, an HTTP request gets 503, as Hetzner's maintainers state
//     (hcloud-cloud-controller-manager pull request 354, February 2023). A TCP connection is
//     accepted and closed at once (inferred). By the same statement a target with unknown health gets
//     no traffic; in 2020 users saw such a target get some (issue 109 there).
//   - A target that is removed or becomes unhealthy keeps its connections and gets no new ones
//     (inferred: HAProxy's default, no shutdown of sessions), unless it is off.
//   - Requests that are invalid, incomplete or unusual have HAProxy 2.6's outcome: the status, and whether the connection
//     continues. A test compares about a hundred of them with HAProxy where it is installed.
//   - A client that half-closes its connection gets its answer (HAProxy without option abortonclose). So the request to
//     the target continues when a client with HTTP/1 leaves, until a write to the client fails.
//   - A service that is removed stops listening at once. Its TCP connections continue until one side
//     closes them, its HTTP connections until the current request is answered (inferred: HAProxy's
//     soft stop). Deleting the load balancer closes all its connections.
//   - A changed health check keeps the known status and probes at once with the new settings, so that
//     the change alone never takes a target out of rotation.
//
// # What is not modelled
//
//   - HTTP/2 without TLS (HAProxy recognises it by its first bytes), and the method CONNECT (405).
//   - Some requests with flaws that HAProxy 2.6 lets through and net/http's parser refuses with 400: see the rows of
//     rawRequests with a reason. HAProxy's limits of 15 kB and 100 fields for a head are those of its defaults.
//   - Throughput limits of the load balancer types, DDoS protection, HTTP/3 (the real load balancer
//     has none either).
//   - Reuse of connections to targets by services with both HTTP and the PROXY protocol: each request
//     opens its own connection to the target.
//   - Source addresses other than loopback: a target sees connections from 127.0.0.1, and the client
//     address in X-Forwarded-For and PROXY headers is the client's address on this machine.
package dataplane
