package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
)

// Ready returns nil when the cloud's API can be used, and an error before.
func (c *Client) Ready(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/ready", nil, nil, nil)
}

// Reset removes resources, actions, fault rules and the journal, except for the parts in keep: see
// fakecloud.Cloud.Reset.
func (c *Client) Reset(ctx context.Context, keep ...string) error {
	return c.call(ctx, http.MethodPost, "/reset", nil, map[string][]string{"keep": keep}, nil)
}

// State returns the selected resources as the API shows them: see fakecloud.Cloud.State.
func (c *Client) State(ctx context.Context, s fakecloud.Selection) (json.RawMessage, error) {
	var out []byte
	err := c.call(ctx, http.MethodGet, "/state", wire.SelectionQuery(s.Projects, s.Kinds), nil, &out)
	return out, err
}

// Now returns the cloud's time, in UTC.
func (c *Client) Now(ctx context.Context) (time.Time, error) {
	return field[time.Time](ctx, c, "time", http.MethodGet, "/clock", nil, nil)
}

// Speed returns the speed of the cloud's clock: see fakecloud.Cloud.Speed.
func (c *Client) Speed(ctx context.Context) (float64, error) {
	return field[float64](ctx, c, "speed", http.MethodGet, "/clock", nil, nil)
}

// Step moves the cloud's clock forward: see fakecloud.Cloud.Step.
func (c *Client) Step(ctx context.Context, d time.Duration) error {
	return c.call(ctx, http.MethodPost, "/clock/step", nil, map[string]any{"by": fault.Duration(d)}, nil)
}

// SetSpeed sets the speed of the cloud's clock: see fakecloud.Cloud.SetSpeed.
func (c *Client) SetSpeed(ctx context.Context, x float64) error {
	return c.call(ctx, http.MethodPut, "/clock/speed", nil, map[string]float64{"speed": x}, nil)
}

// Profile returns how long actions take, in the form of SetProfile.
func (c *Client) Profile(ctx context.Context) (string, error) {
	return field[string](ctx, c, "actions", http.MethodGet, "/profile", nil, nil)
}

// SetProfile changes how long actions take: "instant", "realistic", or a duration such as "250ms".
func (c *Client) SetProfile(ctx context.Context, actions string) error {
	return c.call(ctx, http.MethodPut, "/profile", nil, map[string]string{"actions": actions}, nil)
}

// RateLimit returns the number of requests per hour and project, 0 for no limit.
func (c *Client) RateLimit(ctx context.Context) (int, error) {
	return field[int](ctx, c, "limit", http.MethodGet, "/rate_limit", nil, nil)
}

// SetRateLimit changes the number of requests per hour and project, 0 for no limit, and fills the limits.
func (c *Client) SetRateLimit(ctx context.Context, perHour int) error {
	return c.call(ctx, http.MethodPut, "/rate_limit", nil, map[string]int{"limit": perHour}, nil)
}

// Timeline returns what is due later, in the order in which it happens. Actions that wait for another action, for a hypervisor
// or for ResumeActions are not in it.
func (c *Client) Timeline(ctx context.Context) ([]fakecloud.Due, error) {
	return field[[]fakecloud.Due](ctx, c, "timeline", http.MethodGet, "/timeline", nil, nil)
}

// Fork is a copy of a cloud, with a control API of its own.
type Fork struct {
	*Client
	// Endpoint is the URL of the copy's public API. Its tokens are those of the original.
	Endpoint string

	original *Client
	id       int
}

// Fork returns a copy of the cloud as it is now: see fakecloud.Cloud.Fork. Close it after use: a cloud has at most 100, those of
// forks included.
func (c *Client) Fork(ctx context.Context) (*Fork, error) {
	id, err := field[int](ctx, c, "id", http.MethodPost, "/fork", nil, struct{}{})
	if err != nil {
		return nil, err
	}
	copied := &Client{fmt.Sprintf("%s/forks/%d", c.url, id), c.http}
	return &Fork{copied, copied.url + "/v1", c, id}, nil
}

// Close removes the copy.
func (f *Fork) Close(ctx context.Context) error {
	return f.original.call(ctx, http.MethodDelete, fmt.Sprintf("/forks/%d", f.id), nil, nil, nil)
}

// Save writes a snapshot of the cloud: see fakecloud.Cloud.Save.
func (c *Client) Save(ctx context.Context, w io.Writer) error {
	var text []byte
	if err := c.call(ctx, http.MethodGet, "/snapshot", nil, nil, &text); err != nil {
		return err
	}
	_, err := w.Write(text)
	return err
}

// Restore replaces all that the cloud has by a snapshot: see fakecloud.Cloud.Restore.
func (c *Client) Restore(ctx context.Context, r io.Reader) error {
	return c.call(ctx, http.MethodPut, "/snapshot", nil, r, nil)
}

// ResumeActions ends the actions that fault.HangAction keeps running and returns their number.
func (c *Client) ResumeActions(ctx context.Context) (int, error) {
	return field[int](ctx, c, "resumed", http.MethodPost, "/actions/resume", nil, struct{}{})
}

// AwaitIdle returns when no action is running in any project, or with the context's error. If the clock stands
// still, step it meanwhile.
func (c *Client) AwaitIdle(ctx context.Context) error {
	_, err := await(ctx, func() (out any, err error) { return nil, c.call(ctx, http.MethodGet, "/actions/idle", nil, nil, nil) })
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("actions are still running: %w", context.Cause(ctx))
	}
	return err
}

// CARoots returns, in PEM, the root of the authority that issues the cloud's managed certificates.
func (c *Client) CARoots(ctx context.Context) ([]byte, error) {
	var out []byte
	err := c.call(ctx, http.MethodGet, "/ca_roots", nil, nil, &out)
	return out, err
}

// Door returns what a door shows, such as guests, in JSON: see fakecloud.Cloud.ShowDoor.
func (c *Client) Door(ctx context.Context, name string, q url.Values) (json.RawMessage, error) {
	var out []byte
	err := c.call(ctx, http.MethodGet, "/doors/"+url.PathEscape(name), q, nil, &out)
	return out, err
}

// ReportServerUsage reports what a server uses, for its metrics: see fakecloud.Cloud.ReportServerUsage.
func (c *Client) ReportServerUsage(ctx context.Context, server int64, u hypervisor.Usage) error {
	if err := u.Check(); err != nil { // JSON has no such numbers
		return fmt.Errorf("usage of server %d: %w", server, err)
	}
	return c.call(ctx, http.MethodPut, "/servers/"+strconv.FormatInt(server, 10)+"/usage", nil, u, nil)
}

// Projects returns all projects.
func (c *Client) Projects(ctx context.Context) ([]fakecloud.Project, error) {
	return field[[]fakecloud.Project](ctx, c, "projects", http.MethodGet, "/projects", nil, nil)
}

// AddProject creates a project and a token for it: see fakecloud.Cloud.AddProject.
func (c *Client) AddProject(ctx context.Context, name, token string) (id int64, newToken string, err error) {
	p, err := field[struct {
		ID    int64
		Token string
	}](ctx, c, "project", http.MethodPost, "/projects", nil, map[string]string{"name": name, "token": token})
	return p.ID, p.Token, err
}

// ResetProject removes what one project owns, its requests in the journal and its fault rules, except for the parts in keep: see
// fakecloud.Cloud.ResetProject.
func (c *Client) ResetProject(ctx context.Context, id int64, keep ...string) error {
	return c.call(ctx, http.MethodPost, projectPath(id)+"/reset", nil, map[string][]string{"keep": keep}, nil)
}

// DropProject removes a project with its tokens and all that it owns: see fakecloud.Cloud.DropProject.
func (c *Client) DropProject(ctx context.Context, id int64) error {
	return c.call(ctx, http.MethodDelete, projectPath(id), nil, nil, nil)
}

func projectPath(id int64) string { return "/projects/" + strconv.FormatInt(id, 10) }

// TokenProject returns the project of a token: see fakecloud.Cloud.TokenProject.
func (c *Client) TokenProject(ctx context.Context, token string) (fakecloud.Project, error) {
	return field[fakecloud.Project](ctx, c, "project", http.MethodGet, "/tokens/"+url.PathEscape(token), nil, nil)
}

// AddToken makes a token of a project valid and returns it: see fakecloud.Cloud.AddToken.
func (c *Client) AddToken(ctx context.Context, project int64, token string, readOnly bool) (string, error) {
	return field[string](ctx, c, "token", http.MethodPost, "/tokens", nil,
		map[string]any{"project": project, "token": token, "read_only": readOnly})
}

// SetTokenDate gives a token an API date of its own, and "" takes it away: see fakecloud.Cloud.SetTokenDate.
func (c *Client) SetTokenDate(ctx context.Context, token, date string) error {
	return c.call(ctx, http.MethodPut, "/tokens/"+url.PathEscape(token), nil, map[string]string{"api_date": date}, nil)
}

// RevokeToken makes a token invalid. It returns an error if the token is not valid.
func (c *Client) RevokeToken(ctx context.Context, token string) error {
	return c.call(ctx, http.MethodDelete, "/tokens/"+url.PathEscape(token), nil, nil, nil)
}
