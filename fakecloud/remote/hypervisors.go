package remote

import (
	"context"
	"net/http"
)

// HypervisorStatus shows a hypervisor that is attached.
type HypervisorStatus struct {
	// Name is the one that it attached with.
	Name string `json:"name"`
	// Connected is false after its connection was lost, for as long as it may come back.
	Connected bool `json:"connected"`
	// Tasks are the ids of the actions that wait for it.
	Tasks []int64 `json:"tasks"`
}

// Hypervisors returns the hypervisors that are attached, in the order in which they attached.
func (c *Client) Hypervisors(ctx context.Context) ([]HypervisorStatus, error) {
	var out struct {
		Hypervisors []HypervisorStatus `json:"hypervisors"`
	}
	err := c.call(ctx, http.MethodGet, "/hypervisors", nil, nil, &out)
	return out.Hypervisors, err
}
