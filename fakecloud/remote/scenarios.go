package remote

import (
	"context"
	"net/http"
	"strconv"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/scenario"
)

// Scenarios returns the scenarios of the cloud. Start reads a scenario file on this machine.
func (c *Client) Scenarios() scenario.Scenarios { return scenarios{c} }

// scenarios implements scenario.Scenarios over the control API.
type scenarios struct{ c *Client }

// Start implements scenario.Scenarios.
func (s scenarios) Start(ctx context.Context, start string) (scenario.Running, error) {
	in, err := wire.ReadScenario(start)
	if err != nil {
		return scenario.Running{}, err
	}
	running, err := field[scenario.Running](ctx, s.c, "scenario", http.MethodPost, "/scenarios", nil, in)
	return running, as(err, http.StatusNotFound, scenario.ErrNotFound)
}

// List implements scenario.Scenarios.
func (s scenarios) List(ctx context.Context) ([]scenario.Running, error) {
	return field[[]scenario.Running](ctx, s.c, "running", http.MethodGet, "/scenarios", nil, nil)
}

// Available implements scenario.Scenarios.
func (s scenarios) Available(ctx context.Context) ([]scenario.Available, error) {
	return field[[]scenario.Available](ctx, s.c, "available", http.MethodGet, "/scenarios", nil, nil)
}

// End implements scenario.Scenarios.
func (s scenarios) End(ctx context.Context, id int64) error {
	err := s.c.call(ctx, http.MethodDelete, "/scenarios/"+strconv.FormatInt(id, 10), nil, nil, nil)
	return as(err, http.StatusNotFound, scenario.ErrNotFound)
}
