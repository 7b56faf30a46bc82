// Package journal remembers the requests that a cloud has answered, so that a test can ask what a
// client did and how often.
package journal

import (
	"sync"
	"time"
)

// Entry is one request and its answer.
type Entry struct {
	Seq           uint64        `json:"seq"`
	Time          time.Time     `json:"time"` // on the cloud's clock
	Duration      time.Duration `json:"duration_ns"`
	CorrelationID string        `json:"correlation_id"`
	Method        string        `json:"method"`
	// Route is the pattern, as /servers/{id}; empty when no route matched.
	Route     string `json:"route"`
	Operation string `json:"operation"` // operationId of the API document
	Path      string `json:"path"`
	Query     string `json:"query,omitempty"`
	Status    int    `json:"status"` // 0: the connection was dropped
	ErrorCode string `json:"error_code,omitempty"`
	// Fault is the name of the fault rule that took part.
	Fault    string `json:"fault,omitempty"`
	Project  int64  `json:"project,omitempty"`
	Client   string `json:"client"` // User-Agent
	Remote   string `json:"remote"`
	BytesIn  int64  `json:"bytes_in"`
	BytesOut int64  `json:"bytes_out"`
}

// Filter selects entries. Empty fields match everything.
type Filter struct {
	Method, Route, Operation string
	Status                   int
	// Client is a part of the User-Agent.
	Client string
	// Since selects entries with a greater Seq.
	Since uint64
	// Writes selects what changes something: everything but GET and HEAD.
	Writes bool
}

// Journal keeps the latest entries and counts all. Its zero value keeps DefaultCapacity entries.
type Journal struct {
	Capacity int

	mu      sync.Mutex
	seq     uint64
	ring    []Entry
	changed chan struct{}
}

// DefaultCapacity is how many entries a journal keeps unless told otherwise.
const DefaultCapacity = 10_000

// Add appends an entry and gives it its Seq.
func (j *Journal) Add(e Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	e.Seq = j.seq
	if j.Capacity <= 0 {
		j.Capacity = DefaultCapacity
	}
	if len(j.ring) < j.Capacity {
		j.ring = append(j.ring, e)
	} else {
		j.ring[int((e.Seq-1)%uint64(j.Capacity))] = e
	}
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}
