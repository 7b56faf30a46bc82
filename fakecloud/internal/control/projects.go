package control

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// ResetProject is Reset for one project: the fault rules are those that select it by its id, and the entries of the journal are its
// own. The catalogue, which all projects share, stays.
func (c *Controller) ResetProject(id int64, keep ...string) error {
	p, ok := c.Cloud.Project(id)
	if !ok {
		return noProject(id)
	}
	return c.reset([]part{
		{"faults", func() { c.API.Faults().Forget(id) }}, // first, so that no rule takes a client's next request
		{"resources", p.Reset},
		{"rate_limit", func() { c.API.FillRateLimit(id) }},
		{"journal", func() { c.Journal.Forget(id) }},
		{"limits", p.ResetLimits},
	}, keep)
}

// DropProject removes a project with its tokens, all that it owns, and the fault rules that select it by its id. Its id is not
// used again.
func (c *Controller) DropProject(id int64) error {
	if id == cloud.FirstProject {
		return fmt.Errorf("project %d: is the one that every cloud begins with, and cannot be dropped; reset it instead", id)
	}
	if !c.Cloud.DropProject(id) {
		return noProject(id)
	}
	return nil
}

// TokenProject returns the project of a token.
func (c *Controller) TokenProject(token string) (cloud.Project, error) {
	t, ok := c.Cloud.Token(token)
	if p, exists := c.Cloud.Project(t.Project); ok && exists {
		return p, nil
	}
	return cloud.Project{}, fmt.Errorf("token %w", ErrNotFound)
}

func noProject(id int64) error {
	return fmt.Errorf("project %d %w; GET /projects lists them", id, ErrNotFound)
}

type projectJSON struct {
	ID    int64  `json:"id"`
	Name  string `json:"name"`
	Auto  bool   `json:"auto"`
	Token string `json:"token,omitempty"`
}

func jsonOf(p cloud.Project) projectJSON {
	return projectJSON{ID: p.ID(), Name: p.Name(), Auto: p.Auto()}
}

// listProjects does not show tokens.
func listProjects(c *Controller, _ *http.Request) (any, error) {
	out := []projectJSON{}
	for _, p := range c.Cloud.Projects() {
		out = append(out, jsonOf(p))
	}
	return map[string]any{"projects": out}, nil
}

func addProject(c *Controller, _ *http.Request, in struct {
	Name  string `json:"name"`
	Token string `json:"token"`
}) (any, error) {
	id, token, err := c.AddProject(in.Name, in.Token)
	return map[string]any{"project": projectJSON{ID: id, Name: in.Name, Token: token}}, err
}

func addToken(c *Controller, _ *http.Request, in struct {
	Project  int64  `json:"project"`
	Token    string `json:"token"`
	ReadOnly bool   `json:"read_only"`
}) (any, error) {
	token, err := c.AddToken(in.Project, in.Token, in.ReadOnly)
	return map[string]any{"token": token, "project": in.Project, "read_only": in.ReadOnly}, err
}

func resetProject(c *Controller, _ *http.Request, id int64, in kept) (any, error) {
	return done, c.ResetProject(id, in.Keep...)
}

func dropProject(c *Controller, _ *http.Request, id int64) (any, error) {
	return done, c.DropProject(id)
}

func getToken(c *Controller, r *http.Request) (any, error) {
	p, err := c.TokenProject(pathParam(r, "token"))
	if err != nil {
		return nil, err
	}
	return map[string]any{"project": jsonOf(p)}, nil
}

func setTokenDate(c *Controller, r *http.Request, in struct {
	APIDate *string `json:"api_date"`
}) (any, error) {
	if in.APIDate == nil {
		return nil, errors.New(`api_date: is required, such as {"api_date": "2026-06-01"}; "" is the cloud's`)
	}
	err := c.SetTokenDate(pathParam(r, "token"), *in.APIDate)
	return map[string]any{"api_date": *in.APIDate}, err
}

func deleteToken(c *Controller, r *http.Request) (any, error) {
	return done, c.RevokeToken(pathParam(r, "token"))
}

// serveProject serves the API below the path of a project, without a token: who reaches the control API may do all that it can. The page
// uses it. Handler keeps web pages of other origins away.
func (c *Controller) serveProject(w http.ResponseWriter, r *http.Request) {
	id, err := idParam(r, "project")
	p, ok := c.Cloud.Project(id)
	if err == nil && !ok {
		err = noProject(id)
	}
	if err != nil {
		writeJSON(w, statusOf(err), errorBody{err.Error()})
		return
	}
	http.StripPrefix("/projects/"+chi.URLParam(r, "project"), c.API.As(p)).ServeHTTP(w, r)
}
