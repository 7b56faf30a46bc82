package api

import (
	"slices"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// Route is one operation of the API.
type Route struct {
	Method string
	// Pattern is the path below the base path, as in the API document: /servers/{id}.
	Pattern string
	// OperationID is the operation's name in the API document.
	OperationID string
	Handle      func(*Request) (Response, error)
}

// Routes returns the whole table: every operation of the API document, with those that are not modelled
// answering 501. A test compares it with the document.
func Routes() []Route {
	return slices.Concat(
		actionRoutes(),
		sshKeyRoutes(),
		networkRoutes(),
		serverNetworkRoutes(),
		serverRoutes(),
		primaryIPRoutes(),
		placementGroupRoutes(),
		locationRoutes(),
		datacenterRoutes(),
		serverTypeRoutes(),
		loadBalancerTypeRoutes(),
		loadBalancerRoutes(),
		isoRoutes(),
		pricingRoutes(),
		imageRoutes(),
		certificateRoutes(),
		notModelledRoutes(),
	)
}

// notModelled is the answer of an operation that the API has and this simulation has not.
func notModelled(operation string) func(*Request) (Response, error) {
	return func(*Request) (Response, error) { return Response{}, cloud.ErrNotModelled(operation) }
}
