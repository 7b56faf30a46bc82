package cloud

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"
)

// EventType says what happened to a resource.
type EventType string

// The types of events.
const (
	EventCreated EventType = "created"
	EventUpdated EventType = "updated"
	EventDeleted EventType = "deleted"
)

// Event is one change of one resource. The events of one transaction follow each other.
type Event struct {
	Seq     uint64
	Time    time.Time
	Project int64
	Type    EventType
	Kind    Kind
	ID      int64
	// Old and New are the resource before and after the change, such as a *Server for KindServer. Old is nil
	// if it was created, New is nil if it was deleted. They must not be changed.
	Old, New any
	// State is the whole project after the transaction. It needs little memory: states share what has not
	// changed.
	State *State
}

// ErrClosed is returned by Subscription.Next when the subscription or the cloud is closed.
var ErrClosed = errors.New("cloud: subscription closed")

// eventHub hands events to subscribers. It is guarded by Cloud.mu.
type eventHub struct {
	seq    uint64
	subs   map[*Subscription]struct{}
	closed bool
}

func (h *eventHub) publish(now time.Time, project int64, after *State, changes []change) {
	if len(changes) == 0 || len(h.subs) == 0 {
		return
	}
	batch := make([]Event, 0, len(changes))
	for _, c := range changes {
		if c.old == nil && c.new == nil { // created and deleted in one transaction
			continue
		}
		h.seq++
		e := Event{Seq: h.seq, Time: now, Project: project, Kind: c.kind, ID: c.id, Old: c.old, New: c.new, State: after, Type: EventUpdated}
		switch {
		case c.old == nil:
			e.Type = EventCreated
		case c.new == nil:
			e.Type = EventDeleted
		}
		batch = append(batch, e)
	}
	for s := range h.subs {
		s.push(batch)
	}
}

func (h *eventHub) close() {
	h.closed = true
	for s := range h.subs {
		s.end()
	}
	h.subs = nil
}

// Subscription is a queue of events. It never loses an event and never makes the cloud wait, so it
// grows while the subscriber does not read.
type Subscription struct {
	cloud  *Cloud
	mu     sync.Mutex
	queue  []Event
	signal chan struct{}
	ended  bool
}

// Subscribe returns a subscription to all changes from now on, and the current states of all projects
// by project id.
func (c *Cloud) Subscribe() (*Subscription, map[int64]*State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &Subscription{cloud: c, signal: make(chan struct{}, 1), ended: c.events.closed}
	if c.events.subs == nil {
		c.events.subs = map[*Subscription]struct{}{}
	}
	if !s.ended {
		c.events.subs[s] = struct{}{}
	}
	states := map[int64]*State{}
	for id, d := range *c.projects.Load() {
		states[id] = d.state.Load()
	}
	return s, states
}

// Next waits for the next event and returns it. It returns ErrClosed after the last event of a closed
// subscription. If the context ends first, it returns the context's error.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	events, err := s.take(ctx, 1)
	if err != nil {
		return Event{}, err
	}
	return events[0], nil
}

// NextAll waits for at least one event and returns all events that have happened. With it, a subscriber
// can skip to the last state of a resource.
func (s *Subscription) NextAll(ctx context.Context) ([]Event, error) {
	return s.take(ctx, math.MaxInt)
}

// take waits for an event and returns up to n.
func (s *Subscription) take(ctx context.Context, n int) ([]Event, error) {
	for {
		s.mu.Lock()
		if n := min(n, len(s.queue)); n > 0 {
			events := slices.Clone(s.queue[:n])
			clear(s.queue[:n]) // an event keeps a state in memory
			s.queue = s.queue[n:]
			s.mu.Unlock()
			return events, nil
		}
		ended := s.ended
		s.mu.Unlock()
		if ended {
			return nil, ErrClosed
		}
		select {
		case <-s.signal:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.cloud.mu.Lock()
	delete(s.cloud.events.subs, s)
	s.cloud.mu.Unlock()
	s.end()
}

func (s *Subscription) push(batch []Event) {
	s.mu.Lock()
	s.queue = append(s.queue, batch...)
	s.mu.Unlock()
	s.notify()
}

func (s *Subscription) end() {
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.notify()
}

func (s *Subscription) notify() {
	select {
	case s.signal <- struct{}{}:
	default:
	}
}
