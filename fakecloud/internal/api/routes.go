package api

import "github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"

// Route is one operation of the API.
type Route struct {
	Method string
	// Pattern is the path below the base path, as in the API document: /servers/{id}.
	Pattern string
	// OperationID is the operation's name in the API document.
	OperationID string
	// Handle is nil for an operation that is not modelled. It answers 501.
	Handle func(*Request) (Response, error)
}

// listed is a part of the API: its operations, and the resource that they are about.
type listed struct {
	// shown is nil for what no project owns.
	shown  Shown
	routes func() []Route
}

// resources is the one list of what the API has, as it looks on a day, in the order in which a dump shows
// it. A test compares it with the cloud's resources, another one with the API document.
func resources(d Date) []listed {
	return []listed{
		{servers(d), serverRoutes},
		{networks, networkRoutes},
		{loadBalancers, loadBalancerRoutes},
		{certificates, certificateRoutes},
		{primaryIPs(d), primaryIPRoutes},
		{floatingIPs, floatingIPRoutes},
		{placementGroups, placementGroupRoutes},
		{sshKeys, sshKeyRoutes},
		{images, imageRoutes},
		{shownActions{}, actionRoutes},
		{nil, locationRoutes},
		{nil, datacenterRoutes},
		{nil, serverTypeRoutes},
		{nil, loadBalancerTypeRoutes},
		{nil, isoRoutes},
		{nil, pricingRoutes},
		{nil, notModelledRoutes},
	}
}

// Routes returns every operation of the API document.
func Routes() []Route {
	var all []Route
	for _, l := range resources(Date{}) {
		all = append(all, l.routes()...)
	}
	return all
}

// handle runs the operation.
func (r *Route) handle(req *Request) (Response, error) {
	if r.Handle == nil {
		return Response{}, cloud.ErrNotModelled(r.OperationID)
	}
	return r.Handle(req)
}
