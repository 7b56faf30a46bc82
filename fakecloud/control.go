package fakecloud

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/catalogue"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/fault"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/scenario"
)

// The methods of this file are also those of remote.Client, so that one interface covers a cloud in this process and
// one elsewhere. That is why they take a context and return an error where this cloud needs neither.

// DefaultProject is the id of the project that every cloud begins with.
const DefaultProject int64 = 1

// Journal returns the requests that the cloud has answered.
func (c *Cloud) Journal() journal.Journal { return c.journal }

// Faults returns the rules by which the cloud misbehaves; at first there are none.
func (c *Cloud) Faults() fault.Rules { return c.api.Faults() }

// Scenarios returns the scenarios of the cloud, which rehearse what breaks clients of the real one; at first none runs.
func (c *Cloud) Scenarios() scenario.Scenarios { return c.controller.Scenarios() }

// AttachHypervisor attaches a hypervisor, which from now on decides how the actions of servers' guests end: see
// package hypervisor. Errors: wrong options, hypervisor.ErrClosed.
func (c *Cloud) AttachHypervisor(_ context.Context, o hypervisor.Options) (hypervisor.Session, error) {
	return c.cloud.AttachHypervisor(o)
}

// ShowDoor serves GET /doors/NAME of the control API by a handler: what a program shows that stands in front of the cloud.
func (c *Cloud) ShowDoor(name string, h http.Handler) { c.controller.Doors.Store(name, h) }

// ReportServerUsage reports what a server uses, for its metrics. From a server's first report on, its metrics show the
// reports and nothing that is made up. It returns an error if the server does not exist, or if a value is negative,
// infinite or not a number.
func (c *Cloud) ReportServerUsage(_ context.Context, server int64, u hypervisor.Usage) error {
	return c.controller.ReportServerUsage(server, u)
}

// Ready returns nil while clients can use the API, and an error before [Cloud.Start].
func (c *Cloud) Ready(context.Context) error {
	if !c.ready.Load() {
		return errors.New("the API is not ready; call Start first")
	}
	return nil
}

// Selection is a part of the cloud's state. Empty fields select everything.
type Selection struct {
	// Projects are ids of projects.
	Projects []int64
	// Kinds are kinds of resources, as in [Event].
	Kinds []string
}

// State returns the selected resources as the API shows them, in JSON:
//
//	{"time": "…", "projects": [{"id": 1, "name": "default", "resources": {"servers": […], "networks": […]}}]}
//
// It returns an error if a kind does not exist.
func (c *Cloud) State(ctx context.Context, s Selection) (json.RawMessage, error) {
	return c.ask(ctx, "/state?"+wire.SelectionQuery(s.Projects, s.Kinds).Encode())
}

// ask returns the answer of the control API to a GET request.
func (c *Cloud) ask(ctx context.Context, path string) (json.RawMessage, error) {
	status, body, err := send(ctx, c.ControlHandler(), http.MethodGet, path, http.Header{}, nil)
	if err == nil && status != http.StatusOK {
		path, _, _ = strings.Cut(path, "?")
		err = fmt.Errorf("%s: %s", path, body)
	}
	return body, err
}

// Parts of the cloud that [Cloud.Reset] can keep.
const (
	KeepResources = "resources"
	KeepJournal   = "journal"
	KeepFaults    = "faults"
	KeepRateLimit = "rate_limit"
	KeepCatalogue = "catalogue"
	KeepLimits    = "limits"
	KeepScenarios = "scenarios"
)

// Reset ends all scenarios, removes all resources, actions and fault rules, empties the journal, fills the rate limits, and restores the
// catalogue and the limits of projects that the cloud began with, except for the parts in keep. Projects, tokens, the clock and the
// duration of actions stay. Ids are not used again. It returns an error if keep has a part that does not exist.
func (c *Cloud) Reset(_ context.Context, keep ...string) error { return c.controller.Reset(keep...) }

// Now returns the cloud's time, in UTC. The error is nil.
func (c *Cloud) Now(context.Context) (time.Time, error) { return c.cloud.Now(), nil }

// Step moves the cloud's clock forward. What becomes due is done when it returns, and with a data plane, load balancers have
// followed all changes and know the result of each health check that is due: a target that neither answers nor refuses is waited
// for two seconds of the machine's time. It returns an error if d is negative, or if Options.Clock has no method Step.
func (c *Cloud) Step(_ context.Context, d time.Duration) error { return c.controller.Step(d) }

// Speed returns the speed of the cloud's clock: 1 is that of the machine's clock, 0 means that it stands still. The
// error is nil.
func (c *Cloud) Speed(context.Context) (float64, error) { return c.controller.Speed(), nil }

// SetSpeed sets the speed of the cloud's clock: at 60 a minute passes in a second, at 0 the clock stands still. It
// returns an error if Options.Clock was given.
func (c *Cloud) SetSpeed(_ context.Context, x float64) error { return c.controller.SetSpeed(x) }

// Profile returns how long actions take, in the form of SetProfile. The error is nil.
func (c *Cloud) Profile(context.Context) (string, error) { return c.controller.Profile(), nil }

// SetProfile changes how long actions take, for those that start from now on: "instant", "realistic", or a duration
// such as "250ms".
func (c *Cloud) SetProfile(_ context.Context, actions string) error {
	return c.controller.SetProfile(actions)
}

// RateLimit returns the number of requests per hour and project, 0 for no limit. The error is nil.
func (c *Cloud) RateLimit(context.Context) (int, error) { return c.controller.RateLimit(), nil }

// SetRateLimit changes the number of requests per hour and project, 0 for no limit, and fills the limits.
func (c *Cloud) SetRateLimit(_ context.Context, perHour int) error {
	return c.controller.SetRateLimit(perHour)
}

// Catalogue returns the server types as the API shows them, in JSON, with those that are retired in all locations:
//
//	{"time": "…", "server_types": […]}
func (c *Cloud) Catalogue(ctx context.Context) (json.RawMessage, error) {
	return c.ask(ctx, "/catalogue")
}

// OfferServerType changes how a server type, by name or id, is offered in a location. If location is empty, it changes all locations
// in which the type is offered; if o.Offered is set, all locations of the cloud. All projects see the change at once. The error is
// catalogue.ErrNotFound if the type or the location does not exist, or says which field is wrong; then nothing changes.
func (c *Cloud) OfferServerType(_ context.Context, serverType, location string, o catalogue.Offer) error {
	return c.cloud.OfferServerType(serverType, location, o)
}

// AddServerType adds a server type, which is a copy of another one with some changes. The error is catalogue.ErrNotFound if that one
// does not exist, catalogue.ErrExists if the name is taken, or says which field is wrong.
func (c *Cloud) AddServerType(_ context.Context, t catalogue.NewServerType) error {
	return c.cloud.AddServerType(t)
}

// ResetCatalogue restores the catalogue that the cloud began with. Servers of types that are not in it keep them. The error is
// nil.
func (c *Cloud) ResetCatalogue(context.Context) error {
	c.cloud.ResetCatalogue()
	return nil
}

// Limits returns how many resources of each kind a project may own, in the form of [Options].Limits. It returns an error if the
// project does not exist.
func (c *Cloud) Limits(_ context.Context, project int64) (map[string]int, error) {
	return c.controller.Limits(project)
}

// SetLimits replaces the limits of a project, which are those of [Options].Limits at first. What the project owns stays, also if it is
// more. It returns an error if the project or a kind does not exist, or if a limit is negative; then nothing changes.
func (c *Cloud) SetLimits(_ context.Context, project int64, limits map[string]int) error {
	return c.controller.SetLimits(project, limits)
}

// Due is something that the cloud does at a time.
type Due struct {
	Time    time.Time `json:"time"`
	Project int64     `json:"project"` // 0 for a hypervisor's and a scenario's
	// What is action_ends, task_deadline, backup, guest_off, rescue_ends, server_health, load_balancer_health, renewal_scheduled,
	// renewal, delegation_check, scenario_step or hypervisor_grace_ends.
	What string `json:"what"`
	// Action is the id of the action that ends, 0 for none, and Command its command, such as create_server.
	Action  int64  `json:"action"`
	Command string `json:"command"`
	// Resources are what it is about.
	Resources []Resource `json:"resources"`
}

// Resource names a resource, as in an action's JSON.
type Resource struct {
	ID   int64  `json:"id"`
	Kind string `json:"type"`
}

// Timeline returns what is due later, in the order in which it happens. Actions that wait for another action, for a hypervisor
// or for ResumeActions are not in it. The error is nil.
func (c *Cloud) Timeline(context.Context) ([]Due, error) {
	var all []Due
	for _, d := range c.cloud.Timeline() {
		due := Due{Time: d.Time, Project: d.Project, What: d.What, Action: d.Action, Command: d.Command}
		for _, r := range d.Resources {
			due.Resources = append(due.Resources, Resource{r.ID, string(r.Kind)})
		}
		all = append(all, due)
	}
	return all, nil
}

// ResumeActions ends the actions that [fault.HangAction] keeps running, with their usual results, and
// returns their number. The error is nil.
func (c *Cloud) ResumeActions(context.Context) (int, error) { return c.cloud.ResumeActions(), nil }

// AwaitIdle returns when no action is running in any project, or with the context's error. If the clock stands
// still, step it meanwhile.
func (c *Cloud) AwaitIdle(ctx context.Context) error {
	if err := c.controller.AwaitIdle(ctx); err != nil {
		return fmt.Errorf("actions are still running: %w", err)
	}
	return nil
}

// Project is one of the cloud's projects.
type Project struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
	// Auto is true for a project that was made for an unknown token: see Options.AutoProjects.
	Auto bool `json:"auto"`
}

func projectOf(p cloud.Project) Project { return Project{p.ID(), p.Name(), p.Auto()} }

// Projects returns all projects. The error is nil.
func (c *Cloud) Projects(context.Context) ([]Project, error) {
	var out []Project
	for _, p := range c.cloud.Projects() {
		out = append(out, projectOf(p))
	}
	return out, nil
}

// AddProject creates a project and a token for it. If token is empty, it makes one. It returns both. Projects see
// nothing of each other. It returns an error if a project of that name exists, or if the token is another project's.
func (c *Cloud) AddProject(_ context.Context, name, token string) (id int64, newToken string, err error) {
	return c.controller.AddProject(name, token)
}

// ResetProject is Reset for one project. Of the fault rules and the journal, it removes the rules that select the project by its id,
// and the project's entries. The catalogue stays. It returns an error if the project does not exist, or if keep has a part that does
// not exist.
func (c *Cloud) ResetProject(_ context.Context, id int64, keep ...string) error {
	return c.controller.ResetProject(id, keep...)
}

// DropProject removes a project with its tokens, all that it owns, and the fault rules that select it by its id. Its requests stay in
// the journal, and its id is not used again. With Options.AutoProjects, the next request with one of its tokens makes a new project.
// It returns an error if the project does not exist, or if it is DefaultProject.
func (c *Cloud) DropProject(_ context.Context, id int64) error { return c.controller.DropProject(id) }

// TokenProject returns the project of a token, such as one that Options.AutoProjects has made. It returns an error if the token is
// not valid, or if there was no request with it yet.
func (c *Cloud) TokenProject(_ context.Context, token string) (Project, error) {
	p, err := c.controller.TokenProject(token)
	if err != nil {
		return Project{}, err
	}
	return projectOf(p), nil
}

// AddToken makes a token of a project valid and returns it. If token is empty, it makes one. A read-only token is
// valid for GET requests only.
func (c *Cloud) AddToken(_ context.Context, project int64, token string, readOnly bool) (string, error) {
	return c.controller.AddToken(project, token, readOnly)
}

// SetTokenDate gives a token an API date of its own, a day such as "2026-06-01". The token sees the API as it was then, and
// other tokens see that of [Options].APIDate. "" takes the token's date away. It returns an error if the token is not
// valid or the date is not a day.
func (c *Cloud) SetTokenDate(_ context.Context, token, date string) error {
	return c.controller.SetTokenDate(token, date)
}

// RevokeToken makes a token invalid. It returns an error if the token is not valid.
func (c *Cloud) RevokeToken(_ context.Context, token string) error {
	return c.controller.RevokeToken(token)
}

// CARoots returns, in PEM, the root of the authority that issues the cloud's managed certificates. It is made for
// this cloud and good for tests only. The error is nil.
func (c *Cloud) CARoots(context.Context) ([]byte, error) { return c.cloud.CARoots(), nil }

// CertPool is CARoots as a pool for the tls.Config of a client that talks to a load balancer. A managed certificate is
// valid on the cloud's clock: if that differs from the machine's, set tls.Config.Time to it.
func (c *Cloud) CertPool() *x509.CertPool { return c.cloud.CertPool() }
