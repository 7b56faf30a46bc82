package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud"
)

// Ready returns nil when the cloud's API can be used, and an error before.
func (c *Client) Ready(ctx context.Context) error {
	return c.call(ctx, http.MethodGet, "/ready", nil, nil, nil)
}

// Reset starts the cloud over, except for what keep names: fakecloud.KeepResources and so on. See
// fakecloud.Cloud.Reset.
func (c *Client) Reset(ctx context.Context, keep ...string) error {
	return c.call(ctx, http.MethodPost, "/reset", nil, map[string][]string{"keep": keep}, nil)
}

// Selection is which projects and kinds of resources State shows; empty is all.
type Selection struct {
	Projects []int64
	Kinds    []fakecloud.Kind
}

// State returns all resources that are selected, as the API shows them: an object with the cloud's time and
// its projects.
func (c *Client) State(ctx context.Context, s Selection) (json.RawMessage, error) {
	q := url.Values{}
	for _, p := range s.Projects {
		q.Add("project", strconv.FormatInt(p, 10))
	}
	for _, k := range s.Kinds {
		q.Add("kind", string(k))
	}
	var out []byte
	err := c.call(ctx, http.MethodGet, "/state", q, nil, &out)
	return out, err
}

type clockAnswer struct {
	Time  time.Time `json:"time"`
	Speed float64   `json:"speed"`
}

// Now returns the cloud's time, in UTC.
func (c *Client) Now(ctx context.Context) (time.Time, error) {
	var out clockAnswer
	err := c.call(ctx, http.MethodGet, "/clock", nil, nil, &out)
	return out.Time, err
}

// Speed returns how fast the cloud's clock runs: 1 is as fast as the machine's, 0 is not at all.
func (c *Client) Speed(ctx context.Context) (float64, error) {
	var out clockAnswer
	err := c.call(ctx, http.MethodGet, "/clock", nil, nil, &out)
	return out.Speed, err
}

// Step moves the cloud's clock forward. What is due by then is done when it returns. It returns an error
// if d is negative, or if the cloud was given a clock that cannot be stepped.
func (c *Client) Step(ctx context.Context, d time.Duration) error {
	return c.call(ctx, http.MethodPost, "/clock/step", nil, map[string]any{"by": fakecloud.Duration(d)}, nil)
}

// SetSpeed makes the cloud's clock run faster or slower than the machine's: 60 makes a minute pass in a
// second, 0 stops it.
func (c *Client) SetSpeed(ctx context.Context, x float64) error {
	return c.call(ctx, http.MethodPut, "/clock/speed", nil, map[string]float64{"speed": x}, nil)
}

// Profile returns how long actions take, as SetProfile takes it.
func (c *Client) Profile(ctx context.Context) (string, error) {
	var out struct {
		Actions string `json:"actions"`
	}
	err := c.call(ctx, http.MethodGet, "/profile", nil, nil, &out)
	return out.Actions, err
}

// SetProfile changes how long the actions take that start from now on: "instant", "realistic", or a
// duration such as "250ms".
func (c *Client) SetProfile(ctx context.Context, actions string) error {
	return c.call(ctx, http.MethodPut, "/profile", nil, map[string]string{"actions": actions}, nil)
}

// RateLimit returns how many requests per hour each project may make, 0 for any number.
func (c *Client) RateLimit(ctx context.Context) (int, error) {
	var out struct {
		Limit int `json:"limit"`
	}
	err := c.call(ctx, http.MethodGet, "/rate_limit", nil, nil, &out)
	return out.Limit, err
}

// SetRateLimit changes how many requests per hour each project may make, 0 for any number, and fills up
// what has been used.
func (c *Client) SetRateLimit(ctx context.Context, perHour int) error {
	return c.call(ctx, http.MethodPut, "/rate_limit", nil, map[string]int{"limit": perHour}, nil)
}

// ResumeActions ends the actions that fakecloud.HangAction keeps running, as they would have ended without
// it, and returns how many there were.
func (c *Client) ResumeActions(ctx context.Context) (int, error) {
	var out struct {
		Resumed int `json:"resumed"`
	}
	err := c.call(ctx, http.MethodPost, "/actions/resume", nil, struct{}{}, &out)
	return out.Resumed, err
}

// AwaitIdle returns when no action is running in any project, or with the context's error. With a clock
// that stands still, somebody has to step it.
func (c *Client) AwaitIdle(ctx context.Context) error {
	err := await(ctx, func() error { return c.call(ctx, http.MethodGet, "/actions/idle", nil, nil, nil) })
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

// Project is one of the cloud's projects.
type Project struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

// Projects returns all projects.
func (c *Client) Projects(ctx context.Context) ([]Project, error) {
	var out struct {
		Projects []Project `json:"projects"`
	}
	err := c.call(ctx, http.MethodGet, "/projects", nil, nil, &out)
	return out.Projects, err
}

// AddProject creates a project and a token for it; "" stands for a new token, which is returned. It returns
// an error if there is a project of that name or if the token is another project's.
func (c *Client) AddProject(ctx context.Context, name, token string) (id int64, newToken string, err error) {
	var out struct {
		Project struct {
			ID    int64  `json:"id"`
			Token string `json:"token"`
		} `json:"project"`
	}
	err = c.call(ctx, http.MethodPost, "/projects", nil, map[string]string{"name": name, "token": token}, &out)
	return out.Project.ID, out.Project.Token, err
}

// AddToken makes a token of a project valid; "" stands for a new one, which is returned. A read-only token
// may only be used for GET requests.
func (c *Client) AddToken(ctx context.Context, project int64, token string, readOnly bool) (string, error) {
	var out struct {
		Token string `json:"token"`
	}
	err := c.call(ctx, http.MethodPost, "/tokens", nil,
		map[string]any{"project": project, "token": token, "read_only": readOnly}, &out)
	return out.Token, err
}

// RevokeToken makes a token invalid. It returns an error if it is not valid.
func (c *Client) RevokeToken(ctx context.Context, token string) error {
	return c.call(ctx, http.MethodDelete, "/tokens/"+url.PathEscape(token), nil, nil, nil)
}
