package cloud

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/ccm-from-scratch/ccm-from-scratch/fakecloud/internal/store"
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
	Kind    store.Kind
	ID      int64
	// Old and New are the resource before and after the change, such as a *Server for KindServer. Old is nil
	// if it was created, New is nil if it was deleted. They must not be changed.
	Old, New any
	// Servers are the ascending ids of the servers that may be other targets of the load balancer's label selectors or of the firewall now.
	Servers []int64
	// State is the whole project after all events of the batch: see [Subscription.NextBatch]. It is the state right after the event
	// only while the event is encoded for [Cloud.SubscribeEncoded]. It needs little memory: states share what has not changed.
	State *State

	text *eventText
}

// eventText is an event's encoded form, shared by all subscribers. It is garbage, like the event, once the last of them takes it.
type eventText struct {
	once    sync.Once
	encoded []byte
}

// Encoded returns the event's encoded form. [Cloud.SubscribeEncoded] encodes the state right after the event. Without it, the first call of
// Encoded calls encode for all subscribers: all must use the same function. The result must not be changed.
func (e *Event) Encoded(encode func(*Event) []byte) []byte {
	e.text.once.Do(func() { e.text.encoded = encode(e) })
	return e.text.encoded
}

// ErrClosed is returned by Subscription.Next when the subscription or the cloud is closed.
var ErrClosed = errors.New("cloud: subscription closed")

// eventHub hands events to subscribers. It is guarded by Cloud.mu.
type eventHub struct {
	seq         uint64
	subscribers int
	encoded     int                 // how many of them are of SubscribeEncoded
	encode      func(*Event) []byte // theirs
	closed      bool
	next        []Event     // not yet published
	text        int         // the length of what was encoded of them
	last        *eventBatch // the one that the next events will be in
}

// eventBatch holds events that are published at once. Batches are a list that all subscribers share: a subscriber has only a place in it,
// so that events cost the same for any number of subscribers. Batches before the slowest subscriber are garbage.
type eventBatch struct {
	events []Event
	next   *eventBatch
	ready  chan struct{} // closed when the fields above are set
}

func newEventBatch() *eventBatch { return &eventBatch{ready: make(chan struct{})} }

// add adds the changes of a transaction since the last call to the next events. If it continues, it encodes them, because they are to
// show the state of now.
func (h *eventHub) add(tx *Tx, continues bool) {
	if h.subscribers == 0 || h.closed {
		return
	}
	if n := len(tx.log.Changes); cap(h.next)-len(h.next) < n {
		h.next = slices.Grow(h.next, max(n, len(h.next)))
	}
	var servers map[int64][]int64 // by load balancer or firewall
	if len(tx.targets) > 0 {
		servers = map[int64][]int64{}
		for _, t := range tx.targets {
			servers[t.owner] = append(servers[t.owner], t.server)
		}
		for owner, ids := range servers {
			slices.Sort(ids)
			servers[owner] = slices.Compact(ids)
		}
	}
	texts := make([]eventText, len(tx.log.Changes))
	for i, c := range tx.log.Changes {
		if unseen(&c) {
			continue
		}
		h.seq++
		h.next = append(h.next, Event{
			Seq: h.seq, Time: tx.now, Project: tx.project.id, Kind: c.Kind, ID: c.ID, Old: c.Old, New: c.New, State: tx.State,
			Type: EventUpdated, Servers: servers[c.ID], text: &texts[i],
		})
		e := &h.next[len(h.next)-1]
		switch {
		case c.Old == nil:
			e.Type = EventCreated
		case c.New == nil:
			e.Type = EventDeleted
		}
		if continues && h.encoded > 0 {
			h.text += len(e.Encoded(h.encode))
		}
	}
}

// unseen reports whether clients cannot see a change: the resource was created and deleted, or it is an action that still runs, such as one
// that waited for another and begins.
func unseen(c *store.Change) bool {
	if c.Old == nil && c.New == nil {
		return true
	}
	before, _ := c.Old.(*Action)
	now, _ := c.New.(*Action)
	return before != nil && now != nil && now.Status == ActionRunning
}

// take returns the events that were added.
func (h *eventHub) take() []Event {
	events := h.next
	h.next, h.text = nil, 0
	return events
}

// publish hands on events.
func (h *eventHub) publish(events []Event) {
	if len(events) == 0 {
		return
	}
	b := h.last
	b.events, b.next = events, newEventBatch()
	h.last = b.next
	close(b.ready)
}

// close ends all subscriptions: the last batch stays empty.
func (h *eventHub) close() {
	if !h.closed {
		h.closed = true
		close(h.last.ready)
	}
}

// Subscription is a queue of events. It never loses an event and never makes the cloud wait, so it
// grows while the subscriber does not read.
type Subscription struct {
	// Since is the Seq of the latest event before the subscription.
	Since   uint64
	cloud   *Cloud
	encoded bool
	once    sync.Once
	closed  chan struct{}

	mu    sync.Mutex  // guards the fields below
	at    *eventBatch // nil after Close, so that it keeps no events in memory
	taken int         // how many events of that batch were taken
}

// Subscribe returns a subscription to all changes from now on, and the current states of all projects
// by project id.
func (c *Cloud) Subscribe() (*Subscription, map[int64]*State) { return c.SubscribeEncoded(nil) }

// SubscribeEncoded is Subscribe for who shows the events: [Event.Encoded] returns what encode makes of the event and of the state right
// after it. All must use the same function. It is called during a write, so it must not call the cloud, except for its clock.
func (c *Cloud) SubscribeEncoded(encode func(*Event) []byte) (*Subscription, map[int64]*State) {
	c.mu.Lock()
	s := &Subscription{Since: c.events.seq, cloud: c, encoded: encode != nil, closed: make(chan struct{}), at: c.events.last}
	if s.encoded {
		c.events.encode = encode
		c.events.encoded++
	}
	c.events.subscribers++
	states := map[int64]*State{}
	for d := range c.projects.Load().Scan {
		states[d.id] = d.state.Load()
	}
	round := c.saver.next()
	c.mu.Unlock()
	_ = round.wait() // the states are not seen before they are saved
	return s, states
}

// EventCounts returns how many events there were, and how many subscriptions are open.
func (c *Cloud) EventCounts() (events uint64, subscribers int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.events.seq, c.events.subscribers
}

// Next waits for the next event and returns it. It returns ErrClosed if the subscription is closed, or after the last event of a
// closed cloud. If the context ends first, it returns the context's error.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	events, _, err := s.take(ctx, 1)
	if err != nil {
		return Event{}, err
	}
	return events[0], nil
}

// NextBatch waits for at least one event and returns the next ones. They must not be changed. more reports whether more events are waiting.
func (s *Subscription) NextBatch(ctx context.Context) (events []Event, more bool, err error) {
	return s.take(ctx, math.MaxInt)
}

// NextAll waits for at least one event and returns all events that have happened. With it, a subscriber
// can skip to the last state of a resource.
func (s *Subscription) NextAll(ctx context.Context) ([]Event, error) {
	events, more, err := s.NextBatch(ctx)
	all := slices.Clip(events)
	for more {
		events, more, _ = s.poll(math.MaxInt)
		all = append(all, events...)
	}
	return all, err
}

// take waits for an event and returns up to n of its batch.
func (s *Subscription) take(ctx context.Context, n int) (events []Event, more bool, err error) {
	for {
		events, more, wait := s.poll(n)
		if len(events) > 0 {
			return events, more, nil
		}
		if wait == nil {
			return nil, false, ErrClosed
		}
		select {
		case <-wait:
		case <-s.closed:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// poll returns up to n of the waiting events, all of one batch, and reports whether more are waiting. Without events, it returns a channel
// to wait for, or nil after the end of the events.
func (s *Subscription) poll(n int) (events []Event, more bool, wait <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		return nil, false, nil
	}
	if !isClosed(s.at.ready) {
		return nil, false, s.at.ready
	}
	if s.at.next == nil { // the cloud is closed
		return nil, false, nil
	}
	if e := s.at.events; e[len(e)-1].Seq <= s.Since { // they were not saved yet when the subscription began
		s.at = s.at.next
		return nil, false, s.at.ready
	}
	events = s.at.events[s.taken:]
	events = events[:min(n, len(events))]
	if s.taken += len(events); s.taken == len(s.at.events) {
		s.at, s.taken = s.at.next, 0
	}
	return events, s.taken > 0 || isClosed(s.at.ready) && s.at.next != nil, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Close ends the subscription.
func (s *Subscription) Close() {
	s.once.Do(func() {
		s.cloud.mu.Lock()
		s.cloud.events.subscribers--
		if s.encoded {
			s.cloud.events.encoded--
		}
		s.cloud.mu.Unlock()
		s.mu.Lock()
		s.at = nil
		s.mu.Unlock()
		close(s.closed)
	})
}
