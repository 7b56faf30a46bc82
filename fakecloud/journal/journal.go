// Package journal remembers the requests that a cloud has answered, so that a test can ask what a
// client did and how often.
package journal

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Entry is one request and its answer.
type Entry struct {
	Seq           uint64        `json:"seq"`  // 1 is the first request that was answered
	Time          time.Time     `json:"time"` // when it arrived, on the cloud's clock
	Duration      time.Duration `json:"duration_ns"`
	CorrelationID string        `json:"correlation_id"`
	Method        string        `json:"method"`
	// Route is the pattern, as /servers/{id}; empty when no route matched.
	Route     string `json:"route"`
	Operation string `json:"operation"` // operationId of the API document
	// ResourceID is the id of the resource that the request was about: that in the path, or of what
	// it created, also if the client was not told. 0 if there is none, as for a list. No two resources
	// that were created in a cloud have the same id, whatever their kinds.
	ResourceID int64  `json:"resource_id,omitempty"`
	Path       string `json:"path"`
	Query      string `json:"query,omitempty"`
	// Status is what the client got, 0 if the connection was dropped.
	Status int `json:"status"`
	// Handled is the status that the operation answered with when a fault rule kept that answer
	// from the client: a write whose answer was lost has Status 0 and Handled 201.
	Handled   int    `json:"handled_status,omitempty"`
	ErrorCode string `json:"error_code,omitempty"`
	// Fault is the name of the fault rule that took part.
	Fault    string `json:"fault,omitempty"`
	Project  int64  `json:"project,omitempty"`
	Client   string `json:"client"` // User-Agent
	Remote   string `json:"remote"`
	BytesIn  int64  `json:"bytes_in"`
	BytesOut int64  `json:"bytes_out"`
}

// Journal keeps the latest entries. Its zero value keeps DefaultCapacity of them. Every request of
// the cloud passes through Add, so that it takes no lock; entries are numbered in the order in which
// they were answered.
type Journal struct {
	// Capacity is how many entries are kept; it may be set before the first use.
	Capacity int

	once sync.Once
	ring []atomic.Pointer[Entry]
	seq  atomic.Uint64

	waiting atomic.Int64 // how many Await
	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, by an Add while somebody waits
}

// DefaultCapacity is how many entries a journal keeps unless told otherwise.
const DefaultCapacity = 10_000

func (j *Journal) init() {
	j.once.Do(func() {
		if j.Capacity <= 0 {
			j.Capacity = DefaultCapacity
		}
		j.ring = make([]atomic.Pointer[Entry], j.Capacity)
		j.changed = make(chan struct{})
	})
}

// Add appends an entry and gives it its Seq. The entry must not be changed afterwards.
func (j *Journal) Add(e *Entry) {
	j.init()
	e.Seq = j.seq.Add(1)
	slot := j.slot(e.Seq)
	for {
		old := slot.Load()
		// Whoever was overtaken by a whole round of the ring is too old to be kept.
		if old != nil && old.Seq > e.Seq || slot.CompareAndSwap(old, e) {
			break
		}
	}
	if j.waiting.Load() > 0 {
		j.mu.Lock()
		close(j.changed)
		j.changed = make(chan struct{})
		j.mu.Unlock()
	}
}

func (j *Journal) slot(seq uint64) *atomic.Pointer[Entry] {
	return &j.ring[(seq-1)%uint64(len(j.ring))]
}

// Last returns the Seq of the latest entry, 0 if there was none: what a Filter's Since takes to
// look only at what follows.
func (j *Journal) Last() uint64 { return j.seq.Load() }

// Entries returns the kept entries that match, oldest first.
func (j *Journal) Entries(f Filter) []Entry {
	var out []Entry
	j.scan(f, func(e *Entry) { out = append(out, *e) })
	return out
}

// Count returns how many of the kept entries match.
func (j *Journal) Count(f Filter) int {
	n := 0
	j.scan(f, func(*Entry) { n++ })
	return n
}

func (j *Journal) scan(f Filter, found func(*Entry)) {
	j.init()
	last := j.seq.Load()
	first := uint64(1)
	if kept := uint64(len(j.ring)); last > kept {
		first = last - kept + 1
	}
	for seq := max(first, f.Since+1); seq <= last; seq++ {
		if e := j.slot(seq).Load(); e != nil && e.Seq == seq && f.Matches(e) {
			found(e)
		}
	}
}

// Await returns as soon as at least n kept entries match, with all that do. When the context is
// done first, it returns what matches then and the context's error.
func (j *Journal) Await(ctx context.Context, f Filter, n int) ([]Entry, error) {
	j.init()
	j.waiting.Add(1)
	defer j.waiting.Add(-1)
	for {
		j.mu.Lock()
		changed := j.changed
		j.mu.Unlock()
		if entries := j.Entries(f); len(entries) >= n {
			return entries, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return j.Entries(f), context.Cause(ctx)
		}
	}
}

// Reset forgets all entries. Numbering goes on, so that a Since from before stays right.
func (j *Journal) Reset() {
	j.init()
	for i := range j.ring {
		j.ring[i].Store(nil)
	}
}
