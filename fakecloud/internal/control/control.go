// Package control is what a test or a person does to a cloud that its clients cannot: look at its
// whole state and its journal, make it misbehave, move its clock, start it over. [Controller] is
// that as Go methods, [Server] as HTTP on a listener of its own.
package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/api"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/requestlog"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/simclock"
)

// Controller controls one cloud. Its methods may be called from several goroutines.
type Controller struct {
	Cloud   *cloud.Cloud
	API     *api.API
	Journal *requestlog.Log
	// AllowedHosts are names that the control API accepts in addition to loopback names and addresses.
	AllowedHosts []string
	// Endpoints, if set, returns where load balancers listen on this machine.
	Endpoints func() []LoadBalancerEndpoint
	// Ready, if set, tells whether clients can be let in.
	Ready func() bool

	mu        sync.Mutex // guards what follows, and AddProject
	actions   string
	rateLimit int
}

// New returns a controller. actions and rateLimit are what the cloud and the API began with.
func New(c *cloud.Cloud, a *api.API, j *requestlog.Log, actions string, rateLimit int) *Controller {
	return &Controller{Cloud: c, API: a, Journal: j, actions: actions, rateLimit: rateLimit}
}

// Parts of what Reset does.
const (
	ResetResources = "resources"
	ResetJournal   = "journal"
	ResetFaults    = "faults"
	ResetRateLimit = "rate_limit"
)

var resetParts = []string{ResetResources, ResetJournal, ResetFaults, ResetRateLimit}

// Reset starts the cloud over: it removes all resources and actions, empties the journal, removes
// all fault rules and fills the rate limits, except what keep names. Projects, tokens, the
// clock, and how long actions take stay as they are.
func (c *Controller) Reset(keep ...string) error {
	for _, k := range keep {
		if !slices.Contains(resetParts, k) {
			return fmt.Errorf("keep: unknown part %.64q: there are %s", k, strings.Join(resetParts, ", "))
		}
	}
	// Faults first, so that none takes part in what a client does right after.
	if !slices.Contains(keep, ResetFaults) {
		_ = c.API.Faults().Clear(context.Background()) // returns no error
	}
	if !slices.Contains(keep, ResetResources) {
		c.Cloud.Reset()
	}
	if !slices.Contains(keep, ResetRateLimit) {
		c.mu.Lock()
		c.API.SetRateLimit(c.rateLimit)
		c.mu.Unlock()
	}
	if !slices.Contains(keep, ResetJournal) {
		_ = c.Journal.Reset(context.Background()) // returns no error
	}
	return nil
}

// ErrClock is the error of what the cloud's clock cannot do, because it was given one that has no
// such method.
var ErrClock = errors.New("the clock that this cloud was given cannot do that")

// Step moves the clock forward and does what is due by then, before it returns.
func (c *Controller) Step(d time.Duration) error {
	switch clk := c.Cloud.Clock().(type) {
	case *simclock.Clock:
		if err := clk.Step(d); err != nil {
			return err
		}
	case interface{ Step(time.Duration) }: // k8s.io/utils/clock/testing
		if d < 0 {
			return fmt.Errorf("clock step %v: want 0 or more", d)
		}
		clk.Step(d)
	default:
		return fmt.Errorf("step: %w", ErrClock)
	}
	c.Cloud.Settle()
	return nil
}

// SetSpeed makes the clock run faster or slower than the machine's; 0 stops it.
func (c *Controller) SetSpeed(x float64) error {
	clk, ok := c.Cloud.Clock().(*simclock.Clock)
	if !ok {
		return fmt.Errorf("speed: %w", ErrClock)
	}
	return clk.SetSpeed(x)
}

// Speed returns the clock's speed; that of a clock that was given is taken to be 1, except that
// one which moves by steps only stands still.
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

// SetProfile changes how long the actions take that start from now on: "instant", "realistic" or a
// duration.
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

// Profile returns how long actions take, as SetProfile takes it.
func (c *Controller) Profile() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.actions
}

// maxRateLimit keeps a bucket's size and a header's number within an int32.
const maxRateLimit = 1_000_000_000

// SetRateLimit changes how many requests per hour each project may make, 0 for any number, and
// fills what has been used.
func (c *Controller) SetRateLimit(perHour int) error {
	if perHour < 0 || perHour > maxRateLimit {
		return fmt.Errorf("rate limit %d: want 0 (none) to %d requests per hour", perHour, maxRateLimit)
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

// ErrExists is the error of creating what exists, ErrNotFound that of naming what does not.
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

// AddProject creates a project without resources and tokens.
func (c *Controller) AddProject(name string) (cloud.Project, error) {
	if name == "" || len(name) > 128 {
		return cloud.Project{}, errors.New("name of a project: want 1 to 128 characters")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.Project(name); ok {
		return cloud.Project{}, fmt.Errorf("project %q %w", name, ErrExists)
	}
	return c.Cloud.AddProject(name), nil
}

// AddToken makes a token of a project valid and returns it; "" stands for a new one.
func (c *Controller) AddToken(project int64, token string, readOnly bool) (string, error) {
	if _, ok := c.Cloud.Project(project); !ok {
		return "", fmt.Errorf("project %d %w", project, ErrNotFound)
	}
	if token == "" {
		token = newToken()
	}
	if err := CheckToken(token); err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t, ok := c.Cloud.Token(token); ok && t.Project != project {
		return "", fmt.Errorf("token: %w, in project %d", ErrExists, t.Project)
	}
	c.Cloud.AddToken(token, cloud.Token{Project: project, ReadOnly: readOnly})
	return token, nil
}

// CheckToken returns an error for what cannot be sent as a token.
func CheckToken(token string) error {
	if token == "" || len(token) > 256 || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("token: want 1 to 256 ASCII characters without spaces (real ones are 64 letters and digits)")
	}
	return nil
}

// RevokeToken makes a token invalid.
func (c *Controller) RevokeToken(token string) error {
	if _, ok := c.Cloud.Token(token); !ok {
		return fmt.Errorf("token %w", ErrNotFound)
	}
	c.Cloud.RevokeToken(token)
	return nil
}

// newToken returns 64 letters and digits, as real tokens have.
func newToken() string {
	return (rand.Text() + rand.Text() + rand.Text())[:64]
}

// AwaitIdle returns when no action is running in any project.
func (c *Controller) AwaitIdle(ctx context.Context) error {
	for {
		for _, p := range c.Cloud.Projects() {
			if err := p.Await(ctx, idle); err != nil {
				return err
			}
		}
		// An action of one project may have started while another was waited for.
		if !slices.ContainsFunc(c.Cloud.Projects(), func(p cloud.Project) bool { return !idle(p.View()) }) {
			return nil
		}
	}
}

func idle(st *cloud.State) bool {
	for a := range st.Actions.All() {
		if a.Status == cloud.ActionRunning {
			return false
		}
	}
	return true
}
