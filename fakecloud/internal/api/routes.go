package api

import "github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"

// Route is one operation of the API.
type Route struct {
	Method string
	// Pattern is the path without the base path, such as /servers/{id}.
	Pattern string
	// OperationID is the operation's name in the API document.
	OperationID string
	// Handle answers a request. If nil, the operation is not modelled and answers 501.
	Handle func(*Request) (Response, error)
}

// listed is a part of the API: a kind of resource and its operations.
type listed struct {
	// shown is nil if projects do not own the resource.
	shown  Shown
	routes func() []Route
}

// resources is the one list of the API's parts, in the form of a date and in the order of a dump. Tests compare it with
// the cloud's resources and with the API document.
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
