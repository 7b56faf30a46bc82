package remote

import (
	"context"
	"net/http"
)

// HypervisorStatus shows an attached hypervisor.
type HypervisorStatus struct {
	// Name is hypervisor.Options.Name.
	Name string `json:"name"`
	// Connected is false after the connection was lost, until the grace ends or the hypervisor attaches again.
	Connected bool `json:"connected"`
	// Tasks are the ids of the actions that wait for the hypervisor.
	Tasks []int64 `json:"tasks"`
}

// Hypervisors returns the hypervisors that are attached, in the order in which they attached.
func (c *Client) Hypervisors(ctx context.Context) ([]HypervisorStatus, error) {
	return field[[]HypervisorStatus](ctx, c, "hypervisors", http.MethodGet, "/hypervisors", nil, nil)
}
