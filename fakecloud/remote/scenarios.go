package remote

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/scenario"
)

// Scenarios returns the scenarios of the cloud. Start reads a scenario file on this machine.
func (c *Client) Scenarios() scenario.Scenarios { return scenarios{c} }

// scenarios implements scenario.Scenarios over the control API.
type scenarios struct{ c *Client }

type scenariosAnswer struct {
	Running   []scenario.Running   `json:"running"`
	Available []scenario.Available `json:"available"`
}

// Start implements scenario.Scenarios.
func (s scenarios) Start(ctx context.Context, start string) (scenario.Running, error) {
	var out struct {
		Scenario scenario.Running `json:"scenario"`
	}
	in, err := wire.ReadScenario(start)
	if err == nil {
		err = scenarioError(s.c.call(ctx, http.MethodPost, "/scenarios", nil, in, &out))
	}
	return out.Scenario, err
}

// List implements scenario.Scenarios.
func (s scenarios) List(ctx context.Context) ([]scenario.Running, error) {
	var out scenariosAnswer
	err := s.c.call(ctx, http.MethodGet, "/scenarios", nil, nil, &out)
	return out.Running, err
}

// Available implements scenario.Scenarios.
func (s scenarios) Available(ctx context.Context) ([]scenario.Available, error) {
	var out scenariosAnswer
	err := s.c.call(ctx, http.MethodGet, "/scenarios", nil, nil, &out)
	return out.Available, err
}

// End implements scenario.Scenarios.
func (s scenarios) End(ctx context.Context, id int64) error {
	return scenarioError(s.c.call(ctx, http.MethodDelete, "/scenarios/"+strconv.FormatInt(id, 10), nil, nil, nil))
}

// scenarioError adds the error of package scenario that an answer stands for.
func scenarioError(err error) error {
	if notFound(err) {
		return fmt.Errorf("%w: %w", scenario.ErrNotFound, err)
	}
	return err
}
