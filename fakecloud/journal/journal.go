// Package journal remembers the requests that a cloud has answered, so that a test can ask what a
// client did and how often.
package journal

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
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

// entryBytes is what an entry takes without its texts.
const entryBytes = 256

// size returns how many bytes of memory an entry takes. It may be called once the entry has been clipped.
func (e *Entry) size() int64 {
	n := len(e.CorrelationID) + len(e.Method) + len(e.Path) + len(e.Query) + len(e.ErrorCode) + len(e.Fault) + len(e.Client) + len(e.Remote)
	return int64(n) + entryBytes
}

// MaxField is the length of the longest text of an entry, in bytes. A longer one is cut and ends with "…".
const MaxField = 2 << 10

// clip cuts texts that are too long. What is left of them is a copy, since a part would keep the whole in
// memory.
func (e *Entry) clip() {
	const end = "…"
	for _, text := range []*string{&e.Method, &e.Path, &e.Query, &e.Client, &e.Fault, &e.Remote, &e.ErrorCode} {
		if len(*text) <= MaxField {
			continue
		}
		cut := MaxField - len(end)
		for cut > 0 && !utf8.RuneStart((*text)[cut]) {
			cut--
		}
		*text = (*text)[:cut] + end
	}
}

// Journal keeps the latest entries, bounded in number and in bytes. Its zero value has the default bounds.
// Every request of the cloud passes through Add, so that it takes no lock; entries are numbered in the order
// in which they were answered.
type Journal struct {
	// Capacity is how many entries are kept at most; 0 is DefaultCapacity. Set it before the first use.
	Capacity int
	// MaxBytes is how much memory the entries take at most; 0 is DefaultMaxBytes. Set it before the first use.
	MaxBytes int64

	once sync.Once
	ring []atomic.Pointer[Entry]
	seq  atomic.Uint64
	// bytes is the size of the entries in the ring, oldest the least Seq that may be there: smaller ones
	// were removed to free memory.
	bytes  atomic.Int64
	oldest atomic.Uint64

	waiting atomic.Int64 // the number of calls of Await
	mu      sync.Mutex
	changed chan struct{} // closed and replaced by an Add during an Await
}

// Bounds of a journal unless told otherwise.
const (
	DefaultCapacity = 10_000
	DefaultMaxBytes = 64 << 20
)

func (j *Journal) init() {
	j.once.Do(func() {
		if j.Capacity <= 0 {
			j.Capacity = DefaultCapacity
		}
		if j.MaxBytes <= 0 {
			j.MaxBytes = DefaultMaxBytes
		}
		j.ring = make([]atomic.Pointer[Entry], j.Capacity)
		j.changed = make(chan struct{})
	})
}

// Add appends an entry and gives it its Seq. It cuts texts that are longer than MaxField. The entry must not
// be changed afterwards.
func (j *Journal) Add(e *Entry) {
	j.init()
	e.clip()
	e.Seq = j.seq.Add(1)
	slot := j.slot(e.Seq)
	for {
		old := slot.Load()
		if old != nil && old.Seq > e.Seq { // overtaken by a whole round of the ring: too old to be kept
			break
		}
		if slot.CompareAndSwap(old, e) {
			size := e.size()
			if old != nil {
				size -= old.size()
			}
			j.bytes.Add(size)
			break
		}
	}
	j.shrink()
	if e.Seq < j.oldest.Load() { // removed before it was there
		j.remove(e.Seq)
	}
	if j.waiting.Load() > 0 {
		j.mu.Lock()
		close(j.changed)
		j.changed = make(chan struct{})
		j.mu.Unlock()
	}
}

// shrink removes the oldest entries until the rest is within MaxBytes.
func (j *Journal) shrink() {
	for j.bytes.Load() > j.MaxBytes {
		oldest, last := j.oldest.Load(), j.seq.Load()
		first := max(oldest, j.first(last))
		if first > last {
			return
		}
		if j.oldest.CompareAndSwap(oldest, first+1) {
			j.remove(first)
		}
	}
}

// remove removes the entry with a Seq, if it is there.
func (j *Journal) remove(seq uint64) {
	slot := j.slot(seq)
	if e := slot.Load(); e != nil && e.Seq == seq && slot.CompareAndSwap(e, nil) {
		j.bytes.Add(-e.size())
	}
}

// first returns the least Seq for which the ring has room when last is the greatest.
func (j *Journal) first(last uint64) uint64 {
	if kept := uint64(len(j.ring)); last > kept {
		return last - kept + 1
	}
	return 1
}

// Bytes returns how much memory the entries take.
func (j *Journal) Bytes() int64 { return j.bytes.Load() }

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
	for seq := max(j.first(last), j.oldest.Load(), f.Since+1); seq <= last; seq++ {
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

// Reset removes all entries. Numbering continues, so that a Since from before stays right.
func (j *Journal) Reset() {
	j.init()
	for i := range j.ring {
		if e := j.ring[i].Swap(nil); e != nil {
			j.bytes.Add(-e.size())
		}
	}
}
