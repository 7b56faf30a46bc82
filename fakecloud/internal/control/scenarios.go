package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	scenarios "github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/scenario"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/scenario"
)

// Scenarios returns the scenarios of the cloud.
func (c *Controller) Scenarios() scenario.Scenarios { return running{c.Cloud} }

// running implements scenario.Scenarios.
type running struct{ cloud *cloud.Cloud }

// Start implements scenario.Scenarios.
func (r running) Start(_ context.Context, start string) (scenario.Running, error) {
	in, err := wire.ReadScenario(start)
	if err != nil {
		return scenario.Running{}, err
	}
	return r.start(in)
}

func (r running) start(in wire.ScenarioStart) (scenario.Running, error) {
	file, err := scenarios.Builtin(in.Scenario)
	if in.File != "" {
		file, err = scenarios.Parse(path.Base(in.Scenario), []byte(in.File))
	}
	if err != nil {
		return scenario.Running{}, err
	}
	s, err := file.Scenario(in.Values)
	if err != nil {
		return scenario.Running{}, err
	}
	if s, err = r.cloud.StartScenario(s); err != nil {
		return scenario.Running{}, file.Explain(err)
	}
	return show(&s), nil
}

func show(s *cloud.Scenario) scenario.Running {
	return scenario.Running{
		ID: s.ID, Name: s.Name, Description: s.Description, Parameters: s.Parameters, Started: s.Started, Next: s.Next,
		InForce: len(s.InForce), Error: s.Error,
	}
}

// List implements scenario.Scenarios.
func (r running) List(context.Context) ([]scenario.Running, error) {
	all := []scenario.Running{}
	for _, s := range r.cloud.Scenarios() {
		all = append(all, show(&s))
	}
	return all, nil
}

// Available implements scenario.Scenarios.
func (r running) Available(context.Context) ([]scenario.Available, error) {
	return scenarios.Builtins(), nil
}

// End implements scenario.Scenarios.
func (r running) End(_ context.Context, id int64) error {
	if !r.cloud.EndScenario(id) {
		return fmt.Errorf("scenario %d %w; GET /scenarios lists those that run", id, scenario.ErrNotFound)
	}
	return nil
}

func listScenarios(c *Controller, r *http.Request) (any, error) {
	all, err := c.Scenarios().List(r.Context())
	return map[string]any{"running": all, "available": scenarios.Builtins()}, err
}

// startScenario does not read files of this machine: a request has the text of a file.
func startScenario(c *Controller, _ *http.Request, in wire.ScenarioStart) (any, error) {
	if in.Scenario == "" {
		return nil, errors.New(`scenario: is required, such as {"scenario": "sold-out=cx23@fsn1"}; GET /scenarios lists them`)
	}
	if in.File == "" && in.Values == "" {
		in = wire.SplitScenario(in.Scenario)
	}
	s, err := running{c.Cloud}.start(in)
	return map[string]any{"scenario": s}, err
}

func endScenario(c *Controller, r *http.Request, id int64) (any, error) {
	return done, c.Scenarios().End(r.Context(), id)
}
