package program

import (
	"context"

	"github.com/ccm-from-scratch/ccm-from-scratch/e2e/cloud"
)

var (
	_ cloud.Partial  = (*program)(nil)
	_ cloud.Renamer  = (*program)(nil)
	_ cloud.Router   = (*program)(nil)
	_ cloud.Recorder = (*program)(nil)
	_ cloud.Faulty   = (*program)(nil)
	_ cloud.Limiter  = (*program)(nil)
	_ cloud.Dumper   = (*program)(nil)
	_ cloud.Mute     = (*program)(nil)
)

// The parameters of methods that have one.
type (
	byID struct {
		ID string `json:"id"`
	}
	byName struct {
		Name string `json:"name"`
	}
	ofRoute struct {
		Route cloud.Route `json:"route"`
	}
)

// ask returns the result of a method.
func ask[T any](ctx context.Context, c *program, method string, params any) (result T, err error) {
	err = c.call(ctx, method, params, &result)
	return result, err
}

// CCM implements cloud.Cloud: it is in the result of Start and Open.
func (c *program) CCM() cloud.CCM { return c.ccm }

// CreateServer implements cloud.Cloud.
func (c *program) CreateServer(ctx context.Context, name string) (cloud.Server, error) {
	return ask[cloud.Server](ctx, c, "CreateServer", byName{name})
}

// DeleteServer implements cloud.Cloud.
func (c *program) DeleteServer(ctx context.Context, id string) error {
	return c.call(ctx, "DeleteServer", byID{id}, nil)
}

// StopServer implements cloud.Cloud.
func (c *program) StopServer(ctx context.Context, id string) error {
	return c.call(ctx, "StopServer", byID{id}, nil)
}

// StartServer implements cloud.Cloud.
func (c *program) StartServer(ctx context.Context, id string) error {
	return c.call(ctx, "StartServer", byID{id}, nil)
}

// Servers implements cloud.Cloud.
func (c *program) Servers(ctx context.Context) ([]cloud.Server, error) {
	return ask[[]cloud.Server](ctx, c, "Servers", struct{}{})
}

// LoadBalancers implements cloud.Cloud.
func (c *program) LoadBalancers(ctx context.Context) ([]cloud.LoadBalancer, error) {
	return ask[[]cloud.LoadBalancer](ctx, c, "LoadBalancers", struct{}{})
}

// DeleteLoadBalancer implements cloud.Cloud.
func (c *program) DeleteLoadBalancer(ctx context.Context, id string) error {
	return c.call(ctx, "DeleteLoadBalancer", byID{id}, nil)
}

// RenameServer implements cloud.Renamer.
func (c *program) RenameServer(ctx context.Context, id, name string) error {
	return c.call(ctx, "RenameServer", struct {
		byID
		byName
	}{byID{id}, byName{name}}, nil)
}

// Routes implements cloud.Router.
func (c *program) Routes(ctx context.Context) ([]cloud.Route, error) {
	return ask[[]cloud.Route](ctx, c, "Routes", struct{}{})
}

// AddRoute implements cloud.Router.
func (c *program) AddRoute(ctx context.Context, r cloud.Route) error {
	return c.call(ctx, "AddRoute", ofRoute{r}, nil)
}

// DeleteRoute implements cloud.Router.
func (c *program) DeleteRoute(ctx context.Context, r cloud.Route) error {
	return c.call(ctx, "DeleteRoute", ofRoute{r}, nil)
}

// Requests implements cloud.Recorder.
func (c *program) Requests(ctx context.Context, after uint64) ([]cloud.Request, error) {
	return ask[[]cloud.Request](ctx, c, "Requests", map[string]uint64{"after": after})
}

// AddFault implements cloud.Faulty.
func (c *program) AddFault(ctx context.Context, f cloud.Fault) (string, error) {
	return ask[string](ctx, c, "AddFault", map[string]cloud.Fault{"fault": f})
}

// Met implements cloud.Faulty.
func (c *program) Met(ctx context.Context, name string) (int, error) {
	return ask[int](ctx, c, "Met", byName{name})
}

// RemoveFault implements cloud.Faulty.
func (c *program) RemoveFault(ctx context.Context, name string) error {
	return c.call(ctx, "RemoveFault", byName{name}, nil)
}

// Dump implements cloud.Dumper.
func (c *program) Dump(ctx context.Context) string {
	state, err := ask[string](ctx, c, "Dump", struct{}{})
	if err != nil {
		return err.Error()
	}
	return state
}

// LimitLoadBalancers implements cloud.Limiter.
func (c *program) LimitLoadBalancers(ctx context.Context, most int) error {
	return c.call(ctx, "LimitLoadBalancers", map[string]int{"most": most}, nil)
}

// ForwardsNothing implements cloud.Mute. It does not call the program.
func (c *program) ForwardsNothing() {}
