// Package example is the example cloud: the smallest cloud that the conformance specs run on. It has little in common with Hetzner's. It
// is in memory, serves a JSON API, and forwards real TCP connections. The CCM for it is in ccm/example.
//
// # The API
//
// All paths begin with /accounts/demo. The account is a part of the endpoint, so the API refuses the token of another account. A request
// has the header "Authorization: Bearer <token>", and a body of one JSON object without unknown fields. Answers are JSON objects:
//
//	GET    /instances                    {"instances": [Instance, …]}   all of them: lists have no pages
//	POST   /instances                    {"name": "node-1"} → 201 {"instance": Instance}
//	GET    /instances/{id}               {"instance": Instance}
//	PATCH  /instances/{id}               {"name": "node-2"} or {"state": "stopped"} → {"instance": Instance}
//	DELETE /instances/{id}               {}
//	GET    /load-balancers               {"load_balancers": [LoadBalancer, …]}
//	POST   /load-balancers               {"name": "web", "region": "north"} → 201 {"load_balancer": LoadBalancer}
//	GET    /load-balancers/{name}        {"load_balancer": LoadBalancer}
//	DELETE /load-balancers/{name}        {}, or 409 load_balancer_in_use while it has listeners
//	GET    /listeners?load_balancer=web  {"listeners": [Listener, …]}   without the parameter: of all load balancers
//	POST   /listeners                    {"load_balancer": "web", "port": 80, "backends": ["10.64.0.2:30080"]}
//	                                     → 201 {"listener": Listener}
//	PUT    /listeners/{id}/backends      {"backends": […]} → {"listener": Listener}   replaces all of them at once
//	DELETE /listeners/{id}               {}
//	GET    /routes                       {"routes": [Route, …]}
//	PUT    /routes/{prefix}              {"instance": "vm-…"} → {"route": Route}   creates or replaces: /routes/10.244.1.0/24
//	DELETE /routes/{prefix}?instance=vm-…  {}, or 404 route_not_found if the route leads to another instance by now
//
// [Instance], [LoadBalancer], [Listener] and [Route] are the objects. The terms differ from those of other clouds on purpose:
//
//   - IDs are text. An instance also has a unique name, and a request can change it. A load balancer is identified by its name.
//   - An instance is in a zone of a region. It has a private address, and a public one on this host.
//   - A load balancer has one address. It is pending at first. It becomes active, and shows the address, a moment later.
//   - Listeners are separate objects. Their backends are bare addresses with ports: the cloud does not know the instances behind them.
//   - Labels, actions and locks do not exist. Nothing says whether a backend is healthy: the load balancer has no probes. It tries the
//     backends in turn until one accepts the connection. So this cloud shows that the specs do without health.
//   - An instance that is deleted leaves its routes and backends behind.
//
// An error is {"error": {"code": "instance_not_found", "message": "…"}}. errors.go lists all codes. An unknown path has the code
// unknown_path, so that a wrong endpoint does not look like an instance that is gone.
//
// # What is not modelled
//
// UDP, IPv6, health checks, pages of lists, quotas other than the number of load balancers, several accounts, idempotency keys.
package example
