package api

// handler answers a request to one operation. With an error, the response does not count.
type handler = func(*Request) (Response, error)

// Route is one operation of the API.
type Route struct {
	Method string
	// Pattern is the path without the base path, such as /servers/{id}.
	Pattern string
	// OperationID is the operation's name in the API document.
	OperationID string
	// Handle answers a request.
	Handle handler
}

// listed is a part of the API: a kind of resource and its operations.
type listed struct {
	// shown returns the resource in the form of the API's date. It is nil if projects do not own the resource.
	shown  func(*API) Shown
	routes func() []Route
}

// resources is the one list of the API's parts, in the order of a dump. Tests compare it with the cloud's resources and
// with the API document.
func resources() []listed {
	return []listed{
		{servers.on, serverRoutes},
		{networks.on, networkRoutes},
		{loadBalancers.on, loadBalancerRoutes},
		{certificates.on, certificateRoutes},
		{primaryIPs.on, primaryIPRoutes},
		{floatingIPs.on, floatingIPRoutes},
		{volumes.on, volumeRoutes},
		{firewalls.on, firewallRoutes},
		{zones.on, zoneRoutes},
		{placementGroups.on, placementGroupRoutes},
		{sshKeys.on, sshKeyRoutes},
		{images.on, imageRoutes},
		{actions.on, actionRoutes},
		{nil, locations.routes},
		{nil, datacenterRoutes},
		{nil, serverTypes.routes},
		{nil, loadBalancerTypes.routes},
		{nil, isos.routes},
		{nil, pricingRoutes},
	}
}

// Routes returns every operation of the API document.
func Routes() []Route {
	var all []Route
	for _, l := range resources() {
		all = append(all, l.routes()...)
	}
	return all
}
