package fakecloud

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/cloud"
)

// The types of events.
const (
	EventCreated = "created"
	EventUpdated = "updated"
	EventDeleted = "deleted"
)

// Event is a change of one resource.
type Event struct {
	// Seq numbers the events of a cloud.
	Seq uint64
	// Time is when the change happened, on the cloud's clock.
	Time time.Time
	// Project is the id of the resource's project.
	Project int64
	// Type is EventCreated, EventUpdated or EventDeleted.
	Type string
	// Kind is the kind of the resource in the API's words: "server", "load_balancer", "action" and so on.
	Kind string
	// ID is the id of the resource.
	ID int64
	// Resource is the resource after the change, as the API shows it: the JSON of a schema.Server of hcloud-go, for
	// example. It is nil for EventDeleted.
	Resource json.RawMessage
}

// Subscription is a queue of events. It loses no event: it grows until its events are read.
type Subscription struct {
	cloud *Cloud
	sub   *cloud.Subscription
}

// Subscribe returns a subscription to the changes of all projects from now on. Read it or close it.
func (c *Cloud) Subscribe() *Subscription {
	sub, _ := c.api.Subscribe()
	return &Subscription{c, sub}
}

// Next waits for the next event and returns it. Errors: ErrClosed if the subscription or the cloud is closed, the
// context's.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	e, err := s.sub.Next(ctx)
	if errors.Is(err, cloud.ErrClosed) {
		err = ErrClosed
	}
	if err != nil {
		return Event{}, err
	}
	return s.cloud.event(e), nil
}

// Close ends the subscription.
func (s *Subscription) Close() { s.sub.Close() }

// AwaitEvent returns the first event from now on for which match returns true. If the event may happen before the
// call, Subscribe earlier and use [Subscription.Next].
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

// event returns an event of the core in the public form. Its resource is in the state right after the event.
func (c *Cloud) event(e cloud.Event) Event {
	return Event{
		Seq: e.Seq, Time: e.Time, Project: e.Project, Type: string(e.Type), Kind: string(e.Kind), ID: e.ID,
		Resource: c.api.EventResource(&e),
	}
}
