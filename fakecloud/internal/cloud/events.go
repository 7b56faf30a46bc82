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

// Event tells of one change of one resource. Events of one transaction follow each other.
type Event struct {
	Seq     uint64
	Time    time.Time
	Project int64
	Type    EventType
	Kind    Kind
	ID      int64
	// Old and New are the resource before and after (a *Server for KindServer, and so on), nil where it did
	// not exist. They must not be changed.
	Old, New any
	// State is the whole project right after the change. It costs a pointer: states share what has not
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
		if c.old == nil && c.new == nil { // came and went within one transaction
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

// Subscription is a queue of events. It never loses one and never makes the cloud wait, so a
// subscriber that does not read makes it grow.
type Subscription struct {
	cloud  *Cloud
	mu     sync.Mutex
	queue  []Event
	signal chan struct{}
	ended  bool
}

// Subscribe returns a subscription to all changes from now on and the states of all projects at
// exactly that moment, by project id.
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

// Next returns the next event, waiting for it if need be. It returns ErrClosed after the last
// event of a closed subscription, and the context's error when that is done first.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	events, err := s.take(ctx, 1)
	if err != nil {
		return Event{}, err
	}
	return events[0], nil
}

// NextAll is Next for all events that have happened, at least one. A subscriber to which only the last
// state of a resource matters uses it to skip those before.
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
