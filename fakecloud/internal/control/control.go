// Package control controls a cloud from outside its API: it shows the whole state and the journal, makes the cloud
// misbehave, moves its clock and resets it. [Controller] has Go methods for this, and [Controller.Handler] serves them
// over HTTP.
package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/hypervisor"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/requestlog"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/simclock"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/wire"
)

// Controller controls one cloud. Its methods may be called from several goroutines.
type Controller struct {
	Cloud   *cloud.Cloud
	API     *api.API
	Journal *requestlog.Log
	// AllowedHosts are names that the control API accepts in addition to loopback names and addresses.
	AllowedHosts []string
	// Endpoint, if set, returns the endpoint of the API for clients on this machine. The page shows it.
	Endpoint func() string
	// PublicToken is a token that everyone knows. The page shows it while it is valid, and no other one.
	PublicToken string
	// Endpoints, if set, returns where load balancers listen on this machine.
	Endpoints func() []wire.LoadBalancerEndpoint
	// Traffic, if set, returns what each load balancer has moved.
	Traffic func() []wire.LoadBalancerTraffic
	// StepDataPlane moves the clock by calls of step, and waits for the health checks of load balancers. It is nil without a data plane.
	StepDataPlane func(by time.Duration, step func(time.Duration) error) error
	// Ready, if set, returns an error if clients cannot use the API.
	Ready func() error

	// Doors show what stands in front of the cloud, such as its guests: an http.Handler by the name of each.
	Doors sync.Map

	// NewFork returns a fork of the cloud, with its own API and control API.
	NewFork func() *Fork
	forks   forks

	maxSnapshot int64 // bytes

	observe sync.Once
	metrics *metrics // nil until Observe

	mu        sync.Mutex // guards the fields below, and AddProject
	actions   string
	rateLimit int
}

// New returns a controller. actions and rateLimit are the current settings of the cloud and the API.
func New(c *cloud.Cloud, a *api.API, j *requestlog.Log, actions string, rateLimit int) *Controller {
	controller := &Controller{Cloud: c, API: a, Journal: j, actions: actions, rateLimit: rateLimit, maxSnapshot: maxSnapshot}
	controller.forks.count = new(atomic.Int64)
	controller.saveAlso()
	return controller
}

// Fork returns the controller of a fork of the cloud, with the same settings.
func (c *Controller) Fork(f *cloud.Cloud, a *api.API, j *requestlog.Log) *Controller {
	c.mu.Lock()
	defer c.mu.Unlock()
	fork := New(f, a, j, c.actions, c.rateLimit)
	fork.AllowedHosts, fork.forks.count = c.AllowedHosts, c.forks.count
	return fork
}

// part is a part of the cloud that a reset resets.
type part struct {
	name  string
	reset func()
}

// parts lists the parts of the whole cloud in the order of a reset.
func (c *Controller) parts() []part {
	return []part{
		{"scenarios", c.Cloud.EndScenarios},
		// Before the resources, so that no rule takes a client's next request.
		{"faults", func() { _ = c.API.Faults().Clear(context.Background()) }}, // returns no error
		{"resources", c.Cloud.Reset},
		{"catalogue", c.Cloud.ResetCatalogue},
		{"limits", c.Cloud.ResetLimits},
		{"rate_limit", func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.API.SetRateLimit(c.rateLimit)
		}},
		{"journal", func() { _ = c.Journal.Reset(context.Background()) }}, // returns no error
	}
}

// Reset ends all scenarios, removes all resources, actions and fault rules, empties the journal, fills the rate limits, and restores the
// catalogue and the limits of projects that the cloud began with, except for the parts in keep. Projects, tokens, the clock and the
// duration of actions stay.
func (c *Controller) Reset(keep ...string) error { return c.reset(c.parts(), keep) }

// reset resets parts, except for those in keep.
func (c *Controller) reset(some []part, keep []string) error {
	var names []string
	for _, p := range c.parts() {
		names = append(names, p.name)
	}
	for _, k := range keep {
		if !slices.Contains(names, k) {
			return fmt.Errorf("keep: unknown part %.64q: must be one of %s", k, strings.Join(names, ", "))
		}
	}
	for _, p := range some {
		if !slices.Contains(keep, p.name) {
			p.reset()
		}
	}
	return nil
}

// ErrClock is the error if the clock of the cloud's options has no method for the request.
var ErrClock = errors.New("the clock in the cloud's options cannot do this; leave Options.Clock empty")

// Step moves the clock forward and waits until the cloud, and its data plane if it has one, have done what became due.
func (c *Controller) Step(d time.Duration) error {
	clock := c.Cloud.Clock()
	ours, isOurs := clock.(*simclock.Clock)
	other, isOther := clock.(interface{ Step(time.Duration) }) // k8s.io/utils/clock/testing
	switch {
	case isOurs:
		if err := ours.CheckStep(d); err != nil {
			return err
		}
		if err := c.Cloud.AllowTime(c.Cloud.Now().Add(d + cloud.TimeAhead(ours.Speed()))); err != nil {
			return err
		}
	case !isOther:
		return fmt.Errorf("step: %w", ErrClock)
	case d < 0:
		return fmt.Errorf("clock step %v: must not be negative", d)
	}
	step := func(d time.Duration) (err error) {
		if isOurs {
			err = ours.Step(d)
		} else {
			other.Step(d)
		}
		c.Cloud.Settle()
		return err
	}
	if c.StepDataPlane != nil {
		return c.StepDataPlane(d, step)
	}
	return step(d)
}

// SetSpeed makes the clock run faster or slower than the machine's. 0 stops it.
func (c *Controller) SetSpeed(x float64) error {
	clk, ok := c.Cloud.Clock().(*simclock.Clock)
	if !ok {
		return fmt.Errorf("speed: %w", ErrClock)
	}
	if x > 1 && x <= simclock.MaxSpeed {
		if err := c.Cloud.AllowTime(c.Cloud.Now().Add(cloud.TimeAhead(x))); err != nil {
			return err
		}
	}
	return clk.SetSpeed(x)
}

// Speed returns the clock's speed. For a clock of the options, it is 0 if the clock only moves by steps, and 1 otherwise.
func (c *Controller) Speed() float64 {
	switch clk := c.Cloud.Clock().(type) {
	case *simclock.Clock:
		return clk.Speed()
	case clock.RealClock:
		return 1
	case interface{ Step(time.Duration) }:
		return 0
	}
	return 1
}

// SetProfile changes how long actions take, for those that start from now on: "instant", "realistic" or a duration.
func (c *Controller) SetProfile(actions string) error {
	p, err := cloud.ParseProfile(actions)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Cloud.SetProfile(p)
	c.actions = actions
	return nil
}

// Profile returns how long actions take, in the form of SetProfile.
func (c *Controller) Profile() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.actions
}

// maxRateLimit is small enough that all numbers in headers fit in an int32.
const maxRateLimit = 1_000_000_000

// SetRateLimit changes how many requests per hour each project may make, 0 for no limit, and fills the limits.
func (c *Controller) SetRateLimit(perHour int) error {
	if perHour < 0 || perHour > maxRateLimit {
		return fmt.Errorf("rate limit %d: must be 1 to %d requests per hour, or 0 for no limit", perHour, maxRateLimit)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.API.SetRateLimit(perHour)
	c.rateLimit = perHour
	return nil
}

// RateLimit returns the limit.
func (c *Controller) RateLimit() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rateLimit
}

// ErrExists is the error if a new name or token exists already, ErrNotFound the error if a name, id or token does not
// exist.
var (
	ErrExists   = errors.New("exists already")
	ErrNotFound = errors.New("does not exist")
)

// Project returns the project with a name.
func (c *Controller) Project(name string) (cloud.Project, bool) {
	for _, p := range c.Cloud.Projects() {
		if p.Name() == name {
			return p, true
		}
	}
	return cloud.Project{}, false
}

// AddProject creates a project without resources, and a token for it. If token is empty, it makes one.
func (c *Controller) AddProject(name, token string) (int64, string, error) {
	token, err := checkedToken(token)
	if err != nil {
		return 0, "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.Cloud.Token(token); ok {
		return 0, "", fmt.Errorf("token %w", ErrExists)
	}
	if name == "" || len(name) > 128 {
		return 0, "", errors.New("name of a project: must have 1 to 128 characters")
	}
	if _, ok := c.Project(name); ok {
		return 0, "", fmt.Errorf("project %q %w", name, ErrExists)
	}
	id := c.Cloud.AddProject(name).ID()
	c.Cloud.AddToken(token, cloud.Token{Project: id})
	return id, token, nil
}

// AddToken makes a token of a project valid and returns it. If token is empty, it makes one.
func (c *Controller) AddToken(project int64, token string, readOnly bool) (string, error) {
	token, err := checkedToken(token)
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.Cloud.Token(token); ok && t.Project != project {
		return "", fmt.Errorf("token: %w, in project %d; choose another one", ErrExists, t.Project)
	}
	if !c.Cloud.AddToken(token, cloud.Token{Project: project, ReadOnly: readOnly}) {
		return "", noProject(project)
	}
	return token, nil
}

// RevokeToken makes a token invalid.
func (c *Controller) RevokeToken(token string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.Cloud.Token(token); !ok {
		return fmt.Errorf("token %w", ErrNotFound)
	}
	c.Cloud.RevokeToken(token)
	return nil
}

// Limits returns how many resources of each kind a project may own. A kind that is missing has no limit.
func (c *Controller) Limits(project int64) (map[string]int, error) {
	p, ok := c.Cloud.Project(project)
	if !ok {
		return nil, noProject(project)
	}
	all := map[string]int{}
	for kind, n := range p.View().Limits {
		if n > 0 {
			all[string(kind)] = n
		}
	}
	return all, nil
}

// SetLimits replaces the limits of a project.
func (c *Controller) SetLimits(project int64, all map[string]int) error {
	p, ok := c.Cloud.Project(project)
	if !ok {
		return noProject(project)
	}
	limits := cloud.Limits{}
	for kind, n := range all {
		limits[store.Kind(kind)] = n
	}
	return p.SetLimits(limits)
}

// SetTokenDate gives a token an API date of its own. "" takes it away.
func (c *Controller) SetTokenDate(token, date string) error {
	d, err := api.ParseDate(date)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.Cloud.Token(token)
	if !ok {
		return fmt.Errorf("token %w", ErrNotFound)
	}
	t.APIDate = d.Time()
	if !c.Cloud.AddToken(token, t) { // its project was dropped right now
		return fmt.Errorf("token %w", ErrNotFound)
	}
	return nil
}

// checkedToken returns a token that may be made valid. Instead of an empty one, it makes one of 64 letters and digits, like a real token.
func checkedToken(token string) (string, error) {
	if token == "" {
		token = (rand.Text() + rand.Text() + rand.Text())[:64]
	}
	return token, cloud.CheckToken(token)
}

// ReportServerUsage records what a server uses, for its metrics.
func (c *Controller) ReportServerUsage(server int64, u hypervisor.Usage) error {
	err := c.Cloud.ReportServerUsage(server, u)
	if e := (*cloud.Error)(nil); errors.As(err, &e) {
		return fmt.Errorf("server %d %w; GET /state?kind=server lists them", server, ErrNotFound)
	}
	return err
}

// AwaitIdle returns when no action is running in any project.
func (c *Controller) AwaitIdle(ctx context.Context) error {
	for {
		for _, p := range c.Cloud.Projects() {
			if err := p.Await(ctx, idle); err != nil {
				return err
			}
		}
		// An action of one project may have started during the wait for another project.
		if !slices.ContainsFunc(c.Cloud.Projects(), func(p cloud.Project) bool { return !idle(p.View()) }) {
			return nil
		}
	}
}

func idle(st *cloud.State) bool { return st.Actions.Unfinished() == 0 }
