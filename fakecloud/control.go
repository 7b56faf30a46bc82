package fakecloud

import (
	"context"
	"fmt"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/journal"
)

// Journal is what a cloud remembers of the latest requests.
type Journal = journal.Journal

// JournalFilter selects entries of a [Journal]; its empty fields select all.
type JournalFilter = journal.Filter

// JournalEntry is one request in a [Journal], and its answer.
type JournalEntry = journal.Entry

// Journal returns the requests that the cloud has answered, with methods to select, count and await
// them.
func (c *Cloud) Journal() *Journal { return c.journal }

// Parts of the cloud that [Cloud.Reset] can keep.
const (
	KeepResources = "resources"
	KeepJournal   = "journal"
	KeepFaults    = "faults"
	KeepRateLimit = "rate_limit"
)

// Reset starts the cloud over: no resources and actions, an empty journal, no fault rules, full
// rate limits, except what keep names. Projects, tokens, the clock, and how long actions take stay as they
// are; ids are not used again. It panics if keep names something else.
func (c *Cloud) Reset(keep ...string) {
	if err := c.controller.Reset(keep...); err != nil {
		panic("fakecloud: " + err.Error())
	}
}

// Now returns the cloud's time, in UTC.
func (c *Cloud) Now() time.Time { return c.cloud.Now() }

// Step moves the cloud's clock forward. What is due by then is done when it returns. It returns
// an error if d is negative, or if Options.Clock has no method Step.
func (c *Cloud) Step(d time.Duration) error { return c.controller.Step(d) }

// SetSpeed makes the cloud's clock run faster or slower than the machine's: 60 makes a minute pass
// in a second, 0 stops it. It returns an error if Options.Clock was given.
func (c *Cloud) SetSpeed(x float64) error { return c.controller.SetSpeed(x) }

// SetProfile changes how long the actions take that start from now on: "instant", "realistic", or a
// duration such as "250ms".
func (c *Cloud) SetProfile(actions string) error { return c.controller.SetProfile(actions) }

// SetRateLimit changes how many requests per hour each project may make, 0 for any number, and
// fills up what has been used.
func (c *Cloud) SetRateLimit(perHour int) error { return c.controller.SetRateLimit(perHour) }

// ResumeActions ends the actions that [HangAction] keeps running, as they would have ended without
// it, and returns how many there were.
func (c *Cloud) ResumeActions() int { return c.cloud.ResumeActions() }

// DefaultProject is the id of the project that every cloud begins with.
const DefaultProject int64 = 1

// AddProject creates a project and a token for it; "" stands for a new token, which is returned.
// Projects see nothing of each other. It returns an error if there is a project of that name or if
// the token is another project's.
func (c *Cloud) AddProject(name, token string) (id int64, newToken string, err error) {
	p, err := c.controller.AddProject(name)
	if err != nil {
		return 0, "", err
	}
	newToken, err = c.controller.AddToken(p.ID(), token, false)
	return p.ID(), newToken, err
}

// AddToken makes a token of a project valid; "" stands for a new one, which is returned. A
// read-only token may only be used for GET requests.
func (c *Cloud) AddToken(project int64, token string, readOnly bool) (string, error) {
	return c.controller.AddToken(project, token, readOnly)
}

// RevokeToken makes a token invalid. It returns an error if it is not valid.
func (c *Cloud) RevokeToken(token string) error { return c.controller.RevokeToken(token) }

// Event tells of one change of one resource.
type Event = cloud.Event

// EventType says what happened to a resource.
type EventType = cloud.EventType

// The types of events.
const (
	EventCreated = cloud.EventCreated
	EventUpdated = cloud.EventUpdated
	EventDeleted = cloud.EventDeleted
)

// Kind names a type of resource, as "server" or "load_balancer".
type Kind = cloud.Kind

// Subscription is a queue of events: Next waits for the next one, Close ends it.
type Subscription = cloud.Subscription

// Subscribe returns all changes of all projects from now on. None is lost, so that whoever
// subscribes has to read, or Close.
func (c *Cloud) Subscribe() *Subscription {
	sub, _ := c.cloud.Subscribe()
	return sub
}

// AwaitEvent returns the first event from now on for which match returns true. Subscribe first,
// and use [Subscription.Next], where what causes the event could be over before the call.
func (c *Cloud) AwaitEvent(ctx context.Context, match func(Event) bool) (Event, error) {
	sub := c.Subscribe()
	defer sub.Close()
	for {
		e, err := sub.Next(ctx)
		if err != nil || match(e) {
			return e, err
		}
	}
}

// AwaitIdle returns when no action is running in any project, or with the context's error. With a
// clock that stands still, somebody has to step it.
func (c *Cloud) AwaitIdle(ctx context.Context) error {
	if err := c.controller.AwaitIdle(ctx); err != nil {
		return fmt.Errorf("actions are still running: %w", err)
	}
	return nil
}
